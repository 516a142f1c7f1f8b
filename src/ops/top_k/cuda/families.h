#pragma once

#include "tilewright/kernel_family.h"

/// Family `top_k`: the largest values of rows and their columns. README.md of the room names the
/// fields of its specs.

namespace tilewright {

KernelFamily TopKFamily();

/// kInvalidArgument if the name is taken.
Status AddTopKFamilies(KernelFamilies& families);

}  // namespace tilewright
