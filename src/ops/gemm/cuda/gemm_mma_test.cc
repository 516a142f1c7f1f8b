#include "device/cuda/kernels/mma_emulation.h"
// After it: the kernel uses its built-ins.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/block_format.h"
#include "core/test_util.h"
#include "ops/gemm/cuda/gemm_mma_kernel.cuh"

// The source of the kernel, run on the CPU against exact results: operands are small whole numbers,
// so that every order of summation agrees.

namespace tilewright {
namespace {

using tw::Type;

template <bool kRowA, bool kRowB, int kM, int kN, int kK, int kWarpCount, int kRowWarps,
          int kStageCount, Type kIn = Type::kBF16, Type kAddend = Type::kNone,
          Type kOut = Type::kBF16>
struct Spec {
  static constexpr Type kTypeA = kIn;
  static constexpr Type kTypeC = kAddend;
  static constexpr Type kTypeD = kOut;
  static constexpr bool kRowMajorA = kRowA;
  static constexpr bool kRowMajorB = kRowB;
  static constexpr int kTileM = kM;
  static constexpr int kTileN = kN;
  static constexpr int kTileK = kK;
  static constexpr int kWarps = kWarpCount;
  static constexpr int kStages = kStageCount;
  static constexpr int kWarpsM = kRowWarps;
  static constexpr int kBand = 2;
};

/// [lines][width] of a float type; what is between the lines and around them is NaN.
struct Matrix {
  Matrix(Type type_in, int lines_in, int width_in, std::int64_t ld_in, int shift)
      : type(static_cast<DataType>(type_in)),
        lines(lines_in),
        width(width_in),
        ld(ld_in),
        bytes(BytesOf(type, (lines_in - 1) * ld_in + width_in), BytesOf(type, shift)) {}
  void Fill(std::uint64_t seed) {
    for (int line = 0; line < lines; ++line) {
      const std::vector<float> values =
          test::RandomIntegers(static_cast<std::size_t>(width), seed + line);
      EXPECT_TRUE(EncodeRow(type, values.data(), width, At(line)));
    }
  }
  std::vector<double> Decode() {
    std::vector<double> all(static_cast<std::size_t>(lines) * width);
    for (int line = 0; line < lines; ++line) {
      EXPECT_TRUE(DecodeRow(type, At(line), width, &all[static_cast<std::size_t>(line) * width]));
    }
    return all;
  }
  std::byte* At(int line) {
    return static_cast<std::byte*>(bytes.data()) + BytesOf(type, line * ld);
  }

