#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After it: the kernels use its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/block_format.h"
#include "core/test_util.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/gemv/gemv_launch.h"
#include "ops/gemm/cuda/gemv/gemv_q_kernel.cuh"
#include "ops/gemm/cuda/gemv/gemv_stream_kernel.cuh"

// gemv_stream, and the epilogue swiglu of both families that have it: the source of the kernels, run
// on the CPU as their launches say, against float64.

namespace tilewright {
namespace {

using tw::Type;

constexpr CudaArch kHopper{90, 'a'};
constexpr DataType DataTypeOf(Type type) { return static_cast<DataType>(type); }

std::vector<float> Decoded(DataType type, const void* data, std::size_t count) {
  std::vector<float> values(count);
  EXPECT_TRUE(DecodeRow(type, data, static_cast<std::int64_t>(count), values.data()));
  return values;
}

struct Problem {
  int m, n, k;
  int sm_count = 3;
  int pad_x = 0, pad_w = 0;  ///< elements between rows
  float alpha = 1, beta = 0;
};

/// Operands with guard bands, and what y must be.
class Case {
 public:
  Case(const KernelSpec& spec, const Problem& q)
      : spec_(spec),
        q_(q),
        gated_(spec.epilogue == SpecEpilogue::kSwiGlu),
        columns_(gated_ ? q.n / 2 : q.n),
        x_(BytesOf(spec.type_a, std::int64_t{q.m} * (q.k + q.pad_x)), 0),
        w_(BytesOf(spec.type_b, std::int64_t{q.n - 1} * (q.k + q.pad_w) + q.k), 0),
        y_(static_cast<std::size_t>(q.m) * static_cast<std::size_t>(columns_ + 3)),
        c_(test::RandomFloats(static_cast<std::size_t>(q.m * columns_), 9)),
        norm_(GemvNormalises(spec) ? test::RandomFloats(static_cast<std::size_t>(q.k), 8)
                                   : std::vector<float>()) {
    for (const float x : Fill(x_, spec.type_a, q.m, q.pad_x, 100, 1))
      xs_.push_back(static_cast<double>(x));
    if (GemvNormalises(spec)) Normalise();
    ws_ = Fill(w_, spec.type_b, q.n, q.pad_w, 500, 0.05);
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
  void ExpectRight(const cuda::LaunchResult& launch, Kernel&& kernel) {
    ASSERT_TRUE(launch) << launch.error().ToString();
    tw::emulation::readable_begin = static_cast<const unsigned char*>(w_.data());
    tw::emulation::readable_end = tw::emulation::readable_begin + w_.size();
    const bool ran = tw::emulation::RunLaunch<tw::GemvParams>(*launch, spec_.warps * 32u, kernel);
    tw::emulation::readable_begin = nullptr;
    EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
    EXPECT_FALSE(tw::emulation::fault) << "an illegal access, or a read outside of W";
    EXPECT_EQ(y_.Damage() + x_.Damage() + w_.Damage() + norm_.Damage(), "");
    for (int i = 0; i < q_.m; ++i) {
      for (int j = 0; j < columns_ + 3; ++j) {
        const float got = y_[static_cast<std::size_t>(i * (columns_ + 3) + j)];
        if (j < columns_) {
          ExpectElement(i, j, static_cast<double>(got));
        } else {
          ASSERT_TRUE(std::isnan(got)) << "padding of y was written";
        }
      }
    }
  }
  const float* y() { return y_.data(); }

 private:
  static constexpr float kEpsilon = 1e-5f;

  void Normalise() {
    const auto k = static_cast<std::size_t>(q_.k);
    for (std::size_t first = 0; first < xs_.size(); first += k) {
      double squares = 0;
      for (std::size_t e = 0; e < k; ++e) squares += xs_[first + e] * xs_[first + e];
      const double scale = 1 / std::sqrt(squares / q_.k + static_cast<double>(kEpsilon));
      for (std::size_t e = 0; e < k; ++e) xs_[first + e] *= scale * static_cast<double>(norm_[e]);
    }
  }
  std::vector<float> Fill(test::GuardedBytes& to, DataType type, int rows, int pad,
                          std::uint64_t seed, double scale) const {
    std::vector<float> all;
    for (int r = 0; r < rows; ++r) {
      const auto k = static_cast<std::size_t>(q_.k);
      const std::vector<float> row =
          test::RandomFloats(k, seed + static_cast<std::uint64_t>(r), scale);
      auto* at =
          static_cast<unsigned char*>(to.data()) + BytesOf(type, std::int64_t{r} * (q_.k + pad));
      EXPECT_TRUE(EncodeRow(type, row.data(), q_.k, at));
      const std::vector<float> exact = Decoded(type, at, k);
      all.insert(all.end(), exact.begin(), exact.end());
    }
    return all;
  }

  struct Dot {
    double sum = 0, bound = 0;
  };
  Dot DotOf(int m, int row) const {
    Dot dot;
    double magnitude = 0;
    for (int e = 0; e < q_.k; ++e) {
      const double product = xs_[static_cast<std::size_t>(m * q_.k + e)] *
                             static_cast<double>(ws_[static_cast<std::size_t>(row * q_.k + e)]);
      dot.sum += product;
      magnitude += std::fabs(product);
    }
    // Each addition rounds a partial sum that is at most the sum of magnitudes; a lane adds k / 32.
    const double alpha = static_cast<double>(q_.alpha);
    dot.sum *= alpha;
    // Normalising is eight operations more, and the sum of squares.
    const double more = GemvNormalises(spec_) ? 8 + q_.k / 1024.0 : 0;
    dot.bound = 0x1p-24 * (q_.k / 32.0 + 16 + more) * magnitude * std::fabs(alpha) + 1e-6;
    return dot;
  }

  void ExpectElement(int m, int j, double got) const {
    SCOPED_TRACE(testing::Message() << "row " << m << " column " << j);
    if (!gated_) {
      const Dot dot = DotOf(m, j);
      const double c = static_cast<double>(c_[static_cast<std::size_t>(m * columns_ + j)]);
      ASSERT_NEAR(got, dot.sum + static_cast<double>(q_.beta) * c, dot.bound);
      return;
    }
    const int gate_row = j / kGatedBlock * 2 * kGatedBlock + j % kGatedBlock;
    const Dot gate = DotOf(m, gate_row), up = DotOf(m, gate_row + kGatedBlock);
    const double silu = gate.sum / (1 + std::exp(-gate.sum));
    // |silu'| <= 1.1; the function itself is within a few units of the last place.
    const double bound = 1.1 * gate.bound * std::fabs(up.sum) + std::fabs(silu) * up.bound +
                         gate.bound * up.bound + 0x1p-20 * std::fabs(silu * up.sum) + 1e-6;
    ASSERT_NEAR(got, silu * up.sum, bound);
  }

  KernelSpec spec_;
  Problem q_;
  bool gated_;
  int columns_;
  test::GuardedBytes x_, w_;
  test::Guarded<float> y_, c_, norm_;
  std::vector<double> xs_;  ///< normalised, where that is what is multiplied
  std::vector<float> ws_;
};

KernelSpec SpecOf(const char* family, Type x, Type w, tw::Epilogue epilogue, int warps) {
  KernelSpec spec;
  spec.family = family;
  spec.arch = kHopper;
  spec.type_a = DataTypeOf(x), spec.type_b = DataTypeOf(w);
  spec.type_c = epilogue == tw::Epilogue::kAdd ? DataType::kF32 : DataType::kNone;
  spec.type_d = DataType::kF32;
  spec.order_a = Order::kRowMajor, spec.order_b = Order::kColMajor;
  spec.epilogue = static_cast<SpecEpilogue>(epilogue);
  spec.tile_m = 1;
  spec.warps = static_cast<std::uint16_t>(warps);
  return spec;
}

template <Type kX, Type kW, tw::Epilogue kEpilogue, int kWarps = 2, int kSpans = 2, int kStages = 3,
          bool kNorm = false>
std::vector<float> ExpectStream(const Problem& q) {
  SCOPED_TRACE(testing::Message() << "m " << q.m << " n " << q.n << " k " << q.k);
  KernelSpec spec = SpecOf("gemv_stream", kX, kW, kEpilogue, kWarps);
  spec.tile_n = kWarps;
  spec.stages = kStages;
  spec.params = {kSpans, 1, kNorm ? 1 : 0, 0};
  EXPECT_FALSE(GemvStreamFamily().check(spec));
  Case product(spec, q);
  product.ExpectRight(
      GemvStreamLaunch(spec, product.Args(), q.sm_count), [](const tw::GemvParams& p) {
        constexpr Type kC = kEpilogue == tw::Epilogue::kAdd ? Type::kF32 : Type::kNone;
        tw::GemvStreamRun<kX, kW, kC, Type::kF32, kEpilogue, kWarps, kSpans, kStages, kNorm>(
            p, blockIdx.y, tw::emulation::smem);
      });
  const int columns = (kEpilogue == tw::Epilogue::kSwiGlu ? q.n / 2 : q.n) + 3;
  return {product.y(), product.y() + q.m * columns};
}

using enum tw::Epilogue;

TEST(GemvStream, RowsOfEveryLengthOfATail) {
  for (const int k : {8, 248, 256, 264, 504, 512, 520, 1032, 2056}) {
    ExpectStream<Type::kBF16, Type::kBF16, kNone>({.m = 1, .n = 11, .k = k});
    ExpectStream<Type::kF32, Type::kF16, kNone, 2, 1, 2>({.m = 1, .n = 5, .k = k});
  }
  ExpectStream<Type::kBF16, Type::kF16, kNone, 3, 4, 4>({.m = 1, .n = 70, .k = 776});
}

TEST(GemvStream, FewerAndMoreRowsOfWeightsThanWarps) {
  for (const int n : {1, 2, 5, 6, 7, 12, 13, 50})
    ExpectStream<Type::kBF16, Type::kBF16, kNone>({.m = 1, .n = n, .k = 520});
}

TEST(GemvStream, RowsOfXAndWThatAreApart) {
  ExpectStream<Type::kBF16, Type::kBF16, kNone>(
      {.m = 3, .n = 9, .k = 520, .pad_x = 8, .pad_w = 16});
}

TEST(GemvStream, AlphaAndTheAddendAreApplied) {
  ExpectStream<Type::kF32, Type::kBF16, kAdd>(
      {.m = 2, .n = 9, .k = 264, .alpha = -0.5f, .beta = 2});
  ExpectStream<Type::kBF16, Type::kBF16, kAdd>({.m = 1, .n = 9, .k = 264, .beta = 1});
}

TEST(GemvStream, GateAndUpBecomeOneElement) {
  for (const int n : {32, 64, 96}) {
    ExpectStream<Type::kBF16, Type::kBF16, kSwiGlu>({.m = 1, .n = n, .k = 520});
    ExpectStream<Type::kF32, Type::kF16, kSwiGlu>({.m = 1, .n = n, .k = 264, .alpha = 0.5f});
  }
}

TEST(GemvStream, RowsAreNormalisedFirst) {
  // Fewer packs than threads, as many, and more; rows that end within 32 values.
  for (const int k : {8, 248, 512, 520, 1032, 2056}) {
    ExpectStream<Type::kBF16, Type::kBF16, kNone, 2, 2, 3, true>({.m = 1, .n = 11, .k = k});
    ExpectStream<Type::kF32, Type::kF16, kNone, 3, 1, 2, true>({.m = 2, .n = 5, .k = k});
  }
  ExpectStream<Type::kBF16, Type::kBF16, kSwiGlu, 2, 2, 3, true>({.m = 1, .n = 64, .k = 776});
}

TEST(GemvStream, TheBitsDoNotDependOnTheMultiprocessors) {
  const auto bits = [](int sm_count) {
    return ExpectStream<Type::kBF16, Type::kBF16, kNone>(
        {.m = 1, .n = 40, .k = 1032, .sm_count = sm_count});
  };
  const std::vector<float> one = bits(1), many = bits(132);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(one[i], many[i]) << i;
}

/// Gate and up in one strip or two, with one and two groups of warps.
template <Type kX, Type kW>
void ExpectGated(const Problem& q) {
  const auto run = [&]<int kTileM, int kTileN, int kWarps, int kSplit>() {
    SCOPED_TRACE(testing::Message() << "m " << q.m << " n " << q.n << " k " << q.k << " tile "
                                    << kTileM << "x" << kTileN << " warps " << kWarps);
    KernelSpec spec = SpecOf("gemv_q", kX, kW, kSwiGlu, kWarps);
    spec.tile_m = kTileM, spec.tile_n = kTileN;
    spec.stages = 2;
    spec.params = {kSplit, 1, 0, 0};
    Case product(spec, q);
    product.ExpectRight(GemvLaunch(spec, product.Args()), [](const tw::GemvParams& p) {
      tw::GemvQ<kX, kW, Type::kNone, Type::kF32, kTileM, kTileN, kWarps, kSplit, 2, kSwiGlu>(
          p, static_cast<int>(blockIdx.y) * kTileM, tw::emulation::smem);
    });
  };
  run.template operator()<1, 32, 2, 2>();
  run.template operator()<1, 32, 4, 2>();
  run.template operator()<2, 64, 4, 2>();
}

TEST(GemvGated, BlocksOfGateAndUpBecomeOneElement) {
  for (const int n : {32, 96}) {
    ExpectGated<Type::kBF16, Type::kQ4_1>({.m = 1, .n = n, .k = 544});
    ExpectGated<Type::kF32, Type::kQ8_0>({.m = 2, .n = n, .k = 288});
    ExpectGated<Type::kBF16, Type::kQ4_K>({.m = 1, .n = n, .k = 768});
  }
}

std::string Refusal(const KernelSpec& spec, const GemmArgs& args) {
  const cuda::LaunchResult launch = GemvStreamLaunch(spec, args, 132);
  return launch ? "" : launch.error().ToString();
}

TEST(GemvStream, RefusesWhatTheKernelCannotRead) {
  const KernelSpec spec = GemvStreamSpecs(DataType::kBF16, kHopper)[0];
  alignas(16) static unsigned char memory[64];
  GemmArgs good;
  good.a = good.b = memory, good.d = memory;
  good.a_layout = {.type = spec.type_a, .rows = 1, .cols = 256, .ld = 256};
  good.b_layout = {
      .type = spec.type_b, .order = Order::kColMajor, .rows = 256, .cols = 3, .ld = 256};
  good.d_layout = {.type = spec.type_d, .rows = 1, .cols = 3, .ld = 3};
  EXPECT_EQ(Refusal(spec, good), "");
  const auto refused = [&](auto change, const char* words) {
    GemmArgs args = good;
    change(args);
    EXPECT_THAT(Refusal(spec, args), testing::HasSubstr(words));
  };
  refused([](GemmArgs& a) { a.b = memory + 8; }, "multiples of 16");
  refused([](GemmArgs& a) { a.a = memory + 8; }, "multiples of 16");
  refused([](GemmArgs& a) { a.b_layout.ld = 260; }, "rows of 520 bytes");
  refused([](GemmArgs& a) { a.a_layout.cols = a.b_layout.rows = 252; }, "k = 252");
  refused([](GemmArgs& a) { a.beta = 1; }, "beta = 1");
  const int most = GemvStreamMaxK(spec);
  refused(
      [&](GemmArgs& a) {
        a.a_layout.cols = a.b_layout.rows = most + 8;
        a.a_layout.ld = a.b_layout.ld = most + 8;
      },
      "at most");
  KernelSpec gated = GemvStreamSpecs(DataType::kBF16, kHopper)[2];
  ASSERT_EQ(gated.epilogue, SpecEpilogue::kSwiGlu);
  good.d_layout.cols = 24, good.d_layout.ld = 24, good.b_layout.cols = 48;
  EXPECT_THAT(Refusal(gated, good), testing::HasSubstr("48 rows of gate and up"));
}

TEST(GemvStream, TheLaunchFillsTheMultiprocessorsOnce) {
  const KernelSpec spec = GemvStreamSpecs(DataType::kBF16, kHopper)[0];
  Case product(spec, {.m = 2, .n = 300, .k = 576});
  GemmArgs args = product.Args();
  args.d_layout.type = args.c_layout.type = spec.type_d;
  const cuda::LaunchResult launch = GemvStreamLaunch(spec, args, 132);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{132, 2, 1}));
  EXPECT_LE(launch->dynamic_smem_bytes, GemvStreamFamily().launch(spec).dynamic_smem_bytes);
  // The rings of 16 warps, and x in f32 in whole segments of 1,024 values.
  EXPECT_EQ(launch->dynamic_smem_bytes, 16u * 4 * 2048 + 4096);
}

}  // namespace
}  // namespace tilewright
