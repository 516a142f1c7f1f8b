#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernel uses its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/block_format.h"
#include "core/random.h"
#include "core/test_util.h"
#include "ops/rope/cuda/families.h"
#include "ops/rope/cuda/rope_cases.h"
#include "ops/rope/cuda/rope_kv_kernel.cuh"
#include "ops/rope/cuda/rope_kv_launch.h"
#include "ops/rope/rope.h"

// The source of the kernel, run on the CPU as RopeKvLaunch launches it, against the float64 oracle
// of the room.

namespace tilewright {
namespace {

using tw::Type;

constexpr DataType DataTypeOf(Type type) { return static_cast<DataType>(type); }

TEST(RopeAngleTest, SinesAndCosinesAreRightAtEveryPosition) {
  const RopeParams params{.dims = 128, .base = 500000.0f, .scaling_factor = 8.0f};
  const rope::Table table = rope::Table::Make(params, nullptr, 0).value();
  const std::vector<std::uint64_t> turns = RopeTurns(table.frequencies());
  double worst = 0;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    for (int trial = 0; trial < 3000; ++trial) {
      const int position = trial < 1000 ? trial : (1 << 20) - trial * 37;
      const double angle = position * table.frequencies()[i];
      const tw::SinCos got = tw::SinCosOfTurns(position, turns[i]);
      worst = std::max({worst, std::fabs(static_cast<double>(got.sin) - std::sin(angle)),
                        std::fabs(static_cast<double>(got.cos) - std::cos(angle))});
    }
  }
  EXPECT_LT(worst, 1.2e-7);
  EXPECT_GT(worst, 0);
  EXPECT_EQ(tw::SinCosOfTurns(0, turns[3]).cos, 1.0f);
  EXPECT_EQ(tw::SinCosOfTurns(0, turns[3]).sin, 0.0f);
}

TEST(RopeAngleTest, EveryQuarterHasItsSigns) {
  for (int eighth = 0; eighth < 16; ++eighth) {
    const tw::SinCos got = tw::SinCosOfTurns(eighth, std::uint64_t{1} << 60);  // 22.5 degrees
    const double angle = eighth * 3.14159265358979323846 / 8;
    EXPECT_NEAR(static_cast<double>(got.sin), std::sin(angle), 1.2e-7) << eighth;
    EXPECT_NEAR(static_cast<double>(got.cos), std::cos(angle), 1.2e-7) << eighth;
  }
}

TEST(RopeAngleTest, TurnsDropWholeTurnsAndKeepNegativeOnes) {
  constexpr double kTwoPi = 6.283185307179586476925;
  const std::vector<double> frequencies = {kTwoPi / 4, 5 * kTwoPi / 4, -kTwoPi / 4, 0.0};
  const std::vector<std::uint64_t> turns = RopeTurns(frequencies);
  EXPECT_EQ(turns[0] >> 60, 4u);
  EXPECT_EQ(turns[1] >> 60, 4u);
  EXPECT_EQ(turns[2] >> 60, 12u);
  EXPECT_EQ(turns[3], 0u);
}

/// [head_dim, heads, rows] with gaps between heads and rows.
struct Heads {
  std::int64_t head_dim, heads, rows, head_stride, row_stride;
  std::int64_t size() const { return rows * row_stride; }
};
Heads MakeHeads(std::int64_t head_dim, std::int64_t heads, std::int64_t rows, std::int64_t gap) {
  const std::int64_t head = head_dim + gap;
  return {head_dim, heads, rows, head, head * heads + gap};
}

struct Values {
  Values(DataType type, std::int64_t count, std::uint64_t seed)
      : bytes(BytesOf(type, count)), exact(static_cast<std::size_t>(count)) {
    const std::vector<float> floats = test::RandomFloats(exact.size(), seed);
    EXPECT_TRUE(EncodeRow(type, floats.data(), count, bytes.data()));
    EXPECT_TRUE(DecodeRow(type, bytes.data(), count, exact.data()));
  }
  test::GuardedBytes bytes;
  std::vector<double> exact;
};

/// The rows turned, in float64, by the oracle.
std::vector<double> Turned(const Heads& h, std::vector<double> values, const RopeParams& params,
                           std::vector<std::int32_t> positions) {
  const TensorView view{values.data(),
                        {h.head_dim, h.heads, h.rows, 1},
                        {1, h.head_stride, h.row_stride, h.size()},
                        DataType::kF64};
  rope::Args args{.qk = view, .positions = {}, .factors = {}, .out = view, .params = params};
  args.positions =
      TensorView{positions.data(), {h.rows, 1, 1, 1}, {1, h.rows, h.rows, h.rows}, DataType::kI32};
  EXPECT_TRUE(rope::Reference(args));
  return values;
}

double Rounding(DataType type) {
  return type == DataType::kF32 ? 0x1p-22 : type == DataType::kF16 ? 0x1p-11 : 0x1p-8;
}

struct Case {
  int head_dim;
  bool half_split;
  int dims, gap;
  std::int32_t heads = 5, kv_heads = 2;
};

constexpr int kWarps = 2;

KernelSpec SpecOf(DataType in, DataType cache) {
  KernelSpec spec = RopeKvFamily().catalog({90, 'a'}).front();
  spec.warps = kWarps;
  spec.type_a = spec.type_d = in;
  spec.type_c = cache;
  EXPECT_EQ(RopeKvFamily().check(spec), std::nullopt) << SpecName(spec);
  return spec;
}

/// Runs a launch of kernels for these types on the host.
template <Type kIn, Type kCache>
bool RunOnHost(const cuda::CudaLaunch& launch) {
  return tw::emulation::RunLaunch<tw::RopeKvParams>(
      launch, kWarps * 32, [](const tw::RopeKvParams& p) {
        __shared__ tw::RopeTables tables;
        tw::RopeKv<kIn, kCache, kIn, kWarps>{p, tables, static_cast<int>(blockIdx.x)}.Run();
      });
}

template <Type kIn, Type kCache>
void ExpectRopeKv(const Case& q) {
  SCOPED_TRACE(testing::Message() << "head_dim " << q.head_dim << " dims " << q.dims << " gap "
                                  << q.gap << (q.half_split ? " half-split" : " interleaved"));
  constexpr int kRows = 4, kContext = 7, kSlots = 3;
  const int head_dim = q.head_dim;
  const DataType in = DataTypeOf(kIn), cache = DataTypeOf(kCache);
  const RopeParams params{.mode = q.half_split ? RopeMode::kHalfSplit : RopeMode::kInterleaved,
                          .dims = q.dims,
                          .base = 10000.0f,
                          .freq_scale = 0.5f};
  const std::vector<std::uint64_t> turns =
      RopeTurns(rope::Table::Make(params, nullptr, 0).value().frequencies());
  const std::vector<std::int32_t> positions = {6, 0, 3, 6}, slots = {1, 2, 1, 0};
  const Heads qh = MakeHeads(head_dim, q.heads, kRows, q.gap);
  const Heads kh = MakeHeads(head_dim, q.kv_heads, kRows, q.gap);
  Values q_in(in, qh.size(), 1), k_in(in, kh.size(), 2), v_in(in, kh.size(), 3);
  const std::vector<double> q_want = Turned(qh, q_in.exact, params, positions);
  const std::vector<double> k_want = Turned(kh, k_in.exact, params, positions);

  const std::int64_t cache_head = head_dim + q.gap, cache_position = cache_head * q.kv_heads;
  const std::int64_t cache_slot = cache_position * kContext + q.gap;
  const auto cache_elements = static_cast<std::size_t>(cache_slot * kSlots);
  test::GuardedBytes k_cache(BytesOf(cache, cache_slot * kSlots));
  test::GuardedBytes v_cache(BytesOf(cache, cache_slot * kSlots));

  const auto vector = [](const std::vector<std::int32_t>& values) {
    return TensorView{
        const_cast<std::int32_t*>(values.data()), {kRows, 1, 1, 1}, {1, 0, 0, 0}, DataType::kI32};
  };
  const auto heads = [&](Values& values, const Heads& h) {
    return TensorView{h.heads > 0 ? values.bytes.data() : nullptr,
                      {h.head_dim, h.heads, h.rows, 1},
                      {1, h.head_stride, h.row_stride, 0},
                      in};
  };
  const auto cached = [&](test::GuardedBytes& bytes) {
    return TensorView{bytes.data(),
                      {head_dim, q.kv_heads, kContext, kSlots},
                      {1, cache_head, cache_position, cache_slot},
                      cache};
  };
  RopeKvArgs args;
  args.q = args.q_out = heads(q_in, qh);  // in place
  args.k = heads(k_in, kh);
  args.v = heads(v_in, kh);
  args.k_cache = cached(k_cache);
  args.v_cache = cached(v_cache);
  args.positions = vector(positions);
  args.slots = vector(slots);
  args.turns = turns.data();
  args.params = params;
  const cuda::LaunchResult launch = RopeKvLaunch(SpecOf(in, cache), args);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_TRUE((RunOnHost<kIn, kCache>(*launch))) << "a launch that a GPU refuses, or a hang";
  EXPECT_EQ(q_in.bytes.Damage() + k_cache.Damage() + v_cache.Damage(), "");

  std::vector<double> got(q_want.size());
  ASSERT_TRUE(DecodeRow(in, q_in.bytes.data(), qh.size(), got.data()));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], q_want[i], Rounding(in) * std::fabs(q_want[i]) + 2e-6) << "q " << i;
  }
  std::vector<double> k_got(cache_elements), v_got(cache_elements);
  ASSERT_TRUE(DecodeRow(cache, k_cache.data(), cache_slot * kSlots, k_got.data()));
  ASSERT_TRUE(DecodeRow(cache, v_cache.data(), cache_slot * kSlots, v_got.data()));
  std::vector<bool> written(cache_elements, false);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t h = 0; h < q.kv_heads; ++h) {
      for (std::int64_t e = 0; e < head_dim; ++e) {
        const auto from = static_cast<std::size_t>(r * kh.row_stride + h * kh.head_stride + e);
        const auto to = static_cast<std::size_t>(
            h * cache_head + positions[static_cast<std::size_t>(r)] * cache_position +
            slots[static_cast<std::size_t>(r)] * cache_slot + e);
        written[to] = true;
        ASSERT_NEAR(k_got[to], k_want[from], Rounding(cache) * std::fabs(k_want[from]) + 2e-6);
        ASSERT_NEAR(v_got[to], v_in.exact[from], Rounding(cache) * std::fabs(v_in.exact[from]));
      }
    }
  }
  for (std::size_t i = 0; i < cache_elements; ++i) {
    if (!written[i]) {
      ASSERT_TRUE(std::isnan(k_got[i]) && std::isnan(v_got[i])) << "written beside, at " << i;
    }
  }
}

