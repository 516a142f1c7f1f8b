#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "core/numeric.h"

/// Tiles of AMX, eight registers of up to 16 rows of 64 bytes, behind one interface with three
/// implementations: AmxTiles, the instructions, EmulatedTiles, memory and plain C++, and
/// VectorTiles, the dot products of AVX-512 BF16 for processors without AMX. A kernel is a template
/// over the implementation. What the first two compute is the same to the bit, so that every machine
/// can test it. (Of a NaN only that it is one: which payload survives is not emulated.) The sums of
/// VectorTiles are rounded in another order.
/// For kernel files: everything is in an unnamed namespace, so that each keeps its own copy.

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see above

constexpr int kTileRegisters = 8;
constexpr int kTileRows = 16;      ///< at most
constexpr int kTileRowBytes = 64;  ///< at most
constexpr int kTileBytes = kTileRows * kTileRowBytes;

/// Shapes of the registers, in the layout that ldtilecfg reads. By default all are whole.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

/// What TDPBF16PS does to one element of the sum, c += a[0..2k) . b[0..2k) (Intel SDM, volume 2):
/// even and odd k are two chains of fused multiply-adds that start at zero, then their sum is added
/// to c. Each step rounds to nearest even, takes subnormal operands as zero and flushes a subnormal
/// result to zero, whatever MXCSR says.
struct TileArithmetic {
  static float WithoutSubnormal(float x) {
    const std::uint32_t bits = BitsOfF32(x);
    return (bits & 0x7f800000u) == 0 ? F32FromBits(bits & 0x80000000u) : x;
  }
  /// A result is tiny if it is below 2^-126 once rounded to 24 bits, as if exponents had no end.
  /// That is not what fmaf says of values within 2^-150 of 2^-126. The double is exact for results
  /// so small: no operand is subnormal, and a product has 16 bits.
  static float FusedMultiplyAdd(float a, float b, float c) {
    const float sum = __builtin_fmaf(a, b, c);
    if ((BitsOfF32(sum) & 0x7fffffffu) > 0x00800000u) return sum;
    const double exact = static_cast<double>(a) * b + c;
    const double magnitude = exact < 0 ? -exact : exact;
    return magnitude < 0x1p-126 - 0x1p-151 ? F32FromBits(BitsOfF32(sum) & 0x80000000u) : sum;
  }
  /// Of two floats that are not subnormal, a sum that is subnormal is exact.
  static float Add(float a, float b) { return WithoutSubnormal(a + b); }
};

/// The registers in memory. An object is one thread's.
class EmulatedTiles {
 public:
  explicit EmulatedTiles(const TileConfig& config) : config_(config) {
    std::memset(tiles_, 0, sizeof tiles_);
  }

  template <int T>
  void Zero() {
    std::memset(tiles_[T], 0, kTileBytes);
  }
  /// `stride`: bytes between rows in memory.
  template <int T>
  void Load(const void* from, std::ptrdiff_t stride) {
    Zero<T>();
    for (int r = 0; r < config_.rows[T]; ++r) {
      std::memcpy(tiles_[T] + r * kTileRowBytes,
                  static_cast<const std::uint8_t*>(from) + r * stride, config_.row_bytes[T]);
    }
  }
  /// As Load, of what is read once.
  template <int T>
  void LoadOnce(const void* from, std::ptrdiff_t stride) {
    Load<T>(from, stride);
  }
  /// T will be written before it is read again. (Until then it holds NaN, so that a test finds who reads it.)
  template <int T>
  void Free() {
    std::memset(tiles_[T], 0xff, kTileBytes);
  }
  /// Room between two instructions of tiles.
  static void Space() {}
  template <int T>
  void Store(void* to, std::ptrdiff_t stride) const {
    for (int r = 0; r < config_.rows[T]; ++r) {
      std::memcpy(static_cast<std::uint8_t*>(to) + r * stride, tiles_[T] + r * kTileRowBytes,
                  config_.row_bytes[T]);
    }
  }

  /// C[m][n] += A[m][k] * B[k / 2][n][2], bf16 operands, f32 sums.
  template <int C, int A, int B>
  void DotBF16() {
    static_assert(C != A && C != B && A != B, "the instruction needs three registers");
    const int columns = config_.row_bytes[C] / 4, pairs = config_.row_bytes[A] / 4;
    for (int r = 0; r < config_.rows[C]; ++r) {
      float even[kTileRows] = {}, odd[kTileRows] = {};
      for (int k = 0; k < pairs; ++k) {
        const float a0 = Element(tiles_[A], r, 2 * k), a1 = Element(tiles_[A], r, 2 * k + 1);
        for (int n = 0; n < columns; ++n) {
          const float b0 = Element(tiles_[B], k, 2 * n), b1 = Element(tiles_[B], k, 2 * n + 1);
          even[n] = TileArithmetic::FusedMultiplyAdd(a0, b0, even[n]);
          odd[n] = TileArithmetic::FusedMultiplyAdd(a1, b1, odd[n]);
        }
      }
      std::uint8_t* row = tiles_[C] + r * kTileRowBytes;
      for (int n = 0; n < columns; ++n) {
        float sum;
        std::memcpy(&sum, row + 4 * n, sizeof sum);
        sum = TileArithmetic::Add(TileArithmetic::WithoutSubnormal(sum),
                                  TileArithmetic::Add(even[n], odd[n]));
        std::memcpy(row + 4 * n, &sum, sizeof sum);
      }
    }
  }

