#pragma once

#include <string>
#include <string_view>

#include "tilewright/log.h"

namespace tilewright {

/// Whether a message of this level would reach a sink; check before building an expensive message.
/// One relaxed load.
bool LogEnabled(LogLevel level);

/// Passes the message to the sink, if there is one and it accepts the level. Not for the launch
/// path: takes a lock.
void Log(LogLevel level, std::string_view message);

inline void LogDebug(std::string_view message) { Log(LogLevel::kDebug, message); }
inline void LogInfo(std::string_view message) { Log(LogLevel::kInfo, message); }
inline void LogWarning(std::string_view message) { Log(LogLevel::kWarning, message); }
inline void LogError(std::string_view message) { Log(LogLevel::kError, message); }

}  // namespace tilewright
