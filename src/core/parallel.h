#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "tilewright/executor.h"

namespace tilewright {

/// How many of `workers` have something to do if `work` is split into pieces of `grain`; at least
/// 1, possibly fractional.
inline double BusyWorkers(double work, std::int64_t grain, int workers) {
  return std::clamp(work / static_cast<double>(grain), 1.0, static_cast<double>(workers));
}

/// Elements of a task, at least, of operations that read each once: normalising, rotating, adding. From twice as many
/// on ParallelRanges uses other workers: a core takes about 5 us to read so many that others have just written, and a
/// parallel region about 2. (16 threads of a shared Xeon, 8 sequences of Llama-3.2-1B, us in a pass, by tasks of
/// 16,384 and of 2,048: a norm of 8 x 2,048 12 and 5, rotating and scattering 8 x 3,072 28 and 7. Eight of SmolLM2,
/// whose norms have 4,608, were 2 % slower with 2,048.)
inline constexpr std::int64_t kGrainElements = 3072;

/// Into how many ranges ParallelRanges splits: such of at least `grain` where they are too few for all
/// workers, else four for each worker, since the speeds of workers differ.
constexpr std::int64_t RangeCount(std::int64_t total, std::int64_t grain, int workers) {
  const std::int64_t ranges = total / (grain < 1 ? 1 : grain);
  if (workers == 1 || ranges <= 1) return total > 0 ? 1 : 0;
  return ranges < workers ? ranges : std::min<std::int64_t>(4 * workers, total);
}

/// Into how many parts each of `count` pieces of work is cut, `most` at most, so that all workers have something to
/// do: with one piece they would wait for the worker that has it. Four tasks for each worker, as above.
constexpr int PartsOfEach(int count, int workers, int most) {
  return workers == 1 ? 1 : std::clamp((4 * workers + count - 1) / count, 1, most);
}

inline constexpr int kMostLanes = 64;

/// Whether the tasks that a worker takes follow each other when RunInLanes runs `count` of them: else each takes any.
constexpr bool KeepsLanes(int workers, int count) {
  return count >= 2 * std::min(workers, kMostLanes);
}

/// Runs f(task, worker) for `count` tasks such that workers keep to places of their own: worker w of W begins
/// with task w * count / W and goes on from there, and takes tasks of the next worker once its own are done. So what
/// one loop over rows writes is read by the worker that wrote it in another loop over them, where it is in that
/// worker's cache. (Two cores of a Zen 5 hand over a cache line in 45 ns where they share a last-level cache, and
/// in 200 where they do not, which a virtual machine changes by the second.) With less than two tasks a worker, as
/// Executor::Run. Allocates nothing.
template <class F>
void RunInLanes(Executor& executor, int count, F&& f) {
  const int lanes = std::min(executor.workers(), kMostLanes);
  if (lanes <= 1 || !KeepsLanes(lanes, count)) return executor.Run(count, f);
  struct alignas(64) Lane {
    std::atomic<int> next;
    int end;
  };
  std::array<Lane, kMostLanes> all;
  const auto start = [=](int lane) { return static_cast<int>(std::int64_t{count} * lane / lanes); };
  for (int i = 0; i < lanes; ++i) {
    Lane& lane = all[static_cast<std::size_t>(i)];
    lane.next.store(start(i), std::memory_order_relaxed);
    lane.end = start(i + 1);
  }
  executor.Run(executor.workers(), [&](int, int worker) {
    for (int i = 0; i < lanes; ++i) {
      Lane& lane = all[static_cast<std::size_t>((worker + i) % lanes)];
      while (lane.next.load(std::memory_order_relaxed) < lane.end) {
        const int task = lane.next.fetch_add(1, std::memory_order_relaxed);
        if (task < lane.end) f(task, worker);
      }
    }
  });
}

/// Runs f(piece, begin, end) for all of the `units` of each of `count` pieces, cut by PartsOfEach, in lanes.
template <class F>
void RunPartsInLanes(Executor& executor, int count, int units, F&& f) {
  const int parts = PartsOfEach(count, executor.workers(), units);
  RunInLanes(executor, count * parts, [&](int task, int) {
    const int part = task % parts;
    f(task / parts, units * part / parts, units * (part + 1) / parts);
  });
}

inline constexpr int kMostBlocks = 256;

/// Whether RunBlocksInLanes runs so many blocks: each worker has as many as the others.
constexpr bool KeepsBlocks(int workers, int blocks) {
  return blocks <= kMostBlocks && blocks % std::min(workers, kMostLanes) == 0;
}

/// Runs prepare(block) and then f(block, piece, worker) for `pieces` of each of `blocks`, which KeepsBlocks allows, in one parallel
/// region: each worker prepares blocks of its own and goes through their pieces, and takes pieces of the next worker's once its
/// own are done. It waits only where the block is still being prepared, by a worker that waits for nothing, so any executor will do.
/// What prepare writes is read where it was written, but for late pieces. Allocates nothing.
template <class Prepare, class F>
void RunBlocksInLanes(Executor& executor, int blocks, int pieces, Prepare&& prepare, F&& f) {
  if (pieces == 1 || executor.workers() == 1) {
    return executor.Run(blocks, [&](int block, int worker) {
      prepare(block);
      for (int piece = 0; piece < pieces; ++piece) f(block, piece, worker);
    });
  }
  std::array<std::atomic<bool>, kMostBlocks> ready;
  for (int block = 0; block < blocks; ++block)
    ready[static_cast<std::size_t>(block)].store(false, std::memory_order_relaxed);
  RunInLanes(executor, blocks * pieces, [&](int task, int worker) {
    const int block = task / pieces, piece = task % pieces;
    std::atomic<bool>& prepared = ready[static_cast<std::size_t>(block)];
    if (piece == 0) {
      prepare(block);
      prepared.store(true, std::memory_order_release);
    }
    while (!prepared.load(std::memory_order_acquire)) std::this_thread::yield();
    f(block, piece, worker);
  });
}

/// Splits [0, total) into RangeCount consecutive ranges and runs f(begin, end) in lanes. With one
/// worker, or a total below two grains, f runs once on the calling thread: an operation of a microsecond
/// must not wake other threads. Allocates nothing.
template <class F>
void ParallelRanges(Executor& executor, std::int64_t total, std::int64_t grain, F&& f) {
  const std::int64_t ranges = RangeCount(total, grain, executor.workers());
  if (ranges == 1) f(std::int64_t{0}, total);
  if (ranges <= 1) return;
  RunInLanes(executor, static_cast<int>(ranges),
             [&](int range, int) { f(total * range / ranges, total * (range + 1) / ranges); });
}

}  // namespace tilewright
