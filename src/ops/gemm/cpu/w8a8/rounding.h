#pragma once

#include "core/i8x32.h"
#include "ops/gemm/cpu/w8a8/layout.h"

/// For kernel files: everything is in an unnamed namespace, so that each keeps its own copy.

namespace tilewright::gemm_w8a8 {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file

/// Codes of k values by one scale, to nearest, ties to even: put(first, codes, count) for each step of k.
template <class Put>
float RoundByOneScale(const float* x, int k, Put&& put) {
  std::uint32_t magnitude = 0;
  for (int i = 0; i < k; ++i) {
    const std::uint32_t bits = BitsOfF32(x[i]) & 0x7fffffffu;
    magnitude = bits > magnitude ? bits : magnitude;
  }
  float scale, inverse;
  ScaleOfI8x32(magnitude, scale, inverse);
  for (int first = 0; first < k; first += kStepK) {
    std::int8_t codes[kStepK] = {};
    const int count = k - first < kStepK ? k - first : kStepK;
    const auto round = [&](int i) {
      const float value = inverse != 0.0f ? x[first + i] * inverse : 0.0f;
      codes[i] = static_cast<std::int8_t>((value + 0x1.8p23f) - 0x1.8p23f);
    };
    // A constant count becomes vectors.
    if (count == kStepK) {
      for (int i = 0; i < kStepK; ++i) round(i);
    } else {
      for (int i = 0; i < count; ++i) round(i);
    }
    put(first, codes, count);
  }
  return scale;
}

/// As IsaOps::pack_rows; kFlip: added to each code, modulo 256.
template <int kFlip>
void PackRows(const float* a, std::int64_t lda, int rows, int k, std::uint8_t* tiles,
              float* scales) {
  __builtin_memset(tiles, kFlip, TileBytes(k));
  for (int r = 0; r < rows; ++r) {
    const auto put = [&](int first, const std::int8_t* codes, int) {
      std::uint8_t* to = tiles + static_cast<std::size_t>(first / kStepK) * kStepBytes +
                         static_cast<std::size_t>(r * kStepK);
      for (int i = 0; i < kStepK; ++i) to[i] = static_cast<std::uint8_t>(codes[i] + kFlip);
    };
    scales[r] = RoundByOneScale(a + r * lda, k, put);
  }
}

/// The part of a panel behind its codes.
struct PanelEnd {
  alignas(64) float scales[kColumns];
  alignas(64) std::int32_t sums[kColumns];
};
inline const PanelEnd& EndOf(const std::uint8_t* panel, int k) {
  return *reinterpret_cast<const PanelEnd*>(panel + TileBytes(k));
}

/// Writes one row of up to 16 columns. Scales in this order, which all kernel files keep to.
inline void StoreRow(const std::int32_t* sums, const float* scales, float row_scale, int columns,
                     float* __restrict__ d) {
  const auto value = [&](int c) { return static_cast<float>(sums[c]) * scales[c] * row_scale; };
  if (columns >= kColumns) {
    for (int c = 0; c < kColumns; ++c) d[c] = value(c);
  } else {
    for (int c = 0; c < columns; ++c) d[c] = value(c);
  }
}

}  // namespace
}  // namespace tilewright::gemm_w8a8
