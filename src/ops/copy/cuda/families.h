#pragma once

#include <vector>

#include "tilewright/kernel_family.h"

/// Families `copy`, copies with conversion and unpacking, and `kv_scatter`, rows into a KV cache.
/// README.md of the room names the fields of their specs.

namespace tilewright {

KernelFamily CopyFamily();
KernelFamily KvScatterFamily();

/// kInvalidArgument if a name is taken.
Status AddCopyFamilies(KernelFamilies& families);

/// The kernels that unpack blocks of `type` to f32, bf16 and f16 on one architecture. Empty for a
/// type that none of them reads.
std::vector<KernelSpec> UnpackSpecs(DataType type, CudaArch arch);

}  // namespace tilewright
