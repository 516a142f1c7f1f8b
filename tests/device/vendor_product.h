#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/numeric.h"
#include "core/random.h"
#include "engine/op_traits.h"
#include "tilewright/device.h"
#include "tilewright/gemm_stages.h"

namespace tilewright::cuda {

/// A product with its operands on a device and its result from float64. Lines are `pad` elements
/// longer than they must be, and what lies between them may not be written.
class DeviceProduct {
 public:
  struct Factors {
    float alpha = 1, beta = 0;
  };
  DeviceProduct(Device& device, const GemmDesc& desc, Factors factors, int pad)
      : device_(device), desc_(desc), factors_(factors) {
    a_ = MakeMatrix(desc.type_a, desc.order_a, desc.m, desc.k, pad, 1);
    b_ = MakeMatrix(desc.type_b, desc.order_b, desc.k, desc.n, pad, 2);
    c_ = MakeMatrix(desc.type_c, desc.order_c, desc.m, desc.n, pad, 3);
    d_ = MakeMatrix(desc.type_c, desc.order_c, desc.m, desc.n, pad, 4);
  }

  GemmArgs args() const {
    GemmArgs args{.alpha = factors_.alpha, .beta = factors_.beta};
    args.a = a_.memory.data(), args.b = b_.memory.data(), args.d = d_.memory.data();
    args.a_layout = a_.layout, args.b_layout = b_.layout, args.d_layout = d_.layout;
    args.c_layout = c_.layout;
    if (factors_.beta != 0) args.c = c_.memory.data();
    return args;
  }

  /// D after what is queued, compared with float64; its bits.
  std::vector<std::byte> Check() const {
    std::vector<std::byte> bits(d_.bits.size());
    EXPECT_TRUE(
        device_.Download(bits.data(), d_.memory.data(), bits.size(), device_.default_stream()));
    const Status done = device_.Synchronize(device_.default_stream());
    EXPECT_TRUE(done) << done.error().message;
    const double half_ulp = desc_.type_c == DataType::kF32   ? 0x1p-24
                            : desc_.type_c == DataType::kF16 ? 0x1p-11
                                                             : 0x1p-8;
    for (std::int64_t i = 0; i < desc_.m; ++i) {
      for (std::int64_t j = 0; j < desc_.n; ++j) {
        double want = 0, magnitude = 0;
        for (std::int64_t l = 0; l < desc_.k; ++l) {
          const double term = a_.Get(a_.bits, i, l) * b_.Get(b_.bits, l, j);
          want += factors_.alpha * term;
          magnitude += std::abs(factors_.alpha * term);
        }
        if (factors_.beta != 0) want += factors_.beta * c_.Get(c_.bits, i, j);
        const double got = d_.Get(bits, i, j);
        const double allowed = 1.01 * half_ulp * std::abs(want) + 2e-6 * magnitude + 1e-7;
        EXPECT_LE(std::abs(got - want), allowed)
            << KeyOf(desc_) << ": D[" << i << "][" << j << "] is " << got << ", not " << want;
        if (std::abs(got - want) > allowed) return bits;
      }
    }
    for (std::size_t at = 0; at < bits.size(); ++at) {
      EXPECT_TRUE(d_.IsElement(at) || bits[at] == d_.bits[at]) << "byte " << at << " of D";
    }
    return bits;
  }

 private:
  struct Matrix {
    MatrixLayout layout{};
    std::vector<std::byte> bits;
    DeviceMemory memory;

    std::size_t At(std::int64_t row, std::int64_t col) const {
      const bool rows = layout.order == Order::kRowMajor;
      return static_cast<std::size_t>(rows ? row * layout.ld + col : col * layout.ld + row);
    }
    double Get(const std::vector<std::byte>& from, std::int64_t row, std::int64_t col) const {
      const std::size_t at = At(row, col);
      if (layout.type == DataType::kF32) return reinterpret_cast<const float*>(from.data())[at];
      const std::uint16_t half = reinterpret_cast<const std::uint16_t*>(from.data())[at];
      return layout.type == DataType::kBF16 ? BF16ToF32(half) : F16ToF32(half);
    }
    bool IsElement(std::size_t byte) const {
      const std::int64_t line = layout.order == Order::kRowMajor ? layout.cols : layout.rows;
      const auto at = static_cast<std::int64_t>(byte) / GetTypeInfo(layout.type).block_bytes;
      return at % layout.ld < line;
    }
  };

  Matrix MakeMatrix(DataType type, Order order, int rows, int cols, int pad, unsigned seed) {
    Matrix made;
    const bool row_major = order == Order::kRowMajor;
    const int lines = row_major ? rows : cols;
    made.layout = {type, order, rows, cols, (row_major ? cols : rows) + pad};
    const auto count = static_cast<std::size_t>(lines) * static_cast<std::size_t>(made.layout.ld);
    const bool f32 = type == DataType::kF32;
    made.bits.resize(count * (f32 ? 4 : 2));
    Random random(seed);
    for (std::size_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(random.Below(2001)) / 1000 - 1;
      if (f32) {
        reinterpret_cast<float*>(made.bits.data())[i] = value;
      } else {
        reinterpret_cast<std::uint16_t*>(made.bits.data())[i] =
            type == DataType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
      }
    }
    made.memory = device_.Allocate(made.bits.size()).value();
    const Stream stream = device_.default_stream();
    EXPECT_TRUE(device_.Upload(made.memory.data(), made.bits.data(), made.bits.size(), stream));
    EXPECT_TRUE(device_.Synchronize(stream));
    return made;
  }

  Device& device_;
  GemmDesc desc_;
  Factors factors_;
  Matrix a_, b_, c_, d_;
};

/// A plan's workspace.
struct PlanMemory {
  PlanMemory(Device& device, const WorkspaceSize& size)
      : partials(device.Allocate(size.partials).value()) {
    workspace.partials = partials.data();
    workspace.partials_size = size.partials;
  }
  DeviceMemory partials;
  Workspace workspace;
};

}  // namespace tilewright::cuda
