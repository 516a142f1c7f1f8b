#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After them: the kernel uses their built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "ops/attention/cuda/attention_launch.h"
#include "ops/attention/cuda/attention_simt_kernel.cuh"
#include "ops/attention/cuda/families.h"
#include "ops/attention/cuda/test_batch.h"

// The source of the kernel, run on the CPU as AttentionSimtLaunch launches it, against float64.

namespace tilewright::attention {
namespace {

using tw::Type;

template <Type kQ, Type kKv>
struct Spec {
  static constexpr Type kTypeQ = kQ;
  static constexpr Type kTypeKv = kKv;
  static constexpr int kMaxHeads = 4;
  static constexpr int kWarps = 8;

  static KernelSpec Its() {
    KernelSpec spec;
    spec.family = "attention_simt";
    spec.arch = {90, 'a'};
    spec.type_a = spec.type_d = static_cast<DataType>(kQ);
    spec.type_b = static_cast<DataType>(kKv);
    spec.order_a = spec.order_b = Order::kRowMajor;
    spec.tile_m = kMaxHeads;
    spec.tile_n = 32;
    spec.warps = kWarps;
    return spec;
  }
  static BatchCase Case(int head_dim) {
    return {.q = static_cast<DataType>(kQ), .kv = static_cast<DataType>(kKv), .head_dim = head_dim};
  }
};

/// Runs the kernel on arguments whose output is poisoned.
template <class S>
void Launch(const Args& args) {
  const KernelSpec spec = S::Its();
  ASSERT_EQ(AttentionSimtFamily().check(spec), std::nullopt) << SpecName(spec);
  const cuda::LaunchResult launch = AttentionSimtLaunch(spec, args);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_LE(launch->dynamic_smem_bytes, AttentionSimtFamily().launch(spec).dynamic_smem_bytes);
  const bool ran = tw::emulation::RunLaunch<tw::AttentionSimtParams>(
      *launch, 32 * S::kWarps, [](const tw::AttentionSimtParams& params) {
        tw::AttentionSimt<S>(params, tw::emulation::smem).Run();
      });
  EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access";
}

template <class S>
std::vector<double> RunOn(Batch& batch) {
  test::GuardedBytes out(batch.OutBytes(),
                         batch.its_case().odd ? BytesOf(batch.its_case().q, 1) : 0);
  Launch<S>(batch.ArgsAt(batch.Host(out.data())));
  EXPECT_EQ(out.Damage(), "");
  return batch.Result(out.data());
}

template <class S>
void Expect(const BatchCase& c, std::uint64_t seed = 1) {
  Batch batch(c, seed);
  batch.ExpectNear(RunOn<S>(batch), batch.Want());
}

TEST(AttentionSimtKernel, AgreesWithTheOracleForEveryType) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    BatchCase c = S::Case(80);
    c.heads = 6, c.kv_heads = 2, c.context = 320, c.sequences = 2;
    c.positions = {0, 299, 63, 64}, c.slots = {0, 1, 1, 0};
    Expect<S>(c);
  };
  check(Spec<Type::kF32, Type::kBF16>());
  check(Spec<Type::kF32, Type::kF16>());
  check(Spec<Type::kF32, Type::kF32>());
  check(Spec<Type::kBF16, Type::kBF16>());
  check(Spec<Type::kBF16, Type::kF16>());
  check(Spec<Type::kF16, Type::kF16>());
  check(Spec<Type::kF16, Type::kF32>());
}

TEST(AttentionSimtKernel, TakesEveryHeadDimension) {
  using S = Spec<Type::kBF16, Type::kBF16>;
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    BatchCase c = S::Case(head_dim);
    c.heads = 4, c.kv_heads = 2, c.context = 300, c.page_size = 16;
    c.positions = {271}, c.slots = {0};
    Expect<S>(c, static_cast<std::uint64_t>(head_dim));
  }
}

TEST(AttentionSimtKernel, TakesAnyNumberOfHeads) {
  using S = Spec<Type::kF32, Type::kBF16>;
  for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {3, 3}, {9, 3}, {7, 1}, {8, 1}, {11, 1}}) {
    BatchCase c = S::Case(96);
    c.heads = heads, c.kv_heads = kv_heads, c.context = 200;
    c.positions = {130, 7}, c.slots = {0, 0};
    Expect<S>(c);
  }
}

TEST(AttentionSimtKernel, TakesTheLastPositionsOfATileAndOfARound) {
  using S = Spec<Type::kF16, Type::kF16>;
  BatchCase c = S::Case(32);
  c.heads = 2, c.kv_heads = 1, c.context = 1100;
  for (const int position : {1, 2, 30, 31, 32, 33, 63, 64, 255, 256, 257, 511, 512, 1023, 1099})
    AddRows(c, 0, position, 1);
  Expect<S>(c);
}

