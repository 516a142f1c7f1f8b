#include "device/cuda/kernels/cluster_emulation.h"
#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After them: the kernel uses their built-ins.
#include "ops/attention/cuda/attention_decode_kernel.cuh"
#include "ops/attention/cuda/attention_test_run.h"
#include "ops/attention/cuda/new_row_batch.h"

// Kernels of attention_decode that turn their row and put its key and value into the caches, run on
// the CPU: the bits of the same kernel behind a rotation and a scatter, and the float64 oracle.

namespace tilewright::attention {
namespace {

using tw::Type;

template <Type kIts, int kDim, int kWarpCount = 2, int kRing = 2, int kCtas = 1,
          bool kItTurns = true, bool kAhead = (kCtas > 1)>
struct Spec {
  static constexpr Type kType = kIts;
  static constexpr int kHeadDim = kDim;
  static constexpr int kWarps = kWarpCount;
  static constexpr int kStages = kRing;
  static constexpr int kCluster = kCtas;
  static constexpr bool kForesees = kAhead;
  static constexpr bool kTurns = kItTurns;
  using Plain = Spec<kIts, kDim, kWarpCount, kRing, kCtas, false, kAhead>;

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
    spec.params[2] = kTurns ? 1 : 0;
    return spec;
  }
  static BatchCase Case() {
    return {.q = static_cast<DataType>(kIts), .kv = static_cast<DataType>(kIts), .head_dim = kDim};
  }
};
using Small = Spec<Type::kBF16, 64>;
using Clustered = Spec<Type::kBF16, 64, 2, 1, 4>;
using Wide = Spec<Type::kF16, 128, 4, 1, 2>;

template <class S>
void Launch(const Args& args, int sms) {
  const KernelSpec spec = S::Its();
  const GuardedWorkspace workspace(DecodeWorkspace(spec, DescOf(args, {}).value(), Board(sms)));
  using Params = tw::DecodeParams<S::kTurns>;
  Emulate<Params>(
      AttentionDecodeFamily(), spec, AttentionDecodeLaunch(spec, args, Board(sms), workspace.get()),
      [](const Params& params) { tw::AttentionDecode<S>(params, tw::emulation::OwnSmem()).Run(); });
}

/// Turns `heads` heads as a kernel of rope does: in f32, rounded once.
template <Type kType>
void TurnRow(const Args& args, std::byte* row, int heads, int head_dim, std::int32_t position) {
  auto* at = reinterpret_cast<tw::u16*>(row);
  const auto load = [](tw::u16 x) {
    return kType == Type::kBF16 ? tw::BF16ToF32(x) : tw::F16ToF32(x);
  };
  const auto store = [](float x) {
    return kType == Type::kBF16 ? tw::F32ToBF16(x) : tw::F32ToF16(x);
  };
  const int half = args.rope.dims / 2;
  for (int h = 0; h < heads; ++h, at += head_dim) {
    for (int i = 0; i < half; ++i) {
      const bool adjacent = args.rope.mode == RopeMode::kInterleaved;
      tw::u16& x0 = at[adjacent ? 2 * i : i];
      tw::u16& x1 = at[adjacent ? 2 * i + 1 : i + half];
      const tw::SinCos angle = tw::SinCosOfTurns(position, args.table->turns()[i]);
      const float a = load(x0), b = load(x1);
      x0 = store(a * angle.cos - b * angle.sin);
      x1 = store(a * angle.sin + b * angle.cos);
    }
  }
}

/// What is in memory after a call.
struct After {
  std::vector<double> out;
  std::vector<std::byte> k, v;
};
std::vector<std::byte> BytesIn(const test::GuardedBytes& memory) {
  EXPECT_EQ(memory.Damage(), "");
  const auto* at = static_cast<const std::byte*>(memory.data());
  return {at, at + memory.size()};
}

/// The same shape without turning, behind a rotation and a scatter.
template <class S>
After Apart(const BatchCase& c, const TurnCase& turn, std::uint64_t seed, int sms) {
  NewRowBatch rows(c, turn, seed);
  Batch& batch = rows.batch();
  const Args args = rows.HostArgs(nullptr);
  for (int r = 0; r < batch.rows(); ++r) {
    const std::int32_t position = batch.positions()[static_cast<std::size_t>(r)];
    TurnRow<S::kType>(
        args, static_cast<std::byte*>(batch.q().data()) + BytesOf(c.q, r * batch.RowStride()),
        c.heads, c.head_dim, position);
    TurnRow<S::kType>(args, rows.RowOf(rows.k(), r), c.kv_heads, c.head_dim, position);
    const auto put = [&](test::GuardedBytes& cache, test::GuardedBytes& from) {
      std::byte* const to = rows.PlaceOf(cache, r);
      if (to != nullptr) std::copy_n(rows.RowOf(from, r), BytesOf(c.q, rows.width()), to);
    };
    put(batch.k(), rows.k());
    put(batch.v(), rows.v());
  }
  const std::vector<double> out =
      RunBatch(batch, [&](const Args& plain) { Launch<typename S::Plain>(plain, sms); });
  return {out, BytesIn(batch.k()), BytesIn(batch.v())};
}

/// The kernel that turns; everything but its results stays as it was.
template <class S>
After Together(NewRowBatch& rows, int sms) {
  Batch& batch = rows.batch();
  const std::vector<std::byte> q = BytesIn(batch.q()), k = BytesIn(rows.k()), v = BytesIn(rows.v());
  const std::vector<double> out = RunBatch(batch, [&](const Args& plain) {
    Args args = rows.HostArgs(plain.out.data);
    Launch<S>(args, sms);
  });
  EXPECT_EQ(BytesIn(batch.q()), q);
  EXPECT_EQ(BytesIn(rows.k()), k);
  EXPECT_EQ(BytesIn(rows.v()), v);
  return {out, BytesIn(batch.k()), BytesIn(batch.v())};
}

/// On devices where a CTA computes a round, a few of them, or a row.
constexpr int kDevices[] = {10000, 12, 1};

template <class S>
void Expect(const BatchCase& c, const TurnCase& turn, std::uint64_t seed = 1) {
  SCOPED_TRACE(Describe(c, turn) + " " + SpecName(S::Its()));
  for (const int sms : kDevices) {
    NewRowBatch rows(c, turn, seed);
    const After want = Apart<S>(c, turn, seed, sms), got = Together<S>(rows, sms);
    EXPECT_TRUE(SameBits(got.out.data(), want.out.data(), static_cast<int>(want.out.size())));
    EXPECT_TRUE(got.k == want.k) << "keys";
    EXPECT_TRUE(got.v == want.v) << "values";
    EXPECT_FALSE(std::isnan(got.out[0]));
    if (S::kCluster > 1) break;  // whatever the device
  }
}

constexpr RopeMode kModes[] = {RopeMode::kInterleaved, RopeMode::kHalfSplit};

TEST(AttentionTurn, HasTheBitsOfRotationScatterAndAttentionForEveryTypeAndShape) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    BatchCase c = S::Case();
    c.heads = 6, c.kv_heads = 2, c.context = 320, c.sequences = 4;
    c.positions = {0, 299, 63, 64}, c.slots = {0, 1, 2, 3};
    for (const RopeMode mode : kModes) Expect<S>(c, {mode, S::kHeadDim, true});
  };
  check(Spec<Type::kBF16, 64, 4, 2>());
  check(Spec<Type::kBF16, 128, 4, 2>());
  check(Spec<Type::kF16, 64, 8, 1>());
  check(Spec<Type::kF16, 128, 2, 1>());
  check(Spec<Type::kBF16, 128, 4, 3>());
  check(Spec<Type::kBF16, 128, 8, 1, 4>());
  check(Spec<Type::kBF16, 64, 4, 1, 8>());
  check(Spec<Type::kF16, 128, 8, 2, 2>());
  check(Spec<Type::kBF16, 128, 8, 1, 8, true, false>());
}

