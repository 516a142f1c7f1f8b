#pragma once

#include "ops/elementwise/elementwise.h"
#include "tilewright/artifact_store.h"

namespace tilewright::elementwise {

/// Adds the kernels of the elementwise catalog for `arch`. `store` must outlive the registry.
/// kInvalidArgument where it does not have the family.
Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch);

}  // namespace tilewright::elementwise
