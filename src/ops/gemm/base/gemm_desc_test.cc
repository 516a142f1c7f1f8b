#include <gtest/gtest.h>

#include <set>

#include "core/random.h"
#include "core/test_util.h"
#include "ops/gemm/base/fake_kernel.h"
#include "ops/gemm/base/packs.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {
namespace {

using test::F32Problem;
using test::F32Setup;
using test::FakeKernel;

// A value other than the field's default, for every type of field.
template <class T>
void Mutate(T& value) {
  if constexpr (std::is_same_v<T, Quant>) {
    value = Quant{QuantType::kK, 0, 64};
  } else {
    value = static_cast<T>(static_cast<int>(value) == 0 ? 1 : 0);
  }
}

TEST(GemmKey, EveryFieldChangesTheKeyTheHashAndSurvivesTheRoundTrip) {
  const GemmDesc base = F32Problem(8);
  int fields = 0;
  ForEachField(base, [&fields](std::string_view, const auto&) { ++fields; });
  EXPECT_EQ(fields, 31);
  std::set<std::string> keys{KeyOf(base)};
  for (int target = 0; target < fields; ++target) {
    GemmDesc changed = base;
    int index = 0;
    ForEachField(changed, [&](std::string_view, auto& value) {
      if (index++ == target) Mutate(value);
    });
    EXPECT_NE(changed, base) << "field " << target;
    EXPECT_TRUE(keys.insert(KeyOf(changed)).second) << KeyOf(changed);
    const auto parsed = ParseKey(KeyOf(changed));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(*parsed, changed) << KeyOf(changed);
  }
}

TEST(GemmKey, ListsEveryByteOfTheStruct) {
  // Setting every listed field to all ones leaves no byte at zero: no field is missing.
  GemmDesc desc;
  std::memset(static_cast<void*>(&desc), 0, sizeof desc);
  ForEachField(desc, [](std::string_view, auto& value) {
    std::memset(static_cast<void*>(&value), 0xff, sizeof value);
  });
  unsigned char bytes[sizeof desc];
  std::memcpy(bytes, &desc, sizeof desc);
  std::size_t zeros = 0;
  for (const unsigned char byte : bytes) zeros += byte == 0 ? 1 : 0;
  EXPECT_EQ(zeros, 0u);
}

TEST(GemmKey, IsCanonicalTextAndReadsAnyOrderOfFields) {
  EXPECT_TRUE(KeyOf(F32Problem(1, 576, 576)).starts_with("m=1 n=576 k=576 num=1 type_a=f32"))
      << KeyOf(F32Problem(1));
  const auto parsed = ParseKey("k=32  n=64 m=3 pack_b=any quant_b=k/128 type_b=q4_1");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->m, 3);
  EXPECT_EQ(parsed->pack_b, kPackAny);
  EXPECT_EQ(parsed->quant_b, (Quant{QuantType::kK, 0, 128}));
  EXPECT_EQ(parsed->type_b, DataType::kQ4_1);
}

TEST(GemmKey, RefusesWhatItDoesNotKnowByName) {
  const auto message = [](std::string_view key) {
    const auto parsed = ParseKey(key);
    return parsed ? std::string("accepted") : parsed.error().message;
  };
  EXPECT_EQ(message("m=1 n=2 k=3 color=red"), "'color': no such field in a key of gemm");
  EXPECT_EQ(message("m=1 n=2 k=3 type_a=f31"),
            "type_a = 'f31': not a value of this field in a key of gemm");
  EXPECT_EQ(message("m=1 n=2 k=99999999999"),
            "k = '99999999999': not a value of this field in a key of gemm");
  EXPECT_EQ(message("m=1 m=2 n=2 k=3"), "m: given twice in a key of gemm");
  EXPECT_EQ(message("m=1 n=2"), "a key of gemm must give m, n and k");
  EXPECT_EQ(message("a\nb"), R"('a\x0ab': must be name=value in a key of gemm)");
  EXPECT_LT(message("m=" + std::string(5000, 'x')).size(), 300u);
  EXPECT_EQ(message("m"), "'m': must be name=value in a key of gemm");
  for (const char* bad :
       {"m= n=1 k=1", "m=1x n=1 k=1", "m=1 n=1 k=1 quant_b=k/0", "m=1 n=1 k=1 quant_b=x/3",
        "m=1 n=1 k=1 pack_b=pack", "m=1 n=1 k=1 pack_b=pack70000", "m=1 n=1 k=1 threads=2",
        "m=1 n=1 k=1 group_axis=300"}) {
    EXPECT_FALSE(ParseKey(bad)) << bad;
  }
}

