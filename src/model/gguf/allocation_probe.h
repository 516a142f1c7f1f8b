#pragma once

#include <cstddef>

namespace tilewright::test {

/// Bytes of the largest single allocation by new, anywhere in the program, since this was last set
/// to 0. For tests with one thread. A test that links allocation_probe.cc replaces operator new.
std::size_t& LargestAllocation();

}  // namespace tilewright::test
