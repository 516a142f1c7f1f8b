#pragma once

#include <cstdint>
#include <string>

namespace tilewright {

/// Data cache sizes in bytes; 0 if unknown. The last level is the highest one that exists.
struct CacheSizes {
  std::int64_t l1d = 0;
  std::int64_t l2 = 0;
  std::int64_t llc = 0;
};

/// From a folder like /sys/devices/system/cpu/cpu0/cache (index*/level, type, size).
CacheSizes CachesFromSysfs(const std::string& folder);

/// From CPUID leaf 4 (Intel) or 0x8000001d (AMD), for systems without sysfs.
CacheSizes CachesFromCpuid();

/// The caches of a processor that this process may run on.
CacheSizes DetectCaches();

}  // namespace tilewright
