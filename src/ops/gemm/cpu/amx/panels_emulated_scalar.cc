// The kernel file of tests: emulated tiles, plain C++ for vectors. No product library contains it.

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
    for (int i = 0; from != nullptr && i < count; ++i) {
      const bool subnormal = (BitsOfF32(from[i]) & 0x7f800000u) == 0;
      values[i] = F32ToBF16(subnormal ? F32FromBits(BitsOfF32(from[i]) & 0x80000000u) : from[i]);
    }
    __builtin_memcpy(to, values, sizeof values);
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
