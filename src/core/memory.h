#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewright/executor.h"

namespace tilewright {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// How many more bytes this process can allocate without swapping or hitting a limit: the least of
/// MemAvailable and what its cgroup and RLIMIT_AS leave. Reads a few small files; meant for
/// decisions at load time.
std::uint64_t AvailableMemoryBytes();

/// Has the system supply memory that is about to be written, a huge page a task; what it holds is
/// lost. Workers that write side by side into huge pages that are not there yet each clear one, and
/// all but one throw theirs away again.
void FaultIn(void* memory, std::size_t bytes, Executor& executor);

}  // namespace tilewright
