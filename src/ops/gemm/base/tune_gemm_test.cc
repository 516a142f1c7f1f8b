#include "tilewright/tune_gemm.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "ops/gemm/base/fake_kernel.h"
#include "tilewright/matrix.h"

namespace tilewright {
namespace {

using test::AddFake;
using test::F32Problem;
using test::F32Setup;
using test::FakeKernel;

// Times by kernel name; counts what it was asked.
class FakeMeasurer final : public GemmMeasurer {
 public:
  Status Prepare(const GemmDesc& problem) override {
    ++prepared;
    problem_ = problem;
    if (refuse) return Fail(ErrorCode::kUnsupported, "cannot make operands");
    return {};
  }
  Tuner::Outcome Check(const LaunchSpec& spec) override {
    Tuner::Outcome outcome;
    outcome.cost_us = check_cost_us;
    if (wrong.contains(std::string(spec.kernel->name()))) {
      outcome.verdict = Verdict::kWrong;
      outcome.evidence = "d[1, 2] = 3 where the oracle has 4";
    }
    ++checks[std::string(spec.kernel->name())];
    return outcome;
  }
  Tuner::Outcome Time(const LaunchSpec& spec, int reps) override {
    Tuner::Outcome outcome;
    outcome.us =
        us.at(std::string(spec.kernel->name())) * (1 + 0.1 * (spec.splits - 1)) * BatchOf(problem_);
    outcome.cost_us = outcome.us * reps + overhead_us;
    outcome.disturbed = prepared <= busy;
    ++timings;
    if (cancel != nullptr && timings >= cancel_after) cancel->store(true);
    return outcome;
  }

  std::map<std::string, double> us;
  std::set<std::string> wrong;
  std::map<std::string, int> checks;
  int prepared = 0, timings = 0;
  int busy = 0;  ///< problems during which the machine does something else
  double overhead_us = 0, check_cost_us = 0;
  bool refuse = false;
  std::atomic<bool>* cancel = nullptr;
  int cancel_after = 0;

 private:
  GemmDesc problem_;
};

class TuneGemmTest : public testing::Test {
 protected:
  TuneGemmTest() { options_.scope = {"cpu/test", "", MeasurePolicy::kCold}; }

  FakeKernel* Add(const std::string& name, double us, double predicted_us, auto... change) {
    auto setup = F32Setup(name);
    setup.estimate = [predicted_us](const GemmDesc& p, const LaunchSpec&) {
      return predicted_us * BatchOf(p);
    };
    (change(setup), ...);
    measurer_.us[name] = us;
    return AddFake(registry_, setup);
  }
  TuneReport Tune(std::vector<TuneProblem> problems) {
    auto report = tilewright::Tune(problems, registry_, device_, records_, measurer_, options_);
    EXPECT_TRUE(report) << report.error().message;
    return *report;
  }
  DispatchCache Cache() { return BuildCache(records_.Load(), registry_, options_.scope); }

  Registry registry_;
  DeviceSpec device_;
  Records records_ = Records::Open("");
  FakeMeasurer measurer_;
  TuneOptions options_;
};

TEST_F(TuneGemmTest, RecordsEveryCandidateAndMarksTheWinner) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8, [](FakeKernel::Setup& s) { s.max_splits = 2; });
  const TuneReport report = Tune({{F32Problem(4), 1}});
  EXPECT_EQ(report.tuned, 1);
  EXPECT_EQ(report.rows[0].kernel, "gemm.b");
  EXPECT_EQ(report.rows[0].spec, "swizzle=0 splits=1");
  EXPECT_NEAR(report.rows[0].us, 28, 1e-9);
  EXPECT_EQ(report.rows[0].before, "gemm.a");
  EXPECT_NEAR(report.rows[0].before_us, 40, 1e-9);
  EXPECT_TRUE(report.rows[0].conclusive);
  EXPECT_GT(report.device_seconds, 0);
  const auto rows = records_.Load();
  ASSERT_EQ(rows.size(), 3u);
  int chosen = 0;
  for (const Record& row : rows) {
    EXPECT_GT(row.samples, 0);
    EXPECT_GT(row.predicted_us, 0);
    EXPECT_EQ(row.fingerprint, "f1");
    chosen += row.chosen ? 1 : 0;
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_EQ(Cache().Find(F32Problem(4))->kernel->name(), "gemm.b");
}

TEST_F(TuneGemmTest, WhatIsRecordedIsNotMeasuredAgain) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  Tune({{F32Problem(4), 1}});
  const int before = measurer_.timings;
  const TuneReport again = Tune({{F32Problem(4), 1}});
  EXPECT_EQ(again.skipped, 1);
  EXPECT_TRUE(again.rows[0].skipped);
  EXPECT_EQ(again.rows[0].kernel, "gemm.b");
  EXPECT_EQ(measurer_.timings, before);
  options_.remeasure = true;
  EXPECT_EQ(Tune({{F32Problem(4), 1}}).tuned, 1);
  EXPECT_GT(measurer_.timings, before);
}