TEST(AttentionTurn, TurnsAPartOfAHead) {
  for (const int dims : {2, 6, 20, 32, 62}) {
    BatchCase c = Small::Case();
    c.heads = 2, c.context = 100, c.sequences = 2;
    c.positions = {99, 31}, c.slots = {1, 0};
    for (const RopeMode mode : kModes) {
      Expect<Small>(c, {mode, dims});
      Expect<Clustered>(c, {mode, dims});
    }
  }
  BatchCase c = Wide::Case();
  c.context = 100, c.positions = {77}, c.slots = {0};
  for (const int dims : {18, 64, 96, 126})
    for (const RopeMode mode : kModes) Expect<Wide>(c, {mode, dims, true});
}

TEST(AttentionTurn, TakesAnyNumberOfHeads) {
  for (const auto& [heads, kv_heads] :
       {std::pair{1, 1}, {3, 3}, {9, 3}, {7, 1}, {8, 1}, {11, 1}, {16, 1}, {17, 1}}) {
    BatchCase c = Small::Case();
    c.heads = heads, c.kv_heads = kv_heads, c.context = 200, c.sequences = 2;
    c.positions = {130, 7}, c.slots = {1, 0};
    Expect<Small>(c, {});
    Expect<Clustered>(c, {RopeMode::kHalfSplit, 64});
  }
}