TEST(GemmKey, RandomTextNeverParsesToSomethingItDoesNotPrint) {
  const std::string key = KeyOf(F32Problem(7, 64, 64));
  Random random(11);
  for (int i = 0; i < 20000; ++i) {
    std::string text = key;
    const int edits = 1 + static_cast<int>(random.Below(3));
    for (int e = 0; e < edits; ++e)
      text[random.Below(text.size())] = static_cast<char>(random.Below(256));
    const auto parsed = ParseKey(text);
    if (!parsed) continue;
    const auto again = ParseKey(KeyOf(*parsed));
    ASSERT_TRUE(again) << text;
    EXPECT_EQ(*again, *parsed) << text;
  }
}

TEST(GemmKey, PackNamesAreDistinctAndReadBack) {
  std::set<std::string> names;
  std::set<Pack> packs;
  for (const PackRow& row : kPackTable) {
    EXPECT_TRUE(names.insert(row.name()).second) << row.name();
    EXPECT_TRUE(packs.insert(row.pack).second) << row.name();
  }
  GemmDesc desc = F32Problem(1);
  desc.pack_b = 0x8123;
  EXPECT_EQ(PackName(desc.pack_b), "pack33059");
  EXPECT_EQ(ParseKey(KeyOf(desc))->pack_b, 0x8123);
}

TEST(TransposeProblem, TwiceIsTheSame) {
  GemmDesc desc = F32Problem(3, 96, 64);
  desc.type_b = DataType::kU4, desc.type_v = DataType::kF16, desc.quant_b = {QuantType::kK, 0, 32};
  desc.pack_b = 5, desc.order_c = Order::kColMajor, desc.group_axis = 0, desc.align_a = 4;
  desc.striding_a = Striding::kIndexed;
  const GemmDesc t = Transpose(desc);
  EXPECT_EQ(t.m, 96);
  EXPECT_EQ(t.type_a, DataType::kU4);
  EXPECT_EQ(t.order_a, Order::kRowMajor);
  EXPECT_EQ(t.order_c, Order::kRowMajor);
  EXPECT_EQ(t.batch_dim, BatchDim::kN);
  EXPECT_EQ(t.group_axis, 1);
  EXPECT_EQ(BatchOf(t), BatchOf(desc));
  EXPECT_EQ(Transpose(t), desc);
}

TEST(TransposeKernel, ServesTheTransposedProblemBitwise) {
  FakeKernel inner(F32Setup("gemm.inner"));
  const auto outer = Transpose(static_cast<Kernel&>(inner));
  const std::int32_t m = 5, n = 7, k = 9;
  const auto a = test::RandomFloats(m * k, 1), b = test::RandomFloats(n * k, 2);  // B is W[n][k]
  const GemmDesc p = F32Problem(m, n, k), t = Transpose(p);
  ASSERT_FALSE(inner.IsFeasible(p));
  ASSERT_FALSE(outer->IsFeasible(t)) << outer->IsFeasible(t)->ToString();
  ASSERT_TRUE(outer->IsFeasible(p));  // its A must be column-major

  std::vector<float> direct(m * n, NAN), transposed(m * n, NAN);
  GemmArgs args;
  args.a = a.data(), args.b = b.data(), args.d = direct.data();
  args.a_layout = {DataType::kF32, Order::kRowMajor, m, k, k};
  args.b_layout = {DataType::kF32, Order::kColMajor, k, n, k};
  args.c_layout = args.d_layout = {DataType::kF32, Order::kRowMajor, m, n, n};
  GemmArgs targs;
  targs.a = b.data(), targs.b = a.data(), targs.d = transposed.data();
  targs.a_layout = {DataType::kF32, Order::kRowMajor, n, k, k};
  targs.b_layout = {DataType::kF32, Order::kColMajor, k, m, k};
  targs.c_layout = targs.d_layout = {DataType::kF32, Order::kColMajor, n, m, n};
  Workspace workspace;
  LaunchSpec spec;
  ASSERT_TRUE(inner.Launch(args, spec, workspace, {}));
  spec.kernel = outer.get();
  ASSERT_TRUE(outer->Launch(targs, spec, workspace, {}));
  EXPECT_TRUE(test::BitwiseEqual(direct.data(), transposed.data(), direct.size() * sizeof(float)));
}

