#pragma once

#include "ops/experts/combine.h"
#include "ops/experts/route.h"
#include "tilewright/artifact_store.h"

namespace tilewright::route {

/// Adds the kernels of the route catalog for `arch`. `store` must outlive the registry.
/// kInvalidArgument where it does not have the family.
Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch);

}  // namespace tilewright::route

namespace tilewright::combine {

/// The same for the combine catalog.
Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch);

}  // namespace tilewright::combine
