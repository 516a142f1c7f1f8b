#include <gtest/gtest.h>

#include <cmath>

#include "engine/cache/dispatch_cache_template.h"
#include "engine/fake_operation.h"

namespace tilewright {
namespace {

using test::Blur;
using test::BlurDesc;
using test::BlurOp;
using test::Configurable;
using test::Fake;
using test::HashDesc;
using test::HashOp;
using test::Info;
using test::Tiles;

template <class Op>
Candidates<Op> Look(const typename Op::Desc& desc, const OpRegistry<Op>& registry,
                    const DeviceSpec& device, const FeasibleOptions& options = {}) {
  return Feasible(Stages<Op>::MarkValidated(desc), registry, device, options);
}
Result<Choice<BlurOp>> Pick(const BlurDesc& desc, const OpRegistry<BlurOp>& registry,
                            const DeviceSpec& device, std::uint32_t providers = 7) {
  FeasibleOptions options;
  options.providers = providers;
  return Choose(Look<BlurOp>(desc, registry, device, options), nullptr);
}

TEST(OpStages, TheModelRanksTheFeasibleKernels) {
  OpRegistry<BlurOp> registry;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.slow"), 9.0, 100)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.fast"), 2.0, 10)));
  DeviceSpec device;
  EXPECT_EQ(Pick(BlurDesc{1, 8}, registry, device)->kernel().name(), "blur.fast");
  const auto choice = Pick(BlurDesc{1, 50}, registry, device);
  EXPECT_EQ(choice->kernel().name(), "blur.slow");
  EXPECT_EQ(choice->provenance(), Provenance::kModel);
  EXPECT_EQ(choice->problem().width, 50);
}

TEST(OpStages, NothingFeasibleNamesEveryKernelsReason) {
  OpRegistry<BlurOp> registry;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.a"), 9.0, 100)));
  KernelInfo vnni = Info("blur.b");
  vnni.features = kFeatureAvx512Vnni;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(vnni, 1.0, 1000)));
  DeviceSpec device;
  device.features = kFeatureAvx2;
  const auto choice = Pick(BlurDesc{1, 500}, registry, device);
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(choice.error().message,
            "no kernel can run this problem:\n  blur.a: shape: width = 500, needs width <= 100\n"
            "  blur.b: device: features avx2, needs avx512vnni");
}

TEST(OpStages, KernelsWithOneReasonShareALine) {
  OpRegistry<BlurOp> registry;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.a"), 9.0, 100)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.b"), 9.0, 100)));
  const auto choice = Pick(BlurDesc{1, 500}, registry, DeviceSpec{});
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().message,
            "none of 2 kernels can run this problem: shape: width = 500, needs width <= 100");
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.c"), 9.0, 200)));
  EXPECT_EQ(Pick(BlurDesc{1, 500}, registry, DeviceSpec{}).error().message,
            "no kernel can run this problem:\n"
            "  blur.a and 1 more: shape: width = 500, needs width <= 100\n"
            "  blur.c: shape: width = 500, needs width <= 200");
}

TEST(OpStages, TheReferenceRunsOnlyWhenNothingElseCan) {
  OpRegistry<BlurOp> registry;
  KernelInfo reference = Info("blur.reference");
  reference.reference = true;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(reference, 0.1, 100000)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.fast"), 2.0, 10)));
  EXPECT_EQ(Pick(BlurDesc{1, 8}, registry, DeviceSpec{})->kernel().name(), "blur.fast");
  const auto choice = Pick(BlurDesc{1, 11}, registry, DeviceSpec{});
  EXPECT_EQ(choice->kernel().name(), "blur.reference");
  EXPECT_EQ(choice->provenance(), Provenance::kDefault);
}

TEST(OpStages, EqualTimesAndUselessModelsFallToAStableOrder) {
  OpRegistry<BlurOp> registry;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.nan"), NAN, 100)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.negative"), -5, 100)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.c"), 3.0, 100)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.b"), 3.0, 100)));
  EXPECT_EQ(Pick(BlurDesc{1, 8}, registry, DeviceSpec{})->kernel().name(), "blur.b");
}

