#include "tilewright/gemm_stages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "core/test_util.h"
#include "ops/gemm/base/fake_kernel.h"
#include "ops/gemm/base/gemm_op.h"

namespace tilewright {
namespace {

using test::AddFake;
using test::F32Problem;
using test::F32Setup;
using test::FakeKernel;

std::string WhyNot(const GemmDesc& desc) {
  const auto checked = Validate(desc);
  return checked ? "accepted" : checked.error().message;
}

TEST(ValidateProblem, NamesTheValueAndTheLimit) {
  EXPECT_EQ(WhyNot(F32Problem(0)), "m = 0: must be at least 1");
  EXPECT_EQ(WhyNot(F32Problem(1, -4)), "n = -4: must be at least 1");
  EXPECT_EQ(WhyNot(F32Problem(1, 4, 0)), "k = 0: must be at least 1");
  EXPECT_EQ(WhyNot(F32Problem(2147483647, 1, 2147483647)),
            "A has 1 x 2147483647 x 2147483647 elements: the limit is 2^40");
  GemmDesc p = F32Problem(1, 64, 48);
  p.type_b = DataType::kQ4_1;
  EXPECT_EQ(WhyNot(p), "k = 48: must be a multiple of 32 for q4_1");
  p = F32Problem(1, 64, 64);
  p.type_b = DataType::kQ8_0, p.order_b = Order::kRowMajor;
  EXPECT_EQ(WhyNot(p), "type_b = q8_0: blocks lie along k, so order_b must be column-major");
  p = F32Problem(1, 64, 64);
  p.quant_b = {QuantType::kK, 0, 128}, p.type_v = DataType::kF32;
  EXPECT_EQ(WhyNot(p), "k = 64: must be a multiple of the group of 128 of quant_b");
  p.quant_b.group = 0;
  EXPECT_EQ(WhyNot(p), "quant_b: group = 0: must be at least 1");
  p.quant_b = {};
  EXPECT_EQ(WhyNot(p), "type_v is given, but quant_b is none");
  p = F32Problem(1);
  p.type_c = DataType::kQ4_0;
  EXPECT_EQ(WhyNot(p), "type_c = q4_0: results must be of a plain type");
  p = F32Problem(8);
  p.num = 2;
  EXPECT_EQ(WhyNot(p), "num = 2: flat striding holds one matrix, use blocked or indexed");
  p.striding_a = p.striding_b = p.striding_c = Striding::kBlocked;
  EXPECT_EQ(WhyNot(p), "group_axis = -1: with num = 2 the groups divide the batch dimension, 0");
  p.group_axis = 0;
  EXPECT_EQ(WhyNot(p), "accepted");
  p = F32Problem(8, 48);
  p.epilogue = Epilogue::kGatedSilu;
  EXPECT_EQ(WhyNot(p), "n = 48: gated_silu needs a multiple of 32");
  p = F32Problem(8);
  p.epilogue = static_cast<Epilogue>(9);
  EXPECT_EQ(WhyNot(p), "a field of the problem holds a value that its type does not have");
}

TEST(ValidateProblem, APrologueIsOneOfActivationsAndHasWeights) {
  GemmDesc good = F32Problem(4);
  good.type_norm = DataType::kF32;
  EXPECT_EQ(WhyNot(good), "type_norm or align_norm is given, but prologue is none");
  good.prologue = Prologue::kRmsNorm;
  EXPECT_EQ(WhyNot(good), "accepted");
  GemmDesc p = good;
  p.type_norm = DataType::kNone;
  EXPECT_EQ(WhyNot(p), "type_norm = none: must be f64, f32, f16 or bf16 with a prologue");
  p = good;
  p.type_a = DataType::kI8;
  EXPECT_EQ(WhyNot(p), "prologue = rms_norm: A must be of f64, f32, f16 or bf16, without scales");
  p = good;
  p.batch_dim = BatchDim::kN;
  EXPECT_EQ(WhyNot(p),
            "prologue = rms_norm: A must be the activations, row-major, plain and one group");
}

struct Call {
  explicit Call(std::int32_t m = 4, std::int32_t n = 6, std::int32_t k = 8)
      : a(m * k, 1.0f), b(n * k, 1.0f), c(m * n, 1.0f), d(m * n, NAN) {
    args.a = a.data(), args.b = b.data(), args.c = c.data(), args.d = d.data();
    args.a_layout = {DataType::kF32, Order::kRowMajor, m, k, k};
    args.b_layout = {DataType::kF32, Order::kColMajor, k, n, k};
    args.c_layout = args.d_layout = {DataType::kF32, Order::kRowMajor, m, n, n};
  }
  std::string Why() const {
    const auto checked = Validate(Operation{}, args);
    return checked ? "accepted" : checked.error().message;
  }
  std::vector<float> a, b, c, d;
  GemmArgs args;
};

TEST(ValidateCall, BuildsTheProblemFromTheArguments) {
  Call call;
  call.args.beta = 1;
  ValidateOptions options;
  const auto checked = Validate(Operation{}, call.args, options);
  ASSERT_TRUE(checked) << checked.error().message;
  GemmDesc want = F32Problem(4, 6, 8);
  want.scaling = Scaling::kOneOne;
  EXPECT_EQ(checked->problem(), want) << KeyOf(checked->problem());
  options.promise_alignment = true;
  const auto promised = Validate(Operation{}, call.args, options);
  EXPECT_GE(promised->problem().align_a, 4);
  EXPECT_EQ(promised->problem().align_c, 3);  // lines of 24 bytes
}

TEST(ValidateCall, NamesTheValueAndTheLimit) {
  {
    Call call;
    call.args.a_layout.ld = 7;
    EXPECT_EQ(call.Why(), "ld of A = 7: must be at least 8, its columns");
  }
  {
    Call call;
    call.args.b_layout.ld = 5;
    EXPECT_EQ(call.Why(), "ld of B = 5: must be at least 8, its rows");
  }
  {
    Call call;
    call.args.d_layout.cols = 5;
    EXPECT_EQ(call.Why(), "D is 4 x 5: the problem has 4 x 6");
  }
  {
    Call call;
    call.args.b_layout.rows = 9;
    EXPECT_EQ(call.Why(), "B is 9 x 6: the problem has 8 x 6");
  }
  {
    Call call;
    call.args.d = nullptr;
    EXPECT_EQ(call.Why(), "d is a null pointer");
  }
  {
    Call call;
    call.args.c = nullptr;
    EXPECT_EQ(call.Why(), "accepted");  // beta = 0: C is not read
    call.args.beta = -0.5f;
    EXPECT_EQ(call.Why(), "c is a null pointer, but beta = -0.5");
  }
  {
    Call call;
    call.args.d = call.a.data() + 4;
    EXPECT_EQ(call.Why(), "D overlaps A");
  }
  {
    Call call;
    call.args.beta = 1;
    call.args.c = call.d.data();
    EXPECT_EQ(call.Why(), "accepted");  // in place
    call.args.c = call.d.data() + 1;
    EXPECT_EQ(call.Why(), "D overlaps C: it may be C, or lie apart from it");
  }
  {
    Call call;
    call.args.a_layout.ld = std::int64_t{1} << 50;
    EXPECT_EQ(call.Why(), "ld of A = 1125899906842624: 4 lines of it exceed 2^40 elements");
  }
  {
    Call call;
    std::vector<std::int32_t> offsets{0, 3, 2};
    call.args.a_layout.num = call.args.b_layout.num = call.args.d_layout.num = 2;
    EXPECT_EQ(call.Why(), "A has 2 groups but no offsets");
    call.args.a_layout.offsets = call.args.d_layout.offsets = offsets.data();
    EXPECT_EQ(call.Why(), "offsets[2] of A = 2: smaller than the one before, 3");
    offsets = {0, 3, 3};
    EXPECT_EQ(call.Why(), "offsets[2] of A = 3: must be the number of rows, 4");
    offsets = {0, 3, 4};
    EXPECT_EQ(call.Why(), "accepted");
  }
}

class StagesTest : public testing::Test {
 protected:
  GemmCandidates CandidatesOf(const GemmDesc& desc, const FeasibleOptions& options = {}) {
    const auto checked = Validate(desc);
    EXPECT_TRUE(checked) << checked.error().message;
    return Feasible(*checked, registry_, device_, options);
  }
  DispatchCache Cache() {
    return DispatchCache(
        std::vector<Kernel*>(registry_.kernels().begin(), registry_.kernels().end()), "cpu/test");
  }
  FakeKernel* Add(const std::string& name, double us, auto... change) {
    auto setup = F32Setup(name);
    setup.estimate = [us](const GemmDesc& p, const LaunchSpec&) { return us * p.m; };
    (change(setup), ...);
    return AddFake(registry_, setup);
  }

