#pragma once

#include "core/formats/formats.h"
#include "core/simd.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

template <class Block>
void ExpandVectors(const UnpackedBlock& unpacked, float* out) {
  constexpr BlockFormat kFormat = Block::kFormat;
  static_assert(kFormat.sub_block % kLanes == 0, "a vector lies within one sub-block");
  const float scale = ScaleOf<Block>(unpacked);
  const float min = kFormat.min == Factor::kNone ? 0 : F16ToF32(unpacked.min);
  for (int s = 0; s < kFormat.sub_blocks(); ++s) {
    float step = scale, offset = min;
    if constexpr (kFormat.scale == Factor::kF16TimesInt)
      step *= static_cast<float>(unpacked.scales[s]);
    if constexpr (kFormat.min == Factor::kF16TimesInt)
      offset *= static_cast<float>(unpacked.mins[s]);
    for (int i = s * kFormat.sub_block; i < (s + 1) * kFormat.sub_block; i += kLanes) {
      F32Vec value = FloatOf(LoadU8(unpacked.codes + i) - kFormat.zero) * step;
      if constexpr (kFormat.min != Factor::kNone) value = value + offset;
      StoreVec(out + i, value);
    }
  }
}

/// `n` values, whole blocks, to the bits that DecodeRow gives. `row` needs no alignment.
/// Several small blocks are unpacked before the first is expanded: codes that were just written as
/// wide vectors are slow to read in narrow ones.
template <class Block>
void DecodeBlocks(const void* row, float* out, std::int64_t n) {
  constexpr int kElements = Block::kFormat.elements, kBatch = kMaxBlockElements / kElements;
  const auto* block = static_cast<const Block*>(row);
  UnpackedBlock unpacked[kBatch];
  for (std::int64_t left = n / kElements; left > 0; left -= kBatch) {
    const int count = left < kBatch ? static_cast<int>(left) : kBatch;
    for (int i = 0; i < count; ++i, ++block) Unpack(*block, unpacked[i]);
    for (int i = 0; i < count; ++i, out += kElements) {
      if constexpr (Block::kFormat.has_table) {
        ExpandBlock<Block>(unpacked[i], out, 1);
      } else {
        ExpandVectors<Block>(unpacked[i], out);
      }
    }
  }
}

}  // namespace
}  // namespace tilewright
