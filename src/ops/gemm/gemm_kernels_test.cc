// Every kernel of the registry, whoever wrote it, under one set of tests.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/formats.h"
#include "core/test_executor.h"
#include "engine/cpu_threads.h"
#include "ops/gemm/base/verified_test_util.h"
#include "ops/gemm/test_problem.h"
#include "ops/gemm/test_registry.h"
#include "tilewright/device.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {
namespace {

using test::AllKernels;
using test::CallOptions;
using test::Device;
using test::EmulatedKernels;
using test::First;
using test::NamesOf;
using test::Pool;
using test::TestProblem;
using test::Values;

template <class E>
E Pick(std::uint32_t mask, Random& random) {
  const std::vector<E> values = Values<E>(mask);
  return values[random.Below(values.size())];
}

int BlockOf(const GemmDesc& d) {
  return std::max({GetTypeInfo(d.type_a).block_elements, GetTypeInfo(d.type_b).block_elements,
                   static_cast<int>(d.quant_a.group), static_cast<int>(d.quant_b.group)});
}

// Fills what follows from the rest: scales for the operand types, blocks along k, groups.
void Complete(GemmDesc& d, const KernelDesc& k, Random& random) {
  d.quant_a = d.quant_b = Quant{};
  d.type_u = d.type_v = DataType::kNone;
  if ((k.quant_a & Bit(QuantType::kNone)) == 0) {
    d.quant_a = {QuantType::kK, 0, 128};
    d.type_u = DataType::kF32;
  }
  if ((k.quant_b & Bit(QuantType::kNone)) == 0) {
    if ((k.quant_b & Bit(QuantType::kB)) != 0) {
      d.quant_b = {QuantType::kB, 0, 128};
      d.type_v = DataType::kF32;
    } else {
      d.quant_b = {QuantType::kK, 0, static_cast<std::uint16_t>(32 << random.Below(3))};
      d.type_v = random.Below(2) == 0 ? DataType::kF16 : DataType::kF32;
    }
  }
  if (GetTypeInfo(d.type_b).block_elements > 1) d.order_b = Order::kColMajor;
  if (GetTypeInfo(d.type_a).block_elements > 1) d.order_a = Order::kRowMajor;
  d.striding_a = Pick<Striding>(k.striding_a, random);
  d.striding_b = Pick<Striding>(k.striding_b, random);
  d.striding_c = Pick<Striding>(k.striding_c, random);
  if (d.striding_a != Striding::kFlat) d.num = 4, d.group_axis = 0;
}

// The first combination a kernel declares.
GemmDesc BaseDesc(const Kernel& kernel, Random& random) {
  const KernelDesc& k = kernel.desc();
  GemmDesc d;
  d.type_a = First<DataType>(k.type_a), d.type_b = First<DataType>(k.type_b),
  d.type_c = First<DataType>(k.type_c);
  d.order_a = (k.order_a & Bit(Order::kRowMajor)) != 0 ? Order::kRowMajor : Order::kColMajor;
  d.order_b = (k.order_b & Bit(Order::kColMajor)) != 0 ? Order::kColMajor : Order::kRowMajor;
  d.order_c = (k.order_c & Bit(Order::kRowMajor)) != 0 ? Order::kRowMajor : Order::kColMajor;
  d.epilogue = First<Epilogue>(k.epilogue);
  d.scaling = (k.scaling & Bit(Scaling::kAny)) != 0 ? Scaling::kAny : First<Scaling>(k.scaling);
  d.pack_b = kPackPlain;
  d.precision = k.activations;
  Complete(d, k, random);
  return d;
}

// A k near `wanted` that types and kernel allow.
int LegalK(const GemmDesc& d, const Kernel& kernel, int wanted) {
  const int unit = std::max(BlockOf(d), kernel.desc().align_k);
  return std::max(1, (wanted + unit - 1) / unit) * unit;
}
int LegalN(const GemmDesc& d, const Kernel& kernel, int wanted) {
  const int unit = d.epilogue == Epilogue::kGatedSilu ? std::max(32, kernel.desc().align_n)
                                                      : kernel.desc().align_n;
  return std::max(1, (wanted + unit - 1) / unit) * unit;
}

std::vector<std::int32_t> RandomOffsets(const GemmDesc& d, Random& random) {
  std::vector<std::int32_t> offsets;
  if (d.num <= 1) return offsets;
  for (int g = 1; g < d.num; ++g)
    offsets.push_back(static_cast<std::int32_t>(random.Below(static_cast<std::uint64_t>(d.m) + 1)));
  offsets.push_back(0);
  offsets.push_back(d.m);
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

// alpha and beta that the problem's scaling allows.
void PickScaling(const GemmDesc& d, Random& random, CallOptions& o) {
  constexpr float kScales[] = {0, 1, -0.5f};
  if (d.scaling == Scaling::kAny) {
    o.alpha = kScales[random.Below(3)], o.beta = kScales[random.Below(3)];
  } else {
    o.beta = d.scaling == Scaling::kOneOne ? 1.0f : 0.0f;
  }
}

CallOptions RandomCall(const GemmDesc& d, Random& random) {
  CallOptions o;
  PickScaling(d, random, o);
  o.c_is_d = random.Below(2) == 0;
  o.pad_a = static_cast<int>(random.Below(3)), o.pad_b = static_cast<int>(random.Below(3)),
  o.pad_c = static_cast<int>(random.Below(4));
  o.misalign = static_cast<int>(random.Below(3));
  o.seed = random.Next() % 100000;
  o.offsets = RandomOffsets(d, random);
  o.strided_b = random.Below(2) == 0;
  return o;
}

class EveryKernel : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    kernel_ = AllKernels().Find(GetParam());
    if (kernel_ == nullptr) kernel_ = EmulatedKernels().Find(GetParam());
    ASSERT_NE(kernel_, nullptr);
    if (auto no = kernel_->CheckDevice(Device()); no) GTEST_SKIP() << no->ToString();
  }
  Kernel& kernel() { return *kernel_; }
  GemmDesc WithPack(GemmDesc d) {
    d.pack_b = kernel_->desc().pack_b;
    return d;
  }
  void ExpectRight(const GemmDesc& desc, const CallOptions& options, int threads,
                   const LaunchSpec& spec = {}) {
    TestProblem problem(desc, options);
    const std::string wrong = problem.RunAndCheck(kernel(), spec, Pool(threads));
    ASSERT_EQ(wrong, "") << kernel().name() << " threads=" << threads << " swizzle=" << spec.swizzle
                         << " splits=" << spec.splits << "\n  " << problem.Repro();
  }

