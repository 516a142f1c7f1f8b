#include "device/cuda/kernels/hopper_registers_emulation.h"
#include "device/cuda/kernels/launch_emulation.h"
// After them: the kernel uses their built-ins.
#include "ops/attention/cuda/attention_hopper_kernel.cuh"
#include "ops/attention/cuda/attention_test_run.h"

// The source of the kernel, run on the CPU as AttentionHopperLaunch launches it, against float64.
// The emulated copy engine and wgmma are written from their documentation, not from a GPU.

namespace tilewright::attention {
namespace {

using tw::Type;

template <Type kOf, int kDim, int kTile = 128, int kWarpgroups = 2, bool kTakeTurns = true>
struct Spec {
  static constexpr Type kType = kOf;
  static constexpr int kHeadDim = kDim;
  static constexpr int kPositions = kTile;
  static constexpr int kStages = 2;
  static constexpr int kConsumers = kWarpgroups;
  static constexpr int kParts = 2;
  static constexpr bool kTurns = kTakeTurns;

  static KernelSpec Its() {
    KernelSpec spec;
    spec.family = "attention_hopper";
    spec.arch = {90, 'a'};
    spec.type_a = spec.type_b = spec.type_d = static_cast<DataType>(kType);
    spec.order_a = spec.order_b = Order::kRowMajor;
    spec.warps = 4 * (kConsumers + 1);
    spec.tile_m = 64 * kConsumers;
    spec.tile_n = kPositions;
    spec.stages = kStages;
    spec.params = {kDim, kParts, kTurns ? 1 : 0, 0};
    return spec;
  }
  static BatchCase Case() {
    return {
        .q = static_cast<DataType>(kType), .kv = static_cast<DataType>(kType), .head_dim = kDim};
  }
};
using Plain = Spec<Type::kBF16, 64, 64>;

/// A tensor map of the emulated copy engine instead of the driver's.
Status EncodeForHost(const cuda::TensorMapDesc& desc,
                     std::span<std::byte, cuda::kTensorMapBytes> out) {
  tw::HostTensorMap4D map;
  map.base = reinterpret_cast<tw::u8*>(desc.address);
  for (std::size_t i = 0; i < 4; ++i) {
    map.size[i] = static_cast<tw::i64>(desc.dims[i]);
    map.box[i] = static_cast<int>(desc.box[i]);
    if (i > 0) map.stride[i - 1] = static_cast<tw::i64>(desc.strides[i - 1]);
  }
  static_assert(sizeof map <= cuda::kTensorMapBytes);
  std::memcpy(out.data(), &map, sizeof map);
  return {};
}

template <class S>
void Launch(const Args& args, int sms) {
  const KernelSpec spec = S::Its();
  ASSERT_EQ(AttentionHopperFamily().check(spec), std::nullopt) << SpecName(spec);
  cuda::LaunchResult launch = AttentionHopperLaunch(spec, args, Board(sms));
  ASSERT_TRUE(launch) << launch.error().ToString();
  ASSERT_TRUE(cuda::EncodeMaps(*launch, &EncodeForHost));
  tw::emulation::barriers.clear();
  std::fill(std::begin(tw::emulation::named_barriers), std::end(tw::emulation::named_barriers),
            tw::emulation::NamedBarrierState{});
  // Warps finish at different times: what RunLaunch returns does not matter here.
  tw::emulation::RunLaunch<tw::AttentionHopperParams>(
      *launch, 128 * (S::kConsumers + 1), [](const tw::AttentionHopperParams& params) {
        tw::AttentionHopper<S>::Run(params, tw::emulation::smem);
      });
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access, a surplus arrival or a hang";
  for (const auto& barrier : tw::emulation::named_barriers)
    EXPECT_EQ(barrier.here, 0u) << "threads are left waiting";
}

/// On a device with room for `ctas` CTAs.
template <class S>
RunFn On(int ctas) {
  return [ctas](Batch& batch) {
    return RunBatch(batch, [ctas](const Args& args) { Launch<S>(args, ctas); });
  };
}

template <class S>
void Expect(const BatchCase& c, std::uint64_t seed = 1, int ctas = 2) {
  Batch batch(c, seed);
  batch.ExpectNear(On<S>(ctas)(batch), batch.Want());
}

TEST(AttentionHopperKernel, AgreesWithTheOracleForEveryTypeAndHead) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    BatchCase c = S::Case();
    c.heads = 4, c.kv_heads = 2, c.context = 160;
    AddRows(c, 0, 100, 40);
    Expect<S>(c);
  };
  check(Spec<Type::kBF16, 64>());
  check(Spec<Type::kBF16, 128>());
  check(Spec<Type::kF16, 64>());
  check(Spec<Type::kF16, 128>());
  check(Spec<Type::kBF16, 64, 64, 3>());
  check(Spec<Type::kBF16, 128, 64, 2, false>());
}