TEST_F(TuneGemmTest, ANewcomerRacesTheIncumbentOnly) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  Tune({{F32Problem(4), 1}});
  Add("gemm.new", 6, 5);
  measurer_.checks.clear();
  const TuneReport report = Tune({{F32Problem(4), 1}});
  EXPECT_EQ(report.rows[0].kernel, "gemm.new");
  EXPECT_EQ(report.rows[0].before, "gemm.b");
  EXPECT_EQ(measurer_.checks.count("gemm.a"), 0u);
  EXPECT_EQ(measurer_.checks.count("gemm.b"), 1u);
  EXPECT_EQ(Cache().Find(F32Problem(4))->kernel->name(), "gemm.new");
}

TEST_F(TuneGemmTest, ACandidateOnAParWithTheIncumbentDoesNotReplaceIt) {
  Add("gemm.b", 7, 8);
  Tune({{F32Problem(4), 1}});
  Add("gemm.a", 6.98, 5);
  EXPECT_EQ(Tune({{F32Problem(4), 1}}).rows[0].kernel, "gemm.b");
  EXPECT_EQ(Cache().Find(F32Problem(4))->kernel->name(), "gemm.b");
}

TEST_F(TuneGemmTest, AWrongKernelIsQuarantinedForEveryBatch) {
  Add("gemm.fast", 1, 1);
  Add("gemm.right", 10, 10);
  measurer_.wrong.insert("gemm.fast");
  const TuneReport report = Tune({{F32Problem(4), 1}, {F32Problem(8), 1}, {F32Problem(8, 96), 1}});
  for (const TuneRow& row : report.rows) EXPECT_EQ(row.kernel, "gemm.right");
  EXPECT_EQ(report.rows[0].quarantined, 1);
  EXPECT_EQ(measurer_.checks["gemm.fast"], 2);  // once for each group
  const auto rows = records_.Load();
  const auto quarantined = std::find_if(
      rows.begin(), rows.end(), [](const Record& r) { return r.verdict == Verdict::kWrong; });
  ASSERT_NE(quarantined, rows.end());
  EXPECT_EQ(quarantined->evidence, "d[1, 2] = 3 where the oracle has 4");
  EXPECT_FALSE(quarantined->chosen);
}

TEST_F(TuneGemmTest, AllWrongLeavesTheReferenceAndNegativeRecords) {
  Add("gemm.only", 1, 1);
  Add("gemm.reference", 1000, 1000, [](FakeKernel::Setup& s) { s.reference = true; });
  measurer_.wrong.insert("gemm.only");
  const TuneReport report = Tune({{F32Problem(4), 1}});
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.rows[0].trouble, "no candidate passed and was timed");
  Quarantine quarantine;
  AddToQuarantine<GemmOp>(quarantine, records_.Load(), options_.scope);
  FeasibleOptions feasible;
  feasible.quarantine = &quarantine;
  const DispatchCache cache = Cache();
  const auto choice =
      Choose(Feasible(*Validate(F32Problem(4)), registry_, device_, feasible), &cache);
  EXPECT_EQ(choice->kernel().name(), "gemm.reference");
  EXPECT_EQ(choice->provenance(), Provenance::kDefault);
}

