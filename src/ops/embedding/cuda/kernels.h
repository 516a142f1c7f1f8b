#pragma once

#include "ops/embedding/embedding.h"
#include "tilewright/artifact_store.h"

namespace tilewright::embedding {

/// Adds the kernels of the embedding catalog for `arch`. `store` must outlive the registry.
/// kInvalidArgument where it does not have the family.
Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch);

}  // namespace tilewright::embedding
