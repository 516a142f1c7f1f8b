#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After them: the kernel uses their built-ins.
#include <set>

#include "ops/attention/cuda/attention_simt_kernel.cuh"
#include "ops/attention/cuda/attention_test_run.h"

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

template <class S>
void Launch(const Args& args) {
  const KernelSpec spec = S::Its();
  Emulate<tw::AttentionSimtParams>(AttentionSimtFamily(), spec, AttentionSimtLaunch(spec, args),
                                   [](const tw::AttentionSimtParams& params) {
                                     tw::AttentionSimt<S>(params, tw::emulation::smem).Run();
                                   });
}

template <class S>
std::vector<double> RunOn(Batch& batch) {
  return RunBatch(batch, &Launch<S>);
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
  const auto check = [](int head_dim) {
    BatchCase c = S::Case(head_dim);
    c.heads = 4, c.kv_heads = 2, c.context = 300, c.page_size = 16;
    c.positions = {271}, c.slots = {0};
    Expect<S>(c, static_cast<std::uint64_t>(head_dim));
  };
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) check(head_dim);
  for (const int head_dim : {1, 2, 7, 9, 20, 84, 100, 127, 255}) check(head_dim);
}

// The last head of the last position ends where the cache does, and rows of q and out go on behind
// theirs.
TEST(AttentionSimtKernel, ReadsNothingBehindHeadsThatAreNoWholeChunks) {
  const auto check = [](auto spec, int head_dim) {
    using S = decltype(spec);
    BatchCase c = S::Case(head_dim);
    c.heads = 6, c.kv_heads = 2, c.context = 300;
    c.positions = {299, 5, 37}, c.slots = {0, 0, 0};
    Expect<S>(c);
  };
  check(Spec<Type::kF32, Type::kF32>(), 20);  // lines of whole 16 bytes
  check(Spec<Type::kBF16, Type::kF16>(), 20);
  check(Spec<Type::kF16, Type::kBF16>(), 3);
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

TEST(AttentionSimtKernel, ARowHasItsBitsInEveryBatch) {
  using S = Spec<Type::kBF16, Type::kBF16>;
  ExpectRowsKeepTheirBits(S::Case(80), &Launch<S>);
}

TEST(AttentionSimtKernel, MakesZerosOfPaddingAndNaNOfWhatDoesNotExist) {
  using S = Spec<Type::kF32, Type::kBF16>;
  ExpectZerosAndNaN(S::Case(80), &RunOn<S>);
  ExpectZerosAndNaN(S::Case(20), &RunOn<S>);
}

TEST(AttentionSimtKernel, ANaNKeyShowsInTheRowsThatSeeIt) {
  using S = Spec<Type::kF32, Type::kF32>;
  ExpectNaNOfNaNKey(S::Case(40), &RunOn<S>);
}

TEST(AttentionSimtKernel, CapsScores) {
  using Plain = Spec<Type::kF32, Type::kBF16>;
  for (const int head_dim : {20, 64, 256}) ExpectCaps(Plain::Case(head_dim), &RunOn<Plain>);
  using Half = Spec<Type::kBF16, Type::kBF16>;
  ExpectCaps(Half::Case(256), &RunOn<Half>);
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
    ExpectRefused(AttentionSimtLaunch(spec, args), words);
  };
  const auto head_dim = [](std::int64_t n) { return [n](Args& a) { a.q.shape[0] = n; }; };
  refused(S::Its(), head_dim(257), "head_dim = 257, needs at most 256");
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

TEST(AttentionSimtKernel, WeighsSinksAsTheOracleDoes) {
  using S = Spec<Type::kF32, Type::kBF16>;
  for (const int head_dim : {64, 20}) {
    BatchCase c = S::Case(head_dim);
    c.heads = 6, c.kv_heads = 2, c.context = 320, c.sequences = 2, c.sinks = true;
    c.positions = {0, 299, 63, 64}, c.slots = {0, 1, 1, 0};
    for (const int window : {0, 17}) {
      c.window = window;
      Expect<S>(c);
    }
    // A sink that no exponential of f32 holds, above the scores and below them.
    Batch batch(c, 5);
    batch.sinks()[1] = 1e4f;
    batch.sinks()[4] = -1e4f;
    batch.ExpectNear(RunOn<S>(batch), batch.Want());
  }
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
    ExpectRefused(family, Spec<Type::kF32, Type::kBF16>::Its(), change, words);
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
  EXPECT_EQ(families_for(20), (std::set<std::string>{"attention_simt"}));
  EXPECT_TRUE(families_for(257).empty());
}

}  // namespace
}  // namespace tilewright::attention
