#include "tilewright/tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/tune/known_records.h"
#include "fake_machine_test_util.h"

namespace tilewright {
namespace {

using Arm = FakeMachine::Arm;

TEST(Tuner, FindsTheFastestThoughTheModelIsWrong) {
  std::map<std::string, Arm> arms;
  for (int i = 0; i < 12; ++i) arms["k" + std::to_string(10 + i)] = {100.0 + 3 * i, 130.0 - 2 * i};
  arms["k21"].us = 80;
  FakeMachine machine(arms, {}, 1);
  EXPECT_EQ(machine.Play(), "k21");
}

TEST(Tuner, EveryCandidateIsCheckedBeforeAnyIsTimed) {
  FakeMachine machine({{"a", {100}}, {"b", {90}}, {"c", {110}}}, {}, 1);
  EXPECT_EQ(machine.Play(), "b");
  const std::vector<std::string> begin(machine.log.begin(), machine.log.begin() + 3);
  EXPECT_EQ(begin, (std::vector<std::string>{"check b", "check a", "check c"})) << "as expected";
}

TEST(Tuner, AWrongCandidateNeverWinsHoweverFast) {
  for (const Verdict verdict :
       {Verdict::kWrong, Verdict::kGuard, Verdict::kError, Verdict::kCrash, Verdict::kHang}) {
    std::map<std::string, Arm> arms{{"honest", {100}}, {"liar", {1}}};
    arms["liar"].check = verdict;
    FakeMachine machine(arms, {}, 1);
    const auto list = machine.Candidates();
    Tuner tuner(list, {});
    EXPECT_EQ(machine.Play(tuner, list), "honest");
    EXPECT_EQ(machine.asks["liar"], 1);  // never timed
    EXPECT_EQ(tuner.result(1).verdict, verdict);
    EXPECT_EQ(tuner.result(1).evidence, "scripted");
    EXPECT_EQ(tuner.result(1).samples, 0);
  }
}

TEST(Tuner, ALaunchThatReturnsAnErrorWhileTimedIsOutWhateverItsTime) {
  for (const int from : {0, 1, 2, 5, 9}) {
    std::map<std::string, Arm> arms{{"honest", {100}}, {"refuser", {10}}, {"slow", {120}}};
    arms["refuser"].error_from = from;
    FakeMachine machine(arms, {}, 1);
    const auto list = machine.Candidates();
    Tuner tuner(list, {});
    EXPECT_EQ(machine.Play(tuner, list), "honest") << from;
    EXPECT_EQ(tuner.result(1).verdict, Verdict::kError);
  }
}

TEST(Tuner, ACandidateThatBrokeIsNotLaunchedAgainNotEvenAsTheCopyOfTheLeader) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (int from = 0; from < 24; ++from) {
      std::map<std::string, Arm> arms{{"honest", {100}}, {"refuser", {90}}, {"slow", {104}}};
      arms["refuser"].error_from = from;
      FakeMachine machine(arms, {.jitter = 0.01}, seed);
      Tuner::Options options;
      options.seed = seed;
      machine.Play(options);
      EXPECT_LE(machine.errors, 1) << "seed " << seed << ", from " << from;
    }
  }
}

TEST(Tuner, ATimeOfNothingIsAnError) {
  std::vector<Tuner::Candidate> list{{"a", 1}, {"b", 1}};
  Tuner tuner(list, {});
  while (const auto ask = tuner.Next()) {
    Tuner::Outcome outcome;
    if (ask->action == Tuner::Action::kTime) outcome.us = ask->candidate == 0 ? 0.0 : 50.0;
    tuner.Notify(outcome);
  }
  EXPECT_EQ(*tuner.Best(), 1);
  EXPECT_EQ(tuner.result(0).verdict, Verdict::kError);
}

TEST(Tuner, TheWinnerIsCheckedAgainBeforeItWins) {
  std::map<std::string, Arm> arms{{"honest", {100}}, {"turncoat", {50}}, {"slow", {150}}};
  arms["turncoat"].wrong_from = 1;
  FakeMachine machine(arms, {}, 1);
  const auto list = machine.Candidates();
  Tuner tuner(list, {});
  EXPECT_EQ(machine.Play(tuner, list), "honest");
  EXPECT_TRUE(tuner.conclusive());
}

