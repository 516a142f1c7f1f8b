#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After them: the kernel uses their built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/attention/cuda/attention_launch.h"
#include "ops/attention/cuda/attention_split_kernel.cuh"
#include "ops/attention/cuda/families.h"
#include "ops/attention/cuda/test_batch.h"

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

/// A device on which every split has a CTA, or none but whole rows.
DeviceSpec Board(bool large) {
  DeviceSpec board;
  board.kind = DeviceKind::kCuda;
  board.sm_count = large ? 10000 : 1;
  return board;
}

/// Runs the kernel on arguments whose output is poisoned; it leaves its counters zero.
template <class S>
void Launch(const Args& args, bool large) {
  const KernelSpec spec = S::Its();
  ASSERT_EQ(AttentionSplitFamily().check(spec), std::nullopt) << SpecName(spec);
  const WorkspaceSize size = SplitWorkspace(spec, DescOf(args, {}).value(), Board(large));
  test::GuardedBytes partials(size.partials), barriers(size.barriers);
  std::memset(barriers.data(), 0, barriers.size());
  Workspace workspace;
  workspace.partials = partials.data(), workspace.partials_size = partials.size();
  workspace.barriers = barriers.data(), workspace.barriers_size = barriers.size();
  const cuda::LaunchResult launch = AttentionSplitLaunch(spec, args, Board(large), workspace);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_LE(launch->dynamic_smem_bytes, AttentionSplitFamily().launch(spec).dynamic_smem_bytes);
  const bool ran = tw::emulation::RunLaunch<tw::AttentionParams>(
      *launch, 32 * S::kWarps, [](const tw::AttentionParams& params) {
        tw::AttentionSplit<S>(params, tw::emulation::smem).Run();
      });
  EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access";
  EXPECT_EQ(partials.Damage() + barriers.Damage(), "");
  const auto* counters = static_cast<const std::byte*>(barriers.data());
  EXPECT_TRUE(std::all_of(counters, counters + barriers.size(),
                          [](std::byte b) { return b == std::byte{0}; }));
}

template <class S>
std::vector<double> RunOn(Batch& batch, bool large) {
  test::GuardedBytes out(batch.OutBytes(),
                         batch.its_case().odd ? BytesOf(batch.its_case().q, 1) : 0);
  Launch<S>(batch.ArgsAt(batch.Host(out.data())), large);
  EXPECT_EQ(out.Damage(), "");
  return batch.Result(out.data());
}

bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && test::BitwiseEqual(a.data(), b.data(), a.size() * sizeof(double));
}

