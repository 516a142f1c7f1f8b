#include "device/memory_space.h"

#include <unistd.h>

#include <algorithm>

#include "core/memory.h"

namespace tilewright {

Result<MemorySpace> MemoryOf(Device& device) {
  if (auto* const tells = dynamic_cast<TellsMemory*>(&device)) return tells->Memory();
  if (!device.host_accessible()) {
    return Fail(ErrorCode::kUnsupported,
                "this device does not tell its memory: " + device.spec().ClassId());
  }
  const auto pages = static_cast<std::uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L));
  const std::uint64_t total = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return MemorySpace{std::min(AvailableMemoryBytes(), total), total};
}

}  // namespace tilewright