TEST(TransposeKernel, RefusesTheGatedEpilogue) {
  auto setup = F32Setup("gemm.inner");
  setup.desc.epilogue = Bit(Epilogue::kNone) | Bit(Epilogue::kGatedSilu);
  FakeKernel inner(setup);
  GemmDesc t = Transpose(F32Problem(4, 64, 32));
  t.epilogue = Epilogue::kGatedSilu;
  const auto no = Transpose(static_cast<Kernel&>(inner))->IsFeasible(t);
  ASSERT_TRUE(no);
  EXPECT_EQ(no->reason, Reason::kEpilogue);
}

TEST(TransposeKernel, RefusesAPrologue) {
  auto setup = F32Setup("gemm.inner");
  setup.desc.prologue = Bit(Prologue::kNone) | Bit(Prologue::kRmsNorm);
  FakeKernel inner(setup);
  GemmDesc t = Transpose(F32Problem(4, 64, 32));
  t.prologue = Prologue::kRmsNorm, t.type_norm = DataType::kF32;
  const auto no = Transpose(static_cast<Kernel&>(inner))->IsFeasible(t);
  ASSERT_TRUE(no);
  EXPECT_EQ(no->reason, Reason::kPrologue);
}

TEST(KernelFeasibility, EveryFieldOfTheDescriptionIsCompared) {
  auto setup = F32Setup("gemm.k");
  setup.desc.max_m = 4, setup.desc.align_n = 16, setup.desc.align_k = 32;
  setup.desc.scaling = Bit(Scaling::kOneZero);
  setup.desc.pack_b = 3;
  FakeKernel kernel(setup);
  GemmDesc good = F32Problem(4, 64, 32);
  good.pack_b = 3;
  ASSERT_FALSE(kernel.IsFeasible(good)) << kernel.IsFeasible(good)->ToString();
  GemmDesc open = good;
  open.pack_b = kPackAny;
  EXPECT_FALSE(kernel.IsFeasible(open));

  const auto reason = [&](auto change) -> std::string {
    GemmDesc p = good;
    change(p);
    const auto no = kernel.IsFeasible(p);
    return no ? no->ToString() : "feasible";
  };
  EXPECT_EQ(reason([](GemmDesc& p) { p.type_a = DataType::kF16; }),
            "type: type_a = f16, needs f32");
  EXPECT_EQ(reason([](GemmDesc& p) { p.type_b = DataType::kQ8_0; }),
            "type: type_b = q8_0, needs f32");
  EXPECT_EQ(reason([](GemmDesc& p) { p.type_c = DataType::kBF16; }),
            "type: type_c = bf16, needs f32");
  EXPECT_EQ(reason([](GemmDesc& p) { p.order_a = Order::kColMajor; }),
            "order: order_a = column-major, needs row-major");
  EXPECT_EQ(reason([](GemmDesc& p) { p.order_b = Order::kRowMajor; }),
            "order: order_b = row-major, needs column-major");
  EXPECT_EQ(reason([](GemmDesc& p) { p.order_c = Order::kColMajor; }),
            "order: order_c = column-major, needs row-major");
  EXPECT_EQ(reason([](GemmDesc& p) { p.striding_a = Striding::kBlocked; }),
            "striding: striding_a = blocked, needs flat");
  EXPECT_EQ(reason([](GemmDesc& p) { p.striding_c = Striding::kIndexed; }),
            "striding: striding_c = indexed, needs flat");
  EXPECT_EQ(reason([](GemmDesc& p) { p.pack_a = 1; }),
            "pack: pack_a = " + PackName(1) + ", needs plain");
  EXPECT_EQ(reason([](GemmDesc& p) { p.pack_b = kPackPlain; }),
            "pack: pack_b = plain, needs " + PackName(3));
  EXPECT_EQ(reason([](GemmDesc& p) {
              p.quant_b = {QuantType::kK, 0, 32};
            }),
            "quant: quant_b = k, needs none");
  EXPECT_EQ(reason([](GemmDesc& p) { p.epilogue = Epilogue::kGatedSilu; }),
            "epilogue: epilogue = gated_silu, needs none");
  EXPECT_EQ(reason([](GemmDesc& p) { p.prologue = Prologue::kRmsNorm; }),
            "prologue: prologue = rms_norm, needs none");
  EXPECT_EQ(reason([](GemmDesc& p) { p.scaling = Scaling::kAny; }),
            "scaling: scaling = any alpha and beta, needs alpha 1 beta 0");
  EXPECT_EQ(reason([](GemmDesc& p) { p.guarantee = Guarantee::kBatchInvariant; }),
            "guarantee: problem asks for batch-invariant, needs a kernel that declares it");
  EXPECT_EQ(reason([](GemmDesc& p) { p.m = 5; }), "shape: m = 5, needs m <= 4");
  EXPECT_EQ(reason([](GemmDesc& p) { p.n = 65; }), "shape: n = 65, needs n a multiple of 16");
  EXPECT_EQ(reason([](GemmDesc& p) { p.k = 48; }), "shape: k = 48, needs k a multiple of 32");
}

