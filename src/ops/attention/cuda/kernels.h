#pragma once

#include "ops/attention/attention.h"
#include "tilewright/artifact_store.h"

namespace tilewright::attention {

/// Adds the kernels of the attention catalogs for `arch`. `store` must outlive the registry.
/// kInvalidArgument where it does not have their families.
Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch);

}  // namespace tilewright::attention
