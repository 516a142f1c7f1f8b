#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After them: the kernel uses their built-ins.
#include "ops/attention/cuda/attention_split_kernel.cuh"
#include "ops/attention/cuda/attention_test_run.h"

// The source of the kernel, run on the CPU as AttentionSplitLaunch launches it, against float64.

namespace tilewright::attention {
namespace {

using tw::Type;

template <Type kQ, Type kKv, int kDim, int kLength>
struct Spec {
  static constexpr Type kTypeQ = kQ;
  static constexpr Type kTypeKv = kKv;
  static constexpr int kHeadDim = kDim;
  static constexpr int kMaxHeads = 8;
  static constexpr int kSplit = kLength;
  static constexpr int kPositions = kKv == Type::kF32 ? 32 : 64;
  static constexpr int kWarps = 4;

  static KernelSpec Its() {
    KernelSpec spec;
    spec.family = "attention_split";
    spec.arch = {90, 'a'};
    spec.type_a = spec.type_d = static_cast<DataType>(kQ);
    spec.type_b = static_cast<DataType>(kKv);
    spec.order_a = spec.order_b = Order::kRowMajor;
    spec.tile_m = kMaxHeads;
    spec.tile_n = kLength;
    spec.tile_k = kPositions;
    spec.warps = kWarps;
    spec.params[0] = kDim;
    return spec;
  }
  static BatchCase Case() {
    return {.q = static_cast<DataType>(kQ), .kv = static_cast<DataType>(kKv), .head_dim = kDim};
  }
};

/// Devices on which every split has a CTA, and on which none but whole rows have.
constexpr int kLarge = 10000, kSmall = 1;

template <class S>
void Launch(const Args& args, int sms) {
  const KernelSpec spec = S::Its();
  const GuardedWorkspace workspace(SplitWorkspace(spec, DescOf(args, {}).value(), Board(sms)));
  Emulate<tw::AttentionParams>(AttentionSplitFamily(), spec,
                               AttentionSplitLaunch(spec, args, Board(sms), workspace.get()),
                               [](const tw::AttentionParams& params) {
                                 tw::AttentionSplit<S>(params, tw::emulation::smem).Run();
                               });
}

template <class S>
RunFn On(int sms) {
  return [sms](Batch& batch) {
    return RunBatch(batch, [sms](const Args& args) { Launch<S>(args, sms); });
  };
}

/// The oracle's result, and the same bits whether a CTA computes a split or a row.
template <class S>
void Expect(const BatchCase& c, std::uint64_t seed = 1) {
  Batch batch(c, seed);
  const std::vector<double> splits = On<S>(kLarge)(batch), whole = On<S>(kSmall)(batch);
  batch.ExpectNear(splits, batch.Want());
  EXPECT_TRUE(SameBits(splits.data(), whole.data(), batch.rows() * batch.width())) << Describe(c);
}

TEST(AttentionSplitKernel, AgreesWithTheOracleForEveryTypeAndHead) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    BatchCase c = S::Case();
    c.heads = 6, c.kv_heads = 2, c.context = 320, c.sequences = 2;
    c.positions = {0, 299, 63, 64}, c.slots = {0, 1, 1, 0};
    Expect<S>(c);
  };
  check(Spec<Type::kF32, Type::kBF16, 64, 64>());
  check(Spec<Type::kF32, Type::kBF16, 128, 256>());
  check(Spec<Type::kBF16, Type::kBF16, 128, 64>());
  check(Spec<Type::kF16, Type::kF16, 128, 64>());
  check(Spec<Type::kF16, Type::kF16, 64, 256>());
  check(Spec<Type::kF32, Type::kF32, 64, 64>());
  check(Spec<Type::kF32, Type::kF32, 128, 256>());
}

TEST(AttentionSplitKernel, TakesAnyNumberOfHeads) {
  using S = Spec<Type::kF32, Type::kBF16, 64, 64>;
  for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {3, 3}, {9, 3}, {7, 1}, {8, 1}, {11, 1}}) {
    BatchCase c = S::Case();
    c.heads = heads, c.kv_heads = kv_heads, c.context = 200;
    c.positions = {130, 7}, c.slots = {0, 0};
    Expect<S>(c);
  }
}

TEST(AttentionSplitKernel, TakesTheLastPositionsOfATileAndOfASplit) {
  using S = Spec<Type::kBF16, Type::kBF16, 64, 256>;
  BatchCase c = S::Case();
  c.heads = 2, c.kv_heads = 1, c.context = 1100;
  for (const int position : {1, 2, 62, 63, 64, 65, 127, 255, 256, 511, 512, 513, 1023, 1024, 1099})
    AddRows(c, 0, position, 1);
  Expect<S>(c);
}