TEST(KernelFeasibility, ActivationsAreRoundedOnlyAsFarAsTheProblemAllows) {
  const auto feasible = [](DataType type_a, DataType type_b, Precision rounds, Precision allows) {
    auto setup = F32Setup("gemm.k");
    setup.desc.type_a = Bit(type_a), setup.desc.type_b = Bit(type_b);
    setup.desc.activations = rounds;
    GemmDesc p = F32Problem(1);
    p.type_a = type_a, p.type_b = type_b, p.precision = allows;
    return !FakeKernel(setup).IsFeasible(p).has_value();
  };
  using enum DataType;
  EXPECT_TRUE(feasible(kF32, kQ4_1, Precision::kI8, Precision::kAuto));
  EXPECT_FALSE(feasible(kF32, kQ4_1, Precision::kI8, Precision::kBF16));
  EXPECT_FALSE(feasible(kF32, kQ4_1, Precision::kI8, Precision::kF32));
  EXPECT_TRUE(feasible(kF32, kQ4_1, Precision::kF32, Precision::kF32));
  EXPECT_TRUE(feasible(kF32, kBF16, Precision::kBF16, Precision::kAuto));
  EXPECT_FALSE(feasible(kF32, kBF16, Precision::kI8, Precision::kAuto));
  EXPECT_FALSE(feasible(kF32, kF32, Precision::kBF16, Precision::kAuto));
  EXPECT_TRUE(feasible(kF32, kF32, Precision::kBF16, Precision::kBF16));
  EXPECT_TRUE(feasible(kBF16, kF32, Precision::kBF16, Precision::kF32));  // nothing is lost
  EXPECT_FALSE(feasible(kF16, kF32, Precision::kBF16, Precision::kF32));
}

TEST(Cluster, GroupsByTheChosenPropertiesAndKeepsTheRankedOrder) {
  auto wide = F32Setup("gemm.wide"), narrow = F32Setup("gemm.narrow"), twin = F32Setup("gemm.twin");
  wide.desc.tile_m = 8, narrow.desc.tile_m = 4, twin.desc.tile_m = 8;
  FakeKernel a(wide), b(narrow), c(twin);
  const std::vector<LaunchSpec> specs{
      {&a, 0, 1, 0, 0}, {&b, 0, 1, 0, 0}, {&c, 1, 1, 0, 0}, {&c, 0, 2, 0, 0}};
  const auto clusters = Cluster(specs, {});
  ASSERT_EQ(clusters.size(), 3u);
  EXPECT_EQ(clusters[0].size(), 2u);  // wide and twin with one split
  EXPECT_EQ(clusters[0][0].kernel, &a);
  EXPECT_EQ(clusters[2][0].splits, 2);
  ClusteringParam coarse;
  coarse.splits = false;
  EXPECT_EQ(Cluster(specs, coarse).size(), 2u);
}

TEST(Registry, RefusesASecondKernelOfOneName) {
  Registry registry;
  ASSERT_NE(test::AddFake(registry, F32Setup("gemm.a")), nullptr);
  const auto again = registry.Add(std::make_unique<FakeKernel>(F32Setup("gemm.a")));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, "kernel gemm.a is registered twice");
  EXPECT_FALSE(registry.Add(nullptr));
  EXPECT_EQ(registry.kernels().size(), 1u);
  EXPECT_EQ(registry.Find("gemm.b"), nullptr);
}

}  // namespace
}  // namespace tilewright
