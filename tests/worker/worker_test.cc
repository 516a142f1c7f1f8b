// Candidates in a worker process: what becomes of those that misbehave, and that the others are
// judged as in this process.
#include <cstdlib>

#include "worker_fixture.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

TEST_F(WorkerTest, A_right_candidate_is_checked_and_timed_there) {
  const auto worker = Start();
  ASSERT_NE(worker, nullptr);
  auto measurer = Measuring(*worker);
  ASSERT_TRUE(measurer.Prepare(Norm()));
  EXPECT_NE(worker->pid(), 0);
  EXPECT_EQ(measurer.Check(Spec(test::kRight)).verdict, Verdict::kOk);
  const Tuner::Outcome timed = measurer.Time(Spec(test::kRight), 5);
  EXPECT_EQ(timed.verdict, Verdict::kOk) << timed.evidence;
  EXPECT_GT(timed.us, 0);
  EXPECT_GT(timed.cost_us, 0);
  EXPECT_EQ(worker->counts().started, 1);
  EXPECT_EQ(worker->counts().ended, 0);
}

TEST_F(WorkerTest, A_candidate_that_ends_its_process_is_a_crash_confirmed_in_a_fresh_one) {
  const auto worker = Start();
  ASSERT_NE(worker, nullptr);
  auto measurer = Measuring(*worker);
  ASSERT_TRUE(measurer.Prepare(Norm()));
  int ended = 0;
  for (const auto& [kernel, words] : {std::pair{test::kCrashes, "signal 11"},
                                      {test::kFarOutside, "signal 11"},
                                      {test::kAborts, "signal 6"},
                                      {test::kExits, "ended with exit code 0"}}) {
    const Tuner::Outcome outcome = measurer.Check(Spec(kernel));
    EXPECT_EQ(outcome.verdict, Verdict::kCrash) << kernel;
    EXPECT_FALSE(outcome.skipped) << kernel;
    EXPECT_THAT(outcome.evidence, HasSubstr("in two workers")) << kernel;
    EXPECT_THAT(outcome.evidence, HasSubstr(words)) << kernel;
    EXPECT_GT(outcome.cost_us, 0) << kernel;
    EXPECT_EQ(worker->counts().ended, ended += 2) << kernel;
    EXPECT_EQ(measurer.Check(Spec(test::kRight)).verdict, Verdict::kOk) << "after " << kernel;
  }
  EXPECT_EQ(measurer.Time(Spec(test::kCrashes), 3).verdict, Verdict::kCrash);
  EXPECT_EQ(worker->counts().unconfirmed, 0);
}

TEST_F(WorkerTest, A_candidate_that_hangs_is_killed_and_called_a_hang) {
  WorkerOptions options{.program = TILEWRIGHT_TEST_WORKER};
  options.check_seconds = 0.5;
  const auto worker = Start(options);
  ASSERT_NE(worker, nullptr);
  auto measurer = Measuring(*worker);
  ASSERT_TRUE(measurer.Prepare(Norm()));
  const int pid = worker->pid();
  const Tuner::Outcome outcome = measurer.Check(Spec(test::kHangs));
  EXPECT_EQ(outcome.verdict, Verdict::kHang);
  EXPECT_THAT(outcome.evidence, HasSubstr("did not answer within 0.5 s"));
  EXPECT_EQ(StateOf(pid), '\0') << "the process that hung is still there";
}

TEST_F(WorkerTest, A_failure_that_does_not_repeat_is_not_the_candidates) {
  setenv("TILEWRIGHT_TEST_MARKER", (folder_ + "/marker").c_str(), 1);
  const auto worker = Start();
  ASSERT_NE(worker, nullptr);
  auto measurer = Measuring(*worker);
  ASSERT_TRUE(measurer.Prepare(Norm()));
  const Tuner::Outcome outcome = measurer.Check(Spec(test::kCrashesOnce));
  EXPECT_EQ(outcome.verdict, Verdict::kOk) << outcome.evidence;
  EXPECT_EQ(worker->counts().ended, 1);
  EXPECT_EQ(worker->counts().unconfirmed, 1);
  EXPECT_EQ(worker->counts().started, 2);
}

