#pragma once

#include <cstdint>

namespace tilewright {

/// Bytes that this process can still take without swapping or hitting a limit: the least of
/// MemAvailable, what its cgroup leaves and what RLIMIT_AS leaves. Reads a few small files; for
/// decisions at load time.
std::uint64_t AvailableMemoryBytes();

}  // namespace tilewright
