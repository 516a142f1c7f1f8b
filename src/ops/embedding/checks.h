#pragma once

#include "ops/embedding/embedding.h"

namespace tilewright::embedding {

/// Checks that every id is -1 or names an entry of the table.
Status CheckIds(const Args& args);

}  // namespace tilewright::embedding
