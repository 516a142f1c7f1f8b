#pragma once

#include <cstdint>

namespace tilewright {

/// How many more bytes this process can allocate without swapping or hitting a limit: the least of
/// MemAvailable and what its cgroup and RLIMIT_AS leave. Reads a few small files; meant for
/// decisions at load time.
std::uint64_t AvailableMemoryBytes();

}  // namespace tilewright
