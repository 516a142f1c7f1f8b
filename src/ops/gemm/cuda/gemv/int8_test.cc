#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After it: the kernels use its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/block_format.h"
#include "core/formats/random_blocks.h"
#include "core/i8x32.h"
#include "core/test_util.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/gemv/gemv_int8_kernel.cuh"
#include "ops/gemm/cuda/gemv/gemv_launch.h"

// gemv_int8: the source of the kernel, run on the CPU as its launches say. Activations are rounded
// as core/i8x32.h rounds them and the sums of a block are integers: y must have the bits of the same
// chain of f32 operations, and be as near to float64 as rounded activations allow.

namespace tilewright {
namespace {

using tw::Type;
using enum tw::Epilogue;

constexpr CudaArch kHopper{90, 'a'};
constexpr DataType DataTypeOf(Type type) { return static_cast<DataType>(type); }
std::size_t Size(int count) { return static_cast<std::size_t>(count); }

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
  int sum = 0, sum_x = 0;
  for (int i = 0; i < 32; ++i) {
    int code = w.codes[first + i] - kFormat.zero;
    // Scales of fewer than 32 values are a part of the integers.
    if constexpr (kFormat.sub_block < 32) code *= w.scales[(first + i) / kFormat.sub_block];
    sum += code * x.q[i];
    sum_x += x.q[i];
  }
  float step = F16ToF32(w.scale);
  if constexpr (kFormat.min == Factor::kNone)
    return std::fma(step * x.d, static_cast<float>(sum), acc);
  float offset = F16ToF32(w.min);
  if constexpr (kFormat.scale == Factor::kF16TimesInt) {
    step *= static_cast<float>(w.scales[first / 32]);
    offset *= static_cast<float>(w.mins[first / 32]);
  }
  offset *= static_cast<float>(sum_x);
  return std::fma(x.d, std::fma(step, static_cast<float>(sum), offset), acc);
}

/// A row of W times a row of x: the chain of every lane, then the tree over the lanes.
float RowTimesX(DataType type, const void* row, const std::vector<BlockI8x32>& x) {
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
        c_(test::RandomFloats(Size(q.m * columns_), 9)) {
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
    args.c_layout = {.type = DataType::kF32, .rows = q_.m, .cols = columns_, .ld = columns_};
    args.d_layout = {.type = DataType::kF32, .rows = q_.m, .cols = columns_, .ld = columns_ + 3};
    return args;
  }

  template <class Kernel>
  void ExpectRuns(Kernel&& kernel) {
    const cuda::LaunchResult launch = GemvInt8Launch(spec_, Args(), q_.sm_count);
    ASSERT_TRUE(launch) << launch.error().ToString();
    tw::emulation::readable_begin = static_cast<const unsigned char*>(w_.data());
    tw::emulation::readable_end = tw::emulation::readable_begin + w_.size();
    const bool ran = tw::emulation::RunLaunch<tw::GemvParams>(*launch, spec_.warps * 32u, kernel);
    tw::emulation::readable_begin = nullptr;
    EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
    EXPECT_FALSE(tw::emulation::fault) << "an illegal access, or a read outside of W";
    EXPECT_EQ(y_.Damage() + x_.Damage() + w_.Damage(), "");
  }

  void ExpectRight() {
    for (int i = 0; i < q_.m; ++i) {
      std::vector<BlockI8x32> x(Size(q_.k / 32));
      for (std::size_t b = 0; b < x.size(); ++b) Encode(xs_[Size(i)].data() + 32 * b, x[b]);
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
  unsigned char* RowOfW(int r) {
    return static_cast<unsigned char*>(w_.data()) +
           BytesOf(spec_.type_b, std::int64_t{r} * (q_.k + q_.pad_w));
  }
  void Scale(unsigned char* row) const {
    const BlockFormat& format = *FindFormat(spec_.type_b);
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
    const std::vector<float>& x = xs_[Size(i)];
    Dot dot;
    double magnitude = 0;
    for (std::size_t first = 0; first < w.size(); first += 32) {
      double largest = 0, weights = 0;
      for (std::size_t e = first; e < first + 32; ++e) {
        dot.sum += static_cast<double>(x[e]) * w[e];
        magnitude += std::fabs(static_cast<double>(x[e]) * w[e]);
        largest = std::max(largest, std::fabs(static_cast<double>(x[e])));
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
  test::Guarded<float> y_, c_;
  std::vector<std::vector<float>> xs_;
};

/// Fewer warps and smaller segments than the family ships are quicker to emulate.
template <Type kX, Type kW, tw::Epilogue kEpilogue, int kTileM, int kRows, int kWarps, int kStages,
          int kTurns = 1>
struct Kernel {
  static constexpr int kSegment = 32 * tw::Int8Codes<kW>::kChunk * kTurns;
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
    spec.params = {kRows, 1, 0, 0};
    EXPECT_FALSE(GemvInt8Family().check(spec));
    return spec;
  }
  static void Run(const tw::GemvParams& p) {
    constexpr Type kC = kEpilogue == kAdd ? Type::kF32 : Type::kNone;
    tw::GemvInt8Run<kX, kW, kC, Type::kF32, kEpilogue, kTileM, kRows, kWarps, kSegment, kStages>(
        p, tw::emulation::smem);
  }
  static void Expect(const Problem& q) {
    SCOPED_TRACE(testing::Message() << "m " << q.m << " n " << q.n << " k " << q.k << " rows "
                                    << kRows << " tile_m " << kTileM);
    Case product(Spec(), q);
    product.ExpectRuns(&Run);
    product.ExpectRight();
  }
};

// What several tests run is compiled once.
template <Type kW>
using OneRow = Kernel<Type::kBF16, kW, kNone, 1, 2, 3, 4>;
template <Type kW>
using TwoRows = Kernel<Type::kBF16, kW, kNone, 2, 4, 2, 3, 2>;

/// Rows of every number of blocks, units and warps that end early, tile_m rows of x and fewer.
template <Type kW>
void ExpectProducts(std::initializer_list<int> ks) {
  for (const int k : ks) {
    OneRow<kW>::Expect({.m = 1, .n = 19, .k = k});
    Kernel<Type::kF32, kW, kNone, 1, 1, 2, 2>::Expect({.m = 1, .n = 7, .k = k, .pad_x = 8});
    TwoRows<kW>::Expect({.m = 2, .n = 10, .k = k, .pad_x = 32});
    Kernel<Type::kBF16, kW, kNone, 4, 2, 2, 2>::Expect({.m = 3, .n = 5, .k = k});
    Kernel<Type::kBF16, kW, kNone, 8, 2, 1, 2>::Expect({.m = 8, .n = 3, .k = k});
  }
}

TEST(GemvInt8, BlocksOf32OfEveryNumberOfBlocks) {
  ExpectProducts<Type::kQ4_0>({32, 224, 1056, 2080});
  ExpectProducts<Type::kQ4_1>({32, 576, 1024, 2080});
  ExpectProducts<Type::kQ8_0>({32, 992, 1536, 2048});
}

TEST(GemvInt8, BlocksOf256OfEveryNumberOfBlocks) {
  ExpectProducts<Type::kQ4_K>({256, 768, 2048, 2304});
  ExpectProducts<Type::kQ6_K>({256, 768, 2048, 2304});
}

TEST(GemvInt8, FewerAndMoreRowsOfWeightsThanWarpsAndMultiprocessors) {
  for (const int n : {1, 2, 5, 12, 13, 50}) {
    OneRow<Type::kQ8_0>::Expect({.m = 1, .n = n, .k = 1088});
  }
}

TEST(GemvInt8, AlphaAndTheAddendAreApplied) {
  Kernel<Type::kBF16, Type::kQ4_K, kAdd, 1, 2, 2, 3>::Expect(
      {.m = 1, .n = 9, .k = 768, .alpha = -0.5f, .beta = 2});
  Kernel<Type::kF32, Type::kQ4_1, kAdd, 4, 2, 2, 3>::Expect({.m = 3, .n = 9, .k = 96, .beta = 1});
  Kernel<Type::kBF16, Type::kQ8_0, kAdd, 1, 2, 2, 3>::Expect({.m = 1, .n = 9, .k = 96});
}

TEST(GemvInt8, GateAndUpBecomeOneElement) {
  for (const int n : {32, 96}) {
    Kernel<Type::kBF16, Type::kQ4_K, kSwiGlu, 1, 2, 2, 3>::Expect({.m = 1, .n = n, .k = 512});
    Kernel<Type::kF32, Type::kQ8_0, kSwiGlu, 2, 4, 2, 3>::Expect(
        {.m = 2, .n = n, .k = 288, .alpha = 0.5f});
    Kernel<Type::kBF16, Type::kQ6_K, kSwiGlu, 1, 8, 3, 2>::Expect({.m = 1, .n = n, .k = 256});
  }
}

// Copies are of 16 aligned bytes wherever rows begin, and read nothing outside of the matrix.
template <Type kW>
void ExpectShiftedRows(int alignment, int k) {
  const int block = tw::Int8Codes<kW>::kBlock;
  for (int shift = 0; shift < 16; shift += alignment) {
    for (const int pad : {0, 1, 3}) {  // blocks: rows at other residues of 16 bytes
      OneRow<kW>::Expect({.m = 1, .n = 5, .k = k, .pad_w = pad * block, .shift_w = shift});
    }
  }
}

TEST(GemvInt8, BlocksAtEveryAddressThatTheirFormatAllows) {
  ExpectShiftedRows<Type::kQ4_0>(2, 1088);
  ExpectShiftedRows<Type::kQ4_1>(4, 1056);
  ExpectShiftedRows<Type::kQ8_0>(2, 1056);
  ExpectShiftedRows<Type::kQ6_K>(2, 2304);
  ExpectShiftedRows<Type::kQ4_K>(16, 768);
}

TEST(GemvInt8, ARowThatIsNotFiniteIsNaNAndTheOthersAreAsTheyWere) {
  using K = TwoRows<Type::kQ4_0>;
  for (const float value : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const Problem q{.m = 2, .n = 6, .k = 1088};
    Case whole(K::Spec(), q), broken(K::Spec(), q);
    std::vector<float> row = test::RandomFloats(1088, 3);
    row[1087] = value;
    broken.SetX(1, row);
    whole.ExpectRuns(&K::Run);
    broken.ExpectRuns(&K::Run);
    for (int j = 0; j < 6; ++j) {
      EXPECT_EQ(whole.y(0, j), broken.y(0, j));
      EXPECT_TRUE(std::isnan(broken.y(1, j)));
    }
  }
}

std::string Refusal(const KernelSpec& spec, const GemmArgs& args) {
  const cuda::LaunchResult launch = GemvInt8Launch(spec, args, 132);
  return launch ? "" : launch.error().ToString();
}

TEST(GemvInt8, RefusesWhatTheKernelCannotRead) {
  const KernelSpec spec = GemvInt8Specs(DataType::kQ8_0, kHopper)[2];
  ASSERT_EQ(spec.type_a, DataType::kBF16);
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
  refused([](GemmArgs& a) { a.b = memory + 1; }, "multiples of 2");
  refused([](GemmArgs& a) { a.a = memory + 8; }, "multiples of 16");
  refused([](GemmArgs& a) { a.a_layout.cols = a.b_layout.rows = 250; }, "k = 250");
  refused([](GemmArgs& a) { a.a_layout.rows = a.d_layout.rows = 2; }, "m = 2, needs at most 1");
  const int most = GemvInt8MaxK(spec);
  refused(
      [&](GemmArgs& a) {
        a.a_layout.cols = a.b_layout.rows = most + 32;
        a.a_layout.ld = a.b_layout.ld = most + 32;
      },
      "at most");
  KernelSpec other = spec;
  other.family = "gemv_q";
  EXPECT_THAT(Refusal(other, good), testing::HasSubstr("gemv_int8"));
}

TEST(GemvInt8, ASpecThatNoKernelHasIsRefusedWithItsField) {
  const KernelSpec good = GemvInt8Specs(DataType::kQ4_K, kHopper).front();
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = good;
    change(spec);
    const auto no = GemvInt8Family().check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_THAT(no->ToString(), testing::HasSubstr(word));
  };
  refused([](KernelSpec& s) { s.type_b = DataType::kBF16; }, "type_b = bf16");
  refused([](KernelSpec& s) { s.tile_m = 3; }, "tile_m = 3");
  refused([](KernelSpec& s) { s.params[0] = 3; }, "param0 = 3");
  refused([](KernelSpec& s) { s.tile_n = 5; }, "tile_n = 5");
  refused([](KernelSpec& s) { s.tile_k = 1024; }, "tile_k = 1024");
  refused([](KernelSpec& s) { s.stages = 1; }, "stages = 1");
  refused([](KernelSpec& s) { s.split_k = 1; }, "split_k");
  refused([](KernelSpec& s) { s.stages = 8; }, "shared memory");
  refused(
      [](KernelSpec& s) {
        s.epilogue = SpecEpilogue::kSwiGlu, s.type_c = DataType::kNone;
        s.params[0] = 1, s.tile_n = s.warps;
      },
      "a row of gate and one of up");
}

TEST(GemvInt8, EveryRowOfLlamaHasRoomAndTheLaunchFillsTheMultiprocessorsOnce) {
  for (const DataType weight :
       {DataType::kQ4_0, DataType::kQ4_1, DataType::kQ8_0, DataType::kQ4_K, DataType::kQ6_K}) {
    const std::vector<KernelSpec> specs = GemvInt8Specs(weight, kHopper);
    EXPECT_FALSE(specs.empty());
    for (const KernelSpec& spec : specs) EXPECT_GE(GemvInt8MaxK(spec), 14336) << SpecName(spec);
  }
  const KernelSpec spec = GemvInt8Specs(DataType::kQ4_K, kHopper)[2];
  const auto launch_of = [&](const Problem& q) {
    Case product(spec, q);
    GemmArgs args = product.Args();
    args.d_layout.type = args.c_layout.type = spec.type_d;
    return GemvInt8Launch(spec, args, q.sm_count).value();
  };
  // 16 rings of three stages of two rows of 2,048 values, x and the scale and sum of each 32.
  constexpr std::uint32_t kRings = 16 * 3 * 2 * 1152, kSm = 228 * 1024, kSystem = 1024;
  const cuda::CudaLaunch small = launch_of({.m = 1, .n = 300, .k = 4096, .sm_count = 132});
  EXPECT_EQ(small.grid, (std::array<std::uint32_t, 3>{132, 1, 1}));
  EXPECT_EQ(small.dynamic_smem_bytes, kRings + 4096 + 4096 / 32 * 8);
  EXPECT_LE(2 * (small.dynamic_smem_bytes + kSystem), kSm) << "the next launch fits beside it";
  const cuda::CudaLaunch large = launch_of({.m = 1, .n = 300, .k = 4096, .sm_count = 8});
  EXPECT_GT(2 * (large.dynamic_smem_bytes + kSystem), kSm) << "an SM holds one CTA";
  EXPECT_LE(large.dynamic_smem_bytes, GemvInt8Family().launch(spec).dynamic_smem_bytes);
}

}  // namespace
}  // namespace tilewright
