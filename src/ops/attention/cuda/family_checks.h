#pragma once

#include "ops/attention/cuda/families.h"

namespace tilewright {

/// What both families ask: q and out of one type, a head dimension of 64 or 128, row-major, and
/// zero in the fields that neither uses.
std::optional<Rejection> CheckAttentionRest(const KernelSpec& spec);

}  // namespace tilewright
