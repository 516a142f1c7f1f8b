#pragma once

#include "ops/attention/cuda/families.h"

namespace tilewright {

/// What attention_split and attention_mma ask: param0 is a head dimension, IsAttentionHeadDim.
std::optional<Rejection> CheckHeadDim(const KernelSpec& spec);

/// What all families ask: q and out of one type, row-major, and zero in the fields that none uses.
std::optional<Rejection> CheckAttentionRest(const KernelSpec& spec);

}  // namespace tilewright