TEST_F(TuneGemmTest, EveryLayoutGetsItsWinner) {
  const auto pack = [](Pack p) { return [p](FakeKernel::Setup& s) { s.desc.pack_b = p; }; };
  Add("gemm.p1.a", 10, 10, pack(1));
  Add("gemm.p1.b", 12, 10, pack(1));
  Add("gemm.p2.a", 30, 10, pack(2));
  Add("gemm.p2.b", 20, 10, pack(2));
  GemmDesc open = F32Problem(4);
  open.pack_b = kPackAny;
  const TuneReport report = Tune({{open, 1}});
  EXPECT_EQ(report.rows[0].kernel, "gemm.p1.a");
  const DispatchCache cache = Cache();
  EXPECT_EQ(cache.size(), 2u);
  GemmDesc packed = F32Problem(4);
  packed.pack_b = 1;
  EXPECT_EQ(cache.Find(packed)->kernel->name(), "gemm.p1.a");
  packed.pack_b = 2;
  EXPECT_EQ(cache.Find(packed)->kernel->name(), "gemm.p2.b");
  const auto choice = *Choose(Feasible(*Validate(open), registry_, device_), &cache);
  EXPECT_EQ(choice.kernel().name(), "gemm.p1.a");
  EXPECT_EQ(choice.provenance(), Provenance::kMeasured);
  const BatchWeight mix[] = {{4, 1.0}};
  EXPECT_EQ(ChoosePack(open, mix, registry_, device_, {}, &cache)->pack, 1);
  EXPECT_EQ(Tune({{open, 1}}).skipped, 1);
}

TEST_F(TuneGemmTest, AStopKeepsWhatWasFinishedAndWhatWasMeasured) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  std::atomic<bool> cancel{false};
  options_.cancel = &cancel;
  measurer_.cancel = &cancel;
  std::vector<TuneProblem> problems{{F32Problem(4), 1}, {F32Problem(8), 1}, {F32Problem(16), 1}};
  // Count the samples of one problem first.
  measurer_.cancel_after = 1 << 30;
  Tune({problems[0]});
  const int per_problem = measurer_.timings;
  records_ = Records::Open("");
  measurer_.timings = 0;
  measurer_.cancel_after = per_problem + 7;
  const TuneReport report = Tune(problems);
  EXPECT_TRUE(report.cancelled);
  EXPECT_EQ(report.tuned, 2);
  EXPECT_TRUE(report.rows[0].conclusive);
  EXPECT_FALSE(report.rows[1].conclusive);
  // Seven samples are not enough to depart from what the model would have run.
  EXPECT_EQ(report.rows[1].kernel, "gemm.a");
  EXPECT_EQ(report.not_reached, 1);
  EXPECT_EQ(report.rows[2].problem, KeyOf(problems[2].desc));
  EXPECT_EQ(Cache().size(), 2u);
}

TEST_F(TuneGemmTest, AnUnfinishedProblemIsGoneOnWithNotTakenAsFinal) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  std::atomic<bool> cancel{false};
  options_.cancel = &cancel;
  measurer_.cancel = &cancel;
  measurer_.cancel_after = 7;
  const TuneReport stopped = Tune({{F32Problem(4), 1}});
  EXPECT_FALSE(stopped.rows[0].conclusive);
  ASSERT_EQ(records_.Load().size(), 2u);
  for (const Record& row : records_.Load()) {
    EXPECT_GT(row.samples, 0);
    EXPECT_FALSE(row.finished);
  }
  cancel.store(false);
  measurer_.cancel_after = 1 << 30;
  const int before = measurer_.timings;
  const TuneReport report = Tune({{F32Problem(4), 1}});
  EXPECT_EQ(report.skipped, 0);
  EXPECT_GT(measurer_.timings, before);
  EXPECT_TRUE(report.rows[0].conclusive);
  EXPECT_EQ(report.rows[0].kernel, "gemm.b");
  EXPECT_EQ(Cache().Find(F32Problem(4))->kernel->name(), "gemm.b");
  EXPECT_EQ(Tune({{F32Problem(4), 1}}).skipped, 1);
}