  DataType type;
  int lines, width;
  std::int64_t ld;
  test::GuardedBytes bytes;
};

struct Shape {
  int m, n, k;
  int pad = 0;            ///< elements between lines beyond the next multiple of 8
  bool odd = false;       ///< lines and addresses at odd elements: no wide access is possible
  bool in_place = false;  ///< C is D
};

template <class S>
void ExpectProduct(const Shape& shape) {
  SCOPED_TRACE(testing::Message() << shape.m << " x " << shape.n << " x " << shape.k << " pad "
                                  << shape.pad << (shape.odd ? " odd" : ""));
  const auto [m, n, k, pad, odd, in_place] = shape;
  const auto ld = [&](int width) { return odd ? width | 1 : (width + 7) / 8 * 8 + shape.pad; };
  const int shift = odd ? 1 : 0;
  constexpr bool kAdds = S::kTypeC != Type::kNone;
  Matrix a(S::kTypeA, S::kRowMajorA ? m : k, S::kRowMajorA ? k : m, ld(S::kRowMajorA ? k : m),
           shift);
  Matrix b(S::kTypeA, S::kRowMajorB ? k : n, S::kRowMajorB ? n : k, ld(S::kRowMajorB ? n : k),
           shift);
  Matrix d(S::kTypeD, m, n, ld(n), shift);
  Matrix c(kAdds ? S::kTypeC : Type::kF32, m, n, ld(n), shift);
  a.Fill(1);
  b.Fill(1000);
  (in_place ? d : c).Fill(2000);
  const std::vector<double> addend = (in_place ? d : c).Decode();

  const float alpha = 0.5f;
  const float beta = kAdds ? -2.0f : 0.0f;
  const tw::GemmMmaParams params{a.bytes.data(),
                                 b.bytes.data(),
                                 a.ld,
                                 b.ld,
                                 {in_place ? d.bytes.data() : c.bytes.data(), d.bytes.data(), c.ld,
                                  d.ld, m, n, k, alpha, beta, 0}};
  const unsigned int tiles = static_cast<unsigned int>((m + S::kTileM - 1) / S::kTileM *
                                                       ((n + S::kTileN - 1) / S::kTileN));
  tw::emulation::fault = false;
  std::fill(std::begin(tw::emulation::smem), std::end(tw::emulation::smem), tw::u8{0xff});
  EXPECT_TRUE(tw::emulation::Run({tiles, 1, 1}, 32 * S::kWarps,
                                 [&] { tw::GemmMma<S>(params, tw::emulation::smem); }));
  EXPECT_FALSE(tw::emulation::fault) << "a misaligned access";
  EXPECT_EQ(d.bytes.Damage(), "");

  const std::vector<double> x = a.Decode();
  const std::vector<double> y = b.Decode();
  const std::vector<double> got = d.Decode();
  int wrong = 0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int q = 0; q < k; ++q) {
        sum += x[S::kRowMajorA ? i * k + q : q * m + i] * y[S::kRowMajorB ? q * n + j : j * k + q];
      }
      const double exact = alpha * sum + (kAdds ? beta * addend[i * n + j] : 0.0);
      const double want = S::kTypeD == Type::kF32 ? exact
                          : S::kTypeD == Type::kBF16
                              ? tw::BF16ToF32(tw::F32ToBF16(static_cast<float>(exact)))
                              : tw::F16ToF32(tw::F32ToF16(static_cast<float>(exact)));
      if (got[i * n + j] != want && wrong++ < 4) {
        ADD_FAILURE() << "D[" << i << "][" << j << "] = " << got[i * n + j] << ", not " << want;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
  // Nothing between the lines of D.
  for (int i = 0; i + 1 < m; ++i) {
    for (const std::byte* at = d.At(i) + BytesOf(d.type, n); at < d.At(i + 1); ++at) {
      ASSERT_EQ(*at, std::byte{0xff}) << "behind row " << i;
    }
  }
}

template <class S>
void ExpectProducts() {
  ExpectProduct<S>({1, 1, 1});
  ExpectProduct<S>({S::kTileM, S::kTileN, S::kTileK});
  ExpectProduct<S>({S::kTileM + 1, S::kTileN - 1, S::kTileK * S::kStages + 3});
  ExpectProduct<S>({S::kTileM - 3, 2 * S::kTileN + 9, S::kTileK - 1, 8});
  ExpectProduct<S>({3 * S::kTileM - 8, S::kTileN + 8, 2 * S::kTileK + 8, 16});
  ExpectProduct<S>({.m = S::kTileM + 5, .n = S::kTileN + 3, .k = S::kTileK + 5, .odd = true});
}

constexpr bool kT = true;   // row-major
constexpr bool kN = false;  // column-major

TEST(GemmMmaKernel, MultipliesInEveryLayout) {
  ExpectProducts<Spec<kT, kN, 32, 64, 32, 4, 2, 3>>();
  ExpectProducts<Spec<kN, kT, 32, 64, 32, 4, 2, 3>>();
  ExpectProducts<Spec<kN, kN, 32, 64, 32, 4, 2, 3>>();
  ExpectProducts<Spec<kT, kT, 32, 64, 32, 4, 2, 3>>();
}

// Every width of line there is in the catalog, with more and fewer chunks than threads a line.
TEST(GemmMmaKernel, MultipliesWithTilesOfEveryWidth) {
  ExpectProducts<Spec<kT, kN, 16, 64, 64, 4, 1, 6>>();
  ExpectProducts<Spec<kN, kT, 16, 64, 64, 4, 1, 6>>();
  ExpectProducts<Spec<kN, kT, 16, 32, 64, 1, 1, 2>>();
  ExpectProducts<Spec<kN, kT, 32, 128, 64, 4, 1, 2>>();
  ExpectProducts<Spec<kT, kN, 16, 16, 128, 1, 1, 2>>();
}

TEST(GemmMmaKernel, MultipliesWithTheLargeTiles) {
  using Wide = Spec<kT, kN, 128, 128, 32, 4, 2, 4>;
  ExpectProduct<Wide>({130, 120, 37});
  ExpectProduct<Spec<kN, kT, 128, 128, 32, 8, 2, 3>>({120, 136, 40});
  ExpectProduct<Spec<kN, kT, 128, 64, 64, 4, 2, 3>>({129, 72, 72});
}

TEST(GemmMmaKernel, TakesAndGivesOtherTypes) {
  ExpectProducts<Spec<kT, kN, 32, 64, 32, 4, 2, 2, Type::kF16, Type::kNone, Type::kF16>>();
  ExpectProducts<Spec<kT, kN, 32, 64, 32, 4, 2, 2, Type::kBF16, Type::kNone, Type::kF32>>();
}

TEST(GemmMmaKernel, AddsC) {
  using Same = Spec<kT, kN, 32, 64, 32, 4, 2, 2, Type::kBF16, Type::kBF16, Type::kBF16>;
  ExpectProducts<Same>();
  ExpectProduct<Same>({.m = 40, .n = 72, .k = 40, .in_place = true});
  ExpectProduct<Same>({.m = 33, .n = 67, .k = 40, .odd = true, .in_place = true});
  ExpectProducts<Spec<kT, kN, 32, 64, 32, 4, 2, 2, Type::kF16, Type::kF32, Type::kF16>>();
}

TEST(GemmMmaKernel, DoesNotReadCWhenBetaIsZero) {
  using S = Spec<kT, kN, 16, 16, 32, 1, 1, 2, Type::kBF16, Type::kBF16, Type::kBF16>;
  Matrix a(Type::kBF16, 16, 32, 32, 0), b(Type::kBF16, 16, 32, 32, 0),
      d(Type::kBF16, 16, 16, 16, 0);
  a.Fill(1);
  b.Fill(2);
  const tw::GemmMmaParams params{a.bytes.data(),
                                 b.bytes.data(),
                                 32,
                                 32,
                                 {nullptr, d.bytes.data(), 0, 16, 16, 16, 32, 1.0f, 0.0f, 0}};
  EXPECT_TRUE(
      tw::emulation::Run({1, 1, 1}, 32, [&] { tw::GemmMma<S>(params, tw::emulation::smem); }));
  const std::vector<double> x = a.Decode();
  const std::vector<double> y = b.Decode();
  double sum = 0;
  for (int q = 0; q < 32; ++q) sum += x[q] * y[q];
  EXPECT_EQ(d.Decode()[0], sum);
}

}  // namespace
}  // namespace tilewright
