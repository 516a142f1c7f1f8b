#pragma once

#include <cstddef>
#include <span>

#include "engine/compiled/loaded_kernel.h"

/// Helpers for tests only: kernels that make it show when another one touches memory before the
/// kernels in front of it have ended.

namespace tilewright::cuda {

/// To be given to the store beside the families under test.
KernelFamily LateWriterFamily();

class LateWriter {
 public:
  struct Range {
    const void* from;
    void* to;
    std::size_t bytes;
  };
  static constexpr std::size_t kMostRanges = 10;

  /// Compiles and loads the kernels. `device` must outlive it.
  static Result<LateWriter> Make(ArtifactStore& store, Device& device);

  /// Queues a kernel that copies at most kMostRanges ranges, but not before a third of a
  /// millisecond has passed, and behind it one that does nothing. Both let the next kernel start at
  /// once, and wait for those before them.
  Status Queue(std::span<const Range> ranges, Stream stream) const;
  /// Queues a kernel that copies a range at once, waiting for nothing: what no kernel may do.
  Status QueueCareless(const Range& range, Stream stream) const;

 private:
  explicit LateWriter(LoadedKernel kernel) : kernel_(std::move(kernel)) {}

  LoadedKernel kernel_;
};

}  // namespace tilewright::cuda
