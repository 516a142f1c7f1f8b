#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpu/harness.h"
#include "tilewright/gemm.h"
#include "tilewright/operation.h"

namespace tilewright::gpu_check {

enum class Addend {
  kNone,  ///< beta = 0: C is NaN and must not be read
  kSeparate,
  kInPlace,  ///< C is D
};

/// A product D [m][n] = alpha * A [m][k] B [k][n] + beta * C [m][n] to check or time.
struct ProductShape {
  int m, n, k;
  int pad_a = 0, pad_b = 0;  ///< elements between the lines of A and B; of blocks: whole ones
  int pad_d = 0;             ///< elements between the rows of C and D
  int skip = 0;              ///< elements of A and B before the first; of blocks: bytes of B
  float alpha = 1;
  Addend addend = Addend::kNone;

  std::string Name() const;
};

/// How the room of the kernel's family launches `spec`.
using ProductLauncher = std::function<cuda::LaunchResult(
    const KernelSpec& spec, const GemmArgs& args, const DeviceSpec& device)>;

/// What a product needs beside its operands.
using WorkspaceOf = std::function<WorkspaceSize(const KernelSpec& spec, const GemmShape& shape,
                                                const DeviceSpec& device)>;

/// Scratch memory, guarded, that is enough for every shape. Counters are zeroed once: launches leave
/// them at zero.
class ProductWorkspace {
 public:
  ProductWorkspace(const Job& job, const std::vector<ProductShape>& checked,
                   const std::vector<ProductShape>& timed, const WorkspaceOf& size_of);
  Workspace view() const;
  /// Adds to the last case what was written beside it.
  void Report(KernelReport& report) const;

 private:
  WorkspaceSize size_;
  Guarded partials_, barriers_;
};

/// Runs each shape with the kernel of the job and compares with the oracle of the GEMM room: all
/// rows of small problems, of large ones the first and last, those beside edges of tiles, and some
/// at random.
void CheckProducts(const Job& job, const std::vector<ProductShape>& shapes,
                   const ProductLauncher& launcher, KernelReport& report);

/// Times each shape. The weights B rotate through sets beyond the L2 where `cold`.
void TimeProducts(const Job& job, const std::vector<ProductShape>& shapes, bool cold,
                  const ProductLauncher& launcher, KernelReport& report);

}  // namespace tilewright::gpu_check
