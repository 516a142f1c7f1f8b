#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tilewright {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

/// "debug", "info", "warning", "error", "off".
std::string_view LogLevelName(LogLevel level);
std::optional<LogLevel> ParseLogLevel(std::string_view name);

/// Where messages of the library go. The library never prints; without a sink messages are dropped.
/// `write` is called by whichever thread has something to say, by one thread at a time; it must not
/// log and must not throw.
struct LogSink {
  void (*write)(void* context, LogLevel level, std::string_view message) = nullptr;
  void* context = nullptr;
  LogLevel level = LogLevel::kWarning;  ///< messages below this level are not made
};

/// Replaces the sink of the process; returns the one before. When it returns, the old sink is
/// called no more. Thread-safe.
LogSink SetLogSink(LogSink sink);

}  // namespace tilewright
