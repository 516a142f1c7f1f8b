#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/block_format.h"
#include "core/formats/random_blocks.h"
#include "core/test_util.h"
#include "core/text.h"
#include "tilewright/gemm.h"

/// Products of rows in groups with random operands, and what they are in float64. Tests only.

namespace tilewright::test {

struct GroupedShape {
  std::int32_t n = 0, k = 0;
  std::vector<std::int32_t> offsets;  ///< the last one: rows of y
  bool indexed = true;
  bool gated = false;
  std::int32_t x_rows = 7;  ///< where indexed, rows that there are
};

/// Rows of x and y have a gap behind them; matrices have none.
class GroupedCase {
 public:
  GroupedCase(DataType x, DataType w, const GroupedShape& shape)
      : shape_(shape),
        type_x_(x),
        type_w_(w),
        num_(static_cast<std::int32_t>(shape.offsets.size()) - 1),
        rows_(shape.offsets.back()),
        columns_(shape.gated ? shape.n / 2 : shape.n),
        x_bytes_(BytesOf(x, std::int64_t{XRows()} * Ldx())),
        w_bytes_(BytesOf(w, std::int64_t{num_} * shape.n * shape.k)) {
    xs_ = Fill(x, std::int64_t{XRows()} * Ldx(), 1, x_bytes_.data());
    ws_ = Fill(w, std::int64_t{num_} * shape.n * shape.k, 2, w_bytes_.data());
    for (std::int32_t i = 0; i < rows_; ++i) sources_.push_back(i * 5 % shape.x_rows);
  }

  std::string name() const {
    return Format("{} times {}: n {}, k {}, {} rows in {} groups{}{}", DataTypeName(type_x_),
                  DataTypeName(type_w_), shape_.n, shape_.k, rows_, num_,
                  shape_.indexed ? ", indexed" : "", shape_.gated ? ", gated" : "");
  }
  std::size_t y_bytes() const { return BytesOf(type_x_, std::int64_t{rows_} * Ldy()); }
  const GuardedBytes& x() const { return x_bytes_; }
  const GuardedBytes& w() const { return w_bytes_; }

  /// Over the operands here; `y`: y_bytes().
  GemmArgs Args(void* y) {
    GemmArgs args;
    args.a = x_bytes_.data(), args.b = w_bytes_.data(), args.d = y;
    args.a_layout = {.type = type_x_,
                     .order = Order::kRowMajor,
                     .rows = rows_,
                     .cols = shape_.k,
                     .ld = Ldx(),
                     .num = num_,
                     .offsets = shape_.offsets.data(),
                     .idxs = shape_.indexed ? sources_.data() : nullptr};
    args.b_layout = {.type = type_w_,
                     .order = Order::kColMajor,
                     .rows = shape_.k,
                     .cols = shape_.n,
                     .ld = shape_.k,
                     .num = num_};
    args.d_layout = {.type = type_x_,
                     .order = Order::kRowMajor,
                     .rows = rows_,
                     .cols = columns_,
                     .ld = Ldy(),
                     .num = num_,
                     .offsets = shape_.offsets.data()};
    args.c_layout = args.d_layout;
    if (shape_.gated) args.epilogue = Epilogue::kGatedSilu;
    return args;
  }

  /// What `y` has wrong; "": nothing. `rounds_x`: rows of x may have been rounded to int8.
  std::string Judge(const std::vector<std::byte>& y, bool rounds_x) const {
    std::vector<double> got(static_cast<std::size_t>(rows_ * Ldy()));
    if (!DecodeRow(type_x_, y.data(), static_cast<std::int64_t>(got.size()), got.data()))
      return "no type that can be decoded";
    for (std::int32_t row = 0; row < rows_; ++row) {
      for (std::int32_t col = 0; col < Ldy(); ++col) {
        const double value = got[static_cast<std::size_t>(row * Ldy() + col)];
        if (col >= columns_) {
          if (!std::isnan(value)) return Format("padding of row {} was written", row);
          continue;
        }
        const Sum want = Want(row, col);
        const double allowed = Roundoff() * std::abs(want.value) + 4e-6 * want.magnitude +
                               (rounds_x ? want.slack : 0) + 1e-30;
        if (!(std::abs(value - want.value) <= allowed)) {
          return Format("y[{}][{}] is {}, not {}, of group {}", row, col, value, want.value,
                        GroupOf(row));
        }
      }
    }
    return {};
  }

