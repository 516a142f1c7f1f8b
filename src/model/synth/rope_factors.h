#pragma once

#include <vector>

#include "tilewright/model.h"
#include "tilewright/synth.h"

namespace tilewright::synth {

constexpr bool IsRopeFactors(WeightRole role) {
  return role == WeightRole::kRopeFactors || role == WeightRole::kRopeFactorsLong ||
         role == WeightRole::kRopeFactorsShort;
}

/// Elements of a head that a model of the shape rotates.
constexpr int RotatedDims(const SynthShape& shape) {
  return shape.rope_dims > 0 ? shape.rope_dims : shape.head_dim;
}

/// What a tensor of factors holds, one for each rotated pair; empty if models of the shape have no
/// such tensor. Precondition: IsRopeFactors(role).
std::vector<float> RopeFactors(WeightRole role, const SynthShape& shape);

}  // namespace tilewright::synth
