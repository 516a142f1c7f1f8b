#pragma once

#include <memory>

#include "model/arch/architecture.h"

namespace tilewright {

/// Model::Load for a file that is taken to be of `architecture`, which must outlive the model.
Result<std::unique_ptr<Model>> LoadModel(GgufFile file, const Architecture& architecture,
                                         const ModelOptions& options);

/// A model whose weights have their places on options.device, which is not the host, and no values:
/// nothing of them is read, packed or sent. For deciding what would run.
Result<std::unique_ptr<Model>> LayOutModel(GgufFile file, const ModelOptions& options);

}  // namespace tilewright
