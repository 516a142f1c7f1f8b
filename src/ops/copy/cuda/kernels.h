#pragma once

#include "ops/copy/copy.h"
#include "ops/copy/kv_scatter.h"
#include "tilewright/artifact_store.h"

namespace tilewright::copy {

/// Adds the kernels of the copy catalog for `arch`. `store` must outlive the registry.
/// kInvalidArgument where it does not have the family.
Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch);

}  // namespace tilewright::copy

namespace tilewright::kv_scatter {

/// The same for the kv_scatter catalog.
Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch);

}  // namespace tilewright::kv_scatter
