#include "device/cuda/kernels/cluster_emulation.h"
#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After them: the kernel uses their built-ins.
#include "ops/attention/cuda/attention_decode_kernel.cuh"
#include "ops/attention/cuda/attention_test_run.h"

// The source of the kernel, run on the CPU as AttentionDecodeLaunch launches it, against float64.

namespace tilewright::attention {
namespace {

using tw::Type;

template <Type kIts, int kDim, int kWarpCount = 2, int kRing = 2, int kCtas = 1>
struct Spec {
  static constexpr Type kType = kIts;
  static constexpr int kHeadDim = kDim;
  static constexpr int kWarps = kWarpCount;
  static constexpr int kStages = kRing;
  static constexpr int kCluster = kCtas;
  static constexpr bool kForesees = kCtas > 1;
  static constexpr bool kTurns = false;

  static KernelSpec Its() {
    KernelSpec spec;
    spec.family = "attention_decode";
    spec.arch = {90, 'a'};
    spec.type_a = spec.type_b = spec.type_d = static_cast<DataType>(kIts);
    spec.order_a = spec.order_b = Order::kRowMajor;
    spec.tile_m = 8;
    spec.tile_n = 16 * kWarps;
    spec.stages = kRing;
    spec.warps = kWarps;
    spec.cluster_n = kCtas > 1 ? kCtas : 0;
    spec.params[0] = kDim;
    spec.params[1] = kForesees ? 1 : 0;
    return spec;
  }
  static BatchCase Case() {
    return {.q = static_cast<DataType>(kIts), .kv = static_cast<DataType>(kIts), .head_dim = kDim};
  }
};
using Small = Spec<Type::kBF16, 64>;
using Clustered = Spec<Type::kBF16, 64, 2, 1, 4>;

template <class S>
void Launch(const Args& args, int sms) {
  const KernelSpec spec = S::Its();
  const GuardedWorkspace workspace(DecodeWorkspace(spec, DescOf(args, {}).value(), Board(sms)));
  Emulate<tw::AttentionParams>(AttentionDecodeFamily(), spec,
                               AttentionDecodeLaunch(spec, args, Board(sms), workspace.get()),
                               [](const tw::AttentionParams& params) {
                                 tw::AttentionDecode<S>(params, tw::emulation::OwnSmem()).Run();
                               });
}

template <class S>
RunFn On(int sms) {
  return [sms](Batch& batch) {
    return RunBatch(batch, [sms](const Args& args) { Launch<S>(args, sms); });
  };
}

/// On devices where a CTA computes a round, a few of them, or a row.
constexpr int kDevices[] = {10000, 12, 1};

template <class S>
void Expect(const BatchCase& c, std::uint64_t seed = 1) {
  Batch batch(c, seed);
  const std::vector<double> want = batch.Want();
  for (const int sms : kDevices) {
    SCOPED_TRACE(sms);
    batch.ExpectNear(On<S>(sms)(batch), want);
  }
}

TEST(AttentionDecodeKernel, AgreesWithTheOracleForEveryTypeHeadAndShape) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    BatchCase c = S::Case();
    c.heads = 6, c.kv_heads = 2, c.context = 320, c.sequences = 2;
    c.positions = {0, 299, 63, 64}, c.slots = {0, 1, 1, 0};
    Expect<S>(c);
  };
  check(Spec<Type::kBF16, 64, 4, 2>());
  check(Spec<Type::kBF16, 128, 4, 2>());
  check(Spec<Type::kF16, 64, 8, 2>());
  check(Spec<Type::kF16, 128, 2, 1>());
  check(Spec<Type::kBF16, 128, 2, 4>());
  check(Spec<Type::kBF16, 128, 4, 1, 8>());
  check(Spec<Type::kF16, 64, 2, 2, 2>());
  check(Spec<Type::kF16, 128, 2, 2, 4>());
}

TEST(AttentionDecodeKernel, TakesAnyNumberOfHeads) {
  for (const auto& [heads, kv_heads] :
       {std::pair{1, 1}, {3, 3}, {9, 3}, {7, 1}, {8, 1}, {11, 1}, {16, 1}, {17, 1}}) {
    BatchCase c = Small::Case();
    c.heads = heads, c.kv_heads = kv_heads, c.context = 200;
    c.positions = {130, 7}, c.slots = {0, 0};
    Expect<Small>(c);
    Expect<Clustered>(c);
  }
}

TEST(AttentionDecodeKernel, TakesTheLastPositionsOfATileAndOfARound) {
  BatchCase c = Small::Case();
  c.heads = 2, c.kv_heads = 1, c.context = 1100;
  for (const int position : {1, 14, 15, 16, 17, 30, 31, 32, 33, 63, 64, 65, 1023, 1024, 1099})
    AddRows(c, 0, position, 1);
  Expect<Small>(c);
  Expect<Clustered>(c);
}