TEST(RopeKvKernelTest, RowsAreTurnedAndScatteredInBothConventions) {
  ExpectRopeKv<Type::kF32, Type::kF32>({.head_dim = 64, .half_split = false, .dims = 64, .gap = 0});
  ExpectRopeKv<Type::kF32, Type::kF16>({.head_dim = 64, .half_split = true, .dims = 64, .gap = 0});
  ExpectRopeKv<Type::kBF16, Type::kBF16>(
      {.head_dim = 128, .half_split = false, .dims = 128, .gap = 8});
  ExpectRopeKv<Type::kBF16, Type::kBF16>(
      {.head_dim = 128, .half_split = true, .dims = 128, .gap = 8});
  ExpectRopeKv<Type::kF16, Type::kF32>({.head_dim = 64, .half_split = true, .dims = 64, .gap = 4});
}

TEST(RopeKvKernelTest, ElementsBeyondTheRotatedOnesPass) {
  ExpectRopeKv<Type::kF32, Type::kF32>(
      {.head_dim = 128, .half_split = false, .dims = 32, .gap = 0});
  ExpectRopeKv<Type::kF32, Type::kF32>({.head_dim = 128, .half_split = true, .dims = 32, .gap = 0});
  ExpectRopeKv<Type::kF32, Type::kF32>({.head_dim = 64, .half_split = true, .dims = 18, .gap = 0});
}