TEST(OpStages, ProvidersQuarantineAndGuaranteesFilter) {
  OpRegistry<BlurOp> registry;
  KernelInfo vendor = Info("blur.vendor"), invariant = Info("blur.invariant");
  vendor.provider = Provider::kVendor;
  vendor.fingerprint = "v3";
  invariant.batch_invariant = true;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(vendor, 1.0, 100)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(invariant, 5.0, 100)));
  const DeviceSpec device;
  EXPECT_EQ(Pick(BlurDesc{1, 8}, registry, device)->kernel().name(), "blur.vendor");
  EXPECT_EQ(Pick(BlurDesc{1, 8}, registry, device, Bit(Provider::kOwn))->kernel().name(),
            "blur.invariant");
  EXPECT_EQ(Pick(BlurDesc{1, 8, Guarantee::kBatchInvariant}, registry, device)->kernel().name(),
            "blur.invariant");

  Quarantine quarantine;
  quarantine.Add("blur.vendor", "v3", "rows=1 width=8 guarantee=fastest", "wrong: off by one at 3");
  FeasibleOptions options;
  options.quarantine = &quarantine;
  const auto candidates = Look<BlurOp>(BlurDesc{1, 8}, registry, device, options);
  ASSERT_FALSE(candidates.Find("blur.vendor")->feasible());
  EXPECT_EQ(candidates.Find("blur.vendor")->rejection->reason, Reason::kQuarantined);
  EXPECT_EQ(candidates.Find("blur.vendor")->rejection->have, "wrong: off by one at 3");
  EXPECT_TRUE(
      Look<BlurOp>(BlurDesc{1, 9}, registry, device, options).Find("blur.vendor")->feasible());
}

TEST(OpStages, AQuarantineEndsWithTheKernelsFingerprint) {
  Quarantine quarantine;
  quarantine.Add("k", "old", "width=8", "crash");
  KernelInfo info = Info("k");
  info.fingerprint = "new";
  EXPECT_EQ(quarantine.Find(info, "width=8"), nullptr);
  info.fingerprint = "old";
  EXPECT_NE(quarantine.Find(info, "width=8"), nullptr);
}

TEST(OpStages, TheSameTemplatesServeAnotherOperation) {
  OpRegistry<HashOp> registry;
  ASSERT_TRUE((registry.Add(std::make_unique<Fake<HashOp>>(Info("hash.x"), 1.0, 0))));
  const auto choice = Choose(Look<HashOp>(HashDesc{1 << 20}, registry, DeviceSpec{}), nullptr);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->kernel().name(), "hash.x");
}

TEST(OpStages, ADeviceOfAnotherKindRefuses) {
  OpRegistry<HashOp> registry;
  KernelInfo cuda = Info("hash.cuda");
  cuda.device = DeviceKind::kCuda;
  ASSERT_TRUE((registry.Add(std::make_unique<Fake<HashOp>>(cuda, 1.0, 0))));
  const auto choice = Choose(Look<HashOp>(HashDesc{1}, registry, DeviceSpec{}), nullptr);
  ASSERT_FALSE(choice);
  EXPECT_NE(choice.error().message.find("device: device is cpu, needs cuda"), std::string::npos);
}