TEST(AttentionDecodeKernel, FindsPagesOfAnySize) {
  BatchCase c = Spec<Type::kF16, 64>::Case();
  c.heads = 4, c.kv_heads = 2, c.context = 400, c.sequences = 3;
  c.positions = {5, 399, 0, 1, 260, 261, -1, 66}, c.slots = {0, 1, 2, 2, 0, 0, 1, 2};
  for (const int window : {0, 70}) {
    c.window = window;
    for (const int page_size : {7, 16, 64, 256}) {
      c.page_size = page_size;
      Expect<Spec<Type::kF16, 64>>(c, 40 + page_size);
    }
  }
}

TEST(AttentionDecodeKernel, SeesTheLastPositionsOfAWindow) {
  for (const int window : {1, 2, 63, 64, 65, 128, 257, 5000}) {
    BatchCase c = Small::Case();
    c.heads = 2, c.kv_heads = 1, c.context = 700, c.sequences = 2, c.window = window;
    c.positions = {0, 63, 64, 255, 256, 500, 699}, c.slots = {1, 0, 1, 0, 0, 1, 0};
    Expect<Small>(c);
    Expect<Clustered>(c);
  }
}

TEST(AttentionDecodeKernel, ReadsAndWritesElementsWhereNothingIsAligned) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    BatchCase c = S::Case();
    c.odd = true, c.context = 100;
    c.positions = {0, 99, 64}, c.slots = {0, 0, 0};
    Expect<S>(c);
  };
  check(Spec<Type::kBF16, 64>());
  check(Spec<Type::kF16, 128>());
}

TEST(AttentionDecodeKernel, ARowHasItsBitsWhateverIsBesideIt) {
  BatchCase c = Small::Case();
  c.heads = 6, c.kv_heads = 2, c.context = 700, c.sequences = 2, c.page_size = 64;
  c.positions = {600, 601, -1, 3, 255, 256}, c.slots = {0, 0, 1, 1, 1, 1};
  Batch batch(c, 9);
  const std::vector<double> first = On<Small>(12)(batch);
  const auto width = static_cast<std::ptrdiff_t>(batch.width());
  for (const std::size_t other : {1u, 3u, 5u}) batch.positions()[other] = -1;
  const std::vector<double> second = On<Small>(12)(batch);
  for (const int row : {0, 4}) {
    EXPECT_TRUE(std::equal(first.begin() + row * width, first.begin() + (row + 1) * width,
                           second.begin() + row * width))
        << "row " << row;
  }
}

TEST(AttentionDecodeKernel, MakesZerosOfPaddingAndNaNOfWhatDoesNotExist) {
  for (const int sms : kDevices) {
    ExpectZerosAndNaN(Small::Case(), On<Small>(sms));
    ExpectZerosAndNaN(Clustered::Case(), On<Clustered>(sms));
  }
}

TEST(AttentionDecodeKernel, ANaNKeyShowsInTheRowsThatSeeIt) {
  ExpectNaNOfNaNKey(Small::Case(), On<Small>(10000));
}

TEST(AttentionDecodeKernel, CapsScores) {
  using Wide = Spec<Type::kF16, 128, 4>;
  ExpectCaps(Small::Case(), On<Small>(10000));
  ExpectCaps(Clustered::Case(), On<Clustered>(1));
  ExpectCaps(Wide::Case(), On<Wide>(1));
}

TEST(AttentionDecodeLaunch, RefusesWhatTheSpecIsNotFor) {
  BatchCase c = Small::Case();
  c.positions = {200}, c.slots = {0};
  Batch batch(c, 1);
  test::GuardedBytes out(batch.OutBytes());
  const Args good = batch.ArgsAt(batch.Host(out.data()));
  const auto refused = [&](KernelSpec spec, auto change, const char* words) {
    Args args = good;
    change(args);
    ExpectRefused(AttentionDecodeLaunch(spec, args, Board(1), {}), words);
  };
  refused(
      Spec<Type::kF16, 64>::Its(), [](Args&) {}, "q bf16, needs f16");
  refused(
      Spec<Type::kBF16, 128>::Its(), [](Args&) {}, "head_dim = 64, needs 128");
  refused(
      Small::Its(), [](Args& a) { a.q.stride[0] = 2; }, "q: elements 2 apart");
  KernelSpec other = Small::Its();
  other.family = "attention_split";
  refused(
      other, [](Args&) {}, "a kernel of attention_split");
  refused(
      Small::Its(), [](Args&) {}, "a workspace of 0 bytes");
}