 private:
  /// A result, the sum of what its errors in f32 are shares of, and what rounding x may change.
  struct Sum {
    double value = 0, magnitude = 0, slack = 0;
  };

  std::int32_t XRows() const { return shape_.indexed ? shape_.x_rows : rows_; }
  std::int32_t Ldx() const { return shape_.k + 8; }
  std::int32_t Ldy() const { return columns_ + 8; }
  double Roundoff() const {
    return type_x_ == DataType::kF32 ? 0x1p-23 : type_x_ == DataType::kF16 ? 0x1p-10 : 0x1p-7;
  }
  std::int32_t GroupOf(std::int32_t row) const {
    const auto behind = std::upper_bound(shape_.offsets.begin(), shape_.offsets.end(), row);
    return static_cast<std::int32_t>(behind - shape_.offsets.begin()) - 1;
  }

  static std::vector<double> Fill(DataType type, std::int64_t count, std::uint64_t seed, void* to) {
    std::vector<double> values(static_cast<std::size_t>(count));
    tilewright::Random random(seed);
    if (GetTypeInfo(type).block_quantised) {
      RandomBlocks(type, count / GetTypeInfo(type).block_elements, random, to);
    } else {
      const std::vector<float> floats = RandomFloats(values.size(), seed);
      EXPECT_TRUE(EncodeRow(type, floats.data(), count, to));
    }
    EXPECT_TRUE(DecodeRow(type, to, count, values.data()));
    return values;
  }

  Sum Dot(std::int32_t row, std::int32_t line) const {
    const std::int32_t source = shape_.indexed ? sources_[static_cast<std::size_t>(row)] : row;
    const double* x = &xs_[static_cast<std::size_t>(source * Ldx())];
    const double* w = &ws_[static_cast<std::size_t>((GroupOf(row) * shape_.n + line) * shape_.k)];
    Sum sum;
    for (std::int32_t first = 0; first < shape_.k; first += 32) {
      double largest = 0, weights = 0;
      for (std::int32_t i = first; i < std::min(shape_.k, first + 32); ++i) {
        sum.value += x[i] * w[i];
        sum.magnitude += std::abs(x[i] * w[i]);
        largest = std::max(largest, std::abs(x[i]));
        weights += std::abs(w[i]);
      }
      sum.slack += 1.0001 * largest / 254 * weights;  // half a step of a 127th of the largest
    }
    return sum;
  }
  Sum Want(std::int32_t row, std::int32_t col) const {
    if (!shape_.gated) return Dot(row, col);
    const std::int32_t line = col / kGatedBlock * 2 * kGatedBlock + col % kGatedBlock;
    const Sum gate = Dot(row, line), up = Dot(row, line + kGatedBlock);
    const double silu = gate.value / (1 + std::exp(-gate.value));
    // |silu'| <= 1.1
    return {silu * up.value,
            1.1 * gate.magnitude * std::abs(up.value) + std::abs(silu) * up.magnitude +
                std::abs(silu * up.value),
            1.1 * gate.slack * (std::abs(up.value) + up.slack) + std::abs(silu) * up.slack};
  }

  GroupedShape shape_;
  DataType type_x_, type_w_;
  std::int32_t num_, rows_, columns_;
  GuardedBytes x_bytes_, w_bytes_;
  std::vector<double> xs_, ws_;
  std::vector<std::int32_t> sources_;
};

/// How rows spread: with empty groups among others, in front and behind; all in one; as even as it goes;
/// one row.
inline std::vector<std::vector<std::int32_t>> GroupedSpreads() {
  return {{0, 3, 3, 4, 13, 14}, {0, 0, 11, 11, 11}, {0, 4, 8, 12}, {0, 0, 0, 1}, {0, 9, 9}};
}

}  // namespace tilewright::test