  Registry registry_;
  DeviceSpec device_;
};

TEST_F(StagesTest, SpecsCoverSwizzlesAndSplitsThatFitTheWorkspace) {
  Add("gemm.s", 1,
      [](FakeKernel::Setup& s) { s.max_swizzle = 1, s.max_splits = 5, s.partials_bytes = 1000; });
  const auto all = CandidatesOf(F32Problem(8));
  std::string text;
  for (const LaunchSpec& spec : all.all()[0].specs) text += SpecText(spec) + "; ";
  EXPECT_EQ(text,
            "swizzle=0 splits=1; swizzle=1 splits=1; swizzle=0 splits=2; swizzle=1 splits=2; "
            "swizzle=0 splits=3; "
            "swizzle=1 splits=3; swizzle=0 splits=4; swizzle=1 splits=4; ");
  FeasibleOptions small;
  small.partials_bytes = 1500;
  const auto fewer = CandidatesOf(F32Problem(8), small);
  EXPECT_EQ(fewer.all()[0].specs.size(), 4u);
}

TEST_F(StagesTest, RejectionsCarryTheirReason) {
  Add("gemm.vnni", 1, [](FakeKernel::Setup& s) { s.features = kFeatureAvx512Vnni; });
  Add("gemm.vendor", 1, [](FakeKernel::Setup& s) { s.provider = Provider::kVendor; });
  Add("gemm.small", 1, [](FakeKernel::Setup& s) { s.desc.max_m = 4; });
  Add("gemm.bad", 1);
  Quarantine quarantine;
  quarantine.Add("gemm.bad", "f1", OpTraits<GemmOp>::QuarantineKey(F32Problem(1)),
                 "crash: signal 11");
  FeasibleOptions options;
  options.providers = Bit(Provider::kOwn);
  options.quarantine = &quarantine;
  const auto candidates = CandidatesOf(F32Problem(8), options);
  EXPECT_EQ(candidates.feasible_count(), 0);
  const auto choice = Choose(candidates, nullptr);
  ASSERT_FALSE(choice);
  EXPECT_EQ(
      choice.error().message,
      "no kernel can run this problem:\n"
      "  gemm.vnni: device: features none, needs avx512vnni\n"
      "  gemm.vendor: provider: provider vendor is excluded\n"
      "  gemm.small: shape: m = 8, needs m <= 4\n"
      "  gemm.bad: quarantined: crash: signal 11, needs a changed kernel, or the record removed");
}

TEST_F(StagesTest, TheOrderIsPinnedMeasuredInterpolatedModelDefault) {
  Add("gemm.model", 1);
  FakeKernel* measured = Add("gemm.measured", 5);
  FakeKernel* near = Add("gemm.near", 6);
  Add("gemm.pinned", 7);
  Add("gemm.reference", 0.001, [](FakeKernel::Setup& s) { s.reference = true; });
  DispatchCache cache = Cache();
  ASSERT_TRUE(cache.Insert(F32Problem(8), {measured, 0, 1, 3.0f, 0}));
  ASSERT_TRUE(cache.Insert(F32Problem(32), {near, 0, 1, 9.0f, 0}));

  const auto at = [&](int m, const Pins* pins = nullptr,
                      DispatchPolicy policy = DispatchPolicy::kDefault) {
    return *Choose(CandidatesOf(F32Problem(m)), &cache, pins, policy);
  };
  EXPECT_EQ(at(8).kernel().name(), "gemm.measured");
  EXPECT_EQ(at(8).provenance(), Provenance::kMeasured);
  EXPECT_EQ(at(20).kernel().name(), "gemm.near");
  EXPECT_EQ(at(20).provenance(), Provenance::kInterpolated);
  EXPECT_EQ(at(20).source_batch(), 32);
  EXPECT_EQ(at(20).why(), "interpolated from batch 32");
  // The model gives the shape of t(m), the record its level.
  DispatchCache scaled = Cache();
  ASSERT_TRUE(scaled.Insert(F32Problem(32), {near, 0, 1, 9.0f, 18.0f}));
  const float unscaled = CandidatesOf(F32Problem(20)).Find("gemm.near")->specs[0].predicted_us;
  EXPECT_FLOAT_EQ(Choose(CandidatesOf(F32Problem(20)), &scaled)->spec().predicted_us, unscaled / 2);
  EXPECT_EQ(at(33).kernel().name(), "gemm.model");
  EXPECT_EQ(at(33).provenance(), Provenance::kModel);

  EXPECT_EQ(at(33, nullptr, DispatchPolicy::kReuse).kernel().name(), "gemm.near");
  EXPECT_EQ(at(20, nullptr, DispatchPolicy::kMeasure).kernel().name(), "gemm.model");
  EXPECT_TRUE(at(20, nullptr, DispatchPolicy::kMeasure).wants_measurement());
  EXPECT_TRUE(at(20, nullptr, DispatchPolicy::kAppend).wants_measurement());
  EXPECT_FALSE(at(8, nullptr, DispatchPolicy::kAppend).wants_measurement());
  EXPECT_FALSE(at(20).wants_measurement());

  Pins pins;
  pins.by_problem[{"gemm", KeyOf(F32Problem(8))}] = {"gemm.pinned", "swizzle=0 splits=1"};
  EXPECT_EQ(at(8, &pins).kernel().name(), "gemm.pinned");
  EXPECT_EQ(at(8, &pins).provenance(), Provenance::kPinned);
  EXPECT_EQ(cache.size(), 2u);  // choosing writes nothing
}

TEST_F(StagesTest, APinThatCannotRunIsAnErrorNotAFallback) {
  Add("gemm.small", 1, [](FakeKernel::Setup& s) { s.desc.max_m = 4; });
  Add("gemm.any", 2);
  Pins pins;
  pins.by_problem[{"gemm", KeyOf(F32Problem(8))}] = {"gemm.small", "swizzle=0 splits=1"};
  auto choice = Choose(CandidatesOf(F32Problem(8)), nullptr, &pins);
  ASSERT_FALSE(choice);
  EXPECT_TRUE(choice.error().message.starts_with("pinned kernel gemm.small cannot run m=8"))
      << choice.error().message;
  pins.by_problem[{"gemm", KeyOf(F32Problem(8))}] = {"gemm.gone", "swizzle=0 splits=1"};
  EXPECT_EQ(Choose(CandidatesOf(F32Problem(8)), nullptr, &pins).error().code, ErrorCode::kNotFound);
  pins.by_problem[{"gemm", KeyOf(F32Problem(8))}] = {"gemm.any", "swizzle=0 splits=3"};
  EXPECT_FALSE(Choose(CandidatesOf(F32Problem(8)), nullptr, &pins));
}

TEST_F(StagesTest, ARecordedKernelThatCannotRunHereIsPassedOver) {
  FakeKernel* vendor =
      Add("gemm.vendor", 1, [](FakeKernel::Setup& s) { s.provider = Provider::kVendor; });
  Add("gemm.own", 2);
  DispatchCache cache = Cache();
  ASSERT_TRUE(cache.Insert(F32Problem(8), {vendor, 0, 1, 1.0f, 0}));
  FeasibleOptions own;
  own.providers = Bit(Provider::kOwn);
  const auto choice = *Choose(CandidatesOf(F32Problem(8), own), &cache);
  EXPECT_EQ(choice.kernel().name(), "gemm.own");
  EXPECT_EQ(choice.provenance(), Provenance::kModel);
}

TEST_F(StagesTest, AnEntryWithoutATimeCountsAsPinnedNeverAsMeasured) {
  FakeKernel* hand = Add("gemm.hand", 9);
  Add("gemm.own", 2);
  DispatchCache cache = Cache();
  ASSERT_TRUE(cache.Insert(F32Problem(8), {hand, 0, 1, 0, 0}));
  const auto choice = *Choose(CandidatesOf(F32Problem(8)), &cache);
  EXPECT_EQ(choice.kernel().name(), "gemm.hand");
  EXPECT_EQ(choice.provenance(), Provenance::kPinned);
}

TEST_F(StagesTest, AnUnseenSizeIsServedFromTheSmallestTunedOneAboveWhateverTheModelSays) {
  FakeKernel* tile = Add("gemm.tile", 1, [](FakeKernel::Setup& s) {
    s.estimate = [](const GemmDesc&, const LaunchSpec&) { return 64.0; };
  });
  FakeKernel* rows = Add("gemm.rows", 1, [](FakeKernel::Setup& s) {
    s.estimate = [](const GemmDesc& p, const LaunchSpec&) { return 2.0 * p.m; };
  });
  DispatchCache cache = Cache();
  ASSERT_TRUE(cache.Insert(F32Problem(16), {rows, 0, 1, 32.0f, 32.0f}));
  ASSERT_TRUE(cache.Insert(F32Problem(64), {tile, 0, 1, 64.0f, 64.0f}));
  for (const DispatchPolicy policy :
       {DispatchPolicy::kDefault, DispatchPolicy::kAppend, DispatchPolicy::kReuse}) {
    for (const int m : {17, 40, 63}) {
      const auto choice = *Choose(CandidatesOf(F32Problem(m)), &cache, nullptr, policy);
      EXPECT_EQ(choice.kernel().name(), "gemm.tile") << "m = " << m;
      EXPECT_EQ(choice.source_batch(), 64) << "m = " << m;
      EXPECT_EQ(choice.why(), "interpolated from batch 64");
    }
  }
}

TEST_F(StagesTest, ATunedSizeDoesNotSpeakForAFewRowsOfIt) {
  Add("gemm.few", 1);
  FakeKernel* many = Add("gemm.many", 2);
  DispatchCache cache = Cache();
  ASSERT_TRUE(cache.Insert(F32Problem(64), {many, 0, 1, 64.0f, 64.0f}));
  const auto at = [&](int m, DispatchPolicy policy) {
    return *Choose(CandidatesOf(F32Problem(m)), &cache, nullptr, policy);
  };
  for (const DispatchPolicy policy :
       {DispatchPolicy::kDefault, DispatchPolicy::kAppend, DispatchPolicy::kReuse}) {
    EXPECT_EQ(at(16, policy).kernel().name(), "gemm.many");
    EXPECT_EQ(at(16, policy).source_batch(), 64);
    EXPECT_EQ(at(15, policy).kernel().name(), "gemm.few");
    EXPECT_EQ(at(15, policy).provenance(), Provenance::kModel);
  }
}

TEST_F(StagesTest, AmongLayoutsTheNearestTunedSizeAboveAnswersAndNeverOneBelowInItsPlace) {
  const auto packed = [](Pack pack) {
    return [pack](FakeKernel::Setup& s) {
      s.desc.pack_b = pack;
      s.estimate = [](const GemmDesc&, const LaunchSpec&) { return 10.0; };
    };
  };
  FakeKernel* one = Add("gemm.one", 1, packed(1));
  FakeKernel* two = Add("gemm.two", 1, packed(2));
  FakeKernel* three = Add("gemm.three", 1, packed(3));
  DispatchCache cache = Cache();
  const auto tuned = [&](FakeKernel* kernel, int m, float us) {
    GemmDesc p = F32Problem(m);
    p.pack_b = kernel->desc().pack_b;
    ASSERT_TRUE(cache.Insert(p, {kernel, 0, 1, us, 10.0f}));
  };
  tuned(one, 64, 1), tuned(two, 32, 5), tuned(three, 8, 0.1f);
  GemmDesc open = F32Problem(16);
  open.pack_b = kPackAny;
  for (const DispatchPolicy policy : {DispatchPolicy::kDefault, DispatchPolicy::kReuse}) {
    EXPECT_EQ(Choose(CandidatesOf(open), &cache, nullptr, policy)->kernel().name(), "gemm.two");
  }
  tuned(one, 32, 4);  // the same size twice: the one that is faster there
  EXPECT_EQ(Choose(CandidatesOf(open), &cache)->kernel().name(), "gemm.one");
  open.m = 100;
  EXPECT_EQ(Choose(CandidatesOf(open), &cache)->provenance(), Provenance::kModel);
  const auto reused = *Choose(CandidatesOf(open), &cache, nullptr, DispatchPolicy::kReuse);
  EXPECT_EQ(reused.kernel().name(), "gemm.one");
  EXPECT_EQ(reused.source_batch(), 64);
}

TEST_F(StagesTest, ATunedKernelAboveThatCannotRunHereLeavesTheModel) {
  Add("gemm.model", 1);
  FakeKernel* below = Add("gemm.below", 5);
  FakeKernel* above =
      Add("gemm.above", 5, [](FakeKernel::Setup& s) { s.provider = Provider::kVendor; });
  DispatchCache cache = Cache();
  ASSERT_TRUE(cache.Insert(F32Problem(8), {below, 0, 1, 1.0f, 0}));
  ASSERT_TRUE(cache.Insert(F32Problem(32), {above, 0, 1, 1.0f, 0}));
  FeasibleOptions own;
  own.providers = Bit(Provider::kOwn);
  for (const DispatchPolicy policy : {DispatchPolicy::kDefault, DispatchPolicy::kReuse}) {
    const auto choice = *Choose(CandidatesOf(F32Problem(20), own), &cache, nullptr, policy);
    EXPECT_EQ(choice.provenance(), Provenance::kModel);
    EXPECT_EQ(choice.kernel().name(), "gemm.model");
  }
}

TEST_F(StagesTest, AnInterpolatedSpecIsCutToWhatTheShapeOffers) {
  FakeKernel* split =
      Add("gemm.split", 1, [](FakeKernel::Setup& s) { s.max_splits = 4, s.partials_bytes = 1000; });
  DispatchCache cache = Cache();
  ASSERT_TRUE(cache.Insert(F32Problem(64), {split, 0, 4, 5.0f, 0}));
  FeasibleOptions small;
  small.partials_bytes = 2000;
  const auto choice = *Choose(CandidatesOf(F32Problem(16), small), &cache);
  EXPECT_EQ(choice.spec().splits, 3);
  EXPECT_EQ(choice.provenance(), Provenance::kInterpolated);
}

TEST_F(StagesTest, ThePlanNamesThePackedProblemAndRunChecksTheCall) {
  FakeKernel* kernel = Add("gemm.packed", 1, [](FakeKernel::Setup& s) { s.desc.pack_b = 7; });
  GemmDesc open = F32Problem(4, 6, 8);
  open.pack_b = kPackAny;
  const auto plan = Bind(*Choose(CandidatesOf(open), nullptr));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->problem().pack_b, 7);
  Call call(4, 6, 8);
  Workspace workspace;
  auto status = tilewright::Run(*plan, call.args, workspace, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "B is packed as plain: the plan is for " + PackName(7));
  call.args.b_layout.pack = 7;
  EXPECT_TRUE(tilewright::Run(*plan, call.args, workspace, {}));
  EXPECT_EQ(kernel->launches, 1);
  EXPECT_EQ(call.d[0], 8.0f);
  call.args.a_layout.rows = 5;
  EXPECT_FALSE(tilewright::Run(*plan, call.args, workspace, {}));
  call.args.a_layout.rows = 4;
  call.args.beta = 0.25f;
  EXPECT_FALSE(tilewright::Run(*plan, call.args, workspace, {}));
  EXPECT_EQ(kernel->launches, 1);
}

TEST_F(StagesTest, RunRefusesArgumentsThatContradictThePlan) {
  FakeKernel* kernel = Add("gemm.any", 1, [](FakeKernel::Setup& s) {
    s.desc.order_a = s.desc.order_b = s.desc.order_c =
        Bit(Order::kRowMajor) | Bit(Order::kColMajor);
  });
  GemmDesc problem = F32Problem(4, 6, 8);
  problem.scaling = Scaling::kAny;
  const auto plan = Bind(*Choose(CandidatesOf(problem), nullptr));
  ASSERT_TRUE(plan) << plan.error().message;
  const auto message = [&](auto change) -> std::string {
    Call call(4, 6, 8);
    call.args.alpha = 2, call.args.beta = 1;
    change(call.args);
    Workspace workspace;
    const auto status = tilewright::Run(*plan, call.args, workspace, {});
    if (status) return "accepted";
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    return status.error().message;
  };
  EXPECT_EQ(message([](GemmArgs&) {}), "accepted");
  EXPECT_EQ(message([](GemmArgs& a) { a.beta = 0, a.c = nullptr, a.c_layout = {}; }), "accepted");
  const int before = kernel->launches;

  EXPECT_EQ(message([](GemmArgs& a) { a.a = nullptr; }), "a is a null pointer");
  EXPECT_EQ(message([](GemmArgs& a) { a.b = nullptr; }), "b is a null pointer");
  EXPECT_EQ(message([](GemmArgs& a) { a.d = nullptr; }), "d is a null pointer");
  EXPECT_EQ(message([](GemmArgs& a) { a.c = nullptr; }), "c is a null pointer, but beta = 1");
  EXPECT_EQ(message([](GemmArgs& a) { a.a_layout.type = DataType::kF16; }),
            "A is f16: the plan is for f32");
  EXPECT_EQ(message([](GemmArgs& a) { a.b_layout.type = DataType::kQ8_0; }),
            "B is q8_0: the plan is for f32");
  EXPECT_EQ(message([](GemmArgs& a) { a.c_layout.type = DataType::kBF16; }),
            "C is bf16: the plan is for f32");
  EXPECT_EQ(message([](GemmArgs& a) { a.d_layout.type = DataType::kF16; }),
            "D is f16: the plan is for f32");
  EXPECT_EQ(message([](GemmArgs& a) { a.a_layout.order = Order::kColMajor; }),
            "A is column-major: the plan is for row-major");
  EXPECT_EQ(message([](GemmArgs& a) { a.b_layout.order = Order::kRowMajor; }),
            "B is row-major: the plan is for column-major");
  EXPECT_EQ(message([](GemmArgs& a) { a.c_layout.order = Order::kColMajor; }),
            "C is column-major: the plan is for row-major");
  EXPECT_EQ(message([](GemmArgs& a) { a.d_layout.order = Order::kColMajor; }),
            "D is column-major: the plan is for row-major");
  EXPECT_EQ(message([](GemmArgs& a) { a.a_layout.ld = 7; }), "ld of A = 7: must be at least 8");
  EXPECT_EQ(message([](GemmArgs& a) { a.b_layout.ld = 7; }), "ld of B = 7: must be at least 8");
  EXPECT_EQ(message([](GemmArgs& a) { a.c_layout.ld = 5; }), "ld of C = 5: must be at least 6");
  EXPECT_EQ(message([](GemmArgs& a) { a.d_layout.ld = -6; }), "ld of D = -6: must be at least 6");
  EXPECT_EQ(message([](GemmArgs& a) { a.b_layout.rows = 9; }), "B is 9 x 6: the plan is for 8 x 6");
  EXPECT_EQ(message([](GemmArgs& a) { a.c_layout.rows = 5; }), "C is 5 x 6: the plan is for 4 x 6");
  EXPECT_EQ(message([](GemmArgs& a) { a.d_layout.cols = 5; }), "D is 4 x 5: the plan is for 4 x 6");
  EXPECT_EQ(message([](GemmArgs& a) { a.a_layout.num = 2; }), "A has 2 groups: the plan is for 1");
  EXPECT_EQ(kernel->launches, before);
}

TEST_F(StagesTest, RunNeedsThePartialsOfThePlan) {
  FakeKernel* split =
      Add("gemm.split", 1, [](FakeKernel::Setup& s) { s.max_splits = 2, s.partials_bytes = 1000; });
  DispatchCache cache = Cache();
  ASSERT_TRUE(cache.Insert(F32Problem(4, 6, 8), {split, 0, 2, 5.0f, 0}));
  const auto plan = Bind(*Choose(CandidatesOf(F32Problem(4, 6, 8)), &cache));
  EXPECT_EQ(plan->partials_bytes(), 1000u);
  Call call(4, 6, 8);
  Workspace workspace;
  EXPECT_EQ(tilewright::Run(*plan, call.args, workspace, {}).error().message,
            "workspace.partials_size = 0: the plan needs 1000");
  std::vector<char> partials(1000);
  workspace.partials = partials.data(), workspace.partials_size = partials.size();
  EXPECT_TRUE(tilewright::Run(*plan, call.args, workspace, {}));
}

TEST_F(StagesTest, TheLayoutIsTheOneThatServesTheWholeMixOfBatchSizes) {
  const auto packed = [](Pack pack, double fixed, double per_row) {
    return [=](FakeKernel::Setup& s) {
      s.desc.pack_b = pack;
      s.estimate = [=](const GemmDesc& p, const LaunchSpec&) { return fixed + per_row * p.m; };
    };
  };
  Add("gemm.decode", 0, packed(1, 1, 10));
  Add("gemm.prefill", 0, packed(2, 50, 1));
  Add("gemv.only", 0, packed(3, 0.1, 0.1), [](FakeKernel::Setup& s) { s.desc.max_m = 1; });
  const auto pick = [&](double decode, double prefill, const DispatchCache* cache = nullptr) {
    const BatchWeight mix[] = {{1, decode}, {512, prefill}};
    return *ChoosePack(F32Problem(1), mix, registry_, device_, {}, cache);
  };
  EXPECT_EQ(pick(1000, 1).pack, 1);
  EXPECT_EQ(pick(1, 1).pack, 2);
  EXPECT_EQ(pick(1, 1).provenance, Provenance::kModel);
  EXPECT_EQ(pick(1, 1).packer->name(), "gemm.prefill");
  EXPECT_EQ(pick(1, 1).layouts.size(), 2u);  // the GEMV's layout cannot serve 512 rows

  // Records speak louder than the model.
  DispatchCache cache = Cache();
  const auto record = [&](const char* kernel, int m, Pack pack, float us) {
    GemmDesc p = F32Problem(m);
    p.pack_b = pack;
    ASSERT_TRUE(cache.Insert(p, {registry_.Find(kernel), 0, 1, us, 0}));
  };
  record("gemm.decode", 1, 1, 60), record("gemm.decode", 512, 1, 100);
  record("gemm.prefill", 1, 2, 50), record("gemm.prefill", 512, 2, 600);
  const auto choice = pick(1, 1, &cache);
  EXPECT_EQ(choice.pack, 1);
  EXPECT_EQ(choice.provenance, Provenance::kMeasured);
  EXPECT_DOUBLE_EQ(choice.weighted_us, 160);
}

TEST_F(StagesTest, AnUnmeasuredLayoutDoesNotWinBecauseModelsAreOptimists) {
  const auto layout = [](Pack pack) {
    return [pack](FakeKernel::Setup& s) { s.desc.pack_b = pack; };
  };
  FakeKernel* known = Add("gemm.known", 1, layout(1));
  Add("gemm.unknown", 1.1, layout(2));
  DispatchCache cache = Cache();
  GemmDesc p = F32Problem(1);
  p.pack_b = 1;
  ASSERT_TRUE(cache.Insert(p, {known, 0, 1, 3.0f, 1.0f}));  // three times what the model said
  const BatchWeight mix[] = {{1, 1.0}};
  EXPECT_EQ(ChoosePack(F32Problem(1), mix, registry_, device_, {}, &cache)->pack, 1);
}

TEST_F(StagesTest, WhatAnUnfinishedSessionTimedDoesNotChooseALayout) {
  const auto layout = [](Pack pack) {
    return [pack](FakeKernel::Setup& s) { s.desc.pack_b = pack; };
  };
  FakeKernel* good = Add("gemm.good", 1, layout(1));
  FakeKernel* other = Add("gemm.other", 1.1, layout(2));
  for (const bool provisional : {false, true}) {
    DispatchCache cache = Cache();
    // Somebody else had the processors while the first was timed.
    for (const auto& [kernel, pack, us] :
         {std::tuple(good, 1, 300.0f), std::tuple(other, 2, 1.2f)}) {
      GemmDesc p = F32Problem(1);
      p.pack_b = static_cast<Pack>(pack);
      LaunchSpec spec{kernel, 0, 1, us, 1.0f};
      spec.provisional = provisional;
      ASSERT_TRUE(cache.Insert(p, spec));
    }
    const BatchWeight mix[] = {{1, 1.0}};
    const auto choice = ChoosePack(F32Problem(1), mix, registry_, device_, {}, &cache);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->pack, provisional ? 1 : 2);
    EXPECT_EQ(choice->provenance, provisional ? Provenance::kModel : Provenance::kMeasured);
  }
}