/// The oracle's result, and the same bits whether a CTA computes a split or a row.
template <class S>
void Expect(const BatchCase& c, std::uint64_t seed = 1) {
  Batch batch(c, seed);
  const std::vector<double> splits = RunOn<S>(batch, true), whole = RunOn<S>(batch, false);
  batch.ExpectNear(splits, batch.Want());
  EXPECT_TRUE(SameBits(splits, whole)) << Describe(c);
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

TEST(AttentionSplitKernel, MakesZerosOfPaddingAndNothingElseOfIt) {
  using S = Spec<Type::kF32, Type::kBF16, 64, 64>;
  BatchCase c = S::Case();
  c.context = 300, c.positions = {-1, 200, -1}, c.slots = {99, 0, -5};
  for (const bool large : {false, true}) {
    Batch batch(c, 3);
    const std::vector<double> got = RunOn<S>(batch, large);
    const auto width = static_cast<std::ptrdiff_t>(batch.width());
    const auto zero = [](double x) { return x == 0 && !std::signbit(x); };
    EXPECT_TRUE(std::all_of(got.begin(), got.begin() + width, zero));
    EXPECT_TRUE(std::all_of(got.begin() + 2 * width, got.end(), zero));
    EXPECT_NE(got[static_cast<std::size_t>(width)], 0);
  }
}

TEST(AttentionSplitKernel, ARowHasItsBitsInEveryBatch) {
  using S = Spec<Type::kBF16, Type::kBF16, 64, 256>;
  BatchCase c = S::Case();
  c.heads = 6, c.kv_heads = 2, c.context = 700, c.sequences = 2, c.page_size = 64;
  c.positions = {600, 601, -1, 3, 255, 256}, c.slots = {0, 0, 1, 1, 1, 1};
  Batch batch(c, 9);
  const std::vector<double> all = RunOn<S>(batch, true);
  for (int r = 0; r < batch.rows(); ++r) {
    test::GuardedBytes out(batch.OutBytes());
    Args args = batch.ArgsAt(batch.Host(out.data()));
    args.q.data = args.q.as<std::uint16_t>() + r * args.q.stride[2];
    args.positions.data = args.positions.as<std::int32_t>() + r;
    args.slots.data = args.slots.as<std::int32_t>() + r;
    args.q.shape[2] = args.out.shape[1] = 1;
    args.positions.shape[0] = args.slots.shape[0] = 1;
    Launch<S>(args, true);
    std::vector<double> alone(static_cast<std::size_t>(batch.width()));
    ASSERT_TRUE(DecodeRow(c.q, out.data(), batch.width(), alone.data()));
    EXPECT_TRUE(test::BitwiseEqual(alone.data(), all.data() + std::ptrdiff_t{r} * batch.width(),
                                   alone.size() * sizeof(double)))
        << "row " << r;
  }
}

TEST(AttentionSplitKernel, WhatDoesNotExistBecomesNaNAndIsNotRead) {
  using S = Spec<Type::kF32, Type::kBF16, 64, 64>;
  BatchCase c = S::Case();
  c.context = 256, c.sequences = 2, c.page_size = 64;
  c.positions = {10, 200, 20, 30, 40}, c.slots = {0, 1, 0, 0, 0};
  for (const bool large : {false, true}) {
    Batch batch(c, 5);
    batch.positions()[2] = 256;
    batch.positions()[3] = -2;
    batch.slots()[4] = 2;
    batch.pages()[4 + 1] = 8;  // of slot 1: positions 64 to 127; there are 8 pages
    const std::vector<double> got = RunOn<S>(batch, large);
    const auto width = static_cast<std::size_t>(batch.width());
    for (std::size_t r = 0; r < 5; ++r)
      for (std::size_t i = 0; i < width; ++i)
        ASSERT_EQ(std::isnan(got[r * width + i]), r > 0) << "row " << r;
  }
}

TEST(AttentionSplitKernel, ANaNKeyShowsInTheRowsThatSeeIt) {
  using S = Spec<Type::kF32, Type::kF32, 64, 64>;
  BatchCase c = S::Case();
  c.heads = 1, c.context = 128, c.positions = {69, 70}, c.slots = {0, 0};
  Batch batch(c, 5);
  static_cast<float*>(batch.k().data())[70 * 64 + 3] = NAN;
  const std::vector<double> got = RunOn<S>(batch, true);
  EXPECT_FALSE(std::isnan(got[0]));
  EXPECT_TRUE(std::isnan(got[64]));
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
    const cuda::LaunchResult no = AttentionSplitLaunch(spec, args, Board(false), {});
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
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
  KernelSpec other = S::Its();
  other.family = "rope_kv";
  refused(
      other, [](Args&) {}, "a kernel of rope_kv");
  const cuda::LaunchResult no = AttentionSplitLaunch(S::Its(), good, Board(true), {});
  ASSERT_FALSE(no);
  EXPECT_THAT(no.error().ToString(), testing::HasSubstr("a workspace of 0 bytes"));
}

TEST(AttentionSplitLaunch, DividesRowsWhereTheyAreTooFewForTheDevice) {
  const KernelSpec spec = Spec<Type::kBF16, Type::kBF16, 128, 64>::Its();
  DeviceSpec board = Board(true);
  board.sm_count = 132;
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
  const DeviceSpec board = Board(true);
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
    KernelSpec spec = Spec<Type::kF32, Type::kBF16, 64, 64>::Its();
    change(spec);
    const auto no = family.check(spec);
    ASSERT_TRUE(no) << words;
    EXPECT_THAT(no->ToString(), testing::HasSubstr(words));
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
