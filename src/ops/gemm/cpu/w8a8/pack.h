#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tilewright/gemm.h"

/// From plain weights of any type to int8 with one scale a column.

namespace tilewright::gemm_w8a8 {

/// kShape for a k whose sums do not fit int32.
std::optional<Rejection> CheckDepth(int k);

/// kInvalidArgument unless `b` is what a kernel of weights of `type` packs: one plain column-major matrix of
/// whole blocks, k at most kMostK.
Status CheckPlainWeights(std::string_view kernel, DataType type, const MatrixLayout& b);

/// Panel `panel` (layout.h) of plain weights, which CheckPlainWeights has passed: columns are decoded
/// to f32, then rounded.
void PackPanelOf(DataType type, const void* plain, const MatrixLayout& b, int panel,
                 std::uint8_t* to);

}  // namespace tilewright::gemm_w8a8
