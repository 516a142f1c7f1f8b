#pragma once

#include <cstdint>
#include <string_view>

#include "tilewright/result.h"

namespace tilewright {

/// How the results of earlier runs (tuning records and compiled artifacts) may be used.
enum class CacheMode : std::uint8_t {
  kNormal,    ///< read and write
  kReadonly,  ///< read; compile what is missing, but keep it in memory only
  /// Compiled kernels as kNormal, but skip layers that may be on another machine (the shared
  /// folder); records as kReadonly.
  kOffline,
  /// Read; a problem without a record, or a kernel that would have to be compiled, is an error and
  /// is added to the list of what is missing.
  kStrict,
  kVerify,   ///< do the work again and report what differs
  kRefresh,  ///< write without reading: as if nothing had been stored
};
std::string_view CacheModeName(CacheMode mode);
Result<CacheMode> ParseCacheMode(std::string_view word);

}  // namespace tilewright