  /// C[m][n] += A[m][k] * B[k / 4][n][4], int8 operands, int32 sums that wrap.
  template <int C, int A, int B>
  void DotI8() {
    static_assert(C != A && C != B && A != B, "the instruction needs three registers");
    const int columns = config_.row_bytes[C] / 4, quads = config_.row_bytes[A] / 4;
    for (int r = 0; r < config_.rows[C]; ++r) {
      const std::uint8_t* a = tiles_[A] + r * kTileRowBytes;
      for (int n = 0; n < columns; ++n) {
        std::uint8_t* at = tiles_[C] + r * kTileRowBytes + 4 * n;
        std::uint32_t sum;
        std::memcpy(&sum, at, sizeof sum);
        for (int k = 0; k < 4 * quads; ++k) {
          const std::uint8_t b = tiles_[B][k / 4 * kTileRowBytes + 4 * n + k % 4];
          sum += static_cast<std::uint32_t>(static_cast<std::int8_t>(a[k]) *
                                            static_cast<std::int8_t>(b));
        }
        std::memcpy(at, &sum, sizeof sum);
      }
    }
  }

 private:
  /// bf16 `i` of row `r`, a subnormal one as zero.
  static float Element(const std::uint8_t* tile, int r, int i) {
    std::uint16_t bits;
    std::memcpy(&bits, tile + r * kTileRowBytes + 2 * i, sizeof bits);
    return TileArithmetic::WithoutSubnormal(BF16ToF32(bits));
  }

  TileConfig config_;
  alignas(64) std::uint8_t tiles_[kTileRegisters][kTileBytes];
};

#if defined(__AVX512BF16__)
/// Whole tiles of bf16 by vector instructions. Registers 0 to 3 are for sums, 4 to 7 for operands,
/// which stay where they are loaded from: that memory must not change before the product. An element
/// is a chain of dot products of two over ascending k, which take subnormal operands as zero and
/// flush sums. An object is one thread's.
class VectorTiles {
 public:
  explicit VectorTiles(const TileConfig&) {}

  template <int T>
  void Zero() {
    static_assert(T < kSums);
    for (__m512& row : sums_[T]) row = _mm512_setzero_ps();
  }
  template <int T>
  void Load(const void* from, std::ptrdiff_t stride) {
    const auto* bytes = static_cast<const std::uint8_t*>(from);
    if constexpr (T < kSums) {
      for (int r = 0; r < kTileRows; ++r) sums_[T][r] = _mm512_loadu_ps(bytes + r * stride);
    } else {
      operands_[T - kSums] = {bytes, stride};
    }
  }
  template <int T>
  void LoadOnce(const void* from, std::ptrdiff_t stride) {
    Load<T>(from, stride);
  }
  template <int T>
  void Free() {}
  static void Space() {}
  template <int T>
  void Store(void* to, std::ptrdiff_t stride) const {
    static_assert(T < kSums);
    for (int r = 0; r < kTileRows; ++r)
      _mm512_storeu_ps(static_cast<std::uint8_t*>(to) + r * stride, sums_[T][r]);
  }

  /// C[m][n] += A[m][k] * B[k / 2][n][2], bf16 operands, f32 sums.
  template <int C, int A, int B>
  void DotBF16() {
    static_assert(C < kSums && A >= kSums && B >= kSums && A != B);
    const Operand a = operands_[A - kSums], b = operands_[B - kSums];
    __m512 sum[kTileRows];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) sum[r] = sums_[C][r];
    for (int pair = 0; pair < kTileRowBytes / 4; ++pair) {
      const __m512i column = _mm512_loadu_si512(b.at + pair * b.stride);
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        std::int32_t both;
        std::memcpy(&both, a.at + r * a.stride + 4 * pair, sizeof both);
        const __m512i row = _mm512_set1_epi32(both);
        sum[r] = _mm512_dpbf16_ps(sum[r], reinterpret_cast<const __m512bh&>(row),
                                  reinterpret_cast<const __m512bh&>(column));
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) sums_[C][r] = sum[r];
  }

 private:
  static constexpr int kSums = 4;
  struct Operand {
    const std::uint8_t* at;
    std::ptrdiff_t stride;
  };
  __m512 sums_[kSums][kTileRows];
  Operand operands_[kTileRegisters - kSums];
};
#endif

// GCC spells the macro one way, clang before 15 the other.
#if defined(__AMX_TILE__) || defined(__AMXTILE__)
/// The instructions. An object configures the registers of its thread and releases them: one at a
/// time, in a task, which the system lets use them only after RequestAmx (device/cpu/cpuid.h).
/// The assembly is written out because GCC 12's intrinsics take register numbers as text, which a
/// template's parameter is not, and do not say which memory they read, so that stores before them
/// get lost.
///
/// A core has places for tiles that it shares among its hardware threads. Every instruction that writes a
/// register takes another one, and gives back that of the value before when it retires; a register of zeros
/// needs none. Where the other thread works as well there are nine, so that with all eight registers in use one
/// instruction runs at a time. Hence Free, and Space for those before it to retire
/// (ops/gemm/cpu/amx/README.md has the figures).
class AmxTiles {
 public:
  explicit AmxTiles(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  ~AmxTiles() { asm volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int T>
  void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(T));
  }
  template <int T>
  void Load(const void* from, std::ptrdiff_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  void LoadOnce(const void* from, std::ptrdiff_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  void Free() {
    Zero<T>();
  }
  static void Space() { asm volatile("nop\n nop\n nop\n nop"); }
  template <int T>
  void Store(void* to, std::ptrdiff_t stride) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(T) : "memory");
  }
  template <int C, int A, int B>
  void DotBF16() {
    static_assert(C != A && C != B && A != B, "the instruction needs three registers");
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
  /// C[m][n] += A[m][k] * B[k / 4][n][4], int8 operands, int32 sums that wrap.
  template <int C, int A, int B>
  void DotI8() {
    static_assert(C != A && C != B && A != B, "the instruction needs three registers");
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
};
#endif

}  // namespace
}  // namespace tilewright
