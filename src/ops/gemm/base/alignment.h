#pragma once

#include "tilewright/gemm.h"

namespace tilewright {

/// Sets the alignments of `desc`, the problem of `args`, to what addresses and lines of the
/// operands have, up to the 16 bytes of the widest load of a GPU. A null pointer counts as aligned:
/// it stands for memory of a device, which is.
void PromiseAlignment(const GemmArgs& args, GemmDesc& desc);

}  // namespace tilewright
