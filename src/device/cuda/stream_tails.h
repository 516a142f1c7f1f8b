#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "device/cuda/driver_api.h"

namespace tilewright::cuda {

/// What was given last to the streams of a device: a kernel may start before the work in front of it
/// has ended only where that is a kernel too. Where that is not known, it is not.
///
/// Any thread; the work of one stream is given by one thread at a time. Neither locks nor allocates.
class StreamTails {
 public:
  /// Of more than kMost streams the last ones are not known.
  void Add(CUstream stream) {
    for (Tail& tail : tails_) {
      CUstream nobody = nullptr;
      if (tail.stream.compare_exchange_strong(nobody, stream)) return;
    }
  }
  void Remove(CUstream stream) {
    if (Tail* tail = Find(stream)) {
      tail->kernel.store(false, std::memory_order_relaxed);
      tail->stream.store(nullptr);
    }
  }

  /// Whether the last work of a stream is a kernel; nullptr where that is not known.
  std::atomic<bool>* LastIsKernel(CUstream stream) {
    Tail* tail = Find(stream);
    return tail != nullptr ? &tail->kernel : nullptr;
  }
  void GaveOther(CUstream stream) {
    if (Tail* tail = Find(stream)) tail->kernel.store(false, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kMost = 16;
  struct Tail {
    std::atomic<CUstream> stream = nullptr;
    std::atomic<bool> kernel = false;
  };

  Tail* Find(CUstream stream) {
    if (stream == nullptr) return nullptr;
    for (Tail& tail : tails_) {
      if (tail.stream.load(std::memory_order_relaxed) == stream) return &tail;
    }
    return nullptr;
  }

  std::array<Tail, kMost> tails_;
};

}  // namespace tilewright::cuda
