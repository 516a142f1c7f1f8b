#pragma once

#include <optional>
#include <vector>

#include "device/cuda/cublaslt_library.h"
#include "tilewright/gemm.h"

namespace tilewright {

/// Why cuBLASLt cannot compute the problem as it is asked here: A and B of one type (f32, f16 or
/// bf16), D of that type or f32, sums in f32, dense, and every operand aligned to 16 bytes. nullopt
/// if it can. Pure.
std::optional<Rejection> CheckCublasLt(const GemmDesc& problem);

/// One product as cuBLASLt is told of it: orders, types, and which algorithms may be named. It
/// knows column-major matrices only, so a row-major D is asked for as D^T = B^T A^T, whose operands
/// in memory are ours. Immutable; any thread.
class CublasLtProduct {
 public:
  /// For a problem that CheckCublasLt accepts. Allocates; needs no GPU.
  static Result<CublasLtProduct> Make(const cuda::CublasLtLibrary& library,
                                      const GemmDesc& problem);

  /// What the library's heuristic names for dense lines, best first, `most` at most, each with no
  /// more than this workspace. With split k, partial sums are f32: those rounded to D's type are
  /// excluded. `handle` is of the current context. kUnsupported where there is none.
  Result<std::vector<cuda::CublasLtAlgo>> Algorithms(void* handle, std::size_t workspace_bytes,
                                                     int most) const;

  /// Queues the product; `workspace` is aligned to 256 bytes. `stream` is a CUstream of the current
  /// context, which is that of `handle`. Allocates nothing of ours; may be captured.
  Status Launch(void* handle, const cuda::CublasLtAlgo& algo, const GemmArgs& args, void* workspace,
                std::size_t workspace_bytes, void* stream) const;

 private:
  /// Leading dimensions in elements, as in memory.
  struct Lines {
    std::int64_t a, b, c, d;
  };
  struct Layouts {
    cuda::CublasLtLayout first, second, c, d;
  };
  CublasLtProduct(const cuda::CublasLtLibrary& library, const GemmDesc& problem,
                  cuda::CublasLtObject desc)
      : library_(&library), problem_(problem), desc_(std::move(desc)) {}
  Result<Layouts> MakeLayouts(const Lines& lines) const;

  const cuda::CublasLtLibrary* library_;
  GemmDesc problem_;
  cuda::CublasLtObject desc_;
};

}  // namespace tilewright
