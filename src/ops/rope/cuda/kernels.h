#pragma once

#include "ops/rope/rope.h"
#include "tilewright/artifact_store.h"

namespace tilewright::rope {

/// Adds the kernels of the catalog of `rope` for `arch`. They need Args::table (Op::Prepared makes
/// it). `store` must outlive the registry. kInvalidArgument where it does not have the family.
Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch);

}  // namespace tilewright::rope
