#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/gemm/cpu/int8/layout.h"

namespace tilewright::gemm_int8 {

/// Puts `rows` rows of `blocks` blocks of i8x32, `row_bytes` apart, into a tile of layout.h: what
/// quantising the f32 rows that they were made of gives. `tile` has rows * blocks * RecordBytes
/// bytes.
using ArrangeFunction = void (*)(const void* a, std::size_t row_bytes, int rows, int blocks,
                                 std::uint8_t* tile);
/// For a format of weights with HasInt8.
ArrangeFunction ArrangeFunctionOf(DataType weights);

}  // namespace tilewright::gemm_int8