TEST(LaunchConfigs, AreTriedRankedPrintedAndPinned) {
  const OpRegistry<BlurOp> registry = Configurable();
  const auto choice = Pick({1, 8}, registry, DeviceSpec{});
  ASSERT_TRUE(choice);
  EXPECT_EQ(SpecText(choice->spec()), "swizzle=0 splits=1 rows=16 threads=8");
  Pins pins;
  const BlurDesc desc{1, 8};
  pins.by_problem[{"fake", KeyOf(desc)}] = {"blur.tiled", "swizzle=0 splits=1 rows=16 threads=2"};
  const auto pinned = Choose(Look<BlurOp>(desc, registry, DeviceSpec{}), nullptr, &pins);
  ASSERT_TRUE(pinned);
  EXPECT_EQ(pinned->provenance(), Provenance::kPinned);
  EXPECT_EQ(TypedConfig<Tiles>::Unpack(pinned->spec().config).threads, 2);
  pins.by_problem[{"fake", KeyOf(desc)}].spec = "swizzle=0 splits=1 rows=16 threads=3";
  EXPECT_FALSE(Choose(Look<BlurOp>(desc, registry, DeviceSpec{}), nullptr, &pins));
}

TEST(LaunchConfigs, AreParsedWithinTheirLimitsOnly) {
  const OpRegistry<BlurOp> registry = Configurable();
  OpKernel<BlurOp>* kernel = registry.Find("blur.tiled");
  const auto spec = ParseSpec("swizzle=1 splits=2 rows=16 threads=8", kernel);
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->swizzle, 1);
  EXPECT_EQ(spec->config.words[1], 8);
  EXPECT_EQ(SpecText(*spec), "swizzle=1 splits=2 rows=16 threads=8");
  for (const char* bad :
       {"swizzle=1 splits=2", "swizzle=1 splits=2 rows=16", "swizzle=1 splits=2 rows=65 threads=1",
        "swizzle=1 splits=2 rows=16 threads=8 more=1", "swizzle=1 splits=2 threads=8 rows=16",
        "swizzle=1 splits=0 rows=16 threads=8", "swizzle=31 splits=1 rows=16 threads=8",
        "swizzle=1 splits=2 rows=16 threads=8x", "swizzle=1 splits=2 rows= threads=8", "",
        "swizzle=1 splits=2 rows=16 threads=8 ", "swizzle=1 splits=02 rows=16 threads=8",
        "swizzle=-0 splits=2 rows=16 threads=8"}) {
    EXPECT_FALSE(ParseSpec(bad, kernel)) << bad;
  }
  EXPECT_TRUE(ParseSpec("swizzle=0 splits=1", registry.Find("blur.plain")));
  EXPECT_FALSE(ParseSpec("swizzle=0 splits=1 rows=16", registry.Find("blur.plain")));
}

TEST(LaunchConfigs, ThoseThatNeedMoreWorkspaceThanThereIsAreLeftOut) {
  const OpRegistry<BlurOp> registry = Configurable();
  FeasibleOptions options;
  options.partials_bytes = 2048;
  const auto candidates = Look<BlurOp>({1, 8}, registry, DeviceSpec{}, options);
  EXPECT_EQ(candidates.Find("blur.tiled")->specs.size(), 2u);
  options.partials_bytes = 512;
  const auto none = Look<BlurOp>({1, 8}, registry, DeviceSpec{}, options);
  ASSERT_FALSE(none.Find("blur.tiled")->feasible());
  EXPECT_EQ(none.Find("blur.tiled")->rejection->reason, Reason::kWorkspace);
}

TEST(OpStages, APlanRunsWithWhatItWasBoundToAndRefusesOtherArguments) {
  const OpRegistry<BlurOp> registry = Configurable();
  const auto plan = Bind(*Pick({1, 8}, registry, DeviceSpec{}));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->workspace().partials, 8192u);
  std::vector<std::byte> memory(8192);
  Workspace workspace;
  workspace.partials = memory.data(), workspace.partials_size = memory.size();
  std::string log;
  ASSERT_TRUE(tilewright::Run(*plan, {{1, 8}, &log}, workspace, Stream{}));
  EXPECT_EQ(log, "swizzle=0 splits=1 rows=16 threads=8");
  EXPECT_FALSE(tilewright::Run(*plan, {{1, 9}, &log}, workspace, Stream{}));
  workspace.partials_size = 8191;
  EXPECT_FALSE(tilewright::Run(*plan, {{1, 8}, &log}, workspace, Stream{}));
}

