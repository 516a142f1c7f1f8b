#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/block_format.h"
#include "core/formats/random_blocks.h"
#include "core/test_util.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"

/// For tests only; no library file includes this header.

namespace tilewright::test {

struct BlockShape {
  int m, n, k;
  int pad_w = 0;    ///< values between rows of W, whole blocks
  int shift_w = 0;  ///< bytes that W starts behind a multiple of 16
  float alpha = 1, beta = 0;
  bool gated = false;                  ///< rows of W are blocks of gate and of up in turn
  double x_scale = 1, w_scale = 0.05;  ///< of normally distributed values
  bool random_blocks = false;  ///< W is made of random bits, with scales of all sizes below 1
};

/// Rows of W whose bytes are a multiple of 16, as the copy engine needs them, of at least `k` values.
inline BlockShape PaddedShape(DataType type_w, int m, int n, int k) {
  int ld = k;
  while (BytesOf(type_w, ld) % 16 != 0) ld += GetTypeInfo(type_w).block_elements;
  return {.m = m, .n = n, .k = k, .pad_w = ld - k};
}

/// Rows of bf16 times weights in blocks with an addend: random operands in guarded memory, with nothing of
/// theirs behind their last rows, a poisoned result, and what it has to be by float64.
class BlockProduct {
 public:
  BlockProduct(DataType type_w, DataType type_y, const BlockShape& its_shape)
      : shape(its_shape),
        x_((Size(shape.m) - 1) * Ldx() * 2 + Size(shape.k) * 2),
        w_((Size(shape.n) - 1) * RowBytes(type_w) + BytesOf(type_w, shape.k), Size(shape.shift_w)),
        c_(Size(shape.m) * Size(shape.n) * BytesOf(type_y, 1)),
        y_(Size(shape.m) * Ldy() * BytesOf(type_y, 1)),
        type_y_(type_y) {
    MakeX();
    MakeW(type_w);
    addend_ = RandomIntegers(Size(shape.m) * Size(shape.n), 9);
    EXPECT_TRUE(
        EncodeRow(type_y, addend_.data(), static_cast<std::int64_t>(addend_.size()), c_.data()));
    args.alpha = shape.alpha;
    args.beta = shape.beta;
    args.a = x_.data();
    args.b = w_.data();
    args.c = c_.data();
    args.d = y_.data();
    args.a_layout = {
        .type = DataType::kBF16, .rows = shape.m, .cols = shape.k, .ld = Signed(Ldx())};
    args.b_layout = {.type = type_w,
                     .order = Order::kColMajor,
                     .rows = shape.k,
                     .cols = shape.n,
                     .ld = shape.k + shape.pad_w};
    args.c_layout = {.type = type_y, .rows = shape.m, .cols = shape.n, .ld = shape.n};
    args.d_layout = {.type = type_y, .rows = shape.m, .cols = Columns(), .ld = Signed(Ldy())};
  }

  /// The types, orders and epilogue of a kernel of `family` for sm_90a that computes it.
  KernelSpec SpecOf(const char* family) const {
    KernelSpec spec;
    spec.family = family;
    spec.arch = {90, 'a'};
    spec.type_a = DataType::kBF16;
    spec.type_b = args.b_layout.type;
    spec.type_d = type_y_;
    spec.type_c = shape.gated ? DataType::kNone : type_y_;
    spec.order_a = Order::kRowMajor;
    spec.order_b = Order::kColMajor;
    spec.epilogue = shape.gated ? SpecEpilogue::kSwiGlu : SpecEpilogue::kAdd;
    return spec;
  }

  std::pair<const unsigned char*, const unsigned char*> ReadableX() const { return Range(x_); }
  std::pair<const unsigned char*, const unsigned char*> ReadableW() const { return Range(w_); }

  /// Poisons y again.
  void Poison() { y_.Poison(); }
  std::vector<double> Result() const {
    std::vector<double> got(Size(shape.m) * Ldy());
    EXPECT_TRUE(DecodeRow(type_y_, y_.data(), Signed(got.size()), got.data()));
    return got;
  }

  /// From here on the weights are what `round(type, blocks, values)` makes of those of each row of W.
  template <class Round>
  void RoundWeights(Round round) {
    const DataType type = args.b_layout.type;
    for (std::size_t r = 0; r < Size(shape.n); ++r) {
      const auto* row = static_cast<const unsigned char*>(w_.data()) + r * RowBytes(type);
      round(type, row, std::span(ws_).subspan(r * Size(shape.k), Size(shape.k)));
    }
  }

