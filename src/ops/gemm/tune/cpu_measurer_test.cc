#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "core/formats/formats.h"
#include "core/test_executor.h"
#include "engine/tune/measuring.h"
#include "ops/gemm/base/fake_kernel.h"
#include "ops/gemm/cpu/amx/emulated_kernels.h"
#include "ops/gemm/reference.h"
#include "ops/gemm/register.h"
#include "ops/gemm/tune/operands.h"
#include "ops/gemm/tune/row_spreads.h"
#include "tilewright/tune_gemm.h"

namespace tilewright {
namespace {

using test::F32Problem;
using test::F32Setup;
using test::FakeKernel;

class CpuMeasurerTest : public testing::Test {
 protected:
  static MeasurerOptions Small() {
    MeasurerOptions options;
    options.llc_bytes = 256 << 10;
    return options;
  }
  // Verdict on a kernel whose Launch is `ahead`, the right computation, `after`.
  Verdict VerdictOn(
      std::function<Status(FakeKernel&, const GemmArgs&)> after, std::string* evidence = nullptr,
      std::function<void(const GemmArgs&)> ahead = [](const GemmArgs&) {}) {
    FakeKernel right(F32Setup("gemm.right"));
    auto setup = F32Setup("gemm.fake");
    setup.launch = [&](const GemmArgs& args, const LaunchSpec&) -> Status {
      Workspace none;
      ahead(args);
      if (auto s = right.Launch(args, {}, none, {}); !s) return s;
      return after(right, args);
    };
    FakeKernel fake(setup);
    LaunchSpec spec;
    spec.kernel = &fake;
    const auto measurer = MakeCpuGemmMeasurer(SerialExecutor(), Small());
    EXPECT_TRUE(measurer->Prepare(F32Problem(5, 33, 40)));
    const auto outcome = measurer->Check(spec);
    if (evidence != nullptr) *evidence = outcome.evidence;
    return outcome.verdict;
  }
};

// The first here, since the cache is measured once in a process.
TEST_F(CpuMeasurerTest, TheCacheIsMeasuredBeforeAnythingThatCounts) {
  test::CallersThread executor(1);
  const auto measurer = MakeCpuGemmMeasurer(executor, {});
  ASSERT_TRUE(measurer->Prepare(F32Problem(1, 64, 128)));
  EXPECT_EQ(executor.calls(), 1);
}

// What AMX multiplies are weights of bf16: whole numbers times weights in blocks are not exact there.
TEST_F(CpuMeasurerTest, AKernelThatRoundsWeightsPassesForWhatItsUnitsMultiply) {
  constexpr std::uint32_t kFeatures = kFeatureAvx512 | kFeatureAvx512Bf16;
  if (!DetectCpu()->Has(kFeatures)) GTEST_SKIP() << "no AVX-512 with BF16";
  Registry registry;
  AddGemmAmx(registry, test::TileOpsEmulatedVectors(), kFeatures, test::kEmulatedVectors);
  int checked = 0;
  for (const BlockFormat& format : kFormats) {
    GemmDesc problem = F32Problem(33, 64, 512);
    problem.type_b = format.type;
    problem.precision = Precision::kI8, problem.pack_b = kPackAny;
    const auto measurer = MakeCpuGemmMeasurer(SerialExecutor(), Small());
    ASSERT_TRUE(measurer->Prepare(problem));
    for (Kernel* const kernel : registry.kernels()) {
      if (kernel->IsFeasible(problem)) continue;
      LaunchSpec spec;
      spec.kernel = kernel;
      const Tuner::Outcome outcome = measurer->Check(spec);
      EXPECT_EQ(outcome.verdict, Verdict::kOk) << kernel->name() << ": " << outcome.evidence;
      ++checked;
    }
  }
  EXPECT_GE(checked, 13);
}

TEST_F(CpuMeasurerTest, ARightKernelPasses) {
  EXPECT_EQ(VerdictOn([](FakeKernel&, const GemmArgs&) -> Status { return {}; }), Verdict::kOk);
}

TEST_F(CpuMeasurerTest, AWrongValueAnywhereIsSeenWithItsPlace) {
  std::string evidence;
  EXPECT_EQ(VerdictOn(
                [](FakeKernel&, const GemmArgs& args) -> Status {
                  static_cast<float*>(args.d)[3 * 33 + 7] *= 1.001f;
                  return {};
                },
                &evidence),
            Verdict::kWrong);
  EXPECT_TRUE(evidence.starts_with("d[3, 7] = ")) << evidence;
}

TEST_F(CpuMeasurerTest, AnElementNeverWrittenIsSeen) {
  std::string evidence;
  float before = 0;
  EXPECT_EQ(VerdictOn(
                [&before](FakeKernel&, const GemmArgs& args) -> Status {
                  static_cast<float*>(args.d)[4 * 33 + 32] = before;
                  return {};
                },
                &evidence,
                [&before](const GemmArgs& args) {
                  before = static_cast<const float*>(args.d)[4 * 33 + 32];
                }),
            Verdict::kWrong);
  EXPECT_EQ(evidence, "line 4 element 32 of D is -nan");  // the poison, all ones
}

TEST_F(CpuMeasurerTest, ALaunchThatWritesNothingIsSeenThoughAnEarlierOneLeftTheRightNumbers) {
  // The third launch repeats the second: what that one wrote would be right.
  int launches = 0;
  auto setup = F32Setup("gemm.lazy");
  FakeKernel real(F32Setup("gemm.real"));
  setup.launch = [&](const GemmArgs& args, const LaunchSpec& spec) -> Status {
    Workspace none;
    return ++launches == 3 ? Status() : real.Launch(args, spec, none, {});
  };
  FakeKernel lazy(setup);
  LaunchSpec spec;
  spec.kernel = &lazy;
  const auto measurer = MakeCpuGemmMeasurer(SerialExecutor(), Small());
  ASSERT_TRUE(measurer->Prepare(F32Problem(5, 33, 40)));
  EXPECT_EQ(measurer->Check(spec).verdict, Verdict::kWrong);
  EXPECT_EQ(launches, 3);
}

TEST(ColdWeights, OutrunTheLastLevelHoweverItIsKnown) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  EXPECT_EQ(ColdWeightBytes(10 * kMiB, 0), 30 * kMiB);
  EXPECT_EQ(ColdWeightBytes(10 * kMiB, 4 * kMiB), 30 * kMiB);
  EXPECT_EQ(ColdWeightBytes(10 * kMiB, 32 * kMiB), 192 * kMiB);   // it may be ours again
  EXPECT_EQ(ColdWeightBytes(40 * kMiB, 300 * kMiB), 512 * kMiB);  // never all ours
  EXPECT_EQ(ColdWeightBytes(200 * kMiB, 300 * kMiB), 600 * kMiB);
}

TEST_F(CpuMeasurerTest, AWriteOutsideTheOutputIsSeen) {
  EXPECT_EQ(VerdictOn([](FakeKernel&, const GemmArgs& args) -> Status {
              static_cast<float*>(args.d)[5 * 33] = 1;
              return {};
            }),
            Verdict::kGuard);
}

TEST_F(CpuMeasurerTest, AnErrorIsAVerdictWithItsMessage) {
  std::string evidence;
  EXPECT_EQ(VerdictOn([](FakeKernel&,
                         const GemmArgs&) { return Status(Fail(ErrorCode::kInternal, "no luck")); },
                      &evidence),
            Verdict::kError);
  EXPECT_EQ(evidence, "no luck");
}

TEST_F(CpuMeasurerTest, AKernelThatClaimsDeterminismMustKeepIt) {
  int calls = 0;
  EXPECT_EQ(VerdictOn([&calls](FakeKernel&, const GemmArgs& args) -> Status {
              float& one = static_cast<float*>(args.d)[0];
              if (++calls % 2 == 0) one = std::nextafter(one, 1e9f);
              return {};
            }),
            Verdict::kWrong);
}

TEST_F(CpuMeasurerTest, ColdWeightsRotateBeyondTheLastLevelAndWarmOnesWithinIt) {
  std::set<const void*> cold, warm;
  for (const MeasurePolicy policy : {MeasurePolicy::kCold, MeasurePolicy::kWarm}) {
    auto setup = F32Setup("gemm.spy");
    auto& seen = policy == MeasurePolicy::kCold ? cold : warm;
    setup.launch = [&seen](const GemmArgs& args, const LaunchSpec&) -> Status {
      seen.insert(args.b);
      return {};
    };
    FakeKernel spy(setup);
    LaunchSpec spec;
    spec.kernel = &spy;
    auto options = Small();
    options.policy = policy;
    const auto measurer = MakeCpuGemmMeasurer(SerialExecutor(), options);
    ASSERT_TRUE(measurer->Prepare(F32Problem(1, 64, 128)));  // weights of 32 KiB
    EXPECT_GT(measurer->Time(spec, 200).us, 0);
  }
  EXPECT_GE(cold.size(), 3u * 256 / 32);
  EXPECT_EQ(warm.size(),
            256u / 32 / 2);  // half of the last level, if caches in front of it are so large
}

TEST(MeasurePolicyTest, FollowsTheSizeOfTheModel) {
  DeviceSpec device;
  device.l2_bytes = 2 << 20, device.llc_bytes = 64 << 20, device.cores = 4;
  EXPECT_EQ(PolicyFor(0, device), MeasurePolicy::kCold);  // unknown
  EXPECT_EQ(PolicyFor(1, device), MeasurePolicy::kWarm);
  EXPECT_EQ(PolicyFor(32 << 20, device), MeasurePolicy::kWarm);
  EXPECT_EQ(PolicyFor((32 << 20) + 1, device), MeasurePolicy::kCold);
  EXPECT_EQ(WarmWeightBytes(device), 16 << 20);
  device.cores = 64;
  EXPECT_EQ(WarmWeightBytes(device), 32 << 20);
}

TEST_F(CpuMeasurerTest, ColdOutrunsTwiceTheReportedCacheHoweverSmallItWasMeasured) {
  constexpr std::int64_t kMiB = 1 << 20, kWeights = 256 << 10;
  const std::int64_t reported = DetectCpuCappedAt(Isa::kScalar).llc_bytes;
  if (reported > 64 * kMiB) GTEST_SKIP() << "reported: " << reported / kMiB << " MiB";
  std::set<const void*> seen;
  auto setup = F32Setup("gemm.spy");
  setup.launch = [&seen](const GemmArgs& args, const LaunchSpec&) -> Status {
    seen.insert(args.b);
    return {};
  };
  FakeKernel spy(setup);
  LaunchSpec spec;
  spec.kernel = &spy;
  MeasurerOptions options;
  options.max_bytes = 1024 * kMiB;
  const auto measurer = MakeCpuGemmMeasurer(SerialExecutor(), options);
  ASSERT_TRUE(measurer->Prepare(F32Problem(1, 256, 256)));
  EXPECT_GT(measurer->Time(spec, 5000).us, 0);
  EXPECT_GE(static_cast<std::int64_t>(seen.size()) * kWeights, 2 * reported);
}

TEST_F(CpuMeasurerTest, CopiesStayWithinTheMemoryGiven) {
  std::set<const void*> seen;
  auto setup = F32Setup("gemm.spy");
  setup.launch = [&seen](const GemmArgs& args, const LaunchSpec&) -> Status {
    seen.insert(args.b);
    return {};
  };
  FakeKernel spy(setup);
  LaunchSpec spec;
  spec.kernel = &spy;
  auto options = Small();
  options.max_bytes = 100 << 10;
  const auto measurer = MakeCpuGemmMeasurer(SerialExecutor(), options);
  ASSERT_TRUE(measurer->Prepare(F32Problem(1, 64, 128)));
  EXPECT_GT(measurer->Time(spec, 50).us, 0);
  EXPECT_EQ(seen.size(), 3u);
}

TEST_F(CpuMeasurerTest, WhatItCannotMakeIsAnErrorBeforehand) {
  GemmDesc grouped = F32Problem(8);
  grouped.num = 2, grouped.group_axis = 0;
  grouped.striding_a = grouped.striding_b = Striding::kBlocked;
  grouped.striding_c = Striding::kIndexed;
  const auto status = MakeCpuGemmMeasurer(SerialExecutor(), Small())->Prepare(grouped);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
}

// Every kernel of the library passes the gate on problems of each weight type, with every precision
// it may use.
TEST_F(CpuMeasurerTest, EveryKernelOfTheLibraryPassesTheGate) {
  Registry registry;
  AddGemm(registry);
  const auto device = DetectCpu();
  ASSERT_TRUE(device) << device.error().message;
  const auto pool = MakeThreadPool(2);
  const auto measurer = MakeCpuGemmMeasurer(*pool, Small());
  int checked = 0;
  using enum DataType;
  std::vector<DataType> types = {kF32, kF16, kBF16};
  for (const BlockFormat& format : kFormats) types.push_back(format.type);
  for (const DataType type : types) {
    for (const std::int32_t m : {1, 5, 40}) {
      GemmDesc desc = F32Problem(m, 96, 512);
      desc.type_b = type;
      desc.pack_b = kPackAny;
      desc.precision = type == kF32 ? Precision::kBF16 : Precision::kI8;
      desc.scaling = m == 5 ? Scaling::kOneOne : (m == 40 ? Scaling::kAny : Scaling::kOneZero);
      ASSERT_TRUE(measurer->Prepare(desc));
      const GemmCandidates candidates = Feasible(*Validate(desc), registry, *device);
      EXPECT_GT(candidates.feasible_count(), 0) << candidates.RejectionText();
      for (const GemmCandidate& candidate : candidates.all()) {
        for (const LaunchSpec& spec : candidate.specs) {
          const auto outcome = measurer->Check(spec);
          EXPECT_EQ(outcome.verdict, Verdict::kOk)
              << candidate.kernel->name() << " " << SpecText(spec) << " on " << KeyOf(desc) << ": "
              << outcome.evidence;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 30);
}

// Rows in groups, gathered or not: the gate sees all rows in one group, and a mixture.
TEST_F(CpuMeasurerTest, KernelsOfGroupsPassTheGateAndAreTimed) {
  Registry registry;
  AddGemm(registry);
  const auto device = DetectCpu();
  ASSERT_TRUE(device) << device.error().message;
  const auto pool = MakeThreadPool(2);
  const auto measurer = MakeCpuGemmMeasurer(*pool, Small());
  int checked = 0;
  using enum DataType;
  for (const DataType type : {kF32, kBF16, kQ4_0, kQ8_0, kQ4_K, kQ6_K}) {
    for (const std::int32_t m : {1, 6, 70}) {
      GemmDesc desc = F32Problem(m, 96, 256);
      desc.type_b = type;
      desc.pack_b = kPackAny;
      desc.num = 7, desc.group_axis = 0;
      desc.striding_a = m == 6 ? Striding::kBlocked : Striding::kIndexed;
      desc.striding_b = desc.striding_c = Striding::kBlocked;
      if (GetTypeInfo(type).block_quantised && m != 6) desc.epilogue = Epilogue::kGatedSilu;
      ASSERT_TRUE(measurer->Prepare(desc));
      const GemmCandidates candidates = Feasible(*Validate(desc), registry, *device);
      EXPECT_GT(candidates.feasible_count(), 0) << candidates.RejectionText();
      for (const GemmCandidate& candidate : candidates.all()) {
        for (const LaunchSpec& spec : candidate.specs) {
          const auto outcome = measurer->Check(spec);
          EXPECT_EQ(outcome.verdict, Verdict::kOk)
              << candidate.kernel->name() << " " << SpecText(spec) << " on " << KeyOf(desc) << ": "
              << outcome.evidence;
          EXPECT_GT(measurer->Time(spec, 3).us, 0);
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 18);
}

TEST(RowSpreads, EverySpreadHoldsAllRowsAndSomeGroupsHaveNone) {
  for (const auto& [num, rows] : {std::array{2, 1}, std::array{8, 40}, std::array{128, 8}}) {
    const RowSpreads spreads(num, rows, 3);
    int most = 0, without = 0;
    const auto check = [&, num = num, rows = rows](const std::int32_t* offsets) {
      EXPECT_EQ(offsets[0], 0);
      EXPECT_EQ(offsets[num], rows);
      for (int g = 0; g < num; ++g) {
        EXPECT_LE(offsets[g], offsets[g + 1]);
        most = std::max(most, offsets[g + 1] - offsets[g]);
        without += offsets[g] == offsets[g + 1] ? 1 : 0;
      }
    };
    for (int i = 0; i < RowSpreads::kMixtures; ++i) check(spreads.mixture(i));
    EXPECT_TRUE(rows < 40 || most < rows) << "a mixture is not one group";
    check(spreads.hot());
    EXPECT_EQ(most, rows);
    EXPECT_GE(without, num - 1);
    for (int row = 0; row < rows; ++row) {
      EXPECT_GE(spreads.sources()[row], 0);
      EXPECT_LT(spreads.sources()[row], rows);
    }
  }
}

TEST_F(CpuMeasurerTest, TuningARealProblemLeavesAMeasuredWinner) {
  Registry registry;
  AddGemm(registry);
  const auto device = DetectCpu();
  ASSERT_TRUE(device);
  const auto pool = MakeThreadPool(2);
  MeasurerOptions measure;
  measure.llc_bytes = 4 << 20;
  const auto measurer = MakeCpuGemmMeasurer(*pool, measure);
  Records records = Records::Open("");
  GemmDesc desc = F32Problem(1, 576, 576);
  desc.type_b = DataType::kQ4_1;
  desc.pack_b = kPackAny;
  TuneOptions options;
  options.scope = {device->ClassId(), "", MeasurePolicy::kCold};
  const TuneProblem problems[] = {{desc, 1}};
  const auto report = Tune(problems, registry, *device, records, *measurer, options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->tuned, 1);
  EXPECT_EQ(report->rows[0].quarantined, 0);
  EXPECT_GT(report->rows[0].us, 0);
  RecordProperty("winner", report->rows[0].kernel + " " + report->rows[0].spec + " " +
                               std::to_string(report->rows[0].us) + " us, " +
                               std::to_string(report->device_seconds) + " s");
  const DispatchCache cache = BuildCache(records.Load(), registry, options.scope);
  const GemmChoice choice = *Choose(Feasible(*Validate(desc), registry, *device), &cache);
  EXPECT_EQ(choice.provenance(), Provenance::kMeasured);
  // One winner a layout of the weights is stored; among layouts the least median counts, while the
  // report keeps the incumbent where the difference is noise. So it is one of the winners.
  std::vector<std::string> winners;
  for (const Record& record : records.Load()) {
    if (record.chosen) winners.push_back(record.kernel);
  }
  EXPECT_THAT(winners, testing::Contains(report->rows[0].kernel));
  EXPECT_THAT(winners, testing::Contains(std::string(choice.kernel().name())));
  const auto again = Tune(problems, registry, *device, records, *measurer, options);
  // Known already, or gone on with where the machine was too busy to tell.
  EXPECT_EQ(again->skipped, report->rows[0].conclusive ? 1 : 0) << report->rows[0].inconclusive;
}

}  // namespace
}  // namespace tilewright