TEST_F(StagesTest, RecordsOfManyRowsDoNotChooseALayoutForFew) {
  const auto layout = [](Pack pack, double fixed, double per_row) {
    return [=](FakeKernel::Setup& s) {
      s.desc.pack_b = pack;
      s.estimate = [=](const GemmDesc& p, const LaunchSpec&) { return fixed + per_row * p.m; };
    };
  };
  // The first layout has one kernel for few rows and one for many; the second one for all.
  Add("gemm.few", 0, layout(1, 1, 10));
  FakeKernel* many = Add("gemm.many", 0, layout(1, 100, 1));
  FakeKernel* all = Add("gemm.all", 0, layout(2, 10, 5));
  DispatchCache cache = Cache();
  const auto record = [&](FakeKernel* kernel, int m, Pack pack, float us, float predicted) {
    GemmDesc p = F32Problem(m);
    p.pack_b = pack;
    ASSERT_TRUE(cache.Insert(p, {kernel, 0, 1, us, predicted}));
  };
  record(many, 512, 1, 612, 612), record(all, 512, 2, 2570, 2570);
  const BatchWeight mix[] = {{1, 128.0}, {512, 1.0}};
  const auto choice = ChoosePack(F32Problem(1), mix, registry_, device_, {}, &cache);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->pack, 1);
  EXPECT_DOUBLE_EQ(choice->weighted_us, 128 * 11 + 612);
}

