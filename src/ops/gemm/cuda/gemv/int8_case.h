#pragma once

#include "device/cuda/kernels/hopper_emulation.h"
#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernels use its built-ins.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "core/block_format.h"
#include "core/formats/random_blocks.h"
#include "core/i8x32.h"
#include "core/test_util.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/gemv/gemv_int8_kernel.cuh"
#include "ops/gemm/cuda/gemv/gemv_launch.h"

/// gemv_int8: the source of the kernel, run on the CPU as its launches say. Activations are rounded as
/// core/i8x32.h rounds them and the sums of a block are integers: y must have the bits of the same
/// chain of f32 operations, and be as near to float64 as rounded activations allow. Tests only.

namespace tilewright::test_int8 {

using tw::Type;
using enum tw::Epilogue;

inline constexpr CudaArch kHopper{90, 'a'};
constexpr DataType DataTypeOf(Type type) { return static_cast<DataType>(type); }
inline std::size_t Size(int count) { return static_cast<std::size_t>(count); }

struct Problem {
  int m, n, k;
  int sm_count = 3;
  int pad_x = 0, pad_w = 0;  ///< values between rows; of W whole blocks
  int shift_w = 0;           ///< bytes that W starts behind a multiple of 16
  float alpha = 1, beta = 0;
};

/// acc plus the products of x with values 32 b .. of blocks: exact sums of integers, scaled in f32.
template <class Block>
float AddBlock(const Block* row, int b, const BlockI8x32& x, float acc) {
  constexpr BlockFormat kFormat = Block::kFormat;
  UnpackedBlock w;
  Unpack(row[32 * b / kFormat.elements], w);
  const int first = 32 * b % kFormat.elements;
  constexpr bool kScales = kFormat.scale == Factor::kF16TimesInt;
  constexpr bool kMins = kFormat.min == Factor::kF16TimesInt;
  // Scales and minima of fewer than 32 values are a part of the integers.
  constexpr bool kFine = kFormat.sub_block < 32;
  int sum = 0, sum_x = 0;
  for (int i = 0; i < 32; ++i) {
    const int s = (first + i) / kFormat.sub_block;
    int code = w.codes[first + i] - kFormat.zero;
    if constexpr (kFormat.has_table) code = kFormat.values[w.codes[first + i]];
    sum += code * (kFine && kScales ? w.scales[s] : 1) * x.q[i];
    sum_x += (kFine && kMins ? w.mins[s] : 1) * x.q[i];
  }
  float step =
      kFormat.scale == Factor::kPowerOfTwo ? std::ldexp(1.0f, w.scale - 128) : F16ToF32(w.scale);
  if constexpr (!kFine && kScales) step *= static_cast<float>(w.scales[first / 32]);
  if constexpr (kFormat.min == Factor::kNone)
    return std::fma(step * x.d, static_cast<float>(sum), acc);
  float offset = F16ToF32(w.min);
  if constexpr (!kFine && kMins) offset *= static_cast<float>(w.mins[first / 32]);
  offset *= static_cast<float>(sum_x);
  return std::fma(x.d, std::fma(step, static_cast<float>(sum), offset), acc);
}

/// A row of W times a row of x: the chain of every lane, then the tree over the lanes.
inline float RowTimesX(DataType type, const void* row, const std::vector<BlockI8x32>& x) {
  std::array<float, 32> lanes{};
  WithBlock(AllBlocks{}, type, [&]<class Block>() {
    constexpr auto kType = static_cast<Type>(Block::kFormat.type);
    if constexpr (requires { tw::Int8Codes<kType>::kChunk; }) {
      using Codes = tw::Int8Codes<kType>;
      const int blocks = static_cast<int>(x.size()), chunks = 32 * blocks / Codes::kChunk;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        for (int half = 0; half < Codes::kChunk / 32; ++half) {
          for (int b = 0; b < blocks; ++b) {
            const tw::Int8Place place = Codes::PlaceOf(b);
            if (place.chunk != chunk || place.half != half) continue;
            float& acc = lanes[Size(chunk % 32)];
            acc = AddBlock(static_cast<const Block*>(row), b, x[Size(b)], acc);
          }
        }
      }
    }
  });
  for (std::size_t step = 16; step > 0; step /= 2) {
    std::array<float, 32> sums;
    for (std::size_t lane = 0; lane < 32; ++lane) sums[lane] = lanes[lane] + lanes[lane ^ step];
    lanes = sums;
  }
  return lanes[0];
}

