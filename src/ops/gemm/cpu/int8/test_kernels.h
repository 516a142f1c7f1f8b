#pragma once

#include <memory>
#include <vector>

#include "ops/gemm/cpu/int8/layout.h"
#include "ops/gemm/cpu/int8/register.h"
#include "tilewright/gemm.h"

/// The kernels of this room, for tests only; no library file includes this header.

namespace tilewright::test {

inline std::vector<DataType> Int8Types() {
  std::vector<DataType> types;
  for (const BlockFormat& format : kFormats) {
    if (gemm_int8::HasInt8(format)) types.push_back(format.type);
  }
  return types;
}

/// Those of one matrix; ops/gemm/gemm_kernels_test.cc and grouped_test.cc have the others.
inline std::vector<Kernel*> DenseInt8Kernels() {
  static Registry* const registry = [] {
    auto* r = new Registry;
    AddGemmInt8(*r);
    return r;
  }();
  std::vector<Kernel*> dense;
  for (Kernel* kernel : registry->kernels()) {
    if ((kernel->desc().striding_b & Bit(Striding::kFlat)) != 0) dense.push_back(kernel);
  }
  return dense;
}

}  // namespace tilewright::test
