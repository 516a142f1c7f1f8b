#pragma once

#include <optional>

#include "tilewright/kernel_spec.h"
#include "tilewright/rejection.h"

namespace tilewright {

/// What all families of this room ask of architecture, types, orders and epilogue of a spec.
/// `is_weight` says which weights the family takes, `weights` in words.
std::optional<Rejection> CheckGemvTypes(const KernelSpec& s, bool (*is_weight)(DataType),
                                        const char* weights);

}  // namespace tilewright
