#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tilewright {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

/// "debug", "info", "warning", "error", "off".
std::string_view LogLevelName(LogLevel level);
std::optional<LogLevel> ParseLogLevel(std::string_view name);

/// Where the library's messages go. The library never prints; without a sink messages are dropped.
/// `write` is called on the thread that logs, by one thread at a time; it must not log or throw.
struct LogSink {
  void (*write)(void* context, LogLevel level, std::string_view message) = nullptr;
  void* context = nullptr;
  LogLevel level = LogLevel::kWarning;  ///< messages below this level are never formatted
};

/// Replaces the process-wide sink and returns the previous one, which is not called again once this
/// has returned. Thread-safe.
LogSink SetLogSink(LogSink sink);

}  // namespace tilewright
