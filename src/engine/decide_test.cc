#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "tilewright/records.h"

namespace tilewright {
namespace {

struct Row {
  std::string kernel;
  double us = 1;
  std::int64_t generation = 1;
  std::string session;
  bool chosen = false;
  bool finished = true;
  double half_width = 0.01;  // of the interval, relative
  std::int64_t unix_ms = 0;
};

Record RecordOf(const Row& row) {
  Record record;
  record.op = "gemm", record.problem = "p";
  record.kernel = row.kernel, record.fingerprint = "f1", record.spec = "splits=1";
  record.samples = 20;
  record.median_us = row.us;
  record.low_us = row.us * std::exp(-row.half_width),
  record.high_us = row.us * std::exp(row.half_width);
  record.generation = row.generation, record.session = row.session;
  record.chosen = row.chosen, record.finished = row.finished, record.unix_ms = row.unix_ms;
  record.id = row.kernel + row.session + std::to_string(row.generation) +
              std::to_string(row.unix_ms) + std::to_string(row.us);
  return record;
}
std::vector<Record> RecordsOf(const std::vector<Row>& rows) {
  std::vector<Record> records;
  for (const Row& row : rows) records.push_back(RecordOf(row));
  return records;
}

// The winner, the same in every order that was tried.
std::string Winner(const std::vector<Row>& rows) {
  std::vector<Record> records = RecordsOf(rows);
  const auto first = Decide(records);
  Random random(11);
  for (int trial = 0; trial < 20; ++trial) {
    for (std::size_t i = records.size(); i > 1; --i)
      std::swap(records[i - 1], records[random.Below(i)]);
    const auto again = Decide(records);
    EXPECT_EQ(first.has_value(), again.has_value());
    if (!first || !again) continue;
    EXPECT_EQ(first->kernel, again->kernel);
    EXPECT_EQ(first->median_us, again->median_us);
    EXPECT_EQ(first->low_us, again->low_us);
  }
  return first ? first->kernel : "";
}

// DerSimonian and Laird's estimate, worked out by hand for three sessions:
//   y = ln 100, ln 104, ln 110; half widths 0.0098, 0.0196, 0.0098, so s = 0.005, 0.01, 0.005
//   w = 40000, 10000, 40000; mean = 4.656873; Q = 81.7587... -> tau^2 below.
TEST(Combine, IsTheRandomEffectsEstimate) {
  const double y[] = {std::log(100.0), std::log(104.0), std::log(110.0)};
  const double w[] = {40000, 10000, 40000};
  double sum = 0, squares = 0, mean = 0, q = 0;
  for (int i = 0; i < 3; ++i) sum += w[i], squares += w[i] * w[i], mean += w[i] * y[i];
  mean /= sum;
  for (int i = 0; i < 3; ++i) q += w[i] * (y[i] - mean) * (y[i] - mean);
  const double tau2 = (q - 2) / (sum - squares / sum);
  EXPECT_NEAR(std::sqrt(tau2), 0.06, 0.01);  // they scatter by some five percent
  double star = 0, center = 0;
  for (int i = 0; i < 3; ++i) {
    const double weight = 1 / (1 / w[i] + tau2);
    star += weight, center += weight * y[i];
  }
  center /= star;
  const auto combined = Combine(RecordsOf({{"k", 100, 1, "a", false, true, 0.0098},
                                           {"k", 104, 1, "b", false, true, 0.0196},
                                           {"k", 110, 1, "c", false, true, 0.0098}}));
  ASSERT_EQ(combined.size(), 1u);
  EXPECT_EQ(combined[0].sessions, 3);
  EXPECT_EQ(combined[0].samples, 60);
  EXPECT_NEAR(combined[0].median_us, std::exp(center), 1e-6);
  const double half = 1.96 * std::sqrt(tau2 + 1 / star);
  EXPECT_NEAR(combined[0].low_us, std::exp(center - half), 1e-6);
  EXPECT_NEAR(combined[0].high_us, std::exp(center + half), 1e-6);
}

TEST(Combine, OneSessionIsItself) {
  const auto combined = Combine(RecordsOf({{"k", 50, 1, "a", false, true, 0.02}}));
  EXPECT_NEAR(combined[0].median_us, 50, 1e-9);
  EXPECT_NEAR(combined[0].low_us, 50 * std::exp(-0.02), 1e-9);
  EXPECT_NEAR(combined[0].high_us, 50 * std::exp(0.02), 1e-9);
}

TEST(Combine, ManySessionsDoNotMakeAnIntervalOfNothing) {
  Random random(3);
  const auto width = [&random](int sessions, double scatter) {
    std::vector<Row> rows;
    for (int i = 0; i < sessions; ++i)
      rows.push_back({"k", 100 * std::exp(scatter * random.Normal()), 1, std::to_string(i)});
    const auto combined = Combine(RecordsOf(rows));
    return std::log(combined[0].high_us / combined[0].low_us);
  };
  EXPECT_GT(width(2000, 0.0), 0.018);            // the floor: one percent each way
  EXPECT_GT(width(2000, 0.05), 2 * 1.5 * 0.05);  // what sessions differ by
  EXPECT_LT(width(2000, 0.05), 2 * 2.5 * 0.05);
}

TEST(Combine, UnfinishedSessionsCountOnlyWhereThereIsNoOther) {
  auto combined = Combine(RecordsOf({{"k", 100, 1, "a"}, {"k", 500, 2, "b", false, false}}));
  EXPECT_NEAR(combined[0].median_us, 100, 1e-9);
  EXPECT_EQ(combined[0].samples, 20);
  EXPECT_TRUE(combined[0].finished);
  combined = Combine(RecordsOf({{"k", 500, 1, "a", false, false}, {"k", 100, 2, "b"}}));
  EXPECT_NEAR(combined[0].median_us, 100, 1e-9);
  EXPECT_EQ(combined[0].samples, 20);
  combined = Combine(RecordsOf({{"k", 500, 2, "b", false, false}}));
  EXPECT_NEAR(combined[0].median_us, 500, 1e-9);
  EXPECT_FALSE(combined[0].finished);
}

TEST(Decide, NothingTimedIsNoDecision) {
  EXPECT_EQ(Winner({}), "");
  Record failed = RecordOf({"k", 1, 1, "a"});
  failed.verdict = Verdict::kWrong;
  EXPECT_FALSE(Decide(std::vector<Record>{failed}));
}

TEST(Decide, TheLatestDecisionStandsWhateverTheClocksSaid) {
  // The first session's clock ran a hundred years ahead.
  EXPECT_EQ(Winner({{"old", 10, 1, "a", true, true, 0.01, 4'000'000'000'000},
                    {"new", 11, 1, "a", false, true, 0.01, 4'000'000'000'000},
                    {"old", 10, 2, "b", false, true, 0.01, 1000},
                    {"new", 9.9, 2, "b", true, true, 0.01, 1000}}),
            "new");
}

TEST(Decide, TheDecisionStandsAgainstWhatIsNotFasterBeyondDoubt) {
  EXPECT_EQ(Winner({{"chosen", 10, 1, "a", true}, {"rival", 9.95, 2, "b"}}), "chosen");
  EXPECT_EQ(Winner({{"chosen", 10, 1, "a", true, true, 0.001},
                    {"rival", 9.95, 2, "b", false, true, 0.001}}),
            "chosen");  // intervals apart, but half a percent only
  EXPECT_EQ(
      Winner({{"chosen", 10, 1, "a", true, true, 0.3}, {"rival", 9, 2, "b", false, true, 0.3}}),
      "chosen");
  EXPECT_EQ(Winner({{"chosen", 10, 1, "a", true}, {"rival", 9, 2, "b"}}), "rival");
}

TEST(Decide, WhatTheDecidingSessionMeasuredDoesNotOverturnIt) {
  EXPECT_EQ(Winner({{"chosen", 10, 1, "a", true}, {"rival", 5, 1, "a"}}), "chosen");
  EXPECT_EQ(Winner({{"chosen", 10, 2, "a", true}, {"rival", 5, 1, "b"}}), "chosen");
}

TEST(Decide, SessionsThatDidNotKnowOfEachOtherAreJudgedByWhatTheyMeasured) {
  EXPECT_EQ(Winner({{"x", 10, 1, "a", true}, {"y", 9, 1, "b", true}}), "y");
  EXPECT_EQ(Winner({{"x", 9, 1, "a", true}, {"y", 9, 1, "b", true}}), "x");  // by name
  EXPECT_EQ(Winner({{"x", 10, 1, "a", true}, {"y", 5, 1, "b"}}), "y");       // a challenger
}

TEST(Decide, AnUnfinishedSessionOverturnsNothing) {
  EXPECT_EQ(Winner({{"chosen", 10, 1, "a", true}, {"fluke", 2, 2, "b", true, false}}), "chosen");
  EXPECT_EQ(Winner({{"x", 10, 1, "a", true, false}, {"y", 2, 1, "a", false, false}}), "x");
  EXPECT_EQ(Winner({{"x", 10, 1, "a", true, false}, {"y", 12, 2, "b", true, true}}), "y");
}

TEST(Decide, WithoutAnyDecisionTheLeastMedianWins) {
  EXPECT_EQ(Winner({{"x", 10, 1, "a"}, {"y", 9, 1, "a"}}), "y");
  EXPECT_EQ(Winner({{"y", 9, 1, "a"}, {"x", 9, 1, "a"}}), "x");
  // Not what an unfinished session timed: its few samples may be of a neighbour.
  EXPECT_EQ(Winner({{"x", 9, 1, "a", false, false}, {"y", 10, 2, "b"}}), "y");
  EXPECT_EQ(Winner({{"x", 9, 1, "a", false, false}}), "");
}

TEST(Decide, GenerationsGrowByOneAndEndSomewhere) {
  EXPECT_EQ(NextGeneration({}), 1);
  std::vector<Record> records = RecordsOf({{"x", 1, 4, "a"}, {"x", 1, 2, "b"}});
  EXPECT_EQ(NextGeneration(records), 5);
  records[0].generation = std::int64_t{1} << 53;
  EXPECT_EQ(NextGeneration(records), std::int64_t{1} << 53);
}

}  // namespace
}  // namespace tilewright