TEST_F(WorkerTest, What_a_kernel_does_that_leaves_its_process_alive_is_judged_there) {
  const auto worker = Start();
  ASSERT_NE(worker, nullptr);
  auto measurer = Measuring(*worker);
  ASSERT_TRUE(measurer.Prepare(Norm()));
  EXPECT_EQ(measurer.Check(Spec(test::kPrints)).verdict, Verdict::kOk);
  const Tuner::Outcome threw = measurer.Check(Spec(test::kThrows));
  EXPECT_EQ(threw.verdict, Verdict::kCrash);
  EXPECT_EQ(threw.evidence, "Launch threw: a kernel's own words");
  const int pid = worker->pid();
  const Tuner::Outcome outside = measurer.Check(Spec(test::kOutside));
  EXPECT_EQ(outside.verdict, Verdict::kGuard);
  EXPECT_EQ(outside.evidence, "wrote outside out");
  EXPECT_EQ(worker->counts().ended, 0);
  // What else that kernel has written over, the next one must not meet.
  EXPECT_EQ(measurer.Check(Spec(test::kRight)).verdict, Verdict::kOk);
  EXPECT_NE(worker->pid(), pid);
}

TEST_F(WorkerTest, A_tuning_session_survives_them_all_and_quarantines_them) {
  const auto worker = Start({.program = TILEWRIGHT_TEST_WORKER, .check_seconds = 2});
  ASSERT_NE(worker, nullptr);
  auto measurer = Measuring(*worker);
  setenv("TILEWRIGHT_TEST_MARKER", (folder_ + "/marker").c_str(), 1);
  TuneOptions options;
  options.feasible = context_->feasible_options();
  options.feasible.providers = Bit(Provider::kUser);
  options.scope = context_->scope();
  options.tuner.top_k = 100;
  const TuneProblemOf<norm::Op> problems[] = {{Norm(), 1}};
  const auto report = Tune(problems, context_->kernels().of<norm::Op>(), context_->device_spec(),
                           context_->records(), measurer, options);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->tuned, 1) << report->rows[0].trouble;
  std::map<std::string, Verdict> verdicts;
  for (const Record& record : context_->records().Load()) verdicts[record.kernel] = record.verdict;
  using enum Verdict;
  const std::map<std::string, Verdict> expected = {
      {test::kRight, kOk},         {test::kPrints, kOk},     {test::kCrashesOnce, kOk},
      {test::kOff, kWrong},        {test::kCrashes, kCrash}, {test::kAborts, kCrash},
      {test::kExits, kCrash},      {test::kThrows, kCrash},  {test::kNoMemory, kCrash},
      {test::kFarOutside, kCrash}, {test::kHangs, kHang},    {test::kOutside, kGuard}};
  EXPECT_EQ(verdicts, expected);
}

TEST_F(WorkerTest, The_operands_are_those_of_the_seed_in_every_process) {
  const auto said = [this](std::uint64_t seed, bool in_worker) -> std::string {
    MeasurerOptions options = Quick();
    options.trial.seed = seed;
    if (!in_worker) {
      const auto here = MakeMeasurer<norm::Op>(context_->device(), options);
      EXPECT_TRUE(here->Prepare(Norm()));
      return here->Check(Spec(test::kOff)).evidence;
    }
    const auto worker = context_->StartWorker(options, {.program = TILEWRIGHT_TEST_WORKER});
    EXPECT_TRUE(worker) << worker.error().message;
    if (!worker) return {};
    WorkerMeasurer<norm::Op> there(**worker, nullptr);
    EXPECT_TRUE(there.Prepare(Norm()));
    return there.Check(Spec(test::kOff)).evidence;
  };
  // "out[0, 0] = 1.2 where the oracle has 0.6 (operands of seed 7)"
  const std::string seven = said(7, true);
  EXPECT_THAT(seven, HasSubstr(" where the oracle has "));
  EXPECT_THAT(seven, HasSubstr("(operands of seed 7)"));
  EXPECT_EQ(said(7, true), seven);
  EXPECT_EQ(said(7, false), seven);
  const std::string eight = said(8, true);
  EXPECT_THAT(eight, HasSubstr("(operands of seed 8)"));
  EXPECT_NE(eight.substr(0, eight.find('(')), seven.substr(0, seven.find('(')));
}

