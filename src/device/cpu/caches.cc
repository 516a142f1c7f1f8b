#include "device/cpu/caches.h"

#include <sched.h>

#include <cstdlib>

#include "core/atomic_file.h"
#include "core/text.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tilewright {
namespace {

constexpr std::size_t kSmallFile = 4096;

/// Records the size of a data or unified cache of `level`; `llc_level` is the highest level so far.
void Note(CacheSizes& sizes, int& llc_level, int level, std::int64_t bytes) {
  if (bytes <= 0) return;
  if (level == 1) sizes.l1d = bytes;
  if (level == 2) sizes.l2 = bytes;
  if (level >= llc_level) {
    llc_level = level;
    sizes.llc = bytes;
  }
}

/// "32K", "1024K", "16M", "512".
std::int64_t ParseSize(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || value <= 0 || value > (1LL << 40)) return 0;
  const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
  return static_cast<std::int64_t>(value) << shift;
}

}  // namespace

CacheSizes CachesFromSysfs(const std::string& folder) {
  CacheSizes sizes;
  int llc_level = 0;
  for (int index = 0; index < 16; ++index) {
    const std::string at = Format("{}/index{}/", folder, index);
    const Result<std::string> level = ReadFile(at + "level", kSmallFile);
    const Result<std::string> type = ReadFile(at + "type", kSmallFile);
    const Result<std::string> size = ReadFile(at + "size", kSmallFile);
    if (!level || !type || !size) break;
    if (type->rfind("Instruction", 0) == 0) continue;
    Note(sizes, llc_level, std::atoi(level->c_str()), ParseSize(*size));
  }
  return sizes;
}

CacheSizes CachesFromCpuid() {
  CacheSizes sizes;
#if defined(__x86_64__)
  int llc_level = 0;
  for (const unsigned leaf : {0x4u, 0x8000001du}) {
    for (unsigned index = 0; index < 16; ++index) {
      unsigned a = 0, b = 0, c = 0, d = 0;
      if (__get_cpuid_count(leaf, index, &a, &b, &c, &d) == 0) break;
      const unsigned type = a & 31;  // 0 none, 1 data, 2 instruction, 3 unified
      if (type == 0) break;
      if (type == 2) continue;
      const std::int64_t ways = (b >> 22) + 1, partitions = (b >> 12 & 1023) + 1;
      const std::int64_t line = (b & 4095) + 1, sets = static_cast<std::int64_t>(c) + 1;
      Note(sizes, llc_level, static_cast<int>(a >> 5 & 7), ways * partitions * line * sets);
    }
    if (llc_level > 0) break;
  }
#endif
  return sizes;
}

CacheSizes DetectCaches() {
  const int cpu = sched_getcpu();
  const std::string folder = Format("/sys/devices/system/cpu/cpu{}/cache", cpu < 0 ? 0 : cpu);
  CacheSizes sizes = CachesFromSysfs(folder);
  const CacheSizes other = CachesFromCpuid();
  if (sizes.l1d == 0) sizes.l1d = other.l1d;
  if (sizes.l2 == 0) sizes.l2 = other.l2;
  if (sizes.llc == 0) sizes.llc = other.llc;
  return sizes;
}

}  // namespace tilewright
