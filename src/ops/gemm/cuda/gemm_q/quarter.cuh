#pragma once

#include "ops/gemm/cuda/gemv/gemv_codes.cuh"

// A quarter of a span of kGemvSpan values of one row of W, two sub-blocks of 32, as operands of
// mma.sync: Codes (gemv_codes.cuh) with neighbouring values in a pair, and with what differs from
// quarter to quarter computed, not compiled, so that one piece of code serves all.
//   At(row, q)        quarter q of a row
//   Pairs<i>(t, a)    a[h] are values 16 h + 4 t + {0, 1} and {2, 3} of sub-block i, as bf16
//   ScaleOf<i>(h)     of sub-block i, of its values 16 h and on where there are two scales

namespace tw {

template <Type kType, bool kOfBlockCodes = kHasBlockCodes<kType>>
struct Quarter;

/// Of BlockCodes.
template <Type kType>
struct Quarter<kType, true> {
  using F = Codes<kType>;
  typename F::Row row;
  int first;  // of the quarter's sub-blocks
  TW_DEVICE static Quarter At(const typename F::Row& row, int q) { return {row, 2 * q}; }
  template <int kI>
  TW_DEVICE void Pairs(int t, u32 (&a)[2][2]) const {
    F::template PairsOf<kAdjacent>(row, first + kI, t, a);
  }
  template <int kI>
  TW_DEVICE CodeScale ScaleOf(int h) const {
    return F::ScaleOf(row, typename F::Head{}, first + kI, h);
  }
};

/// Other blocks of 32.
template <Type kType>
struct Quarter<kType, false> {
  using F = Codes<kType>;
  static_assert(F::kBlock == 32 && 2 * F::kBytes % 4 == 0, "two blocks keep the alignment");
  typename F::Row row;
  TW_DEVICE static Quarter At(const typename F::Row& row, int q) {
    return {row.Plus(2 * F::kBytes * q)};
  }
  template <int kI>
  TW_DEVICE void Pairs(int t, u32 (&a)[2][2]) const {
    F::template Pairs<kI, kAdjacent>(row, 0, t, a);
  }
  template <int kI>
  TW_DEVICE CodeScale ScaleOf(int h) const {
    return F::ScaleOf(row, typename F::Head{}, kI, h);
  }
};

template <>
struct Quarter<Type::kQ4_K> {
  using F = Codes<Type::kQ4_K>;
  F::Row row;
  u32 scales, mins;  // in bytes 0 and 1
  u32 factors;       // d and dmin, f16
  TW_DEVICE static Quarter At(const F::Row& row, int q) {
    const F::Head head = F::LoadHead(row);
    const u32 shift = static_cast<u32>(q % 2) * 16;
    return {row.Plus(32 * q), (q < 2 ? head.scales[0] : head.scales[1]) >> shift,
            (q < 2 ? head.mins[0] : head.mins[1]) >> shift, LoadWord(row.data)};
  }
  template <int kI>
  TW_DEVICE void Pairs(int t, u32 (&a)[2][2]) const {
    F::Pairs<kI, kAdjacent>(row, 0, t, a);
  }
  template <int kI>
  TW_DEVICE CodeScale ScaleOf(int) const {
    return F::Scaled(scales, mins, kI, LowF16ToF32(factors), HighF16ToF32(factors));
  }
};

template <>
struct Quarter<Type::kQ6_K> {
  using F = Codes<Type::kQ6_K>;
  F::Row row;
  int low_at, high_at, scale_at;  // of the quarter's half
  u32 shift;                      // to its bits of a byte
  float d;
  TW_DEVICE static Quarter At(const F::Row& row, int q) {
    return {
        row, 64 * (q / 2), 32 * (q / 2), 4 * q, static_cast<u32>(q % 2) * 4, F::LoadHead(row).d};
  }
  template <int kI, int kAt>
  TW_DEVICE void HalfPairs(int t, u32 (&pair)[2]) const {
    const u32 low = row.Word<32 * kI + kAt>(low_at + 4 * t) >> shift;
    const u32 high = row.Word<128 + kAt>(high_at + 4 * t) >> shift;
    u32 bytes[2];
    SplitBytes<kAdjacent>(AndOr(high << (4 - 2 * kI), 0x30303030u, low & 0x0f0f0f0fu), bytes);
    pair[0] = F::CodePair(bytes[0]);
    pair[1] = F::CodePair(bytes[1]);
  }
  template <int kI>
  TW_DEVICE void Pairs(int t, u32 (&a)[2][2]) const {
    HalfPairs<kI, 0>(t, a[0]);
    HalfPairs<kI, 16>(t, a[1]);
  }
  template <int kI>
  TW_DEVICE CodeScale ScaleOf(int h) const {
    const u32 biased = row.data[192 + scale_at + 2 * kI + h] ^ 0x80u;
    return {d * (BytePlusMagic(biased, 0) - (8388608.0f + 128.0f)), 0.0f};
  }
};

}  // namespace tw
