#pragma once

#include "tilewright/kernel_family.h"

/// Families `route`, which experts rows go to, and `combine`, the sum of what experts computed.
/// README.md of the room names the fields of their specs.

namespace tilewright {

KernelFamily RouteFamily();
KernelFamily CombineFamily();

/// kInvalidArgument if a name is taken.
Status AddExpertsFamilies(KernelFamilies& families);

}  // namespace tilewright
