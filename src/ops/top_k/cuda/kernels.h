#pragma once

#include "ops/top_k/top_k.h"
#include "tilewright/artifact_store.h"

namespace tilewright::top_k {

/// Adds the kernels of the top_k catalog for `arch`. `store` must outlive the registry.
/// kInvalidArgument where it does not have the family.
Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch);

}  // namespace tilewright::top_k