TEST(AttentionSimtKernel, FindsPagesOfAnySize) {
  using S = Spec<Type::kF32, Type::kF16>;
  BatchCase c = S::Case(192);
  c.heads = 4, c.kv_heads = 2, c.context = 400, c.sequences = 3;
  c.positions = {5, 399, 0, 1, 260, 261, -1, 66}, c.slots = {0, 1, 2, 2, 0, 0, 1, 2};
  for (const int window : {0, 70}) {
    c.window = window;
    for (const int page_size : {7, 16, 64, 256}) {
      c.page_size = page_size;
      Expect<S>(c, 40 + static_cast<std::uint64_t>(page_size));
    }
  }
}

TEST(AttentionSimtKernel, SeesTheLastPositionsOfAWindow) {
  using S = Spec<Type::kF32, Type::kBF16>;
  for (const int window : {1, 2, 31, 32, 33, 64, 257, 5000}) {
    BatchCase c = S::Case(16);
    c.heads = 2, c.kv_heads = 1, c.context = 700, c.sequences = 2, c.window = window;
    c.positions = {0, 63, 64, 255, 256, 500, 699}, c.slots = {1, 0, 1, 0, 0, 1, 0};
    Expect<S>(c);
  }
}

TEST(AttentionSimtKernel, ReadsAndWritesElementsWhereNothingIsAligned) {
  const auto check = [](auto spec, int head_dim) {
    using S = decltype(spec);
    BatchCase c = S::Case(head_dim);
    c.odd = true, c.context = 100;
    c.positions = {0, 99, 64}, c.slots = {0, 0, 0};
    Expect<S>(c);
  };
  check(Spec<Type::kF32, Type::kBF16>(), 80);
  check(Spec<Type::kBF16, Type::kF16>(), 256);
  check(Spec<Type::kF16, Type::kF32>(), 24);
}

TEST(AttentionSimtKernel, MakesZerosOfPaddingAndNothingElseOfIt) {
  using S = Spec<Type::kBF16, Type::kBF16>;
  BatchCase c = S::Case(96);
  c.context = 300, c.positions = {-1, 200, -1}, c.slots = {99, 0, -5};
  Batch batch(c, 3);
  const std::vector<double> got = RunOn<S>(batch);
  const auto width = static_cast<std::ptrdiff_t>(batch.width());
  const auto zero = [](double x) { return x == 0 && !std::signbit(x); };
  EXPECT_TRUE(std::all_of(got.begin(), got.begin() + width, zero));
  EXPECT_TRUE(std::all_of(got.begin() + 2 * width, got.end(), zero));
  EXPECT_NE(got[static_cast<std::size_t>(width)], 0);
}

TEST(AttentionSimtKernel, ARowHasItsBitsInEveryBatch) {
  using S = Spec<Type::kBF16, Type::kBF16>;
  BatchCase c = S::Case(80);
  c.heads = 6, c.kv_heads = 2, c.context = 700, c.sequences = 2, c.page_size = 64;
  c.positions = {600, 601, -1, 3, 255, 256}, c.slots = {0, 0, 1, 1, 1, 1};
  Batch batch(c, 9);
  const std::vector<double> all = RunOn<S>(batch);
  for (int r = 0; r < batch.rows(); ++r) {
    test::GuardedBytes out(batch.OutBytes());
    Args args = batch.ArgsAt(batch.Host(out.data()));
    args.q.data = args.q.as<std::uint16_t>() + r * args.q.stride[2];
    args.positions.data = args.positions.as<std::int32_t>() + r;
    args.slots.data = args.slots.as<std::int32_t>() + r;
    args.q.shape[2] = args.out.shape[1] = 1;
    args.positions.shape[0] = args.slots.shape[0] = 1;
    Launch<S>(args);
    std::vector<double> alone(static_cast<std::size_t>(batch.width()));
    ASSERT_TRUE(DecodeRow(c.q, out.data(), batch.width(), alone.data()));
    EXPECT_TRUE(test::BitwiseEqual(alone.data(), all.data() + std::ptrdiff_t{r} * batch.width(),
                                   alone.size() * sizeof(double)))
        << "row " << r;
  }
}

TEST(AttentionSimtKernel, WhatDoesNotExistBecomesNaNAndIsNotRead) {
  using S = Spec<Type::kF32, Type::kBF16>;
  BatchCase c = S::Case(80);
  c.context = 256, c.sequences = 2, c.page_size = 64;
  c.positions = {10, 200, 20, 30, 40}, c.slots = {0, 1, 0, 0, 0};
  Batch batch(c, 5);
  batch.positions()[2] = 256;
  batch.positions()[3] = -2;
  batch.slots()[4] = 2;
  batch.pages()[4 + 1] = 8;  // of slot 1: positions 64 to 127; there are 8 pages
  const std::vector<double> got = RunOn<S>(batch);
  const auto width = static_cast<std::size_t>(batch.width());
  for (std::size_t r = 0; r < 5; ++r)
    for (std::size_t i = 0; i < width; ++i)
      ASSERT_EQ(std::isnan(got[r * width + i]), r > 0) << "row " << r;
}

