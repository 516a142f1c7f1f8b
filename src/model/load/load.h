#pragma once

#include <memory>

#include "model/arch/architecture.h"

namespace tilewright {

/// Model::Load for a file that is taken to be of `architecture`, which must outlive the model.
Result<std::unique_ptr<Model>> LoadModel(GgufFile file, const Architecture& architecture,
                                         const ModelOptions& options);

}  // namespace tilewright