Record Measured(const BlurDesc& desc, std::string kernel, std::string spec, double us) {
  Record record;
  record.op = "fake";
  record.problem = KeyOf(desc);
  record.scope = RecordScope{"here", "", MeasurePolicy::kCold};
  record.kernel = std::move(kernel);
  record.spec = std::move(spec);
  record.samples = 20;
  record.median_us = us, record.low_us = us * 0.99, record.high_us = us * 1.01;
  record.chosen = true;
  record.unix_ms = 1, record.id = KeyOf(desc) + record.kernel + record.spec;
  return record;
}

TEST(Records, DecideForAnyOperationExactlyAndByTheNextBatch) {
  const OpRegistry<BlurOp> registry = Configurable();
  const RecordScope here{"here", "", MeasurePolicy::kCold};
  const std::string two = "swizzle=0 splits=1 rows=16 threads=2";
  std::vector<Record> records = {Measured({8, 50}, "blur.tiled", two, 1.5)};
  const auto pick = [&](const BlurDesc& desc) {
    const auto tuned = BuildCache<BlurOp>(records, registry, here);
    return *Choose(Look<BlurOp>(desc, registry, DeviceSpec{}), &tuned);
  };
  EXPECT_EQ(pick({8, 50}).provenance(), Provenance::kMeasured);
  EXPECT_EQ(SpecText(pick({8, 50}).spec()), two);
  EXPECT_EQ(pick({5, 50}).provenance(), Provenance::kInterpolated);
  EXPECT_EQ(pick({5, 50}).source_batch(), 8);
  EXPECT_EQ(pick({9, 50}).provenance(), Provenance::kModel);  // nothing at or above
  EXPECT_EQ(pick({8, 51}).provenance(), Provenance::kModel);  // another problem
  records[0].scope.libraries = "other";
  EXPECT_EQ(pick({8, 50}).provenance(), Provenance::kModel);
  records[0].scope = here;
  records[0].fingerprint = "changed";
  EXPECT_EQ(pick({8, 50}).provenance(), Provenance::kModel);
  records[0].fingerprint = "";
  records[0].spec = "swizzle=0 splits=1 rows=16 threads=99";
  EXPECT_EQ(pick({8, 50}).provenance(), Provenance::kModel);
}

TEST(Records, WhatAnUnfinishedSessionLeftSpeaksForNoOtherBatch) {
  const OpRegistry<BlurOp> registry = Configurable();
  const RecordScope here{"here", "", MeasurePolicy::kCold};
  const std::string two = "swizzle=0 splits=1 rows=16 threads=2";
  std::vector<Record> records = {Measured({8, 50}, "blur.tiled", two, 1.5)};
  records[0].finished = false;
  const auto pick = [&](std::int32_t rows) {
    const auto tuned = BuildCache<BlurOp>(records, registry, here);
    return *Choose(Look<BlurOp>({rows, 50}, registry, DeviceSpec{}), &tuned);
  };
  EXPECT_EQ(pick(8).provenance(), Provenance::kMeasured);
  EXPECT_EQ(pick(5).provenance(), Provenance::kModel);
  records.push_back(Measured({16, 50}, "blur.tiled", two, 3));
  EXPECT_EQ(pick(5).source_batch(), 16);
  EXPECT_EQ(pick(4).source_batch(), 16);
  EXPECT_EQ(pick(3).provenance(), Provenance::kModel);  // out of reach
}

