#pragma once

#include "ops/gemm/cpu/amx/unpack.h"

/// Codes of four bits as rows of a tile of [16 columns][32]: with a table a column costs 2 x 16 values to
/// scale and round, without 32, and a minimum nothing more.

namespace tilewright::gemm_int8 {
namespace {

/// The values of the codes before they are scaled.
struct CodeValues {
  alignas(64) float value[16];
};
template <class Block>
constexpr CodeValues ValuesOfCodes() {
  constexpr BlockFormat kFormat = Block::kFormat;
  CodeValues codes = {};
  for (int i = 0; i < 16; ++i)
    codes.value[i] = static_cast<float>(kFormat.has_table ? kFormat.values[i] : i - kFormat.zero);
  return codes;
}

/// Weights as rows of a tile of [16 columns][32], k in TableOrder.
template <class Block>
class TableRows {
 public:
  static constexpr int kAShift = 0;
  inline __attribute__((always_inline)) void Begin(const std::uint8_t* panel, int k, int step) {
    const StepOf<Block> of(panel, k, step);
    Vec::SplitColumns(of.at.codes, bytes_);
    Vec::StorePart(scales_, of.Scale(0), 16);
    if constexpr (kHasMin) Vec::StorePart(mins_, of.Min(0), 16);
  }
  template <int kHalf>
  inline __attribute__((always_inline)) void Put(std::uint8_t* out) const {
    static constexpr CodeValues kValues = ValuesOfCodes<Block>();
    const F values = Vec::LoadPart(kValues.value, 16);
    const auto table = [&](int column) {
      const F scale = Vec::Set(scales_[column]);
      if constexpr (kHasMin) return Vec::Fma(values, scale, Vec::Set(mins_[column]));
      return Vec::Mul(values, scale);
    };
    TILEWRIGHT_UNROLL
    for (int column = 8 * kHalf; column < 8 * kHalf + 8; column += 2) {
      Vec::PutTableRows(table(column), table(column + 1), bytes_ + Vec::ColumnAt(column),
                        bytes_ + Vec::ColumnAt(column + 1), out + 64 * column);
    }
  }
  static void Prefetch(const StepAhead& ahead, int k) { PrefetchStep<Block>(ahead, k); }

 private:
  static constexpr bool kHasMin = StepOf<Block>::kHasMin;
  alignas(64) std::uint8_t bytes_[256];
  alignas(64) float scales_[16];
  alignas(64) float mins_[16];
};

}  // namespace
}  // namespace tilewright::gemm_int8
