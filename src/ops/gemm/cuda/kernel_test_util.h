#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/block_format.h"
#include "core/test_util.h"
#include "device/cuda/kernels/numeric.cuh"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"

// Products that a kernel run on the CPU must compute exactly: operands are small whole numbers, so
// that every order of summation agrees.

namespace tilewright {

/// [lines][width] of a float type; what is between the lines and around them is NaN.
struct TestMatrix {
  TestMatrix(tw::Type type_in, int lines_in, int width_in, std::int64_t ld_in, int shift)
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

struct TestShape {
  int m, n, k;
  int pad = 0;            ///< elements between lines beyond the next multiple of 8
  bool odd = false;       ///< lines and addresses at odd elements: no wide access is possible
  bool in_place = false;  ///< C is D
  bool odd_d = false;     ///< as odd, for C and D only
};

/// The type of B: that of A where a Spec names none.
template <class S>
constexpr tw::Type TypeBOf() {
  if constexpr (requires { S::kTypeB; }) return S::kTypeB;
  return S::kTypeA;
}

/// The spec whose kernel is the template with `S`; tile_k, cluster and the family's own parameters
/// are left to the caller.
template <class S>
KernelSpec SpecOf(FamilyName family, CudaArch arch) {
  const auto order = [](bool row_major) { return row_major ? Order::kRowMajor : Order::kColMajor; };
  KernelSpec spec;
  spec.family = family;
  spec.arch = arch;
  spec.type_a = static_cast<DataType>(S::kTypeA);
  spec.type_b = static_cast<DataType>(TypeBOf<S>());
  spec.type_c = static_cast<DataType>(S::kTypeC);
  spec.type_d = static_cast<DataType>(S::kTypeD);
  spec.order_a = order(S::kRowMajorA);
  spec.order_b = order(S::kRowMajorB);
  spec.epilogue = S::kTypeC == tw::Type::kNone ? SpecEpilogue::kNone : SpecEpilogue::kAdd;
  spec.stages = S::kStages;
  spec.tile_m = S::kTileM;
  spec.tile_n = S::kTileN;
  spec.warps = S::kWarps;
  return spec;
}

/// Operands and result of one product with the types and orders of `S` (a Spec as the kernels take
/// it), and what it must be.
template <class S>
struct TestProduct {
  static constexpr bool kAdds = S::kTypeC != tw::Type::kNone;

  explicit TestProduct(const TestShape& shape_in)
      : shape(shape_in),
        a(Operand(S::kTypeA, S::kRowMajorA, shape.m, shape.k)),
        b(Operand(TypeBOf<S>(), S::kRowMajorB, shape.k, shape.n)),
        c(Operand(kAdds ? S::kTypeC : tw::Type::kF32, true, shape.m, shape.n, shape.odd_d)),
        d(Operand(S::kTypeD, true, shape.m, shape.n, shape.odd_d)) {
    a.Fill(1);
    b.Fill(1000);
    TestMatrix& addend_matrix = shape.in_place ? d : c;
    addend_matrix.Fill(2000);
    addend = addend_matrix.Decode();
  }
  TestMatrix Operand(tw::Type type, bool row_major, int rows, int cols,
                     bool odd_too = false) const {
    const bool odd = shape.odd || odd_too;
    const int lines = row_major ? rows : cols;
    const int width = row_major ? cols : rows;
    const int ld = odd ? width | 1 : (width + 7) / 8 * 8 + shape.pad;
    return TestMatrix(type, lines, width, ld, odd ? 1 : 0);
  }
  GemmArgs Args() {
    const auto layout = [](const TestMatrix& matrix, bool row_major, int rows, int cols) {
      return MatrixLayout{.type = matrix.type,
                          .order = row_major ? Order::kRowMajor : Order::kColMajor,
                          .rows = rows,
                          .cols = cols,
                          .ld = matrix.ld};
    };
    GemmArgs args;
    args.alpha = kAlpha;
    args.beta = kAdds ? kBeta : 0.0f;
    args.a = a.bytes.data();
    args.b = b.bytes.data();
    args.c = shape.in_place ? d.bytes.data() : c.bytes.data();
    args.d = d.bytes.data();
    args.a_layout = layout(a, S::kRowMajorA, shape.m, shape.k);
    args.b_layout = layout(b, S::kRowMajorB, shape.k, shape.n);
    args.c_layout = layout(shape.in_place ? d : c, true, shape.m, shape.n);
    args.d_layout = layout(d, true, shape.m, shape.n);
    return args;
  }

  /// D holds the product, and nothing beside it was written.
  void Expect() {
    SCOPED_TRACE(testing::Message()
                 << shape.m << " x " << shape.n << " x " << shape.k << " pad " << shape.pad
                 << (shape.odd     ? " odd"
                     : shape.odd_d ? " odd result"
                                   : "")
                 << (shape.in_place ? " in place" : ""));
    EXPECT_EQ(d.bytes.Damage(), "");
    const int m = shape.m, n = shape.n, k = shape.k;
    const std::vector<double> x = a.Decode();
    const std::vector<double> y = b.Decode();
    const std::vector<double> got = d.Decode();
    int wrong = 0;
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int q = 0; q < k; ++q) {
          sum +=
              x[S::kRowMajorA ? i * k + q : q * m + i] * y[S::kRowMajorB ? q * n + j : j * k + q];
        }
        const double want = Rounded(kAlpha * sum + (kAdds ? kBeta * addend[i * n + j] : 0.0));
        if (got[i * n + j] != want && wrong++ < 4) {
          ADD_FAILURE() << "D[" << i << "][" << j << "] = " << got[i * n + j] << ", not " << want;
        }
      }
    }
    EXPECT_EQ(wrong, 0);
    for (int i = 0; i + 1 < m; ++i) {
      for (const std::byte* at = d.At(i) + BytesOf(d.type, n); at < d.At(i + 1); ++at) {
        ASSERT_EQ(*at, std::byte{0xff}) << "behind row " << i;
      }
    }
  }
  static double Rounded(double exact) {
    const auto value = static_cast<float>(exact);
    if (S::kTypeD == tw::Type::kBF16) return tw::BF16ToF32(tw::F32ToBF16(value));
    if (S::kTypeD == tw::Type::kF16) return tw::F16ToF32(tw::F32ToF16(value));
    return value;
  }

  static constexpr float kAlpha = 0.5f;
  static constexpr float kBeta = -2.0f;
  TestShape shape;
  TestMatrix a, b, c, d;
  std::vector<double> addend;
};

}  // namespace tilewright