TEST(AttentionHopperKernel, TakesAPromptOfAnyLength) {
  const auto check = [](auto spec, int rows) {
    using S = decltype(spec);
    BatchCase c = S::Case();
    c.heads = 1, c.kv_heads = 1, c.context = rows;
    AddRows(c, 0, 0, rows);
    Expect<S>(c);
  };
  for (const int rows : {1, 2, 63, 64, 65, 127, 128, 129, 200}) check(Plain(), rows);
  // Of the last tile of 128 keys one position, half, one more and all are seen.
  for (const int rows : {1, 64, 65, 129, 192, 193, 256})
    check(Spec<Type::kBF16, 128, 128, 2, false>(), rows);
}

// The ring, the turns and both places of queries go on from one tile of rows to the next.
TEST(AttentionHopperKernel, ACtaTakesManyTiles) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    for (const int ctas : {1, 3}) {
      BatchCase c = S::Case();
      c.heads = 8, c.kv_heads = 2, c.context = 170;
      AddRows(c, 0, 0, 170);
      Expect<S>(c, 3, ctas);
    }
  };
  check(Plain());
  check(Spec<Type::kBF16, 64, 64, 3>());
}

TEST(AttentionHopperKernel, TakesAnyNumberOfHeads) {
  for (const auto& [heads, kv_heads] : {std::pair{3, 3}, {9, 3}, {7, 1}, {128, 1}}) {
    BatchCase c = Plain::Case();
    c.heads = heads, c.kv_heads = kv_heads, c.context = 100;
    AddRows(c, 0, 20, heads == 128 ? 3 : 30);
    Expect<Plain>(c);
  }
}

/// Rows of four sequences in turn, alone and together, and padding.
BatchCase Mixed() {
  BatchCase c = Plain::Case();
  c.heads = 4, c.kv_heads = 2, c.context = 400, c.sequences = 4;
  c.positions = {5, 399, 0, 1, 260, 261, -1, 66}, c.slots = {0, 1, 2, 2, 0, 0, 1, 2};
  AddRows(c, 3, 60, 30), AddRows(c, 1, -1, 1), AddRows(c, 1, 100, 10);
  return c;
}

TEST(AttentionHopperKernel, TakesSequencesInTurnAndInPages) {
  BatchCase c = Mixed();
  for (const int window : {0, 70}) {
    c.window = window;
    for (const int page_size : {0, 7, 64, 256}) {
      c.page_size = page_size;
      Expect<Plain>(c, 40 + static_cast<std::uint64_t>(page_size));
    }
  }
}

// Tiles of 128 keys, in one box or in two, of which some rows see one only.
TEST(AttentionHopperKernel, CopiesATileInOneBoxOrTwo) {
  BatchCase c = Mixed();
  for (const int page_size : {64, 128, 192}) {
    c.page_size = page_size;
    Expect<Spec<Type::kBF16, 64>>(c);
  }
}

TEST(AttentionHopperKernel, SeesTheLastPositionsOfAWindow) {
  for (const int window : {1, 63, 64, 65, 5000}) {
    BatchCase c = Plain::Case();
    c.heads = 2, c.kv_heads = 1, c.context = 330, c.page_size = 64, c.window = window;
    // Rows of one sequence far apart: pages between what they see do not exist.
    AddRows(c, 0, 0, 3), AddRows(c, 0, 300, 20), AddRows(c, 0, 150, 20);
    Expect<Plain>(c);
  }
  // A tile of keys that is behind the first position of some rows and before no row's last.
  BatchCase c = Plain::Case();
  c.heads = 2, c.kv_heads = 1, c.context = 330, c.page_size = 64, c.window = 100;
  AddRows(c, 0, 200, 32);
  Expect<Plain>(c);
}