/// Operands with guard bands, and what y must be.
class Case {
 public:
  Case(const KernelSpec& spec, const Problem& q)
      : spec_(spec),
        q_(q),
        gated_(spec.epilogue == SpecEpilogue::kSwiGlu),
        columns_(gated_ ? q.n / 2 : q.n),
        x_(BytesOf(spec.type_a, std::int64_t{q.m} * (q.k + q.pad_x)), 0),
        // Nothing belongs to W behind its last row.
        w_(BytesOf(spec.type_b, std::int64_t{q.n - 1} * (q.k + q.pad_w) + q.k), Size(q.shift_w)),
        y_(Size(q.m * (columns_ + 3))),
        c_(test::RandomFloats(Size(q.m * columns_), 9)),
        norm_(GemvNormalises(spec) ? test::RandomFloats(Size(q.k), 8) : std::vector<float>()) {
    Random random(77);
    for (int r = 0; r < q.n; ++r) {
      RandomBlocks(spec.type_b, q.k / GetTypeInfo(spec.type_b).block_elements, random, RowOfW(r));
      // Scales of an ordinary size: sums of products that cancel stay comparable.
      Scale(RowOfW(r));
    }
    for (int r = 0; r < q.m; ++r) {
      std::vector<float> row = test::RandomFloats(Size(q.k), 100 + static_cast<std::uint64_t>(r));
      // One block of zeros, and one that counts as such.
      for (int i = 0; i < 32; ++i) row[Size(i)] = 0;
      if (q.k >= 96) std::fill_n(row.begin() + 64, 32, 0x1p-110f);
      SetX(r, row);
    }
  }

  void SetX(int r, const std::vector<float>& row) {
    auto* at = static_cast<unsigned char*>(x_.data()) +
               BytesOf(spec_.type_a, std::int64_t{r} * (q_.k + q_.pad_x));
    EXPECT_TRUE(EncodeRow(spec_.type_a, row.data(), q_.k, at));
    xs_.resize(Size(q_.m));
    std::vector<float>& exact = xs_[Size(r)];
    exact.resize(Size(q_.k));
    EXPECT_TRUE(DecodeRow(spec_.type_a, at, q_.k, exact.data()));
  }

  GemmArgs Args() {
    GemmArgs args;
    args.alpha = q_.alpha, args.beta = q_.beta;
    args.a = x_.data(), args.b = w_.data(), args.c = c_.data(), args.d = y_.data();
    args.a_layout = {.type = spec_.type_a, .rows = q_.m, .cols = q_.k, .ld = q_.k + q_.pad_x};
    args.b_layout = {.type = spec_.type_b,
                     .order = Order::kColMajor,
                     .rows = q_.k,
                     .cols = q_.n,
                     .ld = q_.k + q_.pad_w};
    if (GemvNormalises(spec_)) {
      args.prologue = Prologue::kRmsNorm;
      args.norm = norm_.data();
      args.type_norm = DataType::kF32;
      args.epsilon = kEpsilon;
    }
    args.c_layout = {.type = DataType::kF32, .rows = q_.m, .cols = columns_, .ld = columns_};
    args.d_layout = {.type = DataType::kF32, .rows = q_.m, .cols = columns_, .ld = columns_ + 3};
    return args;
  }

  template <class Kernel>
  void ExpectRuns(Kernel&& kernel) {
    const cuda::LaunchResult launch = GemvInt8Launch(spec_, Args(), q_.sm_count);
    ASSERT_TRUE(launch) << launch.error().ToString();
    tw::emulation::barriers.clear();
    tw::emulation::readable_begin = static_cast<const unsigned char*>(w_.data());
    tw::emulation::readable_end = tw::emulation::readable_begin + w_.size();
    const bool ran = tw::emulation::RunLaunch<tw::GemvParams>(*launch, spec_.warps * 32u, kernel);
    tw::emulation::readable_begin = nullptr;
    EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
    EXPECT_FALSE(tw::emulation::fault) << "an illegal access, or a read outside of W";
    EXPECT_EQ(y_.Damage() + x_.Damage() + w_.Damage() + norm_.Damage(), "");
  }

