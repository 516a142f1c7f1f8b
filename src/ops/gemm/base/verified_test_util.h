#pragma once

#include <string_view>

#include "engine/verified_test_util.h"
#include "tilewright/gemm.h"

/// For tests of products whose results stand in the tables of the documentation.

namespace tilewright::test {

/// What a kernel's product rounds activations to that are of type `activations`: those of 16 bits
/// are so before.
inline std::string_view RoundingOf(Precision kernel, DataType activations) {
  if (kernel == Precision::kI8 || activations == DataType::kI8X32) return "int8";
  if (kernel == Precision::kBF16) return "bf16";
  return activations == DataType::kF32 ? "f32" : DataTypeName(activations);
}

/// Notes that `kernel` computed `problem` right on `device`.
inline void NoteProduct(const KernelInfo& kernel, const KernelDesc& desc, const GemmDesc& problem,
                        const DeviceSpec& device) {
  if (!IsListed(kernel) || problem.quant_b.type != QuantType::kNone) return;
  // The tables show what is chosen without asking for less.
  if (desc.activations == Precision::kW8A8) return;
  NoteVerified({.operation = problem.num > 1 ? "experts" : "product",
                .subject = DataTypeName(problem.type_b),
                .device = LevelOf(kernel, device),
                .how = RoundingOf(desc.activations, problem.type_a)});
}

}  // namespace tilewright::test
