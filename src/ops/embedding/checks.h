#pragma once

#include "ops/embedding/embedding.h"

namespace tilewright {

/// Every id names an entry of the table.
Status CheckIds(const EmbeddingArgs& args);

}  // namespace tilewright
