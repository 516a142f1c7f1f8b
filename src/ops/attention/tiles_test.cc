// Attention on tiles, with the tiles emulated: what the instructions of AMX give, on any machine; and the
// same by vectors.
#include "ops/attention/cpu/tiled.h"
#include "ops/attention/emulated_tiles.h"
#include "ops/attention/test_problem.h"

namespace tilewright::attention {
namespace {

constexpr std::uint32_t kNeeds = kFeatureAvx512 | kFeatureAvx512Bf16;

class AttentionOnTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceSpec device = DetectCpu().value();
    if (!device.Has(kNeeds)) GTEST_SKIP() << "no AVX-512 BF16";
    tiles_.push_back(MakeBF16Kernel("emulated", kNeeds, AttentionOnEmulatedTiles(), ""));
    vectors_.push_back(MakeBF16Kernel("avx512bf16", kNeeds, AttentionAvx512Bf16(), ""));
    Registry registry;
    AddTiledKernels(registry);
    for (Kernel* kernel : registry.kernels())
      if (kernel->name() == "attention.bf16.amx") amx_listed_ = true;
    if (device.Has(kFeatureAmxTile | kFeatureAmxBf16)) {
      tiles_.push_back(
          MakeBF16Kernel("amx", kNeeds | kFeatureAmxTile | kFeatureAmxBf16, AttentionAmx(), ""));
    }
  }
  using Kernels = std::vector<std::unique_ptr<Kernel>>;

  /// Within what bf16 rounds, with the same bits whatever the threads and pages: the emulation of
  /// tiles and, where they are, the instructions alike, and the vectors among themselves.
  void Expect(const Case& c, std::uint64_t seed) {
    SCOPED_TRACE(Describe(c));
    for (const Kernels* kernels : {&tiles_, &vectors_}) ExpectAlike(*kernels, c, seed);
  }
  void ExpectAlike(const Kernels& kernels, const Case& c, std::uint64_t seed) {
    Problem flat(c, seed);
    const std::vector<float> expected = flat.Reference();
    const std::vector<float> one = flat.Launch(*kernels[0], 1);
    EXPECT_LT(RelativeL2(one, expected), kRounded);
    for (const auto& kernel : kernels) {
      SCOPED_TRACE(std::string(kernel->name()));
      for (const int threads : {1, 2, 3}) EXPECT_EQ(flat.Launch(*kernel, threads), one) << threads;
      for (const int page_size : {7, 16, 64}) {
        Problem paged(c, seed);
        paged.Page(page_size, seed);
        EXPECT_EQ(paged.Launch(*kernel, 2), one) << "pages of " << page_size;
      }
    }
  }
  /// Relative L2 of rounding q, k, v and weights to bf16, each by 9e-4 of it in the root of the mean
  /// square, where scores are up to two: about 3e-3.
  static constexpr double kRounded = 6e-3;
  Kernels tiles_, vectors_;
  bool amx_listed_ = false;
};

std::vector<std::int32_t> Slots(std::size_t rows, std::int32_t slot) {
  return std::vector<std::int32_t>(rows, slot);
}

TEST_F(AttentionOnTiles, agrees_with_the_oracle_for_every_cache_and_shape) {
  std::uint64_t seed = 1;
  const auto expect = [&](DataType kv, int heads, int kv_heads, int hd, int context, int slots,
                          const std::vector<std::int32_t>& positions) {
    Expect({kv, heads, kv_heads, hd, context, slots, positions, Slots(positions.size(), slots - 1)},
           seed++);
  };
  for (const DataType kv : {DataType::kF16, DataType::kBF16, DataType::kQ8_0}) {
    expect(kv, 3, 1, 64, 80, 1, {0});
    expect(kv, 3, 1, 64, 80, 2, Range(0, 17));
    expect(kv, 9, 3, 64, 700, 1, {633});
    expect(kv, 4, 4, 32, 600, 1, Range(500, 40));
    expect(kv, 4, 1, 128, 300, 1, Range(230, 50));  // several groups of vectors and two splits
  }
  expect(DataType::kBF16, 2, 1, 1, 9, 1, Range(0, 5));
  expect(DataType::kBF16, 2, 2, 7, 70, 1, Range(60, 5));
  expect(DataType::kF16, 8, 2, 80, 300, 1, Range(250, 20));
  expect(DataType::kF16, 5, 5, 100, 300, 1, {255, 256, 257});
  expect(DataType::kBF16, 1, 1, 256, 40, 1, Range(0, 33));
}

