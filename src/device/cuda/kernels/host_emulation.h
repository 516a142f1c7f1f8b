#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

// For tests only: runs the very source of a kernel on the CPU, thread by thread, so that its index
// arithmetic and its numbers are checked where there is no GPU. Include this file before any .cuh.
// It stands for the built-ins that our kernels use: threadIdx, blockIdx and gridDim, shared
// variables, __syncthreads, __syncwarp, __shfl_xor_sync over all lanes, atomicMax, atomicAdd. launch_emulation.h runs a
// launch as the launcher of an operation room made it.
//
// The threads of a CTA, or of all CTAs of a cluster, are fibers of one OS thread; each runs to its
// next barrier or shuffle, then the next one does. Warps may shuffle different numbers of times between
// two barriers. What it cannot show: races, memory order, warps that diverge at a shuffle.

#define __shared__ static  // one CTA runs at a time

namespace tw::emulation {

struct Index {
  unsigned int x = 0, y = 0, z = 0;
};

/// The CTA that runs now, or the cluster of CTAs. One a process; used by
/// one OS thread at a time.
struct Cta {
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack;
    bool done = false;
    bool waits = false;  // at __syncthreads
    unsigned int shuffles = 0;
    float lanes[2] = {};  // what it gives away, by the parity of the shuffle
  };
  std::vector<Fiber> fibers;
  std::size_t current = 0;
  ucontext_t scheduler;
  std::function<void()> body;
  Index thread, block, grid;
  unsigned int rank = 0;  // of the CTA in its cluster
};
inline Cta cta;

/// Dynamic shared memory of the running CTA, and how much of it there is: `smem` and up, in a cluster
/// that of one CTA behind that of another.
inline constexpr std::size_t kMostSmem = 232448;
alignas(1024) inline unsigned char smem[3 * kMostSmem];
inline std::size_t smem_bytes = kMostSmem;
inline std::size_t SmemBegin(unsigned int rank) { return (smem_bytes + 1023) / 1024 * 1024 * rank; }
/// That of the CTA that runs.
inline unsigned char* OwnSmem() { return smem + SmemBegin(cta.rank); }
/// Runs the CTAs from the last to the first: who comes last must not matter.
inline bool backwards = false;
/// What ReadAhead finds at an address, in front of the wait for earlier kernels; null: what lies
/// there behind it too.
inline int (*read_ahead)(const int* p) = nullptr;
/// What NanosecondsNow says.
inline unsigned long long nanoseconds = 0;
/// An access that a GPU would refuse: misaligned, or outside of shared memory.
inline bool fault = false;

/// Ends the turn of the running thread.
inline void Yield() {
  Cta::Fiber& fiber = cta.fibers[cta.current];
  swapcontext(&fiber.context, &cta.scheduler);
}

inline void FiberMain() {
  cta.body();
  cta.fibers[cta.current].done = true;
}

/// Lets the threads of the CTA that begins with fiber `first` pass __syncthreads once all are there.
/// False if some wait there for others that have ended.
inline bool PassBarrier(std::size_t first, unsigned int threads) {
  const auto begin = cta.fibers.begin() + static_cast<std::ptrdiff_t>(first), end = begin + threads;
  const auto waits = [](const Cta::Fiber& fiber) { return fiber.waits; };
  if (!std::all_of(begin, end, [](const Cta::Fiber& f) { return f.waits || f.done; })) return true;
  const bool all = std::all_of(begin, end, waits), none = std::none_of(begin, end, waits);
  std::for_each(begin, end, [](Cta::Fiber& fiber) { fiber.waits = false; });
  return all || none;
}

/// Whether of every warp all threads have ended, or none.
inline bool WarpsAreWhole() {
  for (std::size_t t = 0; t < cta.fibers.size(); ++t) {
    if (cta.fibers[t].done != cta.fibers[t / 32 * 32].done) return false;
  }
  return true;
}

/// Runs `body` as every thread of every CTA; in clusters of cluster.x by cluster.y CTAs, which divide the
/// grid and whose threads all have as many barriers and shuffles. Returns false if threads of a CTA stopped at different numbers of
/// barriers, or threads of a warp at different numbers of shuffles: a hang on a GPU.
inline bool Run(Index grid, unsigned int threads, std::function<void()> body,
                Index cluster = {1, 1, 1}) {
  constexpr std::size_t kStack = 256 * 1024;
  cta.body = std::move(body);
  cta.grid = grid;
  cta.fibers = std::vector<Cta::Fiber>(std::size_t{threads} * cluster.x * cluster.y);
  for (Cta::Fiber& fiber : cta.fibers) fiber.stack = std::make_unique<std::byte[]>(kStack);
  bool converged = true;
  for (unsigned int by = 0; by < grid.y; by += cluster.y) {
    for (unsigned int x = 0; x < grid.x; x += cluster.x) {
      const unsigned int bx = backwards ? grid.x - cluster.x - x : x;
      for (Cta::Fiber& fiber : cta.fibers) {
        fiber.done = fiber.waits = false;
        fiber.shuffles = 0;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = kStack;
        fiber.context.uc_link = &cta.scheduler;
        makecontext(&fiber.context, &FiberMain, 0);
      }
      std::size_t left = cta.fibers.size();
      while (left > 0) {
        for (std::size_t first = 0; first < cta.fibers.size(); first += threads)
          converged = PassBarrier(first, threads) && converged;
        for (std::size_t t = 0; t < cta.fibers.size(); ++t) {
          if (cta.fibers[t].done || cta.fibers[t].waits) continue;
          cta.current = t;
          cta.rank = static_cast<unsigned int>(t) / threads;
          cta.block = {bx + cta.rank % cluster.x, by + cta.rank / cluster.x, 0};
          cta.thread = {static_cast<unsigned int>(t) % threads, 0, 0};
          swapcontext(&cta.scheduler, &cta.fibers[t].context);
          if (cta.fibers[t].done) --left;
        }
        converged = WarpsAreWhole() && converged;
      }
    }
  }
  return converged;
}

}  // namespace tw::emulation

namespace tw {

/// A look of a waiting thread ends its turn, and takes a microsecond.
inline void PauseInWait() { emulation::Yield(); }
inline unsigned long long NanosecondsNow() { return emulation::nanoseconds += 1000; }
inline int ReadAhead(const int* p) {
  return emulation::read_ahead != nullptr ? emulation::read_ahead(p) : *p;
}
}  // namespace tw

#define threadIdx (::tw::emulation::cta.thread)
#define blockIdx (::tw::emulation::cta.block)
#define gridDim (::tw::emulation::cta.grid)

// The names are CUDA's.
// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier)
inline void __syncthreads() {
  ::tw::emulation::cta.fibers[::tw::emulation::cta.current].waits = true;
  ::tw::emulation::Yield();
}
inline void __syncwarp() { ::tw::emulation::Yield(); }

inline float __shfl_xor_sync(unsigned int, float value, int lanes) {
  using ::tw::emulation::cta;
  auto& self = cta.fibers[cta.current];
  // Two places: a thread may give the next value before its partner took this one.
  const unsigned int place = self.shuffles++ % 2;
  self.lanes[place] = value;
  const std::size_t partner = cta.current ^ static_cast<std::size_t>(lanes);
  ::tw::emulation::Yield();
  return cta.fibers[partner].lanes[place];
}

inline int atomicMax(int* address, int value) {
  const int old = *address;
  *address = std::max(old, value);
  return old;
}

inline int atomicAdd(int* address, int value) {
  const int old = *address;
  *address = old + value;
  return old;
}
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