  void ExpectRight() {
    for (int i = 0; i < q_.m; ++i) {
      std::vector<BlockI8x32> x(Size(q_.k / 32));
      const std::vector<float> row = RowOfX(i);
      for (std::size_t b = 0; b < x.size(); ++b) Encode(row.data() + 32 * b, x[b]);
      for (int j = 0; j < columns_ + 3; ++j) {
        const float got = y_[Size(i * (columns_ + 3) + j)];
        if (j >= columns_) {
          ASSERT_TRUE(std::isnan(got)) << "padding of y was written";
          continue;
        }
        SCOPED_TRACE(testing::Message() << "row " << i << " column " << j);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(Want(i, j, x)));
        ASSERT_NO_FATAL_FAILURE(ExpectNear(i, j, static_cast<double>(got)));
      }
    }
  }

  float y(int i, int j) const { return y_[Size(i * (columns_ + 3) + j)]; }

 private:
  static constexpr float kEpsilon = 1e-5f;

  /// What is rounded to int8: the kernel's own f32 operations in their order, the squares of eight
  /// values, of 32, of the blocks of every lane and of the lanes.
  std::vector<float> RowOfX(int i) const {
    std::vector<float> row = xs_[Size(i)];
    if (!GemvNormalises(spec_)) return row;
    std::array<float, 32> lanes{};
    for (std::size_t block = 0; block < row.size() / 32; ++block) {
      std::array<float, 4> eights{};
      for (std::size_t e = 0; e < 32; ++e) {
        const float value = row[32 * block + e];
        eights[e / 8] = std::fma(value, value, eights[e / 8]);
      }
      lanes[block % 32] += (eights[0] + eights[1]) + (eights[2] + eights[3]);
    }
    for (std::size_t step = 16; step > 0; step /= 2) {
      for (std::size_t lane = 0; lane < step; ++lane) lanes[lane] += lanes[lane + step];
    }
    const float scale = 1.0f / std::sqrt(lanes[0] / static_cast<float>(row.size()) + kEpsilon);
    for (std::size_t e = 0; e < row.size(); ++e) row[e] = row[e] * scale * norm_[e];
    return row;
  }
  /// The same in float64.
  std::vector<double> ExactRowOfX(int i) const {
    std::vector<double> row(xs_[Size(i)].begin(), xs_[Size(i)].end());
    if (!GemvNormalises(spec_)) return row;
    double squares = 0;
    for (const double value : row) squares += value * value;
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(row.size()) + static_cast<double>(kEpsilon));
    for (std::size_t e = 0; e < row.size(); ++e) row[e] *= scale * static_cast<double>(norm_[e]);
    return row;
  }
  unsigned char* RowOfW(int r) {
    return static_cast<unsigned char*>(w_.data()) +
           BytesOf(spec_.type_b, std::int64_t{r} * (q_.k + q_.pad_w));
  }
  void Scale(unsigned char* row) const {
    const BlockFormat& format = *FindFormat(spec_.type_b);
    if (format.scale == Factor::kPowerOfTwo) return;
    for (int b = 0; b < q_.k / format.elements; ++b, row += format.bytes) {
      for (const int at : {format.scale_at, format.min_at}) {
        if (at < 0) continue;
        std::uint16_t half;
        std::memcpy(&half, row + at, 2);
        half = static_cast<std::uint16_t>((half & 0x83ffu) | 0x2000u);  // 2^-7 to 2^-6, any sign
        std::memcpy(row + at, &half, 2);
      }
    }
  }
  int GateRow(int j) const {
    return gated_ ? j / kGatedBlock * 2 * kGatedBlock + j % kGatedBlock : j;
  }

  float Want(int i, int j, const std::vector<BlockI8x32>& x) {
    float value = q_.alpha * RowTimesX(spec_.type_b, RowOfW(GateRow(j)), x);
    if (gated_) {
      const float up = q_.alpha * RowTimesX(spec_.type_b, RowOfW(GateRow(j) + kGatedBlock), x);
      value = tw::SiluOf(value) * up;
    }
    if (spec_.type_c != DataType::kNone && q_.beta != 0)
      value = std::fma(q_.beta, c_[Size(i * columns_ + j)], value);
    return value;
  }

  struct Dot {
    double sum = 0, bound = 0;
  };
  Dot DotOf(int i, int row) {
    std::vector<double> w(Size(q_.k));
    EXPECT_TRUE(DecodeRow(spec_.type_b, RowOfW(row), q_.k, w.data()));
    const std::vector<double> x = ExactRowOfX(i);
    Dot dot;
    double magnitude = 0;
    for (std::size_t first = 0; first < w.size(); first += 32) {
      double largest = 0, weights = 0;
      for (std::size_t e = first; e < first + 32; ++e) {
        dot.sum += x[e] * w[e];
        magnitude += std::fabs(x[e] * w[e]);
        largest = std::max(largest, std::fabs(x[e]));
        weights += std::fabs(w[e]);
      }
      // Half a step, and the step is a 127th of the block's largest.
      dot.bound += largest * weights * 1.0001 / 254;
    }
    const double alpha = static_cast<double>(q_.alpha);
    dot.sum *= alpha;
    // Offsets and codes of a value may cancel: their roundings are those of sums of magnitudes.
    dot.bound = std::fabs(alpha) * (dot.bound + 0x1p-20 * magnitude) + 1e-4;
    return dot;
  }
  void ExpectNear(int i, int j, double got) {
    const Dot gate = DotOf(i, GateRow(j));
    if (!gated_) {
      const double c = static_cast<double>(c_[Size(i * columns_ + j)]);
      const bool adds = spec_.type_c != DataType::kNone;
      ASSERT_NEAR(got, gate.sum + (adds ? static_cast<double>(q_.beta) * c : 0), gate.bound);
      return;
    }
    const Dot up = DotOf(i, GateRow(j) + kGatedBlock);
    const double silu = gate.sum / (1 + std::exp(-gate.sum));
    // |silu'| <= 1.1.
    ASSERT_NEAR(got, silu * up.sum,
                1.1 * gate.bound * (std::fabs(up.sum) + up.bound) + std::fabs(silu) * up.bound +
                    0x1p-18 * std::fabs(silu * up.sum));
  }

  KernelSpec spec_;
  Problem q_;
  bool gated_;
  int columns_;
  test::GuardedBytes x_, w_;
  test::Guarded<float> y_, c_, norm_;
  std::vector<std::vector<float>> xs_;
};

