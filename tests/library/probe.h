#pragma once

/// Counts what a steady path must not do, in the whole process, on every thread. Linking probe.cc
/// puts its functions before those of the C library; the library and what it links call them.

namespace tilewright::test {

struct ProbeCounts {
  long allocations = 0;  ///< malloc and its kin (so operator new too), mmap
  long locks = 0;        ///< pthread_mutex_lock, so std::mutex
  long environment = 0;  ///< getenv
};

/// False under a sanitizer, which has its own malloc.
bool ProbeWorks();
/// From now on, from zero.
void StartProbe();
ProbeCounts StopProbe();

}  // namespace tilewright::test
