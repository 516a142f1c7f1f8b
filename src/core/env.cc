#include "core/env.h"

#include <cstdlib>

namespace tilewright {

std::optional<std::string> GetEnv(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): documented above
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace tilewright