TEST_F(TuneGemmTest, WhatABusyMachineLeftUndecidedGetsAnotherTurnAfterAllOthers) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  measurer_.busy = 1;
  std::vector<std::string> turns;
  options_.progress = [&](const TuneProgress& p) {
    if (p.finished) turns.emplace_back(p.key);
  };
  const std::string four = KeyOf(F32Problem(4)), eight = KeyOf(F32Problem(8));
  const TuneReport report = Tune({{F32Problem(4), 1}, {F32Problem(8), 1}});
  EXPECT_EQ(turns, (std::vector{four, eight, four}));
  EXPECT_EQ(report.tuned, 2);
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_EQ(report.rows[0].problem, four);
  for (const TuneRow& row : report.rows) {
    EXPECT_TRUE(row.conclusive);
    EXPECT_EQ(row.kernel, "gemm.b");
    EXPECT_GT(row.gain.low, 1.0);
  }
  EXPECT_EQ(Cache().Find(F32Problem(4))->kernel->name(), "gemm.b");
}

TEST_F(TuneGemmTest, AMachineThatStaysBusyEndsUndecided) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  measurer_.busy = 1 << 30;
  const TuneReport report = Tune({{F32Problem(4), 1}, {F32Problem(8), 1}});
  EXPECT_EQ(measurer_.prepared, 2 * options_.turns);
  EXPECT_EQ(report.tuned, 2);
  for (const TuneRow& row : report.rows) {
    EXPECT_TRUE(row.undecided());
    EXPECT_EQ(row.kernel, "gemm.a");
  }
  // Nor does a problem get more than the caller gives to each.
  measurer_.prepared = 0;
  options_.tuner.budget_us = 1e9;
  EXPECT_TRUE(Tune({{F32Problem(16), 1}}).rows[0].undecided());
  EXPECT_EQ(measurer_.prepared, 1);
}

TEST_F(TuneGemmTest, ABudgetThatEndsInTheNextTurnLeavesWhatTheTurnBeforeMeasured) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  measurer_.busy = 1 << 30;
  measurer_.check_cost_us = 1e5;
  options_.turns = 1;
  const double once = Tune({{F32Problem(4), 1}}).device_seconds;
  records_ = Records::Open("");
  options_.turns = 3;
  options_.budget_seconds = once + 0.05;  // half of a check is left
  const TuneReport report = Tune({{F32Problem(4), 1}});
  EXPECT_TRUE(report.out_of_budget);
  EXPECT_EQ(report.tuned, 1);
  EXPECT_EQ(report.failed, 0);
  EXPECT_TRUE(report.rows[0].undecided());
  EXPECT_EQ(report.rows[0].kernel, "gemm.a");
  EXPECT_EQ(Cache().Find(F32Problem(4))->kernel->name(), "gemm.a");
}

TEST_F(TuneGemmTest, WhatStaysUndecidedKeepsItsLayoutThoughAnotherSeemedFaster) {
  const auto pack = [](Pack p) { return [p](FakeKernel::Setup& s) { s.desc.pack_b = p; }; };
  Add("gemm.p1", 30, 5, pack(1));
  Add("gemm.p2", 20, 8, pack(2));
  measurer_.busy = 1 << 30;
  GemmDesc open = F32Problem(4);
  open.pack_b = kPackAny;
  const TuneReport report = Tune({{open, 1}});
  EXPECT_TRUE(report.rows[0].undecided());
  EXPECT_EQ(report.rows[0].kernel, "gemm.p1");
  const DispatchCache cache = Cache();
  EXPECT_EQ(Choose(Feasible(*Validate(open), registry_, device_), &cache)->kernel().name(),
            "gemm.p1");
  measurer_.busy = 0;
  EXPECT_EQ(Tune({{open, 1}}).rows[0].kernel, "gemm.p2");
}

