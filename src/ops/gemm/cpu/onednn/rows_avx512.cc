#include "core/convert_row.h"
#include "ops/gemm/cpu/onednn/rows.h"
#include "ops/gemm/cpu/w8a8/epilogue.h"
#include "ops/gemm/cpu/w8a8/rounding.h"

namespace tilewright::gemm {
namespace {

constexpr int kFlip = 128;  ///< oneDNN's fast products take unsigned activations

void ToF32(const float* a, int k, int padded, void* out) {
  auto* to = static_cast<float*>(out);
  __builtin_memcpy(to, a, sizeof(float) * static_cast<std::size_t>(k));
  for (int i = k; i < padded; ++i) to[i] = 0;
}

void ToBF16(const float* a, int k, int padded, void* out) {
  auto* to = static_cast<std::uint16_t*>(out);
  Convert<AsF32, AsBF16>(a, to, k);
  for (int i = k; i < padded; ++i) to[i] = 0;
}

float ToU8(const float* a, int k, int padded, void* out) {
  auto* to = static_cast<std::uint8_t*>(out);
  const auto put = [&](int first, const std::int8_t* codes, int) {
    for (int i = 0; i < gemm_w8a8::kStepK; ++i)
      to[first + i] = static_cast<std::uint8_t>(codes[i] + kFlip);
  };
  static_cast<void>(padded);  // whole steps, which RoundByOneScale fills up
  return gemm_w8a8::RoundByOneScale(a, k, put);
}

void Scale(void* sums, int columns, const std::int32_t* column_sums, const float* column_scales,
           float row_scale) {
  for (int c = 0; c < columns; ++c) {
    std::uint32_t sum;  // may have wrapped; the difference does not
    __builtin_memcpy(&sum, static_cast<char*>(sums) + 4 * c, 4);
    const auto exact =
        static_cast<std::int32_t>(sum - kFlip * static_cast<std::uint32_t>(column_sums[c]));
    const float product = static_cast<float>(exact) * column_scales[c] * row_scale;
    __builtin_memcpy(static_cast<char*>(sums) + 4 * c, &product, 4);
  }
}

constexpr OneDnnRows kRows = {TILEWRIGHT_TU, ToF32, ToBF16, ToU8, Scale, gemm_w8a8::FinishRows};

}  // namespace

const OneDnnRows& OneDnnRowsAvx512() { return kRows; }

}  // namespace tilewright::gemm