/// Fewer warps and smaller segments than the family ships are quicker to emulate. kTurns: of all lanes
/// in a segment; 0: segments of 1,024 values.
template <Type kX, Type kW, tw::Epilogue kEpilogue, int kTileM, int kRows, int kWarps, int kStages,
          int kTurns = 1, bool kNorm = false, bool kBulk = false>
struct Kernel {
  static constexpr int kSegment = kTurns == 0 ? 1024 : 32 * tw::Int8Codes<kW>::kChunk * kTurns;
  static KernelSpec Spec() {
    KernelSpec spec;
    spec.family = "gemv_int8";
    spec.arch = kHopper;
    spec.type_a = DataTypeOf(kX), spec.type_b = DataTypeOf(kW);
    spec.type_c = kEpilogue == kAdd ? DataType::kF32 : DataType::kNone;
    spec.type_d = DataType::kF32;
    spec.order_a = Order::kRowMajor, spec.order_b = Order::kColMajor;
    spec.epilogue = static_cast<SpecEpilogue>(kEpilogue);
    spec.tile_m = kTileM, spec.tile_n = kRows * kWarps, spec.tile_k = kSegment;
    spec.warps = kWarps, spec.stages = kStages;
    spec.params = {kRows, 1, kNorm ? 1 : 0, kBulk ? 1 : 0};
    EXPECT_FALSE(GemvInt8Family().check(spec));
    return spec;
  }
  static void Run(const tw::GemvParams& p) {
    constexpr Type kC = kEpilogue == kAdd ? Type::kF32 : Type::kNone;
    tw::GemvInt8Run<kX, kW, kC, Type::kF32, kEpilogue, kTileM, kRows, kWarps, kSegment, kStages,
                    kNorm, kBulk>(p, tw::emulation::smem);
  }
  static void Expect(const Problem& q) {
    SCOPED_TRACE(testing::Message() << "m " << q.m << " n " << q.n << " k " << q.k << " rows "
                                    << kRows << " tile_m " << kTileM);
    Case product(Spec(), q);
    product.ExpectRuns(&Run);
    product.ExpectRight();
  }
};

}  // namespace tilewright::test_int8