TEST(Tuner, ACandidateThatCouldNotBeTriedHasNoVerdict) {
  Tuner tuner({{"a", 1}, {"b", 1}}, {});
  while (const auto ask = tuner.Next()) {
    Tuner::Outcome outcome;
    outcome.us = 50;
    outcome.skipped = ask->candidate == 0;
    tuner.Notify(outcome);
  }
  EXPECT_EQ(*tuner.Best(), 1);
  EXPECT_FALSE(tuner.result(0).tried);
  EXPECT_EQ(tuner.result(0).verdict, Verdict::kOk);
  EXPECT_EQ(tuner.result(0).samples, 0);
}

TEST(Tuner, AllFailingLeavesNoWinnerAndEveryVerdict) {
  std::map<std::string, Arm> arms{{"a", {100}}, {"b", {90}}};
  arms["a"].check = Verdict::kWrong, arms["b"].error_from = 0;
  FakeMachine machine(arms, {}, 1);
  const auto list = machine.Candidates();
  Tuner tuner(list, {});
  EXPECT_EQ(machine.Play(tuner, list), "");
  EXPECT_FALSE(tuner.conclusive());
  EXPECT_EQ(tuner.result(0).verdict, Verdict::kWrong);
  EXPECT_EQ(tuner.result(1).verdict, Verdict::kError);
}

TEST(Tuner, NothingToDoEndsAtOnce) {
  Tuner tuner({}, {});
  EXPECT_FALSE(tuner.Next());
  EXPECT_FALSE(tuner.Best());
}

TEST(Tuner, DriftSpikesAndFirstLaunchesDoNotChangeTheWinner) {
  // The clock wanders by 5 %, one sample in twenty is three times too long, first launches take ten
  // times; the best is 4 % ahead.
  FakeMachine::Noise noise;
  noise.jitter = 0.01, noise.drift = 0.05, noise.spike_chance = 0.05, noise.first_launch = 10;
  int right = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::map<std::string, Arm> arms;
    for (int i = 0; i < 10; ++i) arms["k" + std::to_string(i)] = {104.0 + 2 * i, 100};
    arms["k7"].us = 100;
    FakeMachine machine(arms, noise, seed);
    Tuner::Options options;
    options.seed = seed;
    right += machine.Play(options) == "k7" ? 1 : 0;
  }
  EXPECT_GE(right, 59);
}

TEST(Tuner, AStepOfTheClockBetweenBlocksShiftsAllAlike) {
  for (const double at : {500.0, 3000.0, 8000.0, 20000.0, 40000.0}) {
    FakeMachine::Noise noise;
    noise.jitter = 0.005, noise.step_after_us = at, noise.step = 1.4;
    FakeMachine machine({{"a", {103}}, {"b", {100}}, {"c", {105}}}, noise, 3);
    EXPECT_EQ(machine.Play(), "b") << at;
  }
}

TEST(Tuner, ABimodalCandidateIsJudgedByWhatItUsuallyTakes) {
  // Half its samples are the fastest of all, half are slow: in the median it loses to the steady
  // one.
  std::map<std::string, Arm> arms{{"steady", {100}}, {"moody", {90}}, {"slow", {130}}};
  arms["moody"].bimodal = 1.6;
  FakeMachine machine(arms, {0.005}, 5);
  EXPECT_EQ(machine.Play(), "steady");
}

TEST(Tuner, SlowKernelsAreMeasuredMoreThanOnce) {
  // Launches of 20 ms: a stop by elapsed time after one sample would take whatever was lucky.
  int right = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    FakeMachine::Noise noise;
    noise.jitter = 0.03, noise.spike_chance = 0.05;
    FakeMachine machine({{"a", {20800}}, {"b", {20000}}, {"c", {22000}}}, noise, seed);
    right += machine.Play() == "b" ? 1 : 0;
    EXPECT_GE(machine.asks["b"], 1 + 2 + 6 + 1);  // check, first launches, race, check again
  }
  EXPECT_GE(right, 34);  // 4 % apart under 3 % of noise and spikes
}