TEST(AttentionSplitKernel, FindsPagesOfAnySize) {
  using S = Spec<Type::kF32, Type::kF16, 64, 64>;
  BatchCase c = S::Case();
  c.heads = 4, c.kv_heads = 2, c.context = 400, c.sequences = 3;
  c.positions = {5, 399, 0, 1, 260, 261, -1, 66}, c.slots = {0, 1, 2, 2, 0, 0, 1, 2};
  for (const int window : {0, 70}) {
    c.window = window;
    for (const int page_size : {7, 16, 64, 256}) {
      c.page_size = page_size;
      Expect<S>(c, 40 + page_size);
    }
  }
}

TEST(AttentionSplitKernel, SeesTheLastPositionsOfAWindow) {
  using S = Spec<Type::kF32, Type::kBF16, 64, 64>;
  for (const int window : {1, 2, 63, 64, 65, 128, 257, 5000}) {
    BatchCase c = S::Case();
    c.heads = 2, c.kv_heads = 1, c.context = 700, c.sequences = 2, c.window = window;
    c.positions = {0, 63, 64, 255, 256, 500, 699}, c.slots = {1, 0, 1, 0, 0, 1, 0};
    Expect<S>(c);
  }
}

TEST(AttentionSplitKernel, ReadsAndWritesElementsWhereNothingIsAligned) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    BatchCase c = S::Case();
    c.odd = true, c.context = 100;
    c.positions = {0, 99, 64}, c.slots = {0, 0, 0};
    Expect<S>(c);
  };
  check(Spec<Type::kF32, Type::kBF16, 64, 64>());
  check(Spec<Type::kBF16, Type::kF16, 128, 64>());
  check(Spec<Type::kF16, Type::kF32, 64, 64>());
}

TEST(AttentionSplitKernel, ARowHasItsBitsInEveryBatch) {
  using S = Spec<Type::kBF16, Type::kBF16, 64, 256>;
  ExpectRowsKeepTheirBits(S::Case(), [](const Args& args) { Launch<S>(args, kLarge); });
}

TEST(AttentionSplitKernel, MakesZerosOfPaddingAndNaNOfWhatDoesNotExist) {
  using S = Spec<Type::kF32, Type::kBF16, 64, 64>;
  for (const int sms : {kLarge, kSmall}) ExpectZerosAndNaN(S::Case(), On<S>(sms));
}

TEST(AttentionSplitKernel, ANaNKeyShowsInTheRowsThatSeeIt) {
  using S = Spec<Type::kF32, Type::kF32, 64, 64>;
  ExpectNaNOfNaNKey(S::Case(), On<S>(kLarge));
}

TEST(AttentionSplitKernel, CapsScores) {
  using Plain = Spec<Type::kF32, Type::kBF16, 64, 64>;
  using Wide = Spec<Type::kBF16, Type::kBF16, 128, 256>;
  for (const int sms : {kLarge, kSmall}) ExpectCaps(Plain::Case(), On<Plain>(sms));
  ExpectCaps(Wide::Case(), On<Wide>(kLarge));
}

TEST(AttentionSplitLaunch, RefusesWhatTheSpecIsNotFor) {
  using S = Spec<Type::kF32, Type::kBF16, 64, 64>;
  BatchCase c = S::Case();
  c.positions = {200}, c.slots = {0};
  Batch batch(c, 1);
  test::GuardedBytes out(batch.OutBytes());
  const Args good = batch.ArgsAt(batch.Host(out.data()));
  const auto refused = [&](KernelSpec spec, auto change, const char* words) {
    Args args = good;
    change(args);
    ExpectRefused(AttentionSplitLaunch(spec, args, Board(kSmall), {}), words);
  };
  refused(
      Spec<Type::kBF16, Type::kBF16, 64, 64>::Its(), [](Args&) {}, "q f32, needs bf16");
  refused(
      Spec<Type::kF32, Type::kF16, 64, 64>::Its(), [](Args&) {}, "k_cache bf16, needs f16");
  refused(
      Spec<Type::kF32, Type::kBF16, 128, 64>::Its(), [](Args&) {}, "head_dim = 64, needs 128");
  refused(
      S::Its(), [](Args& a) { a.q.stride[0] = 2; }, "q: elements 2 apart");
  refused(
      S::Its(), [](Args& a) { a.out.data = a.out.as<char>() + 2; }, "a multiple of its element");
  refused(
      S::Its(), [](Args& a) { a.sinks = a.positions; }, "sinks, needs none");
  KernelSpec other = S::Its();
  other.family = "rope_kv";
  refused(
      other, [](Args&) {}, "a kernel of rope_kv");
  ExpectRefused(AttentionSplitLaunch(S::Its(), good, Board(kLarge), {}), "a workspace of 0 bytes");
}

