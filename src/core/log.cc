#include "core/log.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace tilewright {
namespace {

struct State {
  std::mutex mutex;
  LogSink sink;
  std::atomic<LogLevel> level{LogLevel::kOff};
};

State& TheState() {
  // Never destroyed, since messages may arrive while the process shuts down. The lock is held
  // around fork: the child of a fork during another thread's Log could otherwise never log.
  static State& state = *[] {
    auto* const made = new State;
    pthread_atfork([] { TheState().mutex.lock(); }, [] { TheState().mutex.unlock(); },
                   [] { TheState().mutex.unlock(); });
    return made;
  }();
  return state;
}

constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};

}  // namespace

std::string_view LogLevelName(LogLevel level) { return kNames[static_cast<int>(level) % 5]; }

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (int i = 0; i < 5; ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

LogSink SetLogSink(LogSink sink) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const LogSink before = state.sink;
  state.sink = sink;
  state.level.store(sink.write != nullptr ? sink.level : LogLevel::kOff, std::memory_order_relaxed);
  return before;
}

bool LogEnabled(LogLevel level) {
  return level != LogLevel::kOff && level >= TheState().level.load(std::memory_order_relaxed);
}

void Log(LogLevel level, std::string_view message) {
  if (!LogEnabled(level)) return;
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (state.sink.write != nullptr && level >= state.sink.level) {
    state.sink.write(state.sink.context, level, message);
  }
}

}  // namespace tilewright
