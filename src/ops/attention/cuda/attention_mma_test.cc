#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After them: the kernel uses their built-ins.
#include "ops/attention/cuda/attention_mma_kernel.cuh"
#include "ops/attention/cuda/attention_test_run.h"

// The source of the kernel, run on the CPU as AttentionMmaLaunch launches it, against float64.

namespace tilewright::attention {
namespace {

using tw::Type;

template <Type kQ, Type kKv, int kDim, int kWarpCount = 4>
struct Spec {
  static constexpr Type kTypeQ = kQ;
  static constexpr Type kTypeKv = kKv;
  static constexpr int kHeadDim = kDim;
  static constexpr int kPositions = 64;
  static constexpr int kWarps = kWarpCount;

  static KernelSpec Its() {
    KernelSpec spec;
    spec.family = "attention_mma";
    spec.arch = {90, 'a'};
    spec.type_a = spec.type_d = static_cast<DataType>(kQ);
    spec.type_b = static_cast<DataType>(kKv);
    spec.order_a = spec.order_b = Order::kRowMajor;
    spec.tile_m = 16 * kWarps;
    spec.tile_n = kPositions;
    spec.warps = kWarps;
    spec.params[0] = kDim;
    return spec;
  }
  static BatchCase Case() {
    return {.q = static_cast<DataType>(kQ), .kv = static_cast<DataType>(kKv), .head_dim = kDim};
  }
};
using Plain = Spec<Type::kBF16, Type::kBF16, 64>;

template <class S>
std::vector<double> RunOn(Batch& batch) {
  return RunBatch(batch, [](const Args& args) {
    const KernelSpec spec = S::Its();
    Emulate<tw::AttentionParams>(AttentionMmaFamily(), spec, AttentionMmaLaunch(spec, args),
                                 [](const tw::AttentionParams& params) {
                                   tw::AttentionMma<S>(params, tw::emulation::smem).Run();
                                 });
  });
}

template <class S>
void Expect(const BatchCase& c, std::uint64_t seed = 1) {
  Batch batch(c, seed);
  batch.ExpectNear(RunOn<S>(batch), batch.Want());
}

TEST(AttentionMmaKernel, AgreesWithTheOracleForEveryTypeAndHead) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    BatchCase c = S::Case();
    c.heads = 4, c.kv_heads = 2, c.context = 160;
    AddRows(c, 0, 100, 40);
    Expect<S>(c);
  };
  check(Spec<Type::kBF16, Type::kBF16, 64>());
  check(Spec<Type::kBF16, Type::kBF16, 128>());
  check(Spec<Type::kF16, Type::kF16, 64>());
  check(Spec<Type::kF16, Type::kF16, 128>());
  check(Spec<Type::kF32, Type::kBF16, 64>());
  check(Spec<Type::kF32, Type::kBF16, 128>());
  check(Spec<Type::kBF16, Type::kBF16, 64, 8>());
}

TEST(AttentionMmaKernel, TakesAPromptOfAnyLength) {
  for (const int rows : {1, 2, 7, 15, 16, 17, 63, 64, 65, 129}) {
    BatchCase c = Plain::Case();
    c.heads = 1, c.kv_heads = 1, c.context = rows;
    AddRows(c, 0, 0, rows);
    Expect<Plain>(c);
  }
}

TEST(AttentionMmaKernel, TakesAnyNumberOfHeads) {
  for (const auto& [heads, kv_heads] : {std::pair{3, 3}, {9, 3}, {7, 1}, {33, 1}, {64, 1}}) {
    BatchCase c = Plain::Case();
    c.heads = heads, c.kv_heads = kv_heads, c.context = 100;
    AddRows(c, 0, 20, 30);
    Expect<Plain>(c);
  }
}

TEST(AttentionMmaKernel, TakesSequencesInTurnAndInPages) {
  BatchCase c = Plain::Case();
  c.heads = 4, c.kv_heads = 2, c.context = 400, c.sequences = 4;
  c.positions = {5, 399, 0, 1, 260, 261, -1, 66}, c.slots = {0, 1, 2, 2, 0, 0, 1, 2};
  AddRows(c, 3, 60, 30), AddRows(c, 1, -1, 1), AddRows(c, 1, 100, 10);
  for (const int window : {0, 70}) {
    c.window = window;
    for (const int page_size : {0, 7, 64, 256}) {
      c.page_size = page_size;
      Expect<Plain>(c, 40 + page_size);
    }
  }
}

