#pragma once

#include <cstdint>
#include <string_view>

#include "tilewright/result.h"

namespace tilewright {

/// What may be done with what earlier runs left: tuning records and compiled artifacts.
enum class CacheMode : std::uint8_t {
  kNormal,    ///< read and write
  kReadonly,  ///< read; compile what is missing, but keep it in memory
  kOffline,   ///< as kNormal, but touch no layer that may be on another machine (the shared folder)
  kStrict,    ///< read; a problem without a record, or a kernel that would have to be compiled, is
              ///< an error, and is noted on the list of what is missing
  kVerify,    ///< do it again and report what differs
  kRefresh,   ///< write without reading: as if nothing had been kept
};
std::string_view CacheModeName(CacheMode mode);
Result<CacheMode> ParseCacheMode(std::string_view word);

}  // namespace tilewright