  Kernel* kernel_ = nullptr;
};

std::vector<int> RowCounts(const Kernel& kernel) {
  std::vector<int> counts;
  for (const int m : {1, 2, 3, 5, 7, 16, 17, 33, 64, 65}) {
    if (kernel.desc().max_m == 0 || m <= kernel.desc().max_m) counts.push_back(m);
  }
  return counts;
}

TEST_P(EveryKernel, AgreesWithTheOracleOnTailsOfEveryDimension) {
  Random random(101);
  constexpr int kCols[] = {1, 15, 16, 17, 31, 32, 33, 48, 100};
  constexpr int kDepths[] = {1, 2, 31, 64, 65, 300};
  int turn = 0;
  for (const int m : RowCounts(kernel())) {
    for (int repeat = 0; repeat < 6; ++repeat, ++turn) {
      GemmDesc d = BaseDesc(kernel(), random);
      d.epilogue = Pick<Epilogue>(kernel().desc().epilogue, random);
      d.m = m;
      d.n = LegalN(d, kernel(), kCols[(turn * 5 + repeat) % 9]);
      d.k = LegalK(d, kernel(), kDepths[turn % 6]);
      ASSERT_NO_FATAL_FAILURE(ExpectRight(d, RandomCall(d, random), 1 + turn % 3));
    }
  }
}

