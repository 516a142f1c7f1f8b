#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After them: the kernel uses their built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/attention/cuda/attention_decode_kernel.cuh"
#include "ops/attention/cuda/attention_launch.h"
#include "ops/attention/cuda/families.h"
#include "ops/attention/cuda/test_batch.h"

// The source of the kernel, run on the CPU as AttentionDecodeLaunch launches it, against float64.

namespace tilewright::attention {
namespace {

using tw::Type;

template <Type kIts, int kDim, int kWarpCount = 2, int kRing = 2>
struct Spec {
  static constexpr Type kType = kIts;
  static constexpr int kHeadDim = kDim;
  static constexpr int kWarps = kWarpCount;
  static constexpr int kStages = kRing;

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
    spec.params[0] = kDim;
    return spec;
  }
  static BatchCase Case() {
    return {.q = static_cast<DataType>(kIts), .kv = static_cast<DataType>(kIts), .head_dim = kDim};
  }
};
using Small = Spec<Type::kBF16, 64>;

DeviceSpec Board(int sms) {
  DeviceSpec board;
  board.kind = DeviceKind::kCuda;
  board.sm_count = sms;
  return board;
}

/// Runs the kernel on arguments whose output is poisoned; it leaves its counters zero.
template <class S>
void Launch(const Args& args, int sms) {
  const KernelSpec spec = S::Its();
  ASSERT_EQ(AttentionDecodeFamily().check(spec), std::nullopt) << SpecName(spec);
  const WorkspaceSize size = DecodeWorkspace(spec, DescOf(args, {}).value(), Board(sms));
  test::GuardedBytes partials(size.partials), barriers(size.barriers);
  std::memset(barriers.data(), 0, barriers.size());
  Workspace workspace;
  workspace.partials = partials.data(), workspace.partials_size = partials.size();
  workspace.barriers = barriers.data(), workspace.barriers_size = barriers.size();
  const cuda::LaunchResult launch = AttentionDecodeLaunch(spec, args, Board(sms), workspace);
  ASSERT_TRUE(launch) << launch.error().ToString();
  const bool ran = tw::emulation::RunLaunch<tw::AttentionParams>(
      *launch, 32 * S::kWarps, [](const tw::AttentionParams& params) {
        tw::AttentionDecode<S>(params, tw::emulation::smem).Run();
      });
  EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access";
  EXPECT_EQ(partials.Damage() + barriers.Damage(), "");
  const auto* counters = static_cast<const std::byte*>(barriers.data());
  EXPECT_TRUE(std::all_of(counters, counters + barriers.size(),
                          [](std::byte b) { return b == std::byte{0}; }));
}

template <class S>
std::vector<double> RunOn(Batch& batch, int sms) {
  test::GuardedBytes out(batch.OutBytes(),
                         batch.its_case().odd ? BytesOf(batch.its_case().q, 1) : 0);
  Launch<S>(batch.ArgsAt(batch.Host(out.data())), sms);
  EXPECT_EQ(out.Damage(), "");
  return batch.Result(out.data());
}

/// On devices where a CTA computes a round, a few of them, or a row.
constexpr int kDevices[] = {10000, 12, 1};

template <class S>
void Expect(const BatchCase& c, std::uint64_t seed = 1) {
  Batch batch(c, seed);
  const std::vector<double> want = batch.Want();
  for (const int sms : kDevices) {
    SCOPED_TRACE(sms);
    batch.ExpectNear(RunOn<S>(batch, sms), want);
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
}

TEST(AttentionDecodeKernel, TakesAnyNumberOfHeads) {
  for (const auto& [heads, kv_heads] :
       {std::pair{1, 1}, {3, 3}, {9, 3}, {7, 1}, {8, 1}, {11, 1}, {16, 1}, {17, 1}}) {
    BatchCase c = Small::Case();
    c.heads = heads, c.kv_heads = kv_heads, c.context = 200;
    c.positions = {130, 7}, c.slots = {0, 0};
    Expect<Small>(c);
  }
}

TEST(AttentionDecodeKernel, TakesTheLastPositionsOfATileAndOfARound) {
  BatchCase c = Small::Case();
  c.heads = 2, c.kv_heads = 1, c.context = 1100;
  for (const int position : {1, 14, 15, 16, 17, 30, 31, 32, 33, 63, 64, 65, 1023, 1024, 1099})
    AddRows(c, 0, position, 1);
  Expect<Small>(c);
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

TEST(AttentionDecodeKernel, MakesZerosOfPaddingAndNothingElseOfIt) {
  BatchCase c = Small::Case();
  c.context = 300, c.positions = {-1, 200, -1}, c.slots = {99, 0, -5};
  for (const int sms : kDevices) {
    Batch batch(c, 3);
    const std::vector<double> got = RunOn<Small>(batch, sms);
    const auto width = static_cast<std::ptrdiff_t>(batch.width());
    const auto zero = [](double x) { return x == 0 && !std::signbit(x); };
    EXPECT_TRUE(std::all_of(got.begin(), got.begin() + width, zero));
    EXPECT_TRUE(std::all_of(got.begin() + 2 * width, got.end(), zero));
    EXPECT_NE(got[static_cast<std::size_t>(width)], 0);
  }
}

TEST(AttentionDecodeKernel, ARowHasItsBitsWhateverIsBesideIt) {
  BatchCase c = Small::Case();
  c.heads = 6, c.kv_heads = 2, c.context = 700, c.sequences = 2, c.page_size = 64;
  c.positions = {600, 601, -1, 3, 255, 256}, c.slots = {0, 0, 1, 1, 1, 1};
  Batch batch(c, 9);
  const std::vector<double> first = RunOn<Small>(batch, 12);
  const auto width = static_cast<std::ptrdiff_t>(batch.width());
  for (const std::size_t other : {1u, 3u, 5u}) batch.positions()[other] = -1;
  const std::vector<double> second = RunOn<Small>(batch, 12);
  for (const int row : {0, 4}) {
    EXPECT_TRUE(std::equal(first.begin() + row * width, first.begin() + (row + 1) * width,
                           second.begin() + row * width))
        << "row " << row;
  }
}

TEST(AttentionDecodeKernel, WhatDoesNotExistBecomesNaNAndIsNotRead) {
  BatchCase c = Small::Case();
  c.context = 256, c.sequences = 2, c.page_size = 64;
  c.positions = {10, 200, 20, 30, 40}, c.slots = {0, 1, 0, 0, 0};
  for (const int sms : kDevices) {
    Batch batch(c, 5);
    batch.positions()[2] = 256;
    batch.positions()[3] = -2;
    batch.slots()[4] = 2;
    batch.pages()[4 + 1] = 8;  // of slot 1: positions 64 to 127; there are 8 pages
    const std::vector<double> got = RunOn<Small>(batch, sms);
    const auto width = static_cast<std::size_t>(batch.width());
    for (std::size_t r = 0; r < 5; ++r)
      for (std::size_t i = 0; i < width; ++i)
        ASSERT_EQ(std::isnan(got[r * width + i]), r > 0) << "row " << r;
  }
}

TEST(AttentionDecodeKernel, ANaNKeyShowsInTheRowsThatSeeIt) {
  BatchCase c = Small::Case();
  c.heads = 1, c.context = 128, c.positions = {69, 70}, c.slots = {0, 0};
  Batch batch(c, 5);
  static_cast<std::uint16_t*>(batch.k().data())[70 * 64 + 3] = 0x7fff;
  const std::vector<double> got = RunOn<Small>(batch, 10000);
  EXPECT_FALSE(std::isnan(got[0]));
  EXPECT_TRUE(std::isnan(got[64]));
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
    const cuda::LaunchResult no = AttentionDecodeLaunch(spec, args, Board(1), {});
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
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

TEST(AttentionDecodeFamily, EverySpecPassesItsCheckAndOthersAreRefusedByField) {
  KernelFamilies families;
  ASSERT_TRUE(AddAttentionFamilies(families));
  const KernelFamily& family = *families.Find("attention_decode");
  for (const CudaArch arch : {CudaArch{80, 0}, CudaArch{90, 'a'}, CudaArch{120, 0}}) {
    EXPECT_EQ(family.catalog(arch).size(), 8u);
    for (const KernelSpec& spec : family.catalog(arch)) EXPECT_EQ(family.check(spec), std::nullopt);
  }
  EXPECT_TRUE(family.catalog({75, 0}).empty());
  const auto refused = [&](auto change, const char* words) {
    KernelSpec spec = Small::Its();
    change(spec);
    const auto no = family.check(spec);
    ASSERT_TRUE(no) << words;
    EXPECT_THAT(no->ToString(), testing::HasSubstr(words));
  };
  refused([](KernelSpec& s) { s.type_a = DataType::kF32; }, "type_a = f32");
  refused([](KernelSpec& s) { s.type_b = DataType::kF16; }, "type_b = f16");
  refused([](KernelSpec& s) { s.params[0] = 80; }, "param0 = 80");
  refused([](KernelSpec& s) { s.tile_n = 64; }, "tile_n = 64");
  refused([](KernelSpec& s) { s.tile_m = 16; }, "tile_m = 16");
  refused([](KernelSpec& s) { s.stages = 0; }, "stages = 0");
  refused([](KernelSpec& s) { s.split_k = 2; }, "split_k");
}

}  // namespace
}  // namespace tilewright::attention
