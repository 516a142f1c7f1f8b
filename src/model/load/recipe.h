#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/arch/architecture.h"
#include "tilewright/weight_packer.h"

namespace tilewright {

/// A matrix to be made: one or several tensors of the file with equal k and type, their rows taken
/// in turn `group` at a time. `group` 0 puts whole tensors after each other.
struct Recipe {
  Weight* target = nullptr;
  std::vector<const GgufTensor*> parts;
  std::int64_t group = 0;
  WeightSpec spec{};
  WeightPacker::Plan plan{};
};

/// The matrices that a tensor of the file consists of by its rule, as tensors of their own; none if
/// it is a single one. Their bytes are those of the tensor, so they may lie at any multiple of a row.
std::vector<GgufTensor> PartsOf(const TensorRule& rule, const GgufTensor& tensor,
                                const ModelConfig& config);

/// Writes the rows of all parts of a recipe in their final order; returns `into`.
const std::byte* Assemble(const GgufFile& file, const Recipe& recipe, std::byte* into,
                          Executor& executor);

}  // namespace tilewright