TEST_P(EveryKernel, HandlesEveryAlphaAndBetaWithCApartAndEqualToD) {
  Random random(102);
  GemmDesc d = BaseDesc(kernel(), random);
  d.m = kernel().desc().max_m == 0 ? 14 : kernel().desc().max_m;
  d.n = LegalN(d, kernel(), 35);
  d.k = LegalK(d, kernel(), 40);
  for (const Epilogue epilogue : Values<Epilogue>(kernel().desc().epilogue)) {
    d.epilogue = epilogue;
    d.n = LegalN(d, kernel(), 35);
    for (const Scaling scaling : Values<Scaling>(kernel().desc().scaling)) {
      d.scaling = scaling;
      for (const float alpha : {0.0f, 1.0f, -0.5f}) {
        for (const float beta : {0.0f, 1.0f, -0.5f}) {
          if (scaling != Scaling::kAny && alpha != 1) continue;
          if (scaling != Scaling::kAny && beta != (scaling == Scaling::kOneOne ? 1.0f : 0.0f))
            continue;
          for (const bool c_is_d : {false, true}) {
            CallOptions o;
            o.alpha = alpha, o.beta = beta, o.c_is_d = c_is_d;
            o.pad_c = 3;
            o.offsets = RandomOffsets(d, random);
            ASSERT_NO_FATAL_FAILURE(ExpectRight(d, o, 2));
          }
        }
      }
    }
  }
}

TEST_P(EveryKernel, HandlesEveryTypeAndOrderItDeclares) {
  Random random(103);
  const KernelDesc& k = kernel().desc();
  for (const DataType a : Values<DataType>(k.type_a)) {
    for (const DataType b : Values<DataType>(k.type_b)) {
      for (const DataType c : Values<DataType>(k.type_c)) {
        for (const Order order_a : Values<Order>(k.order_a)) {
          for (const Order order_b : Values<Order>(k.order_b)) {
            if (order_b == Order::kRowMajor && GetTypeInfo(b).block_elements > 1) continue;
            for (const Order order_c : Values<Order>(k.order_c)) {
              GemmDesc d = BaseDesc(kernel(), random);
              d.type_a = a, d.type_b = b, d.type_c = c;
              d.order_a = order_a, d.order_b = order_b, d.order_c = order_c;
              d.m = 3;
              d.n = LegalN(d, kernel(), 18);
              d.k = LegalK(d, kernel(), 33);
              ASSERT_NO_FATAL_FAILURE(ExpectRight(d, RandomCall(d, random), 1));
              // Emulated tiles show nothing of the processor that they run on.
              if (AllKernels().Find(kernel().name()) != nullptr)
                test::NoteProduct(kernel().info(), k, d, Device());
            }
          }
        }
      }
    }
  }
}

TEST_P(EveryKernel, GivesTheSameBitsOnAnyNumberOfThreads) {
  if (!kernel().info().deterministic) GTEST_SKIP() << "not declared deterministic";
  Random random(104);
  GemmDesc d = BaseDesc(kernel(), random);
  d.m = kernel().desc().max_m == 0 ? 65 : kernel().desc().max_m;
  d.n = LegalN(d, kernel(), 100);
  d.k = LegalK(d, kernel(), 300);
  CallOptions o;
  o.offsets = RandomOffsets(d, random);
  TestProblem problem(d, o);
  ASSERT_EQ(problem.Run(kernel(), {}, Pool(1)), "");
  const auto first = problem.ResultBytes();
  for (const int threads : {2, 3}) {
    ASSERT_EQ(problem.Run(kernel(), {}, Pool(threads)), "");
    EXPECT_EQ(problem.ResultBytes(), first) << threads << " threads, " << problem.Repro();
  }
  for (const int threads : {1, 2, 3, 4, 5}) {
    test::ForeignExecutor five(5);
    LaunchSpec spec;
    spec.config = ThreadsConfig(threads);
    ASSERT_EQ(problem.Run(kernel(), spec, five), "");
    // Packing takes all workers: it is not part of the launch.
    if (kernel().desc().pack_b == kPackPlain && threads < 5) {
      EXPECT_LE(five.most_tasks(), threads == 1 ? 0 : threads);
    }
    EXPECT_EQ(problem.ResultBytes(), first) << "threads=" << threads << ", " << problem.Repro();
  }
}