TEST(AttentionMmaKernel, SeesTheLastPositionsOfAWindow) {
  for (const int window : {1, 2, 63, 64, 65, 128, 5000}) {
    BatchCase c = Plain::Case();
    c.heads = 2, c.kv_heads = 1, c.context = 330, c.page_size = 16, c.window = window;
    // Rows of one sequence far apart: pages between what they see do not exist.
    AddRows(c, 0, 0, 3), AddRows(c, 0, 300, 20), AddRows(c, 0, 150, 20);
    Expect<Plain>(c);
  }
}

TEST(AttentionMmaKernel, ReadsAndWritesElementsWhereNothingIsAligned) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    BatchCase c = S::Case();
    c.odd = true, c.context = 100;
    AddRows(c, 0, 60, 30);
    Expect<S>(c);
  };
  check(Spec<Type::kBF16, Type::kBF16, 64>());
  check(Spec<Type::kF16, Type::kF16, 128>());
  check(Spec<Type::kF32, Type::kBF16, 64>());
}

TEST(AttentionMmaKernel, MakesZerosOfPaddingAndNaNOfWhatDoesNotExist) {
  ExpectZerosAndNaN(Plain::Case(), &RunOn<Plain>);
}

TEST(AttentionMmaKernel, ANaNKeyShowsInTheRowsThatSeeIt) {
  ExpectNaNOfNaNKey(Plain::Case(), &RunOn<Plain>);
}

TEST(AttentionMmaKernel, CapsScores) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    ExpectCaps(S::Case(), &RunOn<S>);
  };
  check(Plain());
  check(Spec<Type::kF16, Type::kF16, 128>());
  check(Spec<Type::kF32, Type::kBF16, 64>());
}

TEST(AttentionMmaLaunch, RefusesWhatTheSpecIsNotFor) {
  BatchCase c = Plain::Case();
  c.heads = 65, c.positions = {0}, c.slots = {0};
  Batch batch(c, 1);
  test::GuardedBytes out(batch.OutBytes());
  const Args args = batch.ArgsAt(batch.Host(out.data()));
  const auto refused = [&](const KernelSpec& spec, const char* words) {
    ExpectRefused(AttentionMmaLaunch(spec, args), words);
  };
  refused(Plain::Its(), "65 heads over 1, needs at most 64");
  refused(Spec<Type::kF16, Type::kF16, 64>::Its(), "q bf16, needs f16");
  refused(Spec<Type::kBF16, Type::kBF16, 128>::Its(), "head_dim = 64, needs 128");
}

TEST(AttentionMmaFamily, EverySpecPassesItsCheckAndOthersAreRefusedByField) {
  const KernelFamily family = AttentionMmaFamily();
  for (const CudaArch arch : {CudaArch{80, 0}, CudaArch{90, 'a'}, CudaArch{120, 0}}) {
    EXPECT_EQ(family.catalog(arch).size(), 6u);
    for (const KernelSpec& spec : family.catalog(arch)) EXPECT_EQ(family.check(spec), std::nullopt);
  }
  EXPECT_TRUE(family.catalog({75, 0}).empty());
  const auto refused = [&](auto change, const char* words) {
    ExpectRefused(family, Plain::Its(), change, words);
  };
  refused([](KernelSpec& s) { s.type_b = DataType::kF32; }, "type_b = f32");
  refused([](KernelSpec& s) { s.type_b = DataType::kF16; }, "bf16 over f16");
  refused([](KernelSpec& s) { s.type_d = DataType::kF32; }, "type_d = f32");
  refused([](KernelSpec& s) { s.warps = 2; }, "warps = 2");
  refused([](KernelSpec& s) { s.tile_m = 32; }, "tile_m = 32");
  refused([](KernelSpec& s) { s.params[0] = 96; }, "param0 = 96");
  refused([](KernelSpec& s) { s.split_k = 2; }, "split_k");
}

}  // namespace
}  // namespace tilewright::attention