TEST_F(TuneGemmTest, ALaterDecisionStandsThoughAnEarlierClockRanAhead) {
  FakeKernel* a = Add("gemm.a", 10, 5);
  Add("gemm.b", 10.2, 8);
  Record ahead;
  ahead.op = "gemm", ahead.problem = KeyOf(F32Problem(4)), ahead.scope = options_.scope;
  ahead.kernel = a->info().name, ahead.fingerprint = a->info().fingerprint;
  ahead.spec = "swizzle=0 splits=1";
  ahead.samples = 20, ahead.median_us = 40, ahead.low_us = 39, ahead.high_us = 41;
  ahead.chosen = true, ahead.unix_ms = 9'000'000'000'000;
  ASSERT_TRUE(records_.Append(std::vector<Record>{ahead}));
  measurer_.us["gemm.a"] = 12, measurer_.us["gemm.b"] = 10;  // twenty percent is no doubt
  options_.remeasure = true;
  EXPECT_EQ(Tune({{F32Problem(4), 1}}).rows[0].kernel, "gemm.b");
  EXPECT_EQ(Cache().Find(F32Problem(4))->kernel->name(), "gemm.b");
}

TEST_F(TuneGemmTest, TheBudgetGoesToTheHeavyProblemsFirst) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  options_.budget_seconds = 0.02;
  measurer_.overhead_us = 200;
  const TuneReport report =
      Tune({{F32Problem(1), 1}, {F32Problem(2), 1}, {F32Problem(4), 1}, {F32Problem(100), 50}});
  EXPECT_TRUE(report.out_of_budget);
  EXPECT_FALSE(report.rows[3].kernel.empty());
  EXPECT_TRUE(report.rows[0].kernel.empty());
  EXPECT_GT(report.not_reached, 0);
  EXPECT_LT(report.device_seconds, 0.05);
}

TEST_F(TuneGemmTest, ABudgetForAFewOfManyProblemsDecidesAFew) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  measurer_.overhead_us = 200;
  const double one = Tune({{F32Problem(1), 1}}).device_seconds;
  records_ = Records::Open("");
  options_.budget_seconds = 3.5 * one;
  std::vector<TuneProblem> problems;
  for (int weight = 1; weight <= 20; ++weight) {
    GemmDesc problem = F32Problem(1);
    problem.n += 16 * weight;
    problems.push_back({problem, static_cast<double>(weight)});
  }
  const TuneReport report = Tune(problems);
  EXPECT_TRUE(report.rows[19].conclusive);
  EXPECT_TRUE(report.rows[18].conclusive);
  EXPECT_TRUE(report.rows[17].conclusive);
  EXPECT_GE(report.not_reached, 16);
}

TEST_F(TuneGemmTest, AMatrixHasEveryLaunchThatIsRight) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  Add("gemm.slow", 100, 8);
  Add("gemm.wrong", 1, 8);
  measurer_.wrong = {"gemm.wrong"};
  const MatrixOptions options{.rounds = 9};
  const auto matrix = MeasureMatrix<GemmOp>(F32Problem(4), registry_, device_, measurer_, options);
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ(matrix->op, "gemm");
  EXPECT_EQ(matrix->problem, KeyOf(F32Problem(4)));
  ASSERT_EQ(matrix->candidates.size(), 3u);
  for (const MatrixCandidate& one : matrix->candidates) {
    const bool slow = one.candidate.name.starts_with("gemm.slow");
    EXPECT_EQ(one.samples.size(), slow ? 2u : 9u) << one.candidate.name;
    EXPECT_EQ(one.candidate.fallback, one.candidate.name.starts_with("gemm.a"));
    for (const MatrixSample& sample : one.samples) EXPECT_GE(sample.cost_us, sample.us);
    EXPECT_GE(one.reps, 1);
  }
  std::atomic<bool> cancel{true};
  const auto stopped = MeasureMatrix<GemmOp>(F32Problem(4), registry_, device_, measurer_,
                                             {.rounds = 9, .cancel = &cancel});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

TEST_F(TuneGemmTest, ProgressReachesOneAndNamesTheBest) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  double last = 0;
  int finished = 0;
  std::string best;
  options_.progress = [&](const TuneProgress& p) {
    EXPECT_GE(p.fraction, last);
    EXPECT_EQ(p.problems, 2);
    EXPECT_EQ(p.op, "gemm");
    EXPECT_TRUE(ParseKey(p.key));
    last = p.fraction;
    finished += p.finished ? 1 : 0;
    best = p.best;
  };
  Tune({{F32Problem(4), 1}, {F32Problem(8), 1}});
  EXPECT_EQ(last, 1.0);
  EXPECT_EQ(finished, 2);
  EXPECT_EQ(best, "gemm.b");
}

