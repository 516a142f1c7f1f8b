#pragma once

#include <cstdint>

#include "core/formats/formats.h"
#include "core/row_conversions.h"

namespace tilewright {

/// Decodes one row of `n` values, a multiple of the format's block, to the bits that DecodeRow
/// gives. `row` needs no alignment.
using DecodeFunction = void (*)(const void* row, float* out, std::int64_t n);

struct EmbeddingDecoders {
  DecodeFunction f32, f16, bf16;
  DecodeFunction blocks[kFormatCount];  ///< in the order of the list of formats
};

struct EmbeddingImpl {
  const char* isa;
  const char* tu;
  std::uint32_t features;
  double ns_per_element;  ///< one thread, data in the L2
  EmbeddingDecoders decoders;
  RowConversions rows;  ///< for results of other types than f32
};

extern const EmbeddingImpl kEmbeddingScalar;
extern const EmbeddingImpl kEmbeddingAvx2;
extern const EmbeddingImpl kEmbeddingAvx512;

}  // namespace tilewright