TEST_F(StagesTest, NoLayoutForAllSizesIsAnErrorWithReasons) {
  Add("gemv.only", 1, [](FakeKernel::Setup& s) { s.desc.max_m = 1; });
  const BatchWeight mix[] = {{1, 1.0}, {2, 1.0}};
  const auto choice = ChoosePack(F32Problem(1), mix, registry_, device_, {}, nullptr);
  ASSERT_FALSE(choice);
  EXPECT_EQ(
      choice.error().message,
      "no layout of the weights serves every batch size:\n  gemv.only: shape: m = 2, needs m <= 1");
}

Record MeasuredRecord(const GemmDesc& desc, const Kernel& kernel, double us, bool chosen = false,
                      std::int64_t generation = 1) {
  Record record;
  record.op = "gemm";
  record.problem = KeyOf(desc);
  record.scope.device = "cpu/test";
  record.kernel = kernel.info().name, record.fingerprint = kernel.info().fingerprint;
  record.spec = "swizzle=0 splits=1";
  record.samples = 10;
  record.median_us = us, record.low_us = us * 0.99, record.high_us = us * 1.01;
  record.chosen = chosen;
  record.generation = generation, record.session = "s" + std::to_string(generation);
  record.id = std::string(kernel.name()) + record.session;
  return record;
}