TEST_P(EveryKernel, IsRightWithEveryConfigurationThatItOffers) {
  Random random(111);
  GemmDesc d = BaseDesc(kernel(), random);
  const int most = kernel().desc().max_m == 0 ? 40 : kernel().desc().max_m;
  // Also one row, for which a launch may have ways of its own.
  for (const auto& [m, n, k] : {std::array{most, 70, 700}, std::array{1, 300, 701}}) {
    d.m = m;
    d.n = LegalN(d, kernel(), n);
    d.k = LegalK(d, kernel(), k);
    CallOptions o;
    o.offsets = RandomOffsets(d, random);
    for (const LaunchSpec& spec : kernel().Specs(WithPack(d), Device(), {})) {
      const std::string text = kernel().ConfigText(spec.config);
      EXPECT_EQ(kernel().ParseConfig(text), spec.config) << text;
      SCOPED_TRACE(text);
      ExpectRight(d, o, 2, spec);
    }
  }
}

TEST_P(EveryKernel, GivesARowTheSameBitsInAnyBatchIfItSaysSo) {
  if (!kernel().info().batch_invariant) GTEST_SKIP() << "not declared batch invariant";
  Random random(105);
  GemmDesc d = BaseDesc(kernel(), random);
  if (d.num > 1) GTEST_SKIP() << "groups divide the batch";
  const int most = kernel().desc().max_m == 0 ? 65 : kernel().desc().max_m;
  d.n = LegalN(d, kernel(), 50);
  d.k = LegalK(d, kernel(), 300);
  d.order_c = Order::kRowMajor;
  d.order_a = Order::kRowMajor;
  if ((kernel().desc().order_a & Bit(d.order_a)) == 0 ||
      (kernel().desc().order_c & Bit(d.order_c)) == 0)
    GTEST_SKIP();
  CallOptions o;
  d.m = most;
  TestProblem whole(d, o);
  ASSERT_EQ(whole.Run(kernel(), {}, Pool(2)), "");
  const auto all = whole.ResultBytes();
  for (int m = 1; m < most; m = m < 20 ? m + 1 : m + 13) {
    d.m = m;  // the first m rows of the same random matrix
    TestProblem part(d, o);
    ASSERT_EQ(part.Run(kernel(), {}, Pool(1)), "");
    const auto some = part.ResultBytes();
    ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << "m = " << m;
  }
}

TEST_P(EveryKernel, ServesTheTransposedProblemBitwiseEqual) {
  Random random(106);
  for (int turn = 0; turn < 6; ++turn) {
    GemmDesc d = BaseDesc(kernel(), random);
    d.order_a = Pick<Order>(kernel().desc().order_a, random);
    d.order_c = Pick<Order>(kernel().desc().order_c, random);
    d.epilogue = Epilogue::kNone;
    d.m =
        kernel().desc().max_m == 0 ? 1 + static_cast<int>(random.Below(40)) : kernel().desc().max_m;
    d.n = LegalN(d, kernel(), 1 + static_cast<int>(random.Below(70)));
    d.k = LegalK(d, kernel(), 1 + static_cast<int>(random.Below(300)));
    TestProblem problem(d, RandomCall(d, random));
    ASSERT_EQ(problem.Run(kernel(), {}, Pool(2)), "") << problem.Repro();
    const auto direct = problem.ResultBytes();
    ASSERT_EQ(problem.Run(kernel(), {}, Pool(2), true), "") << problem.Repro();
    EXPECT_EQ(problem.ResultBytes(), direct) << problem.Repro();
  }
}