TEST_F(AttentionOnTiles, sees_windows_and_weighs_caps_and_sinks_as_the_oracle_does) {
  std::uint64_t seed = 50;
  for (const DataType kv : {DataType::kF16, DataType::kBF16}) {
    for (const std::int32_t window : {0, 1, 33, 257}) {
      Case c{kv, 6, 2, 64, 900, 2, {}, {}, 1, window, window == 33 ? 1.5f : 0.0f, window != 1};
      c.positions = {-1, 700, 701, 0, 15, 16, 17, 31, 32, 33, 255, 256, 257};
      for (const std::int32_t p : Range(500, 40)) c.positions.push_back(p);
      c.slot_of = Slots(c.positions.size(), 1);
      c.slot_of[3] = 0;
      Expect(c, ++seed);
    }
  }
}

TEST_F(AttentionOnTiles, follows_scores_far_above_those_before) {
  // Small integers, which bf16 holds: scores are exact, up to some 30 and in no order, so that rows
  // move their shift several times, in the middle of splits and each on its own.
  Case c{DataType::kBF16, 2, 1, 64, 600, 1, Range(520, 50), Slots(50, 0)};
  Problem problem(c, 8);
  std::vector<float> expected(50 * 2 * 64), got(expected.size());
  attention::Args args = problem.Args(expected.data(), 2 * 64);
  args.scale = 0.25f;
  Random random(9);
  for (int i = 0; i < 600 * 64; ++i) {
    const auto key = static_cast<float>(random.Below(9)) - 4;
    args.k_cache.as<std::uint16_t>()[i] = F32ToBF16(key);
  }
  for (std::int64_t r = 0; r < 50; ++r)
    for (int i = 0; i < 2 * 64; ++i)
      args.q.as<float>()[r * args.q.stride[2] + i] = static_cast<float>(random.Below(5)) - 2;
  ASSERT_TRUE(attention::Reference(args));
  args.out.data = got.data();
  attention::Args one = args;
  std::vector<float> row(2 * 64);
  one.out.data = row.data();
  one.q.data = args.q.as<float>() + 30 * args.q.stride[2];
  one.q.shape[2] = one.out.shape[1] = one.positions.shape[0] = one.slots.shape[0] = 1;
  one.positions.data = args.positions.as<std::int32_t>() + 30;
  for (const Kernels* kernels : {&tiles_, &vectors_}) {
    for (const auto& kernel : *kernels) {
      Problem::RunGuarded(*kernel, args, 2);
      // Weights and values are rounded; few positions have most of the weight.
      EXPECT_LT(RelativeL2(got, expected), 4e-3) << kernel->name();
    }
    Problem::RunGuarded(*(*kernels)[0], one, 1);
    EXPECT_EQ(row, std::vector<float>(got.begin() + 30 * 128, got.begin() + 31 * 128));
  }
}

