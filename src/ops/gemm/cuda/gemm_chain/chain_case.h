#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "core/numeric.h"
#include "core/test_util.h"
#include "ops/gemm/cuda/gemm_qw/rounded_weights.h"
#include "tilewright/gemm.h"

/// For tests only; no library file includes this header.

namespace tilewright::test {

/// Rows, hidden values, values of the feed-forward and rows of the last product; how many of the four
/// products there are.
struct ChainShape {
  int m, hidden, ffn, qkv;
  int count = 4;
  double x_scale = 1;
};

/// The products between two attentions of a layer, with random operands in guarded memory and poisoned results: of
/// what attention left with the residual, gate and up of its norm, down with the residual, and the next
/// layer's q, k and v of its norm. Each is held to float64 from what the one in front of it has stored.
class ChainCase {
 public:
  ChainCase(DataType weight, const ChainShape& shape)
      : shape_(shape),
        weight_(weight),
        x_(Bytes(shape.hidden)),
        residual_(Bytes(shape.hidden)),
        gains_(2 * Size(shape.hidden) * 4) {
    Fill(x_, shape.hidden, 1, shape.x_scale);
    Fill(residual_, shape.hidden, 2, shape.x_scale);
    gain_values_ = RandomFloats(2 * Size(shape.hidden), 3, 1.0);
    std::memcpy(gains_.data(), gain_values_.data(), gains_.size());
    const struct {
      int n, k, columns;
    } sizes[] = {{shape.hidden, shape.hidden, shape.hidden},
                 {2 * shape.ffn, shape.hidden, shape.ffn},
                 {shape.hidden, shape.ffn, shape.hidden},
                 {shape.qkv, shape.hidden, shape.qkv}};
    for (int i = 0; i < shape.count; ++i) {
      // Rows of weights begin at multiples of 16 bytes, as the copy engine needs them.
      int ld = sizes[i].k;
      while (BytesOf(weight, ld) % 16 != 0) ld += GetTypeInfo(weight).block_elements;
      weights_.emplace_back(Size(sizes[i].n) * BytesOf(weight, ld));
      results_.emplace_back(Bytes(sizes[i].columns));
      GemmArgs args;
      args.a = i == 0 ? x_.data() : results_[Size(i - 1)].data();
      args.b = weights_.back().data();
      args.d = results_.back().data();
      args.constant_b = true;
      args.a_layout = Rows(sizes[i].k);
      args.b_layout = {.type = weight,
                       .order = Order::kColMajor,
                       .rows = sizes[i].k,
                       .cols = sizes[i].n,
                       .ld = ld};
      args.d_layout = Rows(sizes[i].columns);
      if (i == 1) args.epilogue = Epilogue::kGatedSilu;
      if (i == 0 || i == 2) {
        args.beta = 1;
        args.c = i == 0 ? residual_.data() : results_[0].data();
        args.c_layout = Rows(shape.hidden);
      }
      if (i == 1 || i == 3) {
        args.prologue = Prologue::kRmsNorm;
        args.norm = static_cast<const float*>(gains_.data()) + (i == 1 ? 0 : shape.hidden);
        args.type_norm = DataType::kF32;
        args.epsilon = 1e-5f;
      }
      products_.push_back(args);
      FillWeights(args, 10 + i);
    }
  }

  std::vector<GemmArgs>& products() { return products_; }
  const std::vector<GemmArgs>& products() const { return products_; }
  void Poison() {
    for (GuardedBytes& result : results_) result.Poison();
  }
  const GuardedBytes& result(std::size_t product) const { return results_[product]; }

  void Expect() const {
    EXPECT_EQ(x_.Damage() + residual_.Damage() + gains_.Damage(), "");
    for (std::size_t i = 0; i < products_.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "product " << i);
      EXPECT_EQ(weights_[i].Damage() + results_[i].Damage(), "");
      ExpectProduct(products_[i], i);
    }
  }