TEST_P(EveryKernel, IsRightForEverySwizzleAndSplitAndRefusesMore) {
  Random random(107);
  GemmDesc d = BaseDesc(kernel(), random);
  d.m = kernel().desc().max_m == 0 ? 300 : kernel().desc().max_m;
  d.n = LegalN(d, kernel(), 200);
  d.k = LegalK(d, kernel(), 320);
  const GemmShape shape{d.m, d.n, d.k, d.num};
  CallOptions o;
  o.offsets = RandomOffsets(d, random);
  o.beta = d.scaling == Scaling::kAny ? 1.0f : 0.0f;
  TestProblem problem(d, o);
  const int max_swizzle = kernel().GetMaxSwizzle(shape);
  const std::size_t plenty = std::size_t{1} << 32;
  const int max_splits = kernel().GetMaxSplits(shape, 0, plenty, plenty);
  if (kernel().desc().split_k) {
    EXPECT_GT(max_splits, 1);
    EXPECT_EQ(kernel().GetMaxSplits(shape, 0, 0, 0), 1);
    LaunchSpec all;
    all.splits = max_splits;
    const std::size_t needed = kernel().PartialsBytes(WithPack(d), all, DeviceSpec{});
    EXPECT_GE(kernel().GetMaxSplits(shape, 0, plenty, needed), max_splits);
    EXPECT_LT(kernel().GetMaxSplits(shape, 0, plenty, needed - 1), max_splits);
    EXPECT_LT(kernel().GetMaxSplits(shape, 0, plenty, needed / 2), max_splits);
  } else {
    EXPECT_EQ(max_splits, 1);
  }
  for (int splits = 1; splits <= max_splits; ++splits) {
    std::vector<unsigned char> first;
    for (int swizzle = 0; swizzle <= max_swizzle; ++swizzle) {
      const LaunchSpec spec{.swizzle = swizzle, .splits = splits};
      if (swizzle == 0) {
        ASSERT_EQ(problem.RunAndCheck(kernel(), spec, Pool(2)), "") << "splits = " << splits;
        first = problem.ResultBytes();
        continue;
      }
      ASSERT_EQ(problem.Run(kernel(), spec, Pool(1 + swizzle % 3)), "")
          << "swizzle = " << swizzle << ", splits = " << splits;
      ASSERT_EQ(problem.ResultBytes(), first) << "swizzle = " << swizzle << ", splits = " << splits;
    }
  }
  for (const LaunchSpec& spec : {LaunchSpec{.swizzle = max_swizzle + 1}, LaunchSpec{.swizzle = -1},
                                 LaunchSpec{.splits = max_splits + 1}, LaunchSpec{.splits = 0}}) {
    EXPECT_THAT(problem.Run(kernel(), spec, Pool(1)), testing::StartsWith("Launch: "))
        << "swizzle = " << spec.swizzle << ", splits = " << spec.splits;
  }
}

