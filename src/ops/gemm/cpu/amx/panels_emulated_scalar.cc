// The kernel file of tests: emulated tiles, plain C++ for vectors. No product library contains it.

#include "ops/gemm/cpu/amx/f16_arithmetic.h"
#include "ops/gemm/cpu/amx/tile_ops.h"
#include "ops/gemm/cpu/int8/vec_scalar.h"

namespace tilewright::gemm_int8 {
namespace {

/// As vec_amx.h, to the bit.
struct Vec : VecScalar {
  template <int kBits>
  static I Shift(const I& x) {
    return Each<I>([&](int i) { return kBits >= 0 ? x.v[i] << kBits : x.v[i] >> -kBits; });
  }
  static F OneWith(const I& x, std::uint32_t mask) {
    return Each<F>([&](int i) { return F32FromBits((x.v[i] & mask) | 0x3f800000u); });
  }
  static F Quiet(const F& x) {
    return Each<F>([&](int i) { return x.v[i] == x.v[i] ? x.v[i] : __builtin_nanf(""); });
  }
  static F Truncated(const F& x) {
    return Each<F>([&](int i) { return F32FromBits(BitsOfF32(x.v[i]) & 0xffff0000u); });
  }
  static std::uint16_t Rounded(float x) {
    return static_cast<std::uint16_t>((BitsOfF32(x) + 0x8000u) >> 16);
  }
  static void StorePairs(std::uint8_t* to, const F& even, const F& odd) {
    std::uint16_t pairs[2 * kColumns];
    for (int i = 0; i < kColumns; ++i)
      pairs[2 * i] = Rounded(even.v[i]), pairs[2 * i + 1] = Rounded(odd.v[i]);
    __builtin_memcpy(to, pairs, sizeof pairs);
  }
  static void StoreBF16(std::uint8_t* to, const float* from, int count) {
    std::uint16_t values[32] = {};
    for (int i = 0; from != nullptr && i < count; ++i) values[i] = Nearest(from[i]);
    __builtin_memcpy(to, values, sizeof values);
  }

  static void StoreQuads(std::uint8_t* to, const float* from, int count) {
    std::uint16_t values[32] = {};
    for (int i = 0; from != nullptr && i < 32; ++i) {
      const int k = gemm_amx::QuadOrder(i);
      if (k < count) values[i] = Nearest(from[k] * gemm_amx::kQuadsUp);
    }
    __builtin_memcpy(to, values, sizeof values);
  }
  static I SetWords(int word) {
    return Each<I>([=](int) { return static_cast<std::uint32_t>(word) * 0x10001u; });
  }
  static I WordsRight8(const I& x) {
    return EachWord([](int word) { return word >> 8; }, x);
  }
  static I WordsWith(const I& x, int mask, int with) {
    return EachWord([=](int word) { return (word & mask) | with; }, x);
  }
  static I Shorten3(const I& x) {
    return EachWord([](int word) { return (word & 0x8000) | ((word & 0x7fff) + 4) >> 3; }, x);
  }
  static bool AnyAbove(const I& x, int limit) {
    bool any = false;
    EachWord([&](int word) { return any = any || (word & 0x7fff) > limit; }, x);
    return any;
  }
  static void Store(std::uint8_t* to, const I& x) { __builtin_memcpy(to, &x, sizeof x); }
  static I TwiceLoadF16(const std::uint8_t* p) {
    std::uint16_t words[kColumns];
    __builtin_memcpy(words, p, sizeof words);
    return Each<I>([&](int i) { return words[i] * 0x10001u; });
  }
  static I TwiceToF16(const F& x) {
    return Each<I>([&](int i) { return F32ToF16(x.v[i]) * 0x10001u; });
  }
  static I MulF16(const I& a, const I& b) { return EachWord(gemm_int8::MulF16, a, b); }
  static I SubF16(const I& a, const I& b) { return EachWord(gemm_int8::SubF16, a, b); }
  static I FmaF16(const I& a, const I& b, const I& c) {
    return EachWord(gemm_int8::FmaF16, a, b, c);
  }

  static constexpr int ColumnAt(int column) { return 16 * column; }
  static void SplitColumns(const std::uint8_t* lines, std::uint8_t* bytes) {
    for (int c = 0; c < kColumns; ++c) {
      for (int line = 0; line < 4; ++line)
        __builtin_memcpy(bytes + 16 * c + 4 * line, lines + 64 * line + 4 * c, 4);
    }
  }
  static std::uint16_t Nearest(float x) {
    const bool subnormal = (BitsOfF32(x) & 0x7f800000u) == 0;
    return F32ToBF16(subnormal ? F32FromBits(BitsOfF32(x) & 0x80000000u) : x);
  }
  static void PutTableRow(const F& table, const std::uint8_t* bytes, std::uint8_t* to) {
    std::uint16_t words[32];
    for (int i = 0; i < 32; ++i) {
      const int k = gemm_amx::TableOrder(i), code = bytes[k % 16] >> (k < 16 ? 0 : 4) & 15;
      words[i] = Rounded(table.v[code]);
    }
    __builtin_memcpy(to, words, sizeof words);
  }
  static void PutTableRows(const F& first_table, const F& second_table, const std::uint8_t* first,
                           const std::uint8_t* second, std::uint8_t* to) {
    PutTableRow(first_table, first, to);
    PutTableRow(second_table, second, to + 64);
  }
  static void PackPairs(const float* a, std::int64_t lda, int rows, int count, std::uint8_t* to) {
    for (int pair = 0; pair < 16; ++pair) {
      for (int r = 0; r < 16; ++r) {
        std::uint16_t values[2] = {};
        for (int i = 0; i < 2; ++i) {
          const int k = gemm_amx::TableOrder(2 * pair + i);
          if (r < rows && k < count) values[i] = Nearest(a[r * lda + k]);
        }
        __builtin_memcpy(to + 64 * pair + 4 * r, values, sizeof values);
      }
    }
  }
  static void TransposeSums(const float* from, float* to) {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) to[16 * i + j] = from[16 * j + i];
    }
  }
};

}  // namespace
}  // namespace tilewright::gemm_int8

#define TILEWRIGHT_UNROLL
#include "ops/gemm/cpu/amx/emulated_kernels.h"
#include "ops/gemm/cpu/amx/panel_kernels.h"

namespace tilewright {
namespace gemm_amx {
namespace {
// The fingerprint of the kernels that it tests.
constexpr TileOps kOps = MakeTileOps<EmulatedTiles>("ops/gemm/cpu/amx/panels_amx.cc", AllBlocks{});
}  // namespace
}  // namespace gemm_amx

namespace test {
const gemm_amx::TileOps& TileOpsEmulated() { return gemm_amx::kOps; }
}  // namespace test
}  // namespace tilewright
