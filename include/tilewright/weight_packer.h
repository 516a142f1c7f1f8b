#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewright/gemm.h"
#include "tilewright/result.h"
#include "tilewright/tensor_op.h"
#include "tilewright/types.h"

namespace tilewright {

/// A weight to be packed.
struct WeightSpec {
  DataType type = DataType::kF32;
  std::int64_t n = 0, k = 0;
  /// That reads it: kMulMat, kMulMatAdd or kMulMatSwiGlu; where num > 1, kMulMatExperts or
  /// kMulMatExpertsSwiGlu.
  TensorOp op = TensorOp::kMulMat;
  std::int64_t num = 1;   ///< matrices of [k, n] that follow each other: experts
  std::int64_t used = 1;  ///< of them by a row
};

/// Decides the layout of weights when a model is loaded. DeviceDispatch implements it; without a
/// packer, weights keep the layout of the file.
class WeightPacker {
 public:
  virtual ~WeightPacker() = default;
  struct Plan {
    Pack pack = kPackPlain;
    std::size_t bytes = 0;  ///< size when packed; 0 for kPackPlain
    const Kernel* packer = nullptr;
  };
  virtual Result<Plan> PlanWeight(const WeightSpec& spec) = 0;
  virtual Status PackWeight(const WeightSpec& spec, const Plan& plan, const void* plain,
                            void* packed) = 0;
};

}  // namespace tilewright
