#include "core/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace tilewright {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

/// The first number in a file, or kUnlimited for "max", an absent file and anything else.
std::uint64_t FirstNumber(const char* path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : kUnlimited;
}

std::uint64_t SystemAvailable() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return kUnlimited;
}

std::uint64_t Left(std::uint64_t limit, std::uint64_t used) {
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  return limit > used ? limit - used : 0;
}

std::uint64_t CgroupLeft() {
  const std::uint64_t v2 =
      Left(FirstNumber("/sys/fs/cgroup/memory.max"), FirstNumber("/sys/fs/cgroup/memory.current"));
  const std::uint64_t v1 = Left(FirstNumber("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
                                FirstNumber("/sys/fs/cgroup/memory/memory.usage_in_bytes"));
  return std::min(v1, v2);
}

std::uint64_t AddressSpaceLeft() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const std::uint64_t pages =
      FirstNumber("/proc/self/statm");  // its first number is the size in pages
  return pages == kUnlimited
             ? kUnlimited
             : Left(limit.rlim_cur, pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace

std::uint64_t AvailableMemoryBytes() {
  return std::min({SystemAvailable(), CgroupLeft(), AddressSpaceLeft()});
}

void FaultIn(void* memory, std::size_t bytes, Executor& executor) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  if (first >= begin + bytes) return;
  const auto pages = static_cast<int>((begin + bytes - first + kHugePage - 1) / kHugePage);
  executor.Run(pages, [first](int page, int) {
    *reinterpret_cast<volatile char*>(first + static_cast<std::size_t>(page) * kHugePage) = 0;
  });
}

}  // namespace tilewright