TEST(Records, TheDecisionStandsThoughAnotherCandidateWasMeasuredAHairFaster) {
  const OpRegistry<BlurOp> registry = Configurable();
  const RecordScope here{"here", "", MeasurePolicy::kCold};
  const std::string decided = "swizzle=0 splits=1 rows=16 threads=2";
  Record other = Measured({8, 50}, "blur.tiled", "swizzle=0 splits=1 rows=8 threads=1", 1.49);
  other.chosen = false;
  std::vector<Record> records = {Measured({8, 50}, "blur.tiled", decided, 1.5), other};
  for (int turn = 0; turn < 2; ++turn, std::swap(records[0], records[1])) {
    const auto tuned = BuildCache<BlurOp>(records, registry, here);
    const auto choice = Choose(Look<BlurOp>({8, 50}, registry, DeviceSpec{}), &tuned);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->provenance(), Provenance::kMeasured);
    EXPECT_EQ(SpecText(choice->spec()), decided);
  }
}

TEST(Records, AFailureOfAnyOperationQuarantinesItForEveryBatch) {
  const OpRegistry<BlurOp> registry = Configurable();
  const RecordScope here{"here", "", MeasurePolicy::kCold};
  Record failure = Measured({8, 50}, "blur.tiled", "swizzle=0 splits=1 rows=16 threads=2", 0);
  failure.verdict = Verdict::kCrash, failure.evidence = "signal 11";
  Quarantine quarantine;
  AddToQuarantine<BlurOp>(quarantine, std::span(&failure, 1), here);
  FeasibleOptions options;
  options.quarantine = &quarantine;
  const auto other_batch = Look<BlurOp>({3, 50}, registry, DeviceSpec{}, options);
  ASSERT_FALSE(other_batch.Find("blur.tiled")->feasible());
  EXPECT_EQ(other_batch.Find("blur.tiled")->rejection->have, "crash: signal 11");
  const auto other_group = Look<BlurOp>({3, 51}, registry, DeviceSpec{}, options);
  EXPECT_TRUE(other_group.Find("blur.tiled")->feasible());

  // What fails on another device, or with another version of a library, may be right here.
  for (const RecordScope& elsewhere : {RecordScope{"there", "", MeasurePolicy::kCold},
                                       RecordScope{"here", "other", MeasurePolicy::kCold}}) {
    Quarantine none;
    AddToQuarantine<BlurOp>(none, std::span(&failure, 1), elsewhere);
    options.quarantine = &none;
    const auto same = Look<BlurOp>({8, 50}, registry, DeviceSpec{}, options);
    EXPECT_TRUE(same.Find("blur.tiled")->feasible()) << elsewhere.device << elsewhere.libraries;
  }
}

TEST(Problems, ParseFromTheirKeysAndRefuseWhatTheyDoNotKnow) {
  const auto desc = ParseProblem<BlurOp>("width=7 rows=3 guarantee=deterministic");
  ASSERT_TRUE(desc);
  EXPECT_EQ(*desc, (BlurDesc{3, 7, Guarantee::kDeterministic}));
  EXPECT_EQ(*ParseProblem<BlurOp>(KeyOf(*desc)), *desc);
  EXPECT_EQ(ParseProblem<BlurOp>("widht=7").error().message,
            "'widht': no such field in a key of fake");
  EXPECT_FALSE(ParseProblem<BlurOp>("width=7 width=8"));
  EXPECT_FALSE(ParseProblem<BlurOp>("guarantee=none"));
}

// The types on the right of an arrow cannot be made elsewhere.
static_assert(!std::is_default_constructible_v<Checked<BlurOp>>);
static_assert(!std::is_constructible_v<Checked<BlurOp>, BlurDesc>);
static_assert(!std::is_default_constructible_v<Candidates<BlurOp>>);
static_assert(!std::is_default_constructible_v<Choice<BlurOp>>);
static_assert(!std::is_default_constructible_v<Plan<BlurOp>>);
// The candidates of a temporary cannot be looked at after it is gone.
template <class C>
concept CanLookInto = requires(C&& candidates) {
  std::forward<C>(candidates).all();
};
static_assert(CanLookInto<Candidates<BlurOp>&> && !CanLookInto<Candidates<BlurOp>>);

}  // namespace
}  // namespace tilewright
