#pragma once

#include <span>

#include "tilewright/types.h"

namespace tilewright::cuda {

/// The block formats that kernels decode (kernels/block_values.cuh), in the order of the formats.
std::span<const DataType> BlockValueTypes();
bool HasBlockValues(DataType type);

}  // namespace tilewright::cuda