TEST(RopeKvKernelTest, AnyAlignmentAndHeadDimensionWorks) {
  ExpectRopeKv<Type::kBF16, Type::kF16>({.head_dim = 64, .half_split = true, .dims = 64, .gap = 1});
  ExpectRopeKv<Type::kF32, Type::kBF16>(
      {.head_dim = 64, .half_split = false, .dims = 64, .gap = 3});
  ExpectRopeKv<Type::kF32, Type::kF32>({.head_dim = 66, .half_split = true, .dims = 66, .gap = 0});
  ExpectRopeKv<Type::kF32, Type::kF32>({.head_dim = 2, .half_split = false, .dims = 2, .gap = 1});
}

TEST(RopeKvKernelTest, QueriesOrKeysMayBeAbsent) {
  ExpectRopeKv<Type::kF32, Type::kF16>(
      {.head_dim = 64, .half_split = true, .dims = 64, .gap = 0, .heads = 4, .kv_heads = 0});
  ExpectRopeKv<Type::kF32, Type::kF16>(
      {.head_dim = 64, .half_split = true, .dims = 64, .gap = 0, .heads = 0, .kv_heads = 3});
}

template <Type kIn, Type kCache>
void ExpectCases() {
  const auto in = static_cast<DataType>(kIn), cache = static_cast<DataType>(kCache);
  for (const auto& one : rope::CudaKvCases(in, cache)) {
    const auto run = [&](const auto& call, test::Arena& arena) -> Status {
      rope::Args args = call.At(arena.base());
      const Result<rope::Table> table =
          rope::Table::Make(args.params, args.factors.as<const float>(), 0);
      if (!table) return Fail(table.error());
      args.table = &*table;
      const cuda::LaunchResult launch = RopeKvLaunch(SpecOf(in, cache), RopeKvArgsOf(args));
      if (!launch) return Fail(ErrorCode::kInvalidArgument, launch.error().ToString());
      if (RunOnHost<kIn, kCache>(*launch)) return {};
      return Fail(ErrorCode::kInternal, "a launch that a GPU refuses, or a hang");
    };
    EXPECT_EQ(test::RunCase(one, &rope::Reference, run), "");
  }
}