TEST(AttentionDecodeLaunch, HasCtasForEveryMultiprocessorAndNoMoreThanThereAreRounds) {
  const KernelSpec spec = Spec<Type::kBF16, 128, 4>::Its();
  const DeviceSpec board = Board(132);
  Desc desc{.type_q = DataType::kBF16,
            .type_kv = DataType::kBF16,
            .rows = 1,
            .context = 65536,
            .heads = 32,
            .kv_heads = 8,
            .head_dim = 128};
  EXPECT_EQ(DecodeSplitsOf(spec, desc, board), 33);
  EXPECT_EQ(DecodeWorkspace(spec, desc, board).barriers, 8 * 4u);
  EXPECT_EQ(DecodeWorkspace(spec, desc, board).partials, 8 * 33 * 4 * 130 * 4u);
  desc.context = 1000;
  EXPECT_EQ(DecodeSplitsOf(spec, desc, board), 16);
  desc.window = 65;
  EXPECT_EQ(DecodeSplitsOf(spec, desc, board), 3);
  desc.window = 0;
  desc.rows = 33, desc.context = 512;
  EXPECT_EQ(DecodeSplitsOf(spec, desc, board), 1);
  EXPECT_EQ(DecodeWorkspace(spec, desc, board), WorkspaceSize{});
  desc.context = 65536;  // long enough for a second CTA to pay
  EXPECT_EQ(DecodeSplitsOf(spec, desc, board), 2);
  EXPECT_EQ(DecodeSplitsOf(Spec<Type::kBF16, 128, 8>::Its(), desc, board), 1);
}

TEST(AttentionDecodeLaunch, HasTheCtasOfAClusterForEveryRowAndNoWorkspace) {
  const KernelSpec spec = Clustered::Its();
  BatchCase c = Clustered::Case();
  c.heads = 6, c.kv_heads = 2, c.positions = {200, 3, -1}, c.slots = {0, 0, 0};
  Batch batch(c, 1);
  test::GuardedBytes out(batch.OutBytes());
  const Args args = batch.ArgsAt(batch.Host(out.data()));
  for (const int sms : kDevices) {
    EXPECT_EQ(DecodeWorkspace(spec, DescOf(args, {}).value(), Board(sms)), WorkspaceSize{});
    const cuda::LaunchResult launch = AttentionDecodeLaunch(spec, args, Board(sms), {});
    ASSERT_TRUE(launch) << launch.error().ToString();
    EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{3 * 2, 4, 1}));
  }
}

/// Where the launch is early, positions and slots may be those of the pass before.
TEST(AttentionDecodeKernel, AWrongGuessOfWhereRowsLieChangesNothing) {
  BatchCase c = Clustered::Case();
  c.heads = 2, c.kv_heads = 1, c.context = 300, c.sequences = 3;
  c.positions = {5, 299, -1, 66, 131}, c.slots = {0, 1, 2, 2, 0};
  for (const int page_size : {0, 64, 7}) {
    c.page_size = page_size;
    Batch batch(c, 3);
    const std::vector<double> want = On<Clustered>(12)(batch);
    for (const auto wrong : {+[](const int* p) { return *p + 1; }, +[](const int*) { return 0; },
                             +[](const int*) { return -1; }, +[](const int*) { return 1 << 30; }}) {
      tw::emulation::read_ahead = wrong;
      EXPECT_EQ(On<Clustered>(12)(batch), want);
      tw::emulation::read_ahead = nullptr;
    }
  }
}

TEST(AttentionDecodeFamily, EverySpecPassesItsCheckAndOthersAreRefusedByField) {
  KernelFamilies families;
  ASSERT_TRUE(AddAttentionFamilies(families));
  const KernelFamily& family = *families.Find("attention_decode");
  for (const CudaArch arch : {CudaArch{80, 0}, CudaArch{90, 'a'}, CudaArch{120, 0}}) {
    EXPECT_EQ(family.catalog(arch).size(), arch.number < 90 ? 16u : 52u);
    for (const KernelSpec& spec : family.catalog(arch)) EXPECT_EQ(family.check(spec), std::nullopt);
  }
  EXPECT_TRUE(family.catalog({75, 0}).empty());
  const auto refused = [&](auto change, const char* words) {
    ExpectRefused(family, Small::Its(), change, words);
  };
  refused([](KernelSpec& s) { s.type_a = DataType::kF32; }, "type_a = f32");
  refused([](KernelSpec& s) { s.type_b = DataType::kF16; }, "type_b = f16");
  refused([](KernelSpec& s) { s.params[0] = 80; }, "param0 = 80");
  refused([](KernelSpec& s) { s.tile_n = 64; }, "tile_n = 64");
  refused([](KernelSpec& s) { s.tile_m = 16; }, "tile_m = 16");
  refused([](KernelSpec& s) { s.stages = 0; }, "stages = 0");
  refused([](KernelSpec& s) { s.split_k = 2; }, "split_k");
  refused([](KernelSpec& s) { s.cluster_n = 3; }, "cluster_n = 3");
  refused([](KernelSpec& s) { s.params[1] = 2; }, "param1 = 2");
  refused([](KernelSpec& s) { s.params[2] = 2; }, "param2 = 2");
  refused([](KernelSpec& s) { s.arch = {80, 0}, s.cluster_n = 2; }, "sm_90 or newer");
  refused([](KernelSpec& s) { s.arch = {80, 0}, s.params[1] = 1; }, "sm_90 or newer");
}

}  // namespace
}  // namespace tilewright::attention