 private:
  static std::size_t Size(int value) { return static_cast<std::size_t>(value); }
  std::size_t Bytes(int columns) const { return Size(shape_.m) * Size(columns) * 2; }
  MatrixLayout Rows(int columns) const {
    return {.type = DataType::kBF16, .rows = shape_.m, .cols = columns, .ld = columns};
  }
  void Fill(GuardedBytes& to, int columns, std::uint64_t seed, double scale) const {
    const auto values = RandomFloats(Size(shape_.m) * Size(columns), seed, scale);
    EXPECT_TRUE(EncodeRow(DataType::kBF16, values.data(), static_cast<std::int64_t>(values.size()),
                          to.data()));
  }
  void FillWeights(const GemmArgs& args, std::uint64_t seed) {
    const std::size_t k = Size(args.b_layout.rows), n = Size(args.b_layout.cols);
    const auto row_bytes = static_cast<std::size_t>(BytesOf(weight_, args.b_layout.ld));
    auto* at = static_cast<std::byte*>(weights_.back().data());
    std::vector<double> values(n * k);
    for (std::size_t r = 0; r < n; ++r, at += row_bytes) {
      const auto row = RandomFloats(k, 1000 * seed + r, 0.05);
      const auto count = static_cast<std::int64_t>(k);
      EXPECT_TRUE(EncodeRow(weight_, row.data(), count, at));
      EXPECT_TRUE(DecodeRow(weight_, at, count, &values[r * k]));
      RoundAsGemmQw<double>(weight_, at, std::span(values).subspan(r * k, k));
    }
    rounded_.push_back(std::move(values));
  }
  std::vector<double> Read(const void* from, std::size_t count) const {
    std::vector<double> values(count);
    EXPECT_TRUE(DecodeRow(DataType::kBF16, from, static_cast<std::int64_t>(count), values.data()));
    return values;
  }

  /// A row of x and, of each value, how far it may be off: where it is normalised and lies next to the middle of
  /// two numbers of bf16, either is right.
  void RowOf(const GemmArgs& args, std::size_t m, std::vector<double>& x,
             std::vector<double>& off) const {
    const std::size_t k = Size(args.a_layout.cols);
    x = Read(static_cast<const std::byte*>(args.a) + m * k * 2, k);
    off.assign(k, 0.0);
    if (args.prologue == Prologue::kNone) return;
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(k) + args.epsilon);
    for (std::size_t i = 0; i < k; ++i) {
      const double exact =
          x[i] * inverse * static_cast<double>(static_cast<const float*>(args.norm)[i]);
      const auto rounded = [](double value) {
        return static_cast<double>(BF16ToF32(F32ToBF16(static_cast<float>(value))));
      };
      x[i] = rounded(exact);
      off[i] = std::fabs(rounded(exact * (1 + 0x1p-20)) - rounded(exact * (1 - 0x1p-20)));
    }
  }

  void ExpectProduct(const GemmArgs& args, std::size_t product) const {
    const std::size_t k = Size(args.a_layout.cols), n = Size(args.b_layout.cols);
    const std::size_t columns = Size(args.d_layout.cols);
    const std::vector<double>& w = rounded_[product];
    const std::vector<double> got = Read(args.d, Size(shape_.m) * columns);
    std::vector<double> addend(got.size());
    if (args.beta != 0) addend = Read(args.c, got.size());
    std::vector<double> x, off, sums(n), bounds(n);
    for (std::size_t m = 0; m < Size(shape_.m); ++m) {
      RowOf(args, m, x, off);
      for (std::size_t r = 0; r < n; ++r) {
        double sum = 0, magnitude = 0, bound = 0;
        for (std::size_t i = 0; i < k; ++i) {
          sum += x[i] * w[r * k + i];
          magnitude += std::fabs(x[i] * w[r * k + i]);
          bound += off[i] * std::fabs(w[r * k + i]);
        }
        sums[r] = sum;
        // Rounding of f32, and what f16 loses of the small values of a k-tile that is divided.
        bounds[r] = bound + 0x1p-22 * (static_cast<double>(k) / 256 + 16) * magnitude;
      }
      for (std::size_t c = 0; c < columns; ++c) {
        double want = sums[c], bound = bounds[c];
        if (args.epilogue == Epilogue::kGatedSilu) {
          const std::size_t gate = c / kGatedBlock * (2 * kGatedBlock) + c % kGatedBlock;
          const double up = sums[gate + kGatedBlock], up_bound = bounds[gate + kGatedBlock];
          const double silu = sums[gate] / (1 + std::exp(-sums[gate]));
          want = silu * up;
          bound = 1.1 * bounds[gate] * (std::fabs(up) + up_bound) + std::fabs(silu) * up_bound;
        }
        want += static_cast<double>(args.beta) * addend[m * columns + c];
        ASSERT_NEAR(got[m * columns + c], want, bound + 0x1p-8 * std::fabs(want) + 1e-30)
            << "row " << m << " column " << c;
      }
    }
  }

  ChainShape shape_;
  DataType weight_;
  GuardedBytes x_, residual_, gains_;
  std::vector<float> gain_values_;
  std::vector<GuardedBytes> weights_, results_;
  std::vector<std::vector<double>> rounded_;
  std::vector<GemmArgs> products_;
};

}  // namespace tilewright::test