TEST(AttentionSplitLaunch, DividesRowsWhereTheyAreTooFewForTheDevice) {
  const KernelSpec spec = Spec<Type::kBF16, Type::kBF16, 128, 64>::Its();
  const DeviceSpec board = Board(132);
  Desc desc{.type_q = DataType::kBF16,
            .type_kv = DataType::kBF16,
            .rows = 1,
            .context = 1000,
            .heads = 32,
            .kv_heads = 8,
            .head_dim = 128};
  EXPECT_EQ(SplitsOf(spec, desc, board), 16);
  EXPECT_EQ(SplitWorkspace(spec, desc, board).barriers, 8 * 4u);
  EXPECT_EQ(SplitWorkspace(spec, desc, board).partials, 8 * 16 * 4 * 130 * 4u);
  desc.window = 65;
  EXPECT_EQ(SplitsOf(spec, desc, board), 3);
  desc.window = 0;
  desc.rows = 66;
  EXPECT_EQ(SplitsOf(spec, desc, board), 1);
  EXPECT_EQ(SplitWorkspace(spec, desc, board), WorkspaceSize{});
  desc.rows = 8, desc.context = 1 << 17;  // 8 * 8 * 2,048 * 4 * 130 floats
  EXPECT_EQ(SplitsOf(spec, desc, board), 1);
}

TEST(AttentionSplitLaunch, HasCtasForThePositionsThatThePagesHold) {
  using S = Spec<Type::kBF16, Type::kBF16, 64, 64>;
  BatchCase c = S::Case();
  c.context = 1024, c.sequences = 1, c.page_size = 64;
  c.positions = {100}, c.slots = {0};
  Batch batch(c, 5);
  test::GuardedBytes out(batch.OutBytes(), 0);
  Args args = batch.ArgsAt(batch.Host(out.data()));
  const DeviceSpec board = Board(kLarge);
  const WorkspaceSize size = SplitWorkspace(S::Its(), DescOf(args, {}).value(), board);
  std::vector<std::byte> memory(size.partials + size.barriers);
  Workspace workspace;
  workspace.partials = memory.data(), workspace.partials_size = size.partials;
  workspace.barriers = memory.data() + size.partials, workspace.barriers_size = size.barriers;
  const auto launch = [&](std::int64_t pages) {
    args.k_cache.shape[3] = args.v_cache.shape[3] = pages;
    return AttentionSplitLaunch(S::Its(), args, board, workspace);
  };
  for (const auto& [pages, ctas] : {std::pair{16, 16u}, {40, 16u}, {3, 3u}, {1, 1u}}) {
    const cuda::LaunchResult made = launch(pages);
    ASSERT_TRUE(made) << made.error().ToString();
    EXPECT_EQ(made->grid[1], ctas);
    const auto params = made->params.As<cuda::AttentionParams>();
    ASSERT_TRUE(params);
    EXPECT_EQ(params->splits, 16) << "where the parts lie does not change";
    EXPECT_EQ(params->context, std::min(1024, 64 * pages));
  }
}

TEST(AttentionSplitFamily, EverySpecPassesItsCheckAndOthersAreRefusedByField) {
  KernelFamilies families;
  ASSERT_TRUE(AddAttentionFamilies(families));
  const KernelFamily& family = *families.Find("attention_split");
  for (const CudaArch arch : {CudaArch{80, 0}, CudaArch{90, 'a'}, CudaArch{120, 0}}) {
    EXPECT_EQ(family.catalog(arch).size(), 30u);
    for (const KernelSpec& spec : family.catalog(arch)) EXPECT_EQ(family.check(spec), std::nullopt);
  }
  EXPECT_TRUE(family.catalog({75, 0}).empty());
  const auto refused = [&](auto change, const char* words) {
    ExpectRefused(family, Spec<Type::kF32, Type::kBF16, 64, 64>::Its(), change, words);
  };
  refused([](KernelSpec& s) { s.type_b = DataType::kQ8_0; }, "type_b = q8_0");
  refused([](KernelSpec& s) { s.type_d = DataType::kBF16; }, "type_d = bf16");
  refused([](KernelSpec& s) { s.params[0] = 80; }, "param0 = 80");
  refused([](KernelSpec& s) { s.tile_n = 100; }, "tile_n = 100");
  refused([](KernelSpec& s) { s.tile_k = 32; }, "tile_k = 32");
  refused([](KernelSpec& s) { s.tile_m = 9; }, "tile_m = 9");
  refused([](KernelSpec& s) { s.stages = 2; }, "stages");
}

}  // namespace
}  // namespace tilewright::attention