TEST_F(WorkerTest, Kernels_that_only_this_process_knows_are_measured_in_it) {
  const auto worker = Start({.program = TILEWRIGHT_WORKER_PROGRAM});
  ASSERT_NE(worker, nullptr);
  auto measurer = Measuring(*worker);
  ASSERT_TRUE(measurer.Prepare(Norm()));
  EXPECT_EQ(worker->Check({test::kRight, "1", "swizzle=0 splits=1"}), std::nullopt);
  EXPECT_EQ(measurer.Check(Spec(test::kRight)).verdict, Verdict::kOk);
  EXPECT_GT(measurer.Time(Spec(test::kRight), 3).us, 0);
  EXPECT_EQ(measurer.Check(Spec(test::kOutside)).verdict, Verdict::kGuard);
  // One of the library's under another fingerprint is another kernel.
  const auto* scalar = context_->kernels().of<norm::Op>().Find("norm.rms.f32.scalar");
  EXPECT_EQ(worker->Check({scalar->name(), "other", "swizzle=0 splits=1"}), std::nullopt);
  EXPECT_NE(worker->Check({scalar->name(), scalar->info().fingerprint, "swizzle=0 splits=1"}),
            std::nullopt);
}

TEST_F(WorkerTest, What_cannot_be_prepared_is_the_error_of_the_measurer) {
  const auto worker = Start();
  ASSERT_NE(worker, nullptr);
  auto gemm = *ParseProblem<GemmOp>("m=4 n=64 k=64 type_b=q8_0 batch_dim=n");
  WorkerMeasurer<GemmOp> there(*worker, nullptr);
  const auto here = MakeMeasurer<GemmOp>(context_->device(), Quick());
  const Status one = here->Prepare(gemm), other = there.Prepare(gemm);
  ASSERT_FALSE(one);
  ASSERT_FALSE(other);
  EXPECT_EQ(one.error(), other.error());
}

/// Every launch of every kernel that can run a problem has the same verdict in both places.
template <class Op>
void ExpectSameVerdicts(Context& context, MeasureWorker& worker, const char* text) {
  const auto desc = *ParseProblem<Op>(text);
  const MeasurerOptions quick{.policy = MeasurePolicy::kWarm, .llc_bytes = 256 << 10};
  const auto here = MakeMeasurer<Op>(context.device(), quick);
  WorkerMeasurer<Op> there(worker, nullptr);
  ASSERT_TRUE(here->Prepare(desc));
  const Status prepared = there.Prepare(desc);
  ASSERT_TRUE(prepared) << prepared.error().message;
  FeasibleOptions options = context.feasible_options();
  options.providers = Bit(Provider::kOwn);
  const auto candidates =
      Feasible(*Validate(desc), context.kernels().of<Op>(), context.device_spec(), options);
  int compared = 0;
  for (const Candidate<Op>& candidate : candidates.all()) {
    for (const auto& spec : candidate.specs) {
      const Tuner::Outcome one = here->Check(spec), other = there.Check(spec);
      EXPECT_EQ(one.verdict, other.verdict) << candidate.kernel->name() << other.evidence;
      EXPECT_EQ(one.evidence, other.evidence) << candidate.kernel->name();
      EXPECT_EQ(one.skipped, other.skipped) << candidate.kernel->name();
      EXPECT_GT(there.Time(spec, 2).us, 0) << candidate.kernel->name();
      ++compared;
    }
  }
  EXPECT_GE(compared, 3) << candidates.RejectionText();
}

TEST_F(WorkerTest, Kernels_of_the_library_have_the_same_verdicts_as_in_this_process) {
  const auto worker = Start({.program = TILEWRIGHT_WORKER_PROGRAM});
  ASSERT_NE(worker, nullptr);
  ExpectSameVerdicts<GemmOp>(*context_, *worker,
                             "m=3 n=64 k=256 type_b=q4_1 pack_b=any precision=i8");
  ExpectSameVerdicts<norm::Op>(*context_, *worker, "rows=3 cols=65");
  ExpectSameVerdicts<GemmOp>(*context_, *worker, "m=1 n=96 k=128 type_b=bf16 pack_b=any");
  EXPECT_EQ(worker->counts().started, 1);
}

}  // namespace
}  // namespace tilewright