TEST_F(TuneGemmTest, TroubleOfOneProblemStopsNoOther) {
  Add("gemm.small", 1, 1, [](FakeKernel::Setup& s) { s.desc.max_m = 4; });
  const TuneReport report = Tune({{F32Problem(8), 1}, {F32Problem(4), 1}});
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.rows[0].trouble,
            "no kernel can run it:\n  gemm.small: shape: m = 8, needs m <= 4");
  EXPECT_EQ(report.rows[1].kernel, "gemm.small");
  measurer_.refuse = true;
  EXPECT_EQ(Tune({{F32Problem(3), 1}}).rows[0].trouble, "cannot make operands");
}

TEST_F(TuneGemmTest, AnInvalidProblemFailsBeforeAnythingIsMeasured) {
  Add("gemm.a", 10, 5);
  const std::vector<TuneProblem> problems{{F32Problem(4), 1}, {F32Problem(0), 1}};
  const auto report = tilewright::Tune(problems, registry_, device_, records_, measurer_, options_);
  ASSERT_FALSE(report);
  EXPECT_TRUE(report.error().message.starts_with("m = 0: must be at least 1 in m=0"))
      << report.error().message;
  EXPECT_EQ(measurer_.prepared, 0);
}

TEST_F(TuneGemmTest, TwoTuningProcessesEndWithTheSameChoice) {
  Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  Records one = Records::Open(""), two = Records::Open("");
  const std::vector<TuneProblem> first{{F32Problem(4), 1}, {F32Problem(8), 1}},
      second{{F32Problem(8), 1}, {F32Problem(16), 1}};
  ASSERT_TRUE(tilewright::Tune(first, registry_, device_, one, measurer_, options_));
  measurer_.us["gemm.a"] = 6.99;  // the other board sees them nearly equal
  ASSERT_TRUE(tilewright::Tune(second, registry_, device_, two, measurer_, options_));
  std::ostringstream from_one, from_two, cache_one, cache_two;
  one.Export(from_one), two.Export(from_two);
  std::istringstream to_one(from_two.str()), to_two(from_one.str());
  ASSERT_TRUE(one.Import(to_one));
  ASSERT_TRUE(two.Import(to_two));
  BuildCache(one.Load(), registry_, options_.scope).Export(cache_one);
  BuildCache(two.Load(), registry_, options_.scope).Export(cache_two);
  EXPECT_EQ(cache_one.str(), cache_two.str());
  EXPECT_NE(cache_one.str().find("m=16"), std::string::npos);
}

TEST_F(TuneGemmTest, AChangedKernelIsMeasuredAgainAndOnlyIt) {
  FakeKernel* a = Add("gemm.a", 10, 5);
  Add("gemm.b", 7, 8);
  Tune({{F32Problem(4), 1}});
  static_cast<void>(a);
  Registry edited;
  auto setup = F32Setup("gemm.a");
  setup.fingerprint = "f2";
  setup.estimate = [](const GemmDesc& p, const LaunchSpec&) { return 5.0 * p.m; };
  AddFake(edited, setup);
  AddFake(edited, F32Setup("gemm.b"));
  measurer_.us["gemm.a"] = 3;
  measurer_.checks.clear();
  const std::vector<TuneProblem> problems{{F32Problem(4), 1}};
  const auto report = tilewright::Tune(problems, edited, device_, records_, measurer_, options_);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->rows[0].kernel, "gemm.a");
  BuildReport built;
  const DispatchCache cache = BuildCache(records_.Load(), edited, options_.scope, &built);
  EXPECT_EQ(cache.Find(F32Problem(4))->kernel, edited.Find("gemm.a"));
  EXPECT_EQ(built.stale, 1);
}

}  // namespace
}  // namespace tilewright