TEST_F(AttentionOnTiles, gives_a_row_its_bits_in_every_batch) {
  Case many{DataType::kBF16, 8, 2, 64, 400, 1, Range(290, 70), Slots(70, 0), 1, 100, 0, true};
  Problem batch(many, 41);
  constexpr std::ptrdiff_t kWidth = 8 * 64;
  for (Kernel* kernel : {tiles_[0].get(), vectors_[0].get()}) {
    SCOPED_TRACE(std::string(kernel->name()));
    const std::vector<float> all = batch.Launch(*kernel, 2);
    for (const int r : {0, 15, 16, 40, 69}) {
      std::vector<float> out(kWidth);
      attention::Args args = batch.Args(out.data(), kWidth);
      args.q.data = args.q.as<float>() + r * args.q.stride[2];
      args.q.shape[2] = args.out.shape[1] = args.positions.shape[0] = args.slots.shape[0] = 1;
      args.positions.data = args.positions.as<std::int32_t>() + r;
      Problem::RunGuarded(*kernel, args, 2);
      EXPECT_EQ(out, std::vector<float>(all.begin() + r * kWidth, all.begin() + (r + 1) * kWidth))
          << r;
    }
  }
}

TEST_F(AttentionOnTiles, has_the_same_bits_in_blocks_of_every_size) {
  // One worker takes blocks of 64 rows of 4 heads, three of them blocks of 16.
  Case c{DataType::kF16, 4, 1, 32, 400, 1, Range(100, 130), Slots(130, 0)};
  Problem problem(c, 5);
  std::vector<float> out(130 * 4 * 32);
  const attention::Args args = problem.Args(out.data(), 4 * 32);
  for (Kernel* kernel : {tiles_[0].get(), vectors_[0].get()})
    test::ExpectSameBitsOnAnyThreads<Op>(*kernel, args, out.data(), out.size() * sizeof(float));
}

TEST_F(AttentionOnTiles, lets_a_nan_show_and_nothing_else_be_seen) {
  Case c{DataType::kBF16, 1, 1, 64, 40, 1, {20, 3}, {0, 0}};
  for (const bool key : {true, false}) {
    Problem problem(c, 5);
    std::vector<float> out(2 * 64);
    attention::Args args = problem.Args(out.data(), 64);
    (key ? args.k_cache : args.v_cache).as<std::uint16_t>()[5 * 64 + 3] = 0x7fc0;
    for (Kernel* kernel : {tiles_[0].get(), vectors_[0].get()}) {
      const std::vector<float> got = problem.Launch(*kernel, 1);
      EXPECT_TRUE(std::isnan(got[3])) << kernel->name() << key;
    }
  }
}

TEST_F(AttentionOnTiles, is_refused_where_nothing_may_be_rounded) {
  EXPECT_TRUE(amx_listed_);
  const auto amx = MakeBF16Kernel("amx", kRoundingFeatures | kFeatureAmxBf16, AttentionAmx(), "");
  const auto rejected = [&](DataType kv, Precision precision) {
    const auto no = amx->IsFeasible(Desc{.type_kv = kv, .precision = precision});
    return no && no->reason == Reason::kPrecision;
  };
  EXPECT_TRUE(rejected(DataType::kF32, Precision::kAuto));
  EXPECT_FALSE(rejected(DataType::kF16, Precision::kAuto));
  EXPECT_FALSE(rejected(DataType::kQ8_0, Precision::kI8));
  EXPECT_TRUE(rejected(DataType::kF16, Precision::kF32));
  EXPECT_FALSE(rejected(DataType::kF32, Precision::kBF16));
  EXPECT_TRUE(amx->CheckDevice(DetectCpuCappedAt(Isa::kAvx512))) << "without the unit";
  EXPECT_FALSE(amx->info().batch_invariant);

  const auto vectors =
      MakeBF16Kernel("avx512bf16", kNeeds, AttentionAvx512Bf16(), "", Rounding::kNamed);
  for (const Precision precision : {Precision::kAuto, Precision::kF32, Precision::kI8})
    EXPECT_TRUE(vectors->IsFeasible(Desc{.type_kv = DataType::kF16, .precision = precision}));
  EXPECT_FALSE(vectors->IsFeasible(Desc{.type_kv = DataType::kF16, .precision = Precision::kBF16}));
}

}  // namespace
}  // namespace tilewright::attention