TEST(AttentionTurn, TheNewestPositionMayBeAnywhereInATileAndARound) {
  std::vector<std::int32_t> positions;
  for (int p = 0; p < 36; ++p) positions.push_back(p);
  for (const int p : {47, 48, 63, 64, 127, 128, 129, 255, 256, 1023, 1024, 1099})
    positions.push_back(p);
  BatchCase c = Small::Case();
  c.heads = 2, c.kv_heads = 1, c.context = 1100, c.sequences = static_cast<int>(positions.size());
  for (const std::int32_t p : positions) AddRows(c, static_cast<int>(c.slots.size()), p, 1);
  Expect<Small>(c, {});
  Expect<Clustered>(c, {RopeMode::kHalfSplit, 64});
}

TEST(AttentionTurn, FindsPagesOfAnySizeAndTheLastPositionsOfAWindow) {
  BatchCase c = Small::Case();
  c.heads = 4, c.kv_heads = 2, c.context = 400, c.sequences = 6;
  c.positions = {5, 399, 0, 260, -1, 66}, c.slots = {0, 1, 2, 3, 4, 5};
  for (const int window : {0, 1, 16, 70}) {
    c.window = window;
    for (const int page_size : {0, 7, 16, 64}) {
      c.page_size = page_size;
      Expect<Small>(c, {}, 40 + page_size);
      Expect<Clustered>(c, {RopeMode::kHalfSplit, 64}, 50 + page_size);
    }
  }
}

TEST(AttentionTurn, ReadsAndWritesElementsWhereNothingIsAligned) {
  const auto check = [](auto spec) {
    using S = decltype(spec);
    BatchCase c = S::Case();
    c.heads = 4, c.kv_heads = 2, c.odd = true, c.context = 100, c.sequences = 3;
    c.positions = {0, 99, 64}, c.slots = {0, 1, 2};
    for (const RopeMode mode : kModes) Expect<S>(c, {mode, S::kHeadDim});
  };
  check(Small());
  check(Clustered());
  check(Wide());
}

TEST(AttentionTurn, CapsScores) {
  BatchCase c = Clustered::Case();
  c.softcap = 1.5f, c.context = 210, c.positions = {209}, c.slots = {0};
  Expect<Clustered>(c, {});
}

/// Where the launch is early, positions and slots may be those of the pass before.
TEST(AttentionTurn, AWrongGuessOfWhereTheRowLiesChangesNothing) {
  BatchCase c = Clustered::Case();
  c.heads = 2, c.kv_heads = 1, c.context = 300, c.sequences = 4;
  c.positions = {5, 299, -1, 66}, c.slots = {0, 1, 2, 3};
  for (const int page_size : {0, 64, 7}) {
    c.page_size = page_size;
    for (const auto wrong : {+[](const int* p) { return *p + 1; },
                             +[](const int* p) { return *p - 1; }, +[](const int*) { return 0; },
                             +[](const int*) { return -1; }, +[](const int*) { return 1 << 30; }}) {
      tw::emulation::read_ahead = wrong;
      Expect<Clustered>(c, {}, 3);
      tw::emulation::read_ahead = nullptr;
    }
  }
}