TEST(RopeKvKernelTest, PartsOfAMergedProductGoWhereTheyBelong) {
  ExpectCases<Type::kF32, Type::kF32>();
  ExpectCases<Type::kF32, Type::kBF16>();
  ExpectCases<Type::kBF16, Type::kF16>();
  ExpectCases<Type::kBF16, Type::kBF16>();
  ExpectCases<Type::kF16, Type::kF16>();
}

/// One head of eight elements in four rows, a cache of four positions and two slots.
struct SmallRope {
  static constexpr int kHeadDim = 8;
  SmallRope() {
    const auto heads = [](std::vector<float>& values) {
      return TensorView{
          values.data(), {kHeadDim, 1, 4, 1}, {1, kHeadDim, kHeadDim, 0}, DataType::kF32};
    };
    const auto cached = [](std::vector<float>& values) {
      return Contiguous(values.data(), DataType::kF32, {kHeadDim, 1, 4, 2});
    };
    const auto vector = [](std::vector<std::int32_t>& values) {
      return Contiguous(values.data(), DataType::kI32, {4, 1, 1, 1});
    };
    args.q = args.q_out = heads(q);
    args.k = heads(k);
    args.v = heads(v);
    args.k_cache = cached(k_cache);
    args.v_cache = cached(v_cache);
    args.positions = vector(positions);
    args.slots = vector(slots);
    args.turns = turns.data();
    args.fault = &fault;
    args.params = {.mode = RopeMode::kHalfSplit, .dims = kHeadDim};
  }
  std::vector<std::int32_t> positions = {0, -1, 4, 1}, slots = {2, 0, 0, 0};
  std::vector<std::uint64_t> turns = std::vector<std::uint64_t>(kHeadDim / 2, 1ull << 61);
  std::vector<float> q = std::vector<float>(4 * kHeadDim, 1.0f);
  std::vector<float> k = std::vector<float>(4 * kHeadDim, 2.0f);
  std::vector<float> v = std::vector<float>(4 * kHeadDim, 3.0f);
  std::vector<float> k_cache = std::vector<float>(4 * 2 * kHeadDim, 0.0f), v_cache = k_cache;
  int fault = 0;
  RopeKvArgs args;
  KernelSpec spec = SpecOf(DataType::kF32, DataType::kF32);
};

TEST(RopeKvKernelTest, ARowWithoutAPlaceIsLeftAloneAndReported) {
  constexpr int kHeadDim = SmallRope::kHeadDim;
  SmallRope rope;
  const cuda::LaunchResult launch = RopeKvLaunch(rope.spec, rope.args);
  ASSERT_TRUE(launch) << launch.error().ToString();
  ASSERT_TRUE((RunOnHost<Type::kF32, Type::kF32>(*launch)));
  EXPECT_EQ(rope.fault, 3) << "the last bad row, counted from 1";
  for (std::size_t i = 0; i < 3 * kHeadDim; ++i) EXPECT_EQ(rope.q[i], 1.0f) << i;
  EXPECT_NE(rope.q[3 * kHeadDim], 1.0f);
  for (std::size_t i = 0; i < rope.v_cache.size(); ++i) {
    EXPECT_EQ(rope.v_cache[i], i / kHeadDim == 1 ? 3.0f : 0.0f)
        << "only position 1 of slot 0, at " << i;
  }
}