TEST(Tuner, TheIncumbentStaysInsideTheNoise) {
  int kept = 0, overtaken = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    for (const double challenger : {99.9, 96.0}) {
      std::map<std::string, Arm> arms{
          {"challenger", {challenger}}, {"incumbent", {100}}, {"other", {104}}};
      arms["incumbent"].incumbent = true;
      FakeMachine::Noise noise;
      noise.jitter = 0.01, noise.drift = 0.02;
      FakeMachine machine(arms, noise, seed);
      Tuner::Options options;
      options.seed = seed;
      const std::string winner = machine.Play(options);
      if (challenger > 99) {
        kept += winner == "incumbent" ? 1 : 0;
      } else {
        overtaken += winner == "challenger" ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(kept, 60);
  EXPECT_GE(overtaken, 57);
}

TEST(Tuner, AnIncumbentThatBecameSlowOrWrongIsReplaced) {
  std::map<std::string, Arm> arms{{"a", {100}}, {"incumbent", {900}}};
  arms["incumbent"].incumbent = true;
  FakeMachine slow(arms, {}, 1);
  EXPECT_EQ(slow.Play(), "a");
  arms["incumbent"].us = 50, arms["incumbent"].check = Verdict::kWrong;
  FakeMachine wrong(arms, {}, 1);
  EXPECT_EQ(wrong.Play(), "a");
}

TEST(Tuner, TheGainOverWhatWouldHaveRunIsToldHoweverEarlyThatWasThrownOut) {
  // 1.2 is out in the race, 2 in the halving or the race, 8 at the first sight.
  for (const double slower : {1.2, 2.0, 8.0}) {
    std::map<std::string, Arm> arms{{"model's pick", {100 * slower}}};
    for (int i = 0; i < 9; ++i) arms["other " + std::to_string(i)] = {100.0 + i};
    arms["model's pick"].fallback = true;
    FakeMachine machine(arms, {.jitter = 0.005}, 7);
    const auto list = machine.Candidates();
    Tuner tuner(list, {});
    EXPECT_EQ(machine.Play(tuner, list), "other 0");
    EXPECT_TRUE(tuner.conclusive()) << tuner.inconclusive();
    EXPECT_NEAR(tuner.gain().ratio, slower, 0.02 * slower);
    EXPECT_LT(tuner.gain().low, tuner.gain().ratio);
    EXPECT_GT(tuner.gain().high, tuner.gain().ratio);
  }
}

TEST(Tuner, TheGainOverAnIncumbentIsToldHoweverSlowThatBecame) {
  for (const double slower : {1.2, 2.0, 8.0}) {
    std::map<std::string, Arm> arms{{"incumbent", {100 * slower}}};
    for (int i = 0; i < 9; ++i) arms["other " + std::to_string(i)] = {100.0 + i};
    arms["incumbent"].incumbent = true;
    FakeMachine machine(arms, {.jitter = 0.005}, 7);
    const auto list = machine.Candidates();
    Tuner tuner(list, {});
    EXPECT_EQ(machine.Play(tuner, list), "other 0");
    EXPECT_NEAR(tuner.gain().ratio, slower, 0.02 * slower);
  }
}

TEST(Tuner, TheGainComesWithAnIntervalThatHoldsTheTruth) {
  int held = 0, gained = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::map<std::string, Arm> arms{{"a", {80}}, {"b", {100}}};
    arms["b"].incumbent = true;
    FakeMachine machine(arms, {0.01}, seed);
    const auto list = machine.Candidates();
    Tuner tuner(list, {.seed = seed});
    if (machine.Play(tuner, list) != "a") continue;
    ++gained;
    const Tuner::Gain gain = tuner.gain();
    EXPECT_NEAR(gain.ratio, 1.25, 0.03);
    EXPECT_LT(gain.low, gain.ratio);
    EXPECT_GT(gain.high, gain.ratio);
    EXPECT_LT(gain.high - gain.low, 0.1);
    held += gain.low <= 1.25 && 1.25 <= gain.high ? 1 : 0;
  }
  EXPECT_EQ(gained, 100);
  EXPECT_GE(held, 88);  // 95 in a hundred, of a trimmed mean of eight
  FakeMachine same({{"only", {10}}}, {}, 1);
  const auto list = same.Candidates();
  Tuner tuner(list, {});
  same.Play(tuner, list);
  EXPECT_EQ(tuner.gain().ratio, 0);  // nothing to compare with
}

TEST(Tuner, TheOrderOfTheListDoesNotMatter) {
  FakeMachine::Noise noise;
  noise.jitter = 0.02, noise.drift = 0.03;
  std::map<std::string, Arm> arms;
  for (int i = 0; i < 9; ++i) arms["k" + std::to_string(i)] = {100.0 + i % 3, 100};
  FakeMachine forward(arms, noise, 7), backward(arms, noise, 7);
  const auto first = forward.Candidates(false), second = backward.Candidates(true);
  Tuner one(first, {}), two(second, {});
  EXPECT_EQ(forward.Play(one, first), backward.Play(two, second));
  EXPECT_EQ(forward.log, backward.log);
}

TEST(Tuner, EqualTimesGiveTheFirstName) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    FakeMachine machine({{"c", {100}}, {"a", {100}}, {"b", {100}}}, {}, seed);
    Tuner::Options options;
    options.seed = seed;
    EXPECT_EQ(machine.Play(options), "a");
  }
}