TEST_F(StagesTest, TheCacheIsAPureFunctionOfTheRecords) {
  FakeKernel* a = Add("gemm.a", 1);
  FakeKernel* b = Add("gemm.b", 2);
  const RecordScope scope{"cpu/test", "", MeasurePolicy::kCold};
  std::vector<Record> records{MeasuredRecord(F32Problem(8), *a, 10.0, true),
                              MeasuredRecord(F32Problem(8), *b, 9.95),
                              MeasuredRecord(F32Problem(16), *a, 30.0, true),
                              MeasuredRecord(F32Problem(16), *b, 20.0, false, 2),
                              MeasuredRecord(F32Problem(24), *a, 30.0, true),
                              MeasuredRecord(F32Problem(24), *b, 20.0),
                              MeasuredRecord(F32Problem(32), *a, 30.0),
                              MeasuredRecord(F32Problem(32), *b, 29.0)};
  Record stale = records[0], foreign = records[0], unknown = records[0], odd = records[0],
         warm = records[0], libraries = records[0], threads = records[0];
  stale.fingerprint = "old", foreign.scope.device = "cpu/else", unknown.kernel = "gemm.gone",
  odd.spec = "tiles=3", threads.problem += " threads=2";  // once a field of the problem
  warm.scope.policy = MeasurePolicy::kWarm;
  libraries.scope.libraries = "onednn-9";
  // Taken for records of this scope, these would win everywhere.
  for (Record* other : {&foreign, &warm, &libraries}) {
    other->kernel = b->info().name, other->generation = 9, other->session = "other";
    other->median_us = 0.1, other->low_us = 0.099, other->high_us = 0.101;
  }
  records.insert(records.end(), {stale, foreign, unknown, odd, warm, libraries, threads});
  BuildReport report;
  const DispatchCache cache = BuildCache(records, registry_, scope, &report);
  EXPECT_EQ(cache.Find(F32Problem(8))->kernel,
            a);  // decided for; the other is faster only within doubt
  EXPECT_EQ(cache.Find(F32Problem(16))->kernel, b);  // overtaken since, beyond doubt
  EXPECT_EQ(cache.Find(F32Problem(24))->kernel, a);  // who decided had seen the other's time
  EXPECT_EQ(cache.Find(F32Problem(32))->kernel, b);  // nobody decided: least median
  EXPECT_NEAR(cache.Find(F32Problem(8))->measured_us, 10.0, 1e-4);
  EXPECT_EQ(report.problems, 4);
  EXPECT_EQ(report.measurements, 8);
  EXPECT_EQ(report.stale, 1);
  EXPECT_EQ(report.foreign, 3);
  EXPECT_EQ(report.unknown_kernel, 1);
  EXPECT_EQ(report.unreadable, 2);

  std::ostringstream first, second;
  cache.Export(first);
  std::reverse(records.begin(), records.end());
  BuildCache(records, registry_, scope).Export(second);
  EXPECT_EQ(first.str(), second.str());
}

