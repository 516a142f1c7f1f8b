#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/gemm/cpu/int8/layout.h"
#include "tilewright/device.h"

namespace tilewright::gemm_int8 {

/// Bytes of W[n][k] packed in panels; k a multiple of the block.
inline std::size_t PackedSize(const BlockFormat& format, std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>((n + kPanelColumns - 1) / kPanelColumns) *
         PanelBytes(format, static_cast<int>(k / kBlock));
}

/// Packs n rows of k values in GGUF blocks, `row_bytes` apart and of any alignment, into PackedSize
/// bytes as layout.h describes. The format must have kernels (HasInt8). Every code and scale is
/// kept bit for bit. Runs on the executor of `stream`; reads nothing beyond k values of a row.
void PackPanels(const BlockFormat& format, const void* plain, std::int64_t n, std::int64_t k,
                std::size_t row_bytes, void* packed, Stream stream);

}  // namespace tilewright::gemm_int8
