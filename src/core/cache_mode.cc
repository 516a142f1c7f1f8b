#include "tilewright/cache_mode.h"

#include <array>
#include <string>
#include <utility>

#include "core/text.h"

namespace tilewright {
namespace {

constexpr std::array<std::pair<CacheMode, std::string_view>, 6> kCacheModes = {{
    {CacheMode::kNormal, "normal"},
    {CacheMode::kReadonly, "readonly"},
    {CacheMode::kOffline, "offline"},
    {CacheMode::kStrict, "strict"},
    {CacheMode::kVerify, "verify"},
    {CacheMode::kRefresh, "refresh"},
}};

}  // namespace

std::string_view CacheModeName(CacheMode mode) {
  for (const auto& [value, name] : kCacheModes) {
    if (value == mode) return name;
  }
  return "normal";
}

Result<CacheMode> ParseCacheMode(std::string_view word) {
  std::string known;
  for (const auto& [value, name] : kCacheModes) {
    if (name == word) return value;
    known.append(known.empty() ? "" : ", ").append(name);
  }
  return Fail(ErrorCode::kInvalidArgument,
              Format("unknown cache mode '{}'; known are {}", word, known));
}

}  // namespace tilewright