/// They become zeros and NaN, and nothing is written.
template <class S>
void ExpectNothingWritten() {
  BatchCase c = S::Case();
  c.heads = 2, c.context = 256, c.sequences = 9, c.page_size = 128;
  c.positions = {10, -1, 250, 20, 30, 40, 63, 250, 128}, c.slots = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  NewRowBatch rows(c, {}, 5);
  Batch& batch = rows.batch();
  batch.positions()[3] = 256, batch.positions()[4] = -2;
  batch.slots()[5] = 9;
  // Whole rounds: fibers of a cluster that look up pages line by line stay together.
  batch.pages()[2 * 2 + 1] = -1;  // the page of the row's own position
  batch.pages()[7 * 2] = 18;      // an earlier one; there are 18
  batch.pages()[8 * 2 + 1] = -1;  // of no other position
  const std::vector<std::byte> k = BytesIn(batch.k()), v = BytesIn(batch.v());
  const After after = Together<S>(rows, 10000);
  for (std::size_t i = 0; i < after.out.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(batch.width());
    ASSERT_EQ(std::isnan(after.out[i]), (row >= 2 && row <= 5) || row >= 7) << "row " << row;
    if (row == 1) {
      ASSERT_EQ(after.out[i], 0);
    }
  }
  for (const auto& [now, before, cache] :
       {std::tuple{&after.k, &k, &batch.k()}, {&after.v, &v, &batch.v()}}) {
    std::vector<std::byte> want = *before;
    for (const int row : {0, 6, 7}) {
      const auto at = rows.PlaceOf(*cache, row) - static_cast<std::byte*>(cache->data());
      std::copy_n(now->begin() + at, BytesOf(c.kv, rows.width()), want.begin() + at);
    }
    EXPECT_TRUE(*now == want);
  }
}
TEST(AttentionTurn, MakesZerosOfPaddingAndNaNOfWhatDoesNotExistAndWritesNothing) {
  ExpectNothingWritten<Small>();
  ExpectNothingWritten<Clustered>();
}

TEST(AttentionTurn, AgreesWithTheOracle) {
  BatchCase c = Wide::Case();
  c.heads = 6, c.kv_heads = 2, c.context = 320, c.sequences = 4, c.page_size = 64;
  c.positions = {0, 299, 63, 64}, c.slots = {0, 1, 2, 3};
  for (const RopeMode mode : kModes) {
    const TurnCase turn{mode, 96, true};
    NewRowBatch rows(c, turn, 11), exact(c, turn, 11);
    std::vector<std::byte> out(exact.batch().OutBytes(), std::byte{0xff});
    const Status status = Reference(exact.HostArgs(out.data()));
    ASSERT_TRUE(status) << status.error().message;
    const After got = Together<Wide>(rows, 12);
    const std::vector<double> want = exact.batch().Result(out.data());
    // An element that is turned may be rounded to its neighbour, which moves its score by as much.
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got.out[i], want[i], 0x1p-9);
    const auto near = [&](const std::vector<std::byte>& bytes, const test::GuardedBytes& oracle) {
      const auto count = static_cast<std::int64_t>(bytes.size() / 2);
      std::vector<double> have(bytes.size() / 2), need(bytes.size() / 2);
      ASSERT_TRUE(DecodeRow(c.kv, bytes.data(), count, have.data()));
      ASSERT_TRUE(DecodeRow(c.kv, oracle.data(), count, need.data()));
      for (std::size_t i = 0; i < have.size(); ++i) {
        if (std::isnan(need[i])) {
          ASSERT_TRUE(std::isnan(have[i]));
        } else {
          ASSERT_NEAR(have[i], need[i], 0x1p-10 * std::abs(need[i]) + 2e-6);
        }
      }
    };
    near(got.k, exact.batch().k());
    near(got.v, exact.batch().v());
  }
}

TEST(AttentionTurnLaunch, RefusesWhatTheSpecIsNotFor) {
  BatchCase c = Small::Case();
  c.positions = {200}, c.slots = {0};
  NewRowBatch rows(c, {}, 1);
  test::GuardedBytes out(rows.batch().OutBytes());
  const Args good = rows.HostArgs(out.data());
  const auto refused = [&](KernelSpec spec, auto change, const char* words) {
    Args args = good;
    change(args);
    ExpectRefused(AttentionDecodeLaunch(spec, args, Board(100000), {}), words);
  };
  refused(
      Clustered::Plain::Its(), [](Args&) {}, "k, needs keys and values in the caches");
  refused(
      Clustered::Its(), [](Args& a) { a.k = a.v = {}; }, "no k, needs new keys and values");
  refused(
      Clustered::Its(), [](Args& a) { a.k.stride[0] = 2; }, "k: elements 2 apart");
  refused(
      Clustered::Its(), [](Args& a) { a.v.data = nullptr; }, "v is null");
  refused(
      Clustered::Its(), [](Args& a) { a.rope.dims = 66; }, "rope.dims = 66");
  refused(
      Clustered::Its(), [](Args& a) { a.table = nullptr; }, "no table of frequencies");
}

}  // namespace
}  // namespace tilewright::attention