TEST(AttentionSimtKernel, ANaNKeyShowsInTheRowsThatSeeIt) {
  using S = Spec<Type::kF32, Type::kF32>;
  BatchCase c = S::Case(40);
  c.heads = 1, c.context = 128, c.positions = {69, 70}, c.slots = {0, 0};
  Batch batch(c, 5);
  static_cast<float*>(batch.k().data())[70 * 40 + 3] = NAN;
  const std::vector<double> got = RunOn<S>(batch);
  EXPECT_FALSE(std::isnan(got[0]));
  EXPECT_TRUE(std::isnan(got[40]));
}

TEST(AttentionSimtLaunch, RefusesWhatTheSpecIsNotFor) {
  using S = Spec<Type::kF32, Type::kBF16>;
  BatchCase c = S::Case(80);
  c.positions = {200}, c.slots = {0};
  Batch batch(c, 1);
  test::GuardedBytes out(batch.OutBytes());
  const Args good = batch.ArgsAt(batch.Host(out.data()));
  const auto refused = [&](KernelSpec spec, auto change, const char* words) {
    Args args = good;
    change(args);
    const cuda::LaunchResult no = AttentionSimtLaunch(spec, args);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  const auto head_dim = [](std::int64_t n) { return [n](Args& a) { a.q.shape[0] = n; }; };
  refused(S::Its(), head_dim(84), "head_dim = 84, needs a multiple of 8, at most 256");
  refused(S::Its(), head_dim(264), "head_dim = 264, needs a multiple of 8, at most 256");
  refused(
      Spec<Type::kBF16, Type::kBF16>::Its(), [](Args&) {}, "q f32, needs bf16");
  refused(
      Spec<Type::kF32, Type::kF16>::Its(), [](Args&) {}, "k_cache bf16, needs f16");
  refused(
      S::Its(), [](Args& a) { a.q.stride[0] = 2; }, "q: elements 2 apart");
  KernelSpec other = S::Its();
  other.family = "attention_split";
  refused(
      other, [](Args&) {}, "a kernel of attention_split");
}

TEST(AttentionSimtFamily, EverySpecPassesItsCheckAndOthersAreRefusedByField) {
  KernelFamilies families;
  ASSERT_TRUE(AddAttentionFamilies(families));
  const KernelFamily& family = *families.Find("attention_simt");
  for (const CudaArch arch : {CudaArch{80, 0}, CudaArch{90, 'a'}, CudaArch{120, 0}}) {
    EXPECT_EQ(family.catalog(arch).size(), 9u);
    for (const KernelSpec& spec : family.catalog(arch)) EXPECT_EQ(family.check(spec), std::nullopt);
  }
  EXPECT_TRUE(family.catalog({75, 0}).empty());
  const auto refused = [&](auto change, const char* words) {
    KernelSpec spec = Spec<Type::kF32, Type::kBF16>::Its();
    change(spec);
    const auto no = family.check(spec);
    ASSERT_TRUE(no) << words;
    EXPECT_THAT(no->ToString(), testing::HasSubstr(words));
  };
  refused([](KernelSpec& s) { s.type_b = DataType::kQ8_0; }, "type_b = q8_0");
  refused([](KernelSpec& s) { s.type_d = DataType::kBF16; }, "type_d = bf16");
  refused([](KernelSpec& s) { s.params[0] = 80; }, "param0 = 80");
  refused([](KernelSpec& s) { s.tile_n = 64; }, "tile_n = 64");
  refused([](KernelSpec& s) { s.tile_k = 32; }, "tile_k = 32");
  refused([](KernelSpec& s) { s.tile_m = 8; }, "tile_m = 8");
  refused([](KernelSpec& s) { s.warps = 16; }, "warps = 16");
  refused([](KernelSpec& s) { s.stages = 2; }, "stages");
}

TEST(AttentionFamilies, AModelNeedsTheKernelsOfItsHeads) {
  const CudaArch hopper{90, 'a'};
  const auto families_for = [&](int head_dim) {
    std::set<std::string> names;
    for (const KernelSpec& spec : AttentionSpecs(head_dim, hopper))
      names.insert(std::string(spec.family.view()));
    return names;
  };
  EXPECT_EQ(families_for(128), (std::set<std::string>{"attention_decode", "attention_hopper",
                                                      "attention_mma", "attention_split"}));
  EXPECT_EQ(families_for(96), (std::set<std::string>{"attention_simt"}));
  EXPECT_EQ(families_for(256), (std::set<std::string>{"attention_simt"}));
  EXPECT_TRUE(families_for(100).empty());
  EXPECT_TRUE(families_for(264).empty());
}

}  // namespace
}  // namespace tilewright::attention
