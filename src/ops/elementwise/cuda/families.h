#pragma once

#include <vector>

#include "tilewright/kernel_family.h"

/// Family `elementwise`: every function of the room. README.md of the room names the fields of its
/// specs.

namespace tilewright {

KernelFamily ElementwiseFamily();

/// kInvalidArgument if the name is taken.
Status AddElementwiseFamilies(KernelFamilies& families);

}  // namespace tilewright