TEST(Tuner, TheWinnersTimeComesFromSamplesTakenAfterTheSelection) {
  // Twenty equals: the one that looked fastest looked so by luck. Its stored time must not be that
  // luck.
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::map<std::string, Arm> arms;
    for (int i = 0; i < 16; ++i) arms["k" + std::to_string(10 + i)] = {100};
    FakeMachine machine(arms, {0.03}, seed);
    const auto list = machine.Candidates();
    Tuner::Options options;
    options.seed = seed;
    Tuner tuner(list, options);
    machine.Play(tuner, list);
    const Tuner::Result& result = tuner.result(*tuner.Best());
    EXPECT_EQ(result.samples, options.verify_blocks);
    sum += std::log(result.median_us / 100);
  }
  EXPECT_NEAR(sum / 40, 0.0, 0.006);
}

TEST(Tuner, ABudgetEndsItWithAValidAnswer) {
  for (const double budget : {1.0, 300.0, 2000.0, 8000.0}) {
    std::map<std::string, Arm> arms;
    for (int i = 0; i < 10; ++i) arms["k" + std::to_string(i)] = {100.0 + 20 * i};
    FakeMachine machine(arms, {0.01}, 2);
    Tuner::Options options;
    options.budget_us = budget;
    const auto list = machine.Candidates();
    Tuner tuner(list, options);
    const std::string winner = machine.Play(tuner, list);
    EXPECT_FALSE(tuner.conclusive());
    EXPECT_FALSE(winner.empty()) << budget;
    EXPECT_LT(tuner.spent_us(), budget + 6 * options.sample_us);
    if (budget >= 8000) {
      EXPECT_EQ(winner, "k0");
    }
  }
}