  /// Holds y to the product.
  void Expect() const {
    EXPECT_EQ(y_.Damage() + x_.Damage() + w_.Damage() + c_.Damage(), "");
    const std::vector<double> got = Result();
    for (std::size_t i = 0; i < Size(shape.m); ++i) {
      for (std::size_t j = 0; j < Ldy(); ++j) {
        if (j >= Size(Columns())) {
          ASSERT_TRUE(std::isnan(got[i * Ldy() + j])) << "padding of y was written";
          continue;
        }
        const auto [want, bound] = Wanted(i, j);
        ASSERT_NEAR(got[i * Ldy() + j], want, bound) << "row " << i << " column " << j;
      }
    }
  }

  BlockShape shape;
  GemmArgs args;

 private:
  static std::size_t Size(int value) { return static_cast<std::size_t>(value); }
  static std::int64_t Signed(std::size_t value) { return static_cast<std::int64_t>(value); }
  static std::pair<const unsigned char*, const unsigned char*> Range(const GuardedBytes& bytes) {
    const auto* begin = static_cast<const unsigned char*>(bytes.data());
    return {begin, begin + bytes.size()};
  }
  std::size_t Ldx() const { return Size(shape.k) + 8; }
  int Columns() const { return shape.gated ? shape.n / 2 : shape.n; }
  std::size_t Ldy() const { return Size(Columns()) + 3; }
  std::size_t RowBytes(DataType type_w) const { return BytesOf(type_w, shape.k + shape.pad_w); }

  void MakeX() {
    xs_.resize(Size(shape.m) * Size(shape.k));
    for (std::size_t r = 0; r < Size(shape.m); ++r) {
      const std::vector<float> row = RandomFloats(Size(shape.k), 100 + r, shape.x_scale);
      auto* at = static_cast<unsigned char*>(x_.data()) + r * Ldx() * 2;
      EXPECT_TRUE(EncodeRow(DataType::kBF16, row.data(), shape.k, at));
      EXPECT_TRUE(DecodeRow(DataType::kBF16, at, shape.k, &xs_[r * Size(shape.k)]));
    }
  }
  void MakeW(DataType type_w) {
    ws_.resize(Size(shape.n) * Size(shape.k));
    for (std::size_t r = 0; r < Size(shape.n); ++r) {
      auto* at = static_cast<unsigned char*>(w_.data()) + r * RowBytes(type_w);
      if (shape.random_blocks) {
        Random random(500 + r);
        RandomBlocks(type_w, shape.k / GetTypeInfo(type_w).block_elements, random, at);
      } else {
        const std::vector<float> row = RandomFloats(Size(shape.k), 500 + r, shape.w_scale);
        EXPECT_TRUE(EncodeRow(type_w, row.data(), shape.k, at));
      }
      EXPECT_TRUE(DecodeRow(type_w, at, shape.k, &ws_[r * Size(shape.k)]));
    }
  }

  /// The sum of row j of W, and how far one in f32 may be from it.
  std::pair<double, double> SumOf(std::size_t i, std::size_t j) const {
    const std::size_t k = Size(shape.k);
    double sum = 0, magnitude = 0;
    for (std::size_t e = 0; e < k; ++e) {
      const double product =
          static_cast<double>(xs_[i * k + e]) * static_cast<double>(ws_[j * k + e]);
      sum += product;
      magnitude += std::fabs(product);
    }
    // Each addition rounds a partial sum that is at most the sum of magnitudes; a warp adds one
    // for each of its sub-blocks.
    const double alpha = shape.alpha;
    return {alpha * sum,
            0x1p-24 * (static_cast<double>(k) / 32 + 16) * magnitude * std::fabs(alpha)};
  }

  std::pair<double, double> Wanted(std::size_t i, std::size_t j) const {
    const std::size_t row = shape.gated ? j / kGatedBlock * (2 * kGatedBlock) + j % kGatedBlock : j;
    auto [want, bound] = SumOf(i, row);
    if (shape.gated) {
      const auto [up, up_bound] = SumOf(i, row + kGatedBlock);
      const double silu = want / (1 + std::exp(-want));
      want = silu * up;
      // The derivative of silu is at most 1.1; the kernel's is a few units of the last place off.
      bound = 1.1 * bound * (std::fabs(up) + up_bound) + std::fabs(silu) * up_bound +
              0x1p-21 * std::fabs(want);
    } else if (shape.beta != 0) {
      want += static_cast<double>(shape.beta) * static_cast<double>(addend_[i * Size(shape.n) + j]);
    }
    const double roundoff = type_y_ == DataType::kF32 ? 0 : 0x1p-8;
    return {want, bound + 1e-6 + roundoff * std::fabs(want)};
  }

  GuardedBytes x_, w_, c_, y_;
  DataType type_y_;
  std::vector<float> xs_, ws_, addend_;
};

}  // namespace tilewright::test