TEST(AttentionHopperKernel, ReadsAndWritesElementsWhereNothingIsAligned) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    BatchCase c = S::Case();
    c.odd = true, c.context = 100;
    AddRows(c, 0, 60, 30);
    Expect<S>(c);
  };
  check(Spec<Type::kBF16, 64, 64>());
  check(Spec<Type::kF16, 128>());
}

TEST(AttentionHopperKernel, MakesZerosOfPaddingAndNaNOfWhatDoesNotExist) {
  ExpectZerosAndNaN(Plain::Case(), On<Plain>(1));
}

TEST(AttentionHopperKernel, ANaNKeyShowsInTheRowsThatSeeIt) {
  ExpectNaNOfNaNKey(Plain::Case(), On<Plain>(1));
}

TEST(AttentionHopperKernel, CapsScores) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    ExpectCaps(S::Case(), On<S>(2));
  };
  check(Plain());
  check(Spec<Type::kF16, 128>());
}

TEST(AttentionHopperLaunch, RefusesWhatTheSpecIsNotFor) {
  BatchCase c = Plain::Case();
  c.heads = 129, c.positions = {0}, c.slots = {0};
  Batch batch(c, 1);
  test::GuardedBytes out(batch.OutBytes());
  Args args = batch.ArgsAt(batch.Host(out.data()));
  const auto refused = [&](const KernelSpec& spec, const char* words) {
    ExpectRefused(AttentionHopperLaunch(spec, args, {}), words);
  };
  refused(Plain::Its(), "129 heads over 1, needs at most 128");
  refused(Spec<Type::kF16, 64>::Its(), "q bf16, needs f16");
  refused(Spec<Type::kBF16, 128>::Its(), "head_dim = 64, needs 128");
  args.q.shape[1] = 1, args.out.shape[0] = 64;
  args.scale = 0;
  refused(Plain::Its(), "scale = 0, needs a positive scale");
}

TEST(AttentionHopperFamily, EverySpecPassesItsCheckAndOthersAreRefusedByField) {
  const KernelFamily family = AttentionHopperFamily();
  EXPECT_EQ(family.catalog({90, 'a'}).size(), 4u);
  for (const KernelSpec& spec : family.catalog({90, 'a'}))
    EXPECT_EQ(family.check(spec), std::nullopt);
  for (const CudaArch arch : {CudaArch{80, 0}, CudaArch{100, 'a'}, CudaArch{120, 0}})
    EXPECT_TRUE(family.catalog(arch).empty());
  const auto refused = [&](auto change, const char* words) {
    ExpectRefused(family, Plain::Its(), change, words);
  };
  refused([](KernelSpec& s) { s.arch = {100, 'a'}; }, "sm_100a");
  refused([](KernelSpec& s) { s.type_b = DataType::kF32; }, "type_b = f32");
  refused([](KernelSpec& s) { s.type_b = DataType::kF16; }, "bf16 over f16");
  refused([](KernelSpec& s) { s.type_d = DataType::kF32; }, "type_d = f32");
  refused([](KernelSpec& s) { s.warps = 8; }, "warps = 8");
  refused([](KernelSpec& s) { s.tile_m = 64; }, "tile_m = 64");
  refused([](KernelSpec& s) { s.tile_n = 96; }, "tile_n = 96");
  refused([](KernelSpec& s) { s.stages = 1; }, "stages = 1");
  refused([](KernelSpec& s) { s.stages = 8, s.tile_n = 128; }, "bytes of shared memory");
  refused([](KernelSpec& s) { s.params[0] = 96; }, "param0 = 96");
  refused([](KernelSpec& s) { s.params[1] = 3; }, "param1 = 3");
  refused([](KernelSpec& s) { s.split_k = 2; }, "split_k");
  refused([](KernelSpec& s) { s.warps = 16, s.tile_m = 192, s.tile_n = 128; }, "accumulators");
}

}  // namespace
}  // namespace tilewright::attention
