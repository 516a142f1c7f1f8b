#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "tilewright/matrix.h"

namespace tilewright {
namespace {

struct Lane {
  std::string name;
  double us = 100, predicted_us = 100;
  bool fallback = false;
};

/// Rounds of lanes whose clock drifts together, with noise of their own.
MatrixProblem ProblemOf(const std::vector<Lane>& lanes, double noise, double drift) {
  MatrixProblem problem{"gemm", "m=1 n=2 k=3", {}};
  Random random(7);
  std::vector<double> clock(60, 0.0);
  for (std::size_t round = 1; round < clock.size(); ++round)
    clock[round] = 0.9 * clock[round - 1] + drift * random.Normal();
  for (const Lane& lane : lanes) {
    MatrixCandidate one;
    one.candidate = {
        .name = lane.name, .predicted_us = lane.predicted_us, .fallback = lane.fallback};
    one.reps = 5;
    for (const double now : clock) {
      const double us = lane.us * std::exp(now + noise * random.Normal());
      one.samples.push_back({us, 5 * us, 0, false});
    }
    problem.candidates.push_back(std::move(one));
  }
  return problem;
}

Matrix MatrixOf(MatrixProblem problem) {
  Matrix matrix;
  matrix.scope = {"cpu/test", "onednn-3", MeasurePolicy::kWarm};
  matrix.problems.push_back(std::move(problem));
  return matrix;
}

const std::vector<Lane> kLanes = {
    {"a", 120, 90, true}, {"b", 100, 100}, {"c", 101, 110}, {"d", 150, 120}, {"e", 500, 130}};

TEST(Replay, WithoutALimitTheFastestIsFoundThroughNoiseAndDrift) {
  const ReplayReport report =
      ReplayTuner(MatrixOf(ProblemOf(kLanes, 0.01, 0.05)), {.budget_percent = 0, .replicates = 50});
  ASSERT_EQ(report.rows.size(), 1u);
  const ReplayRow& row = report.rows[0];
  EXPECT_EQ(row.candidates, 5);
  EXPECT_LT(row.regret.mean, 0.01);
  EXPECT_LE(row.regret.mean, row.regret.max + 1e-12);
  EXPECT_LE(row.regret.p95, row.regret.max);
  EXPECT_NEAR(row.model_regret, 0.2, 0.02);
  EXPECT_GT(row.decided, 0.5);
  EXPECT_GT(row.device_seconds, 0);
  EXPECT_EQ(report.regret.mean, row.regret.mean);
  EXPECT_EQ(report.device_seconds, row.device_seconds);
}

TEST(Replay, ABlockThatWasDisturbedIsMeasuredAgainInAnotherRound) {
  MatrixProblem problem = ProblemOf(kLanes, 0.01, 0);
  // Every tenth round of full samples.
  for (MatrixCandidate& one : problem.candidates) {
    for (std::size_t round = 2; round < one.samples.size(); round += 10)
      one.samples[round].disturbed = true;
  }
  const ReplayReport report =
      ReplayTuner(MatrixOf(std::move(problem)), {.budget_percent = 0, .replicates = 20});
  EXPECT_GT(report.rows[0].decided, 0.5);
  EXPECT_LT(report.regret.mean, 0.01);
}

TEST(Replay, ABudgetTooShortLeavesWhatTheModelPicks) {
  const ReplayReport report =
      ReplayTuner(MatrixOf(ProblemOf(kLanes, 0.01, 0)), {.budget_percent = 0.1, .replicates = 10});
  EXPECT_NEAR(report.regret.mean, 0.2, 0.02);
  EXPECT_EQ(report.regret.mean, report.rows[0].model_regret);
  EXPECT_EQ(report.rows[0].decided, 0);
}

TEST(Replay, EqualOptionsGiveEqualReports) {
  const Matrix matrix = MatrixOf(ProblemOf(kLanes, 0.1, 0.1));
  const auto mean = [&](std::uint64_t seed) {
    return ReplayTuner(matrix, {.budget_percent = 40, .replicates = 40, .seed = seed}).regret.mean;
  };
  EXPECT_EQ(mean(1), mean(1));
  EXPECT_NE(mean(1), mean(2));
}

TEST(Replay, AnEmptyMatrixHasNoRegret) {
  const ReplayReport report = ReplayTuner({}, {});
  EXPECT_TRUE(report.rows.empty());
  EXPECT_EQ(report.regret.max, 0);
}

TEST(Matrix, ReadsBackWhatWasWritten) {
  Matrix matrix = MatrixOf(ProblemOf(kLanes, 0.1, 0.1));
  matrix.problems[0].candidates[1].samples[3] = {1.5, 2.5, 3.5, true};
  matrix.problems[0].candidates[2].candidate.group = 4;
  matrix.problems.push_back({"norm", "rows=8", matrix.problems[0].candidates});
  const std::string text = FormatMatrix(matrix);
  const auto read = ParseMatrix(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->scope, matrix.scope);
  ASSERT_EQ(read->problems.size(), 2u);
  EXPECT_EQ(read->problems[1].op, "norm");
  const MatrixCandidate& one = read->problems[0].candidates[1];
  EXPECT_EQ(one.candidate.name, "b");
  EXPECT_EQ(one.reps, 5);
  ASSERT_EQ(one.samples.size(), 60u);
  EXPECT_EQ(one.samples[3].us, 1.5);
  EXPECT_EQ(one.samples[3].reference_us, 3.5);
  EXPECT_TRUE(one.samples[3].disturbed);
  EXPECT_TRUE(read->problems[0].candidates[0].candidate.fallback);
  EXPECT_EQ(read->problems[0].candidates[2].candidate.group, 4);
  EXPECT_EQ(FormatMatrix(*read), text);
}

TEST(Matrix, WhatIsNoneIsRefusedByItsLine) {
  const std::string text = FormatMatrix(MatrixOf(ProblemOf({{"a"}, {"b"}}, 0, 0)));
  const auto refused = [](const std::string& wrong) {
    const auto read = ParseMatrix(wrong);
    return read ? std::string("read") : read.error().message;
  };
  EXPECT_NE(refused("").find("empty"), std::string::npos);
  EXPECT_NE(refused("no matrix\n").find("line 1"), std::string::npos);
  std::string changed = text;
  changed[text.find("\"reps\":5") + 7] = '6';
  EXPECT_NE(refused(changed).find("line 2"), std::string::npos);
  EXPECT_NE(refused(text + "{}\n").find("line 4"), std::string::npos);
  // A candidate where the header should be.
  EXPECT_NE(refused(text.substr(text.find('\n') + 1)).find("line 1"), std::string::npos);
}

}  // namespace
}  // namespace tilewright