TEST_P(EveryKernel, RefusesAWorkspaceOneByteShort) {
  Random random(108);
  GemmDesc d = BaseDesc(kernel(), random);
  d.m = 3;
  d.n = LegalN(d, kernel(), 40);
  d.k = LegalK(d, kernel(), 64);
  CallOptions o;
  o.offsets = RandomOffsets(d, random);
  TestProblem problem(d, o);
  LaunchSpec spec;
  spec.kernel = &kernel();
  const std::size_t needed = kernel().PartialsBytes(WithPack(d), spec, DeviceSpec{});
  if (needed == 0) GTEST_SKIP() << "needs no workspace";
  GemmArgs args = problem.args();
  std::vector<unsigned char> packed(
      kernel().desc().pack_b == kPackPlain ? 0 : kernel().PackedBytes(args.b_layout) + 64);
  if (!packed.empty()) {
    auto* aligned =
        packed.data() + (64 - reinterpret_cast<std::uintptr_t>(packed.data()) % 64) % 64;
    ASSERT_TRUE(kernel().PackB(args.b, args.b_layout, aligned, {}));
    args.b = aligned;
    args.b_layout.pack = kernel().desc().pack_b;
  }
  test::GuardedBytes partials(needed - 1);
  Workspace workspace;
  workspace.partials = partials.data();
  workspace.partials_size = partials.size();
  const Status status = kernel().Launch(args, spec, workspace, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(partials.Damage(), "");
}

// Changes one field of a problem at random, within its enumeration.
void Mutate(GemmDesc& d, Random& random) {
  std::vector<DataType> types = {DataType::kF32,    DataType::kF16, DataType::kBF16,
                                 DataType::kF8E4M3, DataType::kI8,  DataType::kU4};
  for (const BlockFormat& format : kFormats) types.push_back(format.type);
  const auto scale_type = [&] {
    const auto at = random.Below(types.size() + 1);
    return at < types.size() ? types[at] : DataType::kNone;
  };
  switch (random.Below(20)) {
    case 0:
      d.type_a = types[random.Below(types.size())];
      break;
    case 1:
      d.type_b = types[random.Below(types.size())];
      break;
    case 2:
      d.type_c = types[random.Below(3)];
      break;
    case 3:
      d.order_a = Flip(d.order_a);
      break;
    case 4:
      d.order_b = Flip(d.order_b);
      break;
    case 5:
      d.order_c = Flip(d.order_c);
      break;
    case 6:
      d.striding_a = static_cast<Striding>(random.Below(3));
      break;
    case 7:
      d.striding_c = static_cast<Striding>(random.Below(3));
      break;
    case 8:
      d.striding_b = static_cast<Striding>(random.Below(3));
      break;
    case 9:
      d.epilogue = static_cast<Epilogue>(random.Below(2));
      break;
    case 10:
      d.scaling = static_cast<Scaling>(random.Below(3));
      break;
    case 11:
      d.precision = static_cast<Precision>(random.Below(5));
      break;
    case 12:
      d.guarantee = static_cast<Guarantee>(random.Below(3));
      break;
    case 13:
      d.quant_a = {static_cast<QuantType>(random.Below(3)), 0,
                   static_cast<std::uint16_t>(16u << random.Below(5))};
      break;
    case 14:
      d.quant_b = {static_cast<QuantType>(random.Below(3)), 0,
                   static_cast<std::uint16_t>(16u << random.Below(5))};
      break;
    case 15:
      d.type_u = scale_type();
      break;
    case 16:
      d.type_v = scale_type();
      break;
    case 17:
      d.m = 1 + static_cast<int>(random.Below(40));
      break;
    case 18:
      d.n = 1 + static_cast<int>(random.Below(70));
      break;
    default:
      d.k = 1 + static_cast<int>(random.Below(300));
      break;
  }
  if (d.quant_a.type == QuantType::kNone) d.quant_a = Quant{};
  if (d.quant_b.type == QuantType::kNone) d.quant_b = Quant{};
  if (d.striding_a == Striding::kFlat && d.striding_b == Striding::kFlat &&
      d.striding_c == Striding::kFlat) {
    d.num = 1, d.group_axis = -1;
  } else {
    d.num = 4, d.group_axis = 0;
  }
}

TEST_P(EveryKernel, LaunchesWhatItCallsFeasibleAndGivesAReasonForTheRest) {
  int accepted = 0, rejected = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random(1000 + seed);
    GemmDesc d = BaseDesc(kernel(), random);
    d.m = 1 + static_cast<int>(random.Below(20));
    d.n = LegalN(d, kernel(), 1 + static_cast<int>(random.Below(70)));
    d.k = LegalK(d, kernel(), 1 + static_cast<int>(random.Below(140)));
    for (std::uint64_t i = random.Below(4); i > 0; --i) Mutate(d, random);
    if (!Validate(d)) continue;
    const std::optional<Rejection> no = kernel().IsFeasible(WithPack(d));
    if (no) {
      ++rejected;
      EXPECT_FALSE(no->have.empty()) << KeyOf(d);
      EXPECT_FALSE(no->need.empty()) << KeyOf(d);
      continue;
    }
    ++accepted;
    ASSERT_NO_FATAL_FAILURE(ExpectRight(d, RandomCall(d, random), 1 + static_cast<int>(seed % 3)))
        << "seed " << seed;
  }
  EXPECT_GT(accepted, 5);
  EXPECT_GT(rejected, 5);
}

TEST_P(EveryKernel, EstimatesAPositiveTimeThatGrowsWithTheProblem) {
  Random random(109);
  GemmDesc d = BaseDesc(kernel(), random);
  d.m = 1;
  d.n = LegalN(d, kernel(), 512);
  d.k = LegalK(d, kernel(), 512);
  const double small = kernel().EstimateUs(d, {}, Device());
  d.n *= 64;
  const double large = kernel().EstimateUs(d, {}, Device());
  EXPECT_GT(small, 0);
  EXPECT_GT(large, small);
  EXPECT_LT(large, 1e9);
}

std::string SafeName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(Registry, EveryKernel, testing::ValuesIn(NamesOf(AllKernels())), SafeName);
INSTANTIATE_TEST_SUITE_P(Emulated, EveryKernel, testing::ValuesIn(NamesOf(EmulatedKernels())),
                         SafeName);

}  // namespace
}  // namespace tilewright