TEST(Tuner, ChecksLeaveHalfOfTheBudgetToTimes) {
  std::map<std::string, Arm> arms;
  for (int i = 0; i < 10; ++i) arms["k" + std::to_string(i)] = {100.0 + i, 200.0 - i};
  arms["k0"].fallback = true;
  FakeMachine machine(arms, {.check_us = 100'000}, 1);
  const auto list = machine.Candidates();
  Tuner::Options options;
  options.budget_us = 800'000;
  Tuner tuner(list, options);
  EXPECT_EQ(machine.Play(tuner, list), "k0");
  EXPECT_TRUE(tuner.conclusive()) << tuner.inconclusive();
  // What would run anyway and those that the model expects most of; the others wait.
  for (int i = 0; i < 10; ++i) EXPECT_EQ(tuner.result(i).samples > 0, i == 0 || i >= 7) << i;
  EXPECT_FALSE(tuner.result(1).tried);
}

TEST(Tuner, TwoThatPassedAreTimedThoughTheirChecksTookTheBudget) {
  for (const double budget : {5e4, 15e4, 2e5}) {
    std::map<std::string, Arm> arms{{"a", {90}}, {"b", {95}}, {"fallback", {100}}};
    arms["fallback"].fallback = true;
    FakeMachine machine(arms, {.check_us = 1e5}, 1);
    const auto list = machine.Candidates();
    Tuner::Options options;
    options.budget_us = budget;
    Tuner tuner(list, options);
    // One check that took all of it leaves nothing to compare.
    const bool one = budget < 1e5;
    EXPECT_EQ(machine.Play(tuner, list), one ? "" : "fallback") << budget;
    EXPECT_EQ(tuner.inconclusive(), "the budget ran out");
    for (int i : {0, 2}) EXPECT_EQ(tuner.result(i).samples, one ? 0 : 1) << budget;
    EXPECT_FALSE(tuner.result(1).tried);
  }
}

TEST(Tuner, StallsThatEatTheBudgetStillLeaveTheIncumbent) {
  std::map<std::string, Arm> arms{{"a", {95}}, {"incumbent", {100}}};
  arms["incumbent"].incumbent = true;
  FakeMachine::Noise noise;
  noise.stall_us = 5000;
  FakeMachine machine(arms, noise, 1);
  Tuner::Options options;
  options.budget_us = 20000;
  EXPECT_EQ(machine.Play(options), "incumbent");
}

TEST(Tuner, StoppedAnywhereNothingWinsThatWasNotTimedAgainstWhatWouldRunAnyway) {
  // Spikes make single samples worthless: a session stopped after a few must not change anything.
  for (int stop = 1; stop < 24; ++stop) {
    std::map<std::string, Arm> arms{{"a", {120}}, {"b", {130}}, {"fallback", {100}}, {"z", {140}}};
    arms["fallback"].fallback = true;
    FakeMachine::Noise noise;
    noise.spike_chance = 0.4, noise.spike = 5;
    FakeMachine machine(arms, noise, static_cast<std::uint64_t>(stop));
    const auto list = machine.Candidates();
    Tuner tuner(list, {});
    const std::string winner = machine.Play(tuner, list, stop);
    EXPECT_EQ(winner, stop <= 4 ? "" : "fallback") << stop;
    EXPECT_EQ(machine.log.front(), "check fallback");
    if (stop > 4) {
      EXPECT_EQ(machine.log[4], "time fallback");
    }
  }
}

TEST(Tuner, StoppedEarlyALongLaunchThatIsFarAheadInEveryBlockWins) {
  const auto winner = [](double challenger_us, double fallback_us, int stop) {
    std::map<std::string, Arm> arms{
        {"a", {challenger_us}}, {"b", {1.5 * fallback_us}}, {"fallback", {fallback_us}}};
    arms["fallback"].fallback = true;
    FakeMachine machine(arms, {0.03}, 3);
    const auto list = machine.Candidates();
    Tuner tuner(list, {});
    return machine.Play(tuner, list, stop);
  };
  // Three checks, then blocks of three and, in the race, four: the first one does not count.
  constexpr int kTwoShared = 3 + 3 + 3 + 4, kOneShared = 3 + 3 + 3;
  EXPECT_EQ(winner(5000, 9000, kTwoShared), "a");
  EXPECT_EQ(winner(5000, 9000, kOneShared), "fallback");
  EXPECT_EQ(winner(8500, 9000, kTwoShared), "fallback");  // that may be noise
  EXPECT_EQ(winner(50, 90, kTwoShared), "fallback");      // so may two samples of microseconds
}

TEST(Tuner, StoppedAnywhereItKeepsAValidResult) {
  for (int stop = 1; stop < 60; ++stop) {
    std::map<std::string, Arm> arms{{"a", {100}}, {"b", {80}}, {"liar", {1}}};
    arms["liar"].check = Verdict::kWrong;
    FakeMachine machine(arms, {0.01}, 2);
    const auto list = machine.Candidates();
    Tuner tuner(list, {});
    const std::string winner = machine.Play(tuner, list, stop);
    EXPECT_FALSE(tuner.Next());
    EXPECT_NE(winner, "liar");
    EXPECT_EQ(winner.empty(), stop <= 3) << stop;
    if (!winner.empty()) {
      EXPECT_GT(tuner.result(*tuner.Best()).median_us, 0);
    }
  }
}

TEST(Tuner, TheModelPrunesButGroupLeadersIncumbentAndFallbackStay) {
  std::vector<Tuner::Candidate> list;
  for (int i = 0; i < 40; ++i) {
    Tuner::Candidate one;
    one.name = "k" + std::to_string(100 + i);
    one.predicted_us = 100 + i;
    one.group = i == 35 ? 1 : 0;
    one.incumbent = i == 30;
    one.fallback = i == 31;
    list.push_back(one);
  }
  list.push_back({"k200", 5000, 2});  // leads its group, but beyond hope
  Tuner::Options options;
  options.top_k = 5;
  Tuner tuner(list, options);
  EXPECT_EQ(FirstChecked(tuner), (std::vector<int>{30, 0, 1, 2, 3, 4, 31, 35}));
  EXPECT_FALSE(tuner.result(20).tried);
}

TEST(Tuner, AKernelWithAHopefulModelShutsOutNoOtherHoweverManySpecsItHas) {
  Tuner tuner({{"hopeful threads=1", 0.01}, {"hopeful threads=2", 0.01}, {"true", 10}, {"far", 90}},
              {});
  EXPECT_EQ(FirstChecked(tuner), (std::vector<int>{0, 1, 2}));
}

TEST(Tuner, AKernelWithManyConfigurationsLeavesRoomForThoseOfAnother) {
  std::vector<Tuner::Candidate> list;
  for (int i = 0; i < 8; ++i) list.push_back({"first x=" + std::to_string(i), 100});
  for (int i = 0; i < 8; ++i) list.push_back({"other x=" + std::to_string(i), 112});
  Tuner::Options options;
  options.top_k = 6;
  Tuner tuner(list, options);
  EXPECT_EQ(FirstChecked(tuner), (std::vector<int>{0, 1, 8, 2, 9, 3}));
}

TEST(Tuner, TheHopelessAreTimedNoMoreThanTwice) {
  std::map<std::string, Arm> arms{{"a", {100, 100}}, {"b", {110, 100}}, {"crawler", {4000, 100}}};
  FakeMachine machine(arms, {}, 1);
  machine.Play();
  EXPECT_EQ(machine.asks["crawler"], 3);  // the check and two launches
}

TEST(Tuner, SlowProblemsGetFewerCandidatesAndTheHopelessOneLaunch) {
  std::map<std::string, Arm> arms;
  for (int i = 0; i < 12; ++i) arms["k" + std::to_string(10 + i)] = {20000.0 + 500 * i};
  arms["k12"].us = 150000, arms["k12"].predicted_us = 20500;
  FakeMachine machine(arms, {}, 1);
  EXPECT_EQ(machine.Play(), "k10");
  EXPECT_EQ(machine.asks.size(), 8u);
  EXPECT_EQ(machine.asks["k12"], 2);  // the check and one launch
}

TEST(Tuner, AsksNothingNewBeforeItsQuestionIsAnswered) {
  Tuner tuner({{"a", 1}}, {});
  ASSERT_TRUE(tuner.Next());
  EXPECT_FALSE(tuner.Next());
  tuner.Notify({});
  EXPECT_TRUE(tuner.Next());
}

TEST(Tuner, ProgressGrowsToOne) {
  FakeMachine machine({{"a", {100}}, {"b", {90}}, {"c", {95}}}, {0.01}, 1);
  const auto list = machine.Candidates();
  Tuner tuner(list, {});
  double last = 0;
  while (const auto ask = tuner.Next()) {
    EXPECT_GE(tuner.progress(), last);
    last = tuner.progress();
    Tuner::Outcome outcome;
    outcome.us = 100;
    tuner.Notify(outcome);
  }
  EXPECT_EQ(tuner.progress(), 1.0);
}

}  // namespace
}  // namespace tilewright