TEST(RopeFamilyTest, EverySpecPassesItsCheckOnce) {
  KernelFamilies families;
  ASSERT_TRUE(AddRopeFamilies(families));
  const KernelFamily& family = *families.Find("rope_kv");
  for (const CudaArch arch : {CudaArch{80, 0}, CudaArch{90, 'a'}, CudaArch{120, 0}}) {
    const std::vector<KernelSpec> all = family.catalog(arch);
    EXPECT_EQ(all.size(), 9u);
    for (const KernelSpec& spec : all) {
      const auto no = family.check(spec);
      EXPECT_FALSE(no.has_value()) << no->ToString();
      EXPECT_EQ(std::count(all.begin(), all.end(), spec), 1);
    }
  }
  EXPECT_TRUE(family.catalog({75, 0}).empty());
}

TEST(RopeFamilyTest, ASpecThatNoKernelHasIsRefusedWithItsField) {
  KernelFamilies families;
  ASSERT_TRUE(AddRopeFamilies(families));
  const KernelSpec good = RopeKvFamily().catalog({90, 'a'}).front();
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = good;
    change(spec);
    const auto no = families.Find("rope_kv")->check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_NE(no->ToString().find(word), std::string::npos) << no->ToString();
  };
  refused([](KernelSpec& s) { s.type_c = DataType::kQ8_0; }, "type_c");
  refused([](KernelSpec& s) { s.type_b = DataType::kF32; }, "type_b");
  refused([](KernelSpec& s) { s.params[0] = 64; }, "does not use");
  refused([](KernelSpec& s) { s.tile_n = 8; }, "does not use");
}

TEST(RopeKvLaunchTest, RefusesViewsThatDoNotFitTheSpecOrEachOther) {
  {
    SmallRope rope;
    const cuda::LaunchResult launch = RopeKvLaunch(rope.spec, rope.args);
    ASSERT_TRUE(launch) << launch.error().ToString();
    EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{4, 1, 1}));
    EXPECT_EQ(launch->block[0], 32u * rope.spec.warps);
  }
  const auto refused = [](auto change, const char* words) {
    SmallRope rope;
    change(rope);
    const cuda::LaunchResult no = RopeKvLaunch(rope.spec, rope.args);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  refused([](SmallRope& r) { r.args.params.dims = 10; }, "dims = 10");
  refused([](SmallRope& r) { r.args.q.dtype = DataType::kBF16; }, "q bf16, needs f32");
  refused([](SmallRope& r) { r.args.v.shape[2] = 3; }, "v [8, 1, 3, 1], needs [8, 1, 4, 1]");
  refused([](SmallRope& r) { r.args.v_cache.shape[3] = 1; }, "v_cache [8, 1, 4, 1]");
  refused([](SmallRope& r) { r.args.k_cache.shape[1] = 2; }, "cache [8, 2, 4, 2]");
  refused([](SmallRope& r) { r.args.q.shape[0] = 7; }, "heads of 7");
  refused([](SmallRope& r) { r.args.k.stride[0] = 2; }, "k: elements 2 apart");
  refused([](SmallRope& r) { r.args.slots.data = nullptr; }, "slots is null");
  refused([](SmallRope& r) { r.args.turns = nullptr; }, "turns is null");
  refused([](SmallRope& r) { r.args.q_out.data = nullptr; }, "q_out is null");
  refused([](SmallRope& r) { r.args.q.data = r.args.k.data = nullptr; }, "0 and 0 heads");
  refused([](SmallRope& r) { r.spec.family = "rmsnorm"; }, "a kernel of rmsnorm");
  // 65,536 CTAs along y, of 64 heads that are an item each, are one more than there can be.
  refused([](SmallRope& r) { r.args.q.shape[1] = r.args.q_out.shape[1] = 65535 * 64; },
          "65536 CTAs along y");
}

}  // namespace
}  // namespace tilewright
