#pragma once

#include <optional>
#include <string>

namespace tilewright {

/// The value of an environment variable; nullopt if it is unset or empty. The only place where the
/// library reads the environment; called during preparation only, never on the launch path. Not
/// safe while another thread calls setenv.
std::optional<std::string> GetEnv(const char* name);

}  // namespace tilewright