// The span of a temporary's candidates would dangle, so it does not compile.
template <class T>
concept GivesCandidates = requires(T&& candidates) {
  std::forward<T>(candidates).all();
};
static_assert(GivesCandidates<GemmCandidates&> && GivesCandidates<const GemmCandidates&>);
static_assert(!GivesCandidates<GemmCandidates> && !GivesCandidates<const GemmCandidates>);

TEST_F(StagesTest, AKernelThatWasWrongOnceIsOutForEveryBatch) {
  FakeKernel* a = Add("gemm.a", 1);
  FakeKernel* b = Add("gemm.b", 2);
  const RecordScope scope{"cpu/test", "", MeasurePolicy::kCold};
  std::vector<Record> records{MeasuredRecord(F32Problem(8), *a, 1.0, true),
                              MeasuredRecord(F32Problem(8), *b, 9.0)};
  Record wrong = MeasuredRecord(F32Problem(3), *a, 0);
  wrong.verdict = Verdict::kWrong, wrong.evidence = "d[2, 7] = nan";
  records.push_back(wrong);
  EXPECT_EQ(BuildCache(records, registry_, scope).Find(F32Problem(8))->kernel, b);
  Quarantine quarantine;
  AddToQuarantine<GemmOp>(quarantine, records, scope);
  EXPECT_EQ(quarantine.size(), 1u);
  FeasibleOptions options;
  options.quarantine = &quarantine;
  EXPECT_FALSE(CandidatesOf(F32Problem(100), options).Find("gemm.a")->feasible());
  EXPECT_TRUE(CandidatesOf(F32Problem(100, 96), options).Find("gemm.a")->feasible());
}

