#pragma once

#include <optional>
#include <string>

namespace tilewright {

/// The value of an environment variable; nothing when unset or empty. The one place in the library
/// that reads the environment, called only while preparing, never on the launch path. Not safe
/// beside a thread that calls setenv.
std::optional<std::string> GetEnv(const char* name);

}  // namespace tilewright
