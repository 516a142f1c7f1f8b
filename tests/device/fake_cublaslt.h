#pragma once

#include <atomic>
#include <cstdint>

#include "fake_cuda.h"

namespace tilewright::cuda {

/// A libcublasLt for tests, beside a FakeCuda: it checks what the real one would (handle, algorithm,
/// workspace and its alignment, a context) and computes products on the host, in the order of the
/// fake GPU's streams.
struct FakeCublasLt {
  FakeCuda* cuda = nullptr;         ///< must be set before anything is launched
  std::atomic<int> algorithms{3};   ///< that the heuristic names
  std::atomic<int> next_status{0};  ///< what the next product answers instead of being computed
  // What it was told:
  std::atomic<int> creates{0}, destroys{0}, descs{0}, products{0};
  std::atomic<int> last_algorithm{-1};
  std::atomic<unsigned> alignment{0}, reductions{0};  ///< of the last heuristic
};

/// Exported by the shared object as "fake_cublaslt".
using FakeCublasLtFunction = FakeCublasLt* (*)();

}  // namespace tilewright::cuda