TEST_F(StagesTest, ExplainRanksEveryCandidateAndWordsEveryRejection) {
  FakeKernel* slow = Add("gemm.slow", 5);
  Add("gemm.fast", 1);
  Add("gemm.guess", 2);
  Add("gemm.small", 1, [](FakeKernel::Setup& s) { s.desc.max_m = 4; });
  const RecordScope scope{"cpu/test", "", MeasurePolicy::kCold};
  const std::vector<Record> records{
      MeasuredRecord(F32Problem(8), *slow, 4.0, true),
      MeasuredRecord(F32Problem(8), *registry_.Find("gemm.fast"), 6.0)};
  const DispatchCache cache = BuildCache(records, registry_, scope);
  const auto candidates = CandidatesOf(F32Problem(8));
  const auto choice = *Choose(candidates, &cache);
  const auto rows = Explain(candidates, &choice, records, scope);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].kernel, "gemm.slow");
  EXPECT_TRUE(rows[0].chosen);
  EXPECT_EQ(rows[0].provenance, Provenance::kMeasured);
  EXPECT_NEAR(rows[0].measured_us, 4.0, 1e-9);
  EXPECT_LT(rows[0].low_us, 4.0);
  EXPECT_EQ(rows[0].predicted_us, 40.0);
  EXPECT_EQ(rows[1].kernel, "gemm.fast");
  EXPECT_EQ(rows[2].kernel, "gemm.guess");
  EXPECT_EQ(rows[2].rank, 3);
  EXPECT_EQ(rows[2].measured_us, 0);
  EXPECT_FALSE(rows[3].feasible);
  EXPECT_EQ(rows[3].rank, 0);
  EXPECT_EQ(rows[3].reason, "shape: m = 8, needs m <= 4");
}

TEST_F(StagesTest, SpecTextRoundTripsAndRefusesNonsense) {
  Add("gemm.any", 1);
  Kernel* kernel = registry_.kernels()[0];
  LaunchSpec spec{kernel};
  spec.swizzle = 3, spec.splits = 12;
  EXPECT_EQ(*ParseSpec(SpecText(spec), kernel), spec);
  for (const char* bad : {"", "swizzle=1", "swizzle=1 splits=0", "swizzle=-1 splits=1",
                          "swizzle=1 splits=2 x", "splits=1 swizzle=1"}) {
    EXPECT_FALSE(ParseSpec(bad, kernel)) << bad;
  }
}

}  // namespace
}  // namespace tilewright
