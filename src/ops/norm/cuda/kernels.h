#pragma once

#include "ops/norm/norm.h"
#include "tilewright/artifact_store.h"

namespace tilewright::norm {

/// Adds the kernels of the rmsnorm catalog for `arch`, those with a residual among them. `store`
/// must outlive the registry. kInvalidArgument where it does not have the family.
Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch);

}  // namespace tilewright::norm
