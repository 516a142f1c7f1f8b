#include "tilewright/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/random.h"
#include "model/sampler/portable_exp.h"

namespace tilewright {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Everything off but the temperature.
SamplerOptions Plain() { return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 1}; }

Sampler Make(const SamplerOptions& options) {
  Result<Sampler> sampler = Sampler::Create(options);
  EXPECT_TRUE(sampler) << sampler.error().message;
  return std::move(*sampler);
}

TokenId Pick(Sampler& sampler, const std::vector<float>& logits) {
  const Result<TokenId> token = sampler.Sample(logits);
  EXPECT_TRUE(token) << token.error().message;
  return token.value_or(kNoToken);
}

std::vector<float> RandomLogits(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = static_cast<float>(3 * random.Normal());
  return logits;
}

/// What the options leave of the distribution, computed in the plainest way.
std::vector<double> Expected(const std::vector<float>& logits, const SamplerOptions& options) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0)
    order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  const double best = logits[order[0]];
  double total = 0;
  for (const std::size_t id : order) total += std::exp(logits[id] - best);
  if (options.top_p < 1) {
    double reached = 0;
    std::size_t kept = 0;
    while (kept < order.size() && (kept == 0 || reached < options.top_p * total)) {
      reached += std::exp(logits[order[kept++]] - best);
    }
    order.resize(kept);
  }
  std::erase_if(order, [&](std::size_t id) { return std::exp(logits[id] - best) < options.min_p; });
  std::vector<double> probabilities(logits.size(), 0);
  total = 0;
  for (const std::size_t id : order) total += std::exp((logits[id] - best) / options.temperature);
  for (const std::size_t id : order)
    probabilities[id] = std::exp((logits[id] - best) / options.temperature) / total;
  return probabilities;
}

/// Pearson's statistic over `draws` samples, in deviations from its mean; infinite if a token came
/// that must not.
double Deviations(const SamplerOptions& options, const std::vector<float>& logits,
                  const std::vector<double>& probabilities, int draws) {
  Sampler sampler = Make(options);
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < draws; ++i) ++counts[static_cast<std::size_t>(Pick(sampler, logits))];
  double statistic = 0;
  double rest_expected = 0;  // tokens too rare for the statistic, taken together
  double rest_seen = 0;
  int freedom = -1;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double expected = probabilities[id] * draws;
    if (expected == 0 && counts[id] > 0) return kInfinity;
    if (expected < 10) {
      rest_expected += expected;
      rest_seen += counts[id];
      continue;
    }
    statistic += (counts[id] - expected) * (counts[id] - expected) / expected;
    ++freedom;
  }
  if (rest_expected >= 10) {
    statistic += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    ++freedom;
  }
  return freedom > 0 ? (statistic - freedom) / std::sqrt(2.0 * freedom) : 0;
}

TEST(SamplerTest, DrawsFollowTheDistributionThatTheOptionsLeave) {
  const std::vector<float> logits = RandomLogits(300, 5);
  struct Case {
    const char* name;
    SamplerOptions options;
  };
  const Case cases[] = {
      {"temperature 1", {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0}},
      {"temperature 2", {.temperature = 2, .top_k = 0, .top_p = 1, .min_p = 0}},
      {"temperature 0.5", {.temperature = 0.5, .top_k = 0, .top_p = 1, .min_p = 0}},
      {"top-k 7", {.temperature = 1, .top_k = 7, .top_p = 1, .min_p = 0}},
      {"top-k 200", {.temperature = 1, .top_k = 200, .top_p = 1, .min_p = 0}},
      {"top-p 0.8", {.temperature = 1, .top_k = 0, .top_p = 0.8, .min_p = 0}},
      {"min-p 0.1", {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0.1}},
      {"all, hot", {.temperature = 3, .top_k = 50, .top_p = 0.9, .min_p = 0.02}},
      {"defaults", {}},
  };
  for (const Case& c : cases) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SamplerOptions options = c.options;
      options.seed = seed;
      const double deviations = Deviations(options, logits, Expected(logits, options), 40'000);
      EXPECT_LT(deviations, 4.5) << c.name << ", seed " << seed;
    }
  }
}

TEST(SamplerTest, TheStatisticNoticesASlightlyWrongDistribution) {
  const std::vector<float> logits = RandomLogits(300, 5);
  SamplerOptions wrong = Plain();
  wrong.temperature = 1.05;
  EXPECT_GT(Deviations(Plain(), logits, Expected(logits, wrong), 40'000), 4.5);
  wrong = Plain();
  wrong.top_k = 40;
  EXPECT_GT(Deviations(Plain(), logits, Expected(logits, wrong), 40'000), 4.5);
}

TEST(SamplerTest, FiltersKeepExactlyTheTokensTheyShould) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const std::vector<float> logits = RandomLogits(40 + random.Below(200), seed + 100);
    SamplerOptions options{.temperature = 50,  // flat, so that every kept token comes soon
                           .top_k = static_cast<std::int32_t>(random.Below(60)),
                           .top_p = random.Uniform(0.2, 1.05),
                           .min_p = random.Uniform(-0.02, 0.2),
                           .seed = seed};
    options.top_p = std::min(options.top_p, 1.0);
    options.min_p = std::max(options.min_p, 0.0);
    const std::vector<double> probabilities = Expected(logits, options);
    std::vector<bool> wanted(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) wanted[i] = probabilities[i] > 0;
    Sampler sampler = Make(options);
    std::vector<bool> seen(logits.size());
    for (int i = 0; i < 6000; ++i) seen[static_cast<std::size_t>(Pick(sampler, logits))] = true;
    ASSERT_EQ(seen, wanted) << "seed " << seed;
  }
}

TEST(SamplerTest, TemperatureZeroOrBelowTakesTheBestTokenAndTheLowestIdOfEquals) {
  for (const double temperature : {0.0, -1.0, 1e-310}) {
    SamplerOptions options;
    options.temperature = temperature;
    Sampler sampler = Make(options);
    EXPECT_EQ(Pick(sampler, {1, 5, -kInfinity, 5, 2}), 1);
    EXPECT_EQ(Pick(sampler, {-kInfinity, -kInfinity, -3}), 2);
  }
  SamplerOptions cold = Plain();
  cold.temperature = 1e-300;
  Sampler sampler = Make(cold);
  EXPECT_EQ(Pick(sampler, {1, 5, -kInfinity, 2}), 1);
}

TEST(SamplerTest, TiesAtTheBorderOfTopKGoToTheLowestIds) {
  for (const int k : {2, 12}) {  // the heap, and selecting from all
    SamplerOptions options = Plain();
    options.top_k = k;
    Sampler sampler = Make(options);
    const std::vector<float> logits(40, 1.5f);
    for (int i = 0; i < 300; ++i) EXPECT_LT(Pick(sampler, logits), k);
  }
}

TEST(SamplerTest, TopKOneAndTopPZeroAreGreedy) {
  const std::vector<float> logits = RandomLogits(1000, 3);
  const auto best =
      static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  SamplerOptions one = Plain();
  one.top_k = 1;
  SamplerOptions nothing = Plain();
  nothing.top_p = 0;
  SamplerOptions only_best = Plain();
  only_best.min_p = 1;
  for (const SamplerOptions& options : {one, nothing, only_best}) {
    Sampler sampler = Make(options);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(Pick(sampler, logits), best);
  }
}

TEST(SamplerTest, ThePicksOfASeedAreTheseOnEveryMachine) {
  std::vector<float> logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>((i * 37) % 101) / 16;
  Sampler sampler = Make({.temperature = 1.3, .top_k = 0, .top_p = 0.99, .min_p = 0, .seed = 42});
  std::vector<TokenId> picks;
  picks.reserve(12);
  for (int i = 0; i < 12; ++i) picks.push_back(Pick(sampler, logits));
  EXPECT_EQ(picks,
            (std::vector<TokenId>{767, 502, 286, 703, 495, 264, 649, 878, 638, 237, 488, 816}));
  sampler.Reset();
  for (const TokenId pick : picks) EXPECT_EQ(Pick(sampler, logits), pick);
}

TEST(SamplerTest, OtherSeedsPickOtherTokens) {
  const std::vector<float> logits(1000, 0.0f);
  SamplerOptions options = Plain();
  Sampler a = Make(options);
  options.seed = 2;
  Sampler b = Make(options);
  int equal = 0;
  for (int i = 0; i < 100; ++i) equal += Pick(a, logits) == Pick(b, logits);
  EXPECT_LT(equal, 5);
}

TEST(SamplerTest, ForbiddenTokensNeverCome) {
  std::vector<float> logits(50, -kInfinity);
  logits[7] = -80;
  logits[33] = -80;
  for (SamplerOptions options : {Plain(), SamplerOptions{}}) {
    Sampler sampler = Make(options);
    for (int i = 0; i < 200; ++i) {
      const TokenId token = Pick(sampler, logits);
      EXPECT_TRUE(token == 7 || token == 33) << token;
    }
  }
}

TEST(SamplerTest, PenaltyLowersRecentTokensOnceEach) {
  SamplerOptions options{.temperature = 0, .repeat_penalty = 2, .repeat_window = 3};
  Sampler sampler = Make(options);
  const std::vector<float> logits = {4, 3, 1.5f, -1};
  EXPECT_EQ(Pick(sampler, logits), 0);
  sampler.Accept(0);
  sampler.Accept(0);
  EXPECT_EQ(Pick(sampler, logits), 1) << "4 / 2 = 2, below 3";
  sampler.Accept(1);
  EXPECT_EQ(Pick(sampler, logits), 0) << "2, 1.5, 1.5, -1: twice accepted is not twice as bad";
  sampler.Accept(3);
  sampler.Accept(3);
  EXPECT_EQ(Pick(sampler, logits), 0) << "0 has left the window of three";
  sampler.Accept(2);
  sampler.Accept(0);
  sampler.Accept(1);
  EXPECT_EQ(Pick(sampler, {-3, -3.5f, -4, -5}), 3)
      << "negative logits are multiplied: -6, -7, -8, -5";
}

TEST(SamplerTest, PenaltyWindowMayBeNothingOrEverything) {
  const std::vector<float> logits = {4, 3, 0};
  SamplerOptions options{.temperature = 0, .repeat_penalty = 2, .repeat_window = 0};
  Sampler none = Make(options);
  options.repeat_window = -1;
  Sampler all = Make(options);
  none.Accept(0);
  all.Accept(0);
  for (int i = 0; i < 1000; ++i) all.Accept(2);
  EXPECT_EQ(Pick(none, logits), 0);
  EXPECT_EQ(Pick(all, logits), 1);
  all.Accept(kNoToken);
  all.Accept(1 << 30);  // not in these logits
  EXPECT_EQ(Pick(all, logits), 1);
  all.Reset();
  EXPECT_EQ(Pick(all, logits), 0);
}

TEST(SamplerTest, AfterAResetTheWindowHoldsTheLastTokensAgain) {
  const std::vector<float> logits = {3, 4, 5, 1};
  Sampler sampler = Make({.temperature = 0, .repeat_penalty = 10, .repeat_window = 2});
  for (const TokenId token : {0, 1, 2}) sampler.Accept(token);  // the ring has wrapped
  sampler.Reset();
  for (const TokenId token : {0, 1, 2}) sampler.Accept(token);
  EXPECT_EQ(Pick(sampler, logits), 0);  // 1 and 2 are the last two
}

TEST(SamplerTest, NanInfinityAndNothingAreErrorsThatSayWhere) {
  for (const double temperature : {0.0, 1.0}) {
    SamplerOptions options;
    options.temperature = temperature;
    Sampler sampler = Make(options);
    for (int i = 0; i < 12; ++i) sampler.Accept(1);
    for (const float bad : {kNan, -kNan, kInfinity}) {
      std::vector<float> logits(100, 1.0f);
      logits[77] = bad;
      const Result<TokenId> token = sampler.Sample(logits);
      ASSERT_FALSE(token);
      EXPECT_EQ(token.error().code, ErrorCode::kNumeric);
      EXPECT_NE(token.error().message.find("logit 77 of 100"), std::string::npos)
          << token.error().message;
      EXPECT_NE(token.error().message.find("position 12"), std::string::npos)
          << token.error().message;
    }
    const Result<TokenId> forbidden = sampler.Sample(std::vector<float>(5, -kInfinity));
    ASSERT_FALSE(forbidden);
    EXPECT_EQ(forbidden.error().code, ErrorCode::kNumeric);
    const Result<TokenId> nothing = sampler.Sample({});
    ASSERT_FALSE(nothing);
    EXPECT_EQ(nothing.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(Pick(sampler, {1, 90}), 1) << "and it goes on after an error";
  }
}

TEST(SamplerTest, OptionsOutOfRangeAreRefusedByName) {
  struct Case {
    const char* field;
    SamplerOptions options;
  };
  const Case cases[] = {
      {"temperature", {.temperature = std::numeric_limits<double>::quiet_NaN()}},
      {"temperature", {.temperature = std::numeric_limits<double>::infinity()}},
      {"top_k", {.top_k = -1}},
      {"top_p", {.top_p = 1.1}},
      {"top_p", {.top_p = -0.1}},
      {"top_p", {.top_p = std::numeric_limits<double>::quiet_NaN()}},
      {"min_p", {.min_p = 2}},
      {"repeat_penalty", {.repeat_penalty = 0}},
      {"repeat_penalty", {.repeat_penalty = std::numeric_limits<double>::infinity()}},
      {"repeat_window", {.repeat_window = -2}},
  };
  for (const Case& c : cases) {
    const Result<Sampler> sampler = Sampler::Create(c.options);
    ASSERT_FALSE(sampler) << c.field;
    EXPECT_EQ(sampler.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(sampler.error().message.rfind(std::string(c.field) + " = ", 0), 0u)
        << sampler.error().message;
  }
  EXPECT_TRUE(ValidateSamplerOptions({}));
}

TEST(PortableExpTest, AgreesWithTheLibraryToElevenDigits) {
  Random random(1);
  for (int i = 0; i < 200'000; ++i) {
    const double x = i < 100'000 ? random.Uniform(-1, 0) : random.Uniform(-700, 0);
    const double expected = std::exp(x);
    ASSERT_NEAR(PortableExp(x) / expected, 1.0, 1e-11) << x;
  }
  EXPECT_EQ(PortableExp(0.0), 1.0);
}

TEST(SamplerCostTest, ALargeVocabularyCostsLessThanSortingIt) {
  const std::vector<float> logits = RandomLogits(128'256, 9);
  SamplerOptions top_p;
  top_p.top_k = 0;
  SamplerOptions penalty;
  penalty.repeat_penalty = 1.1;
  const std::pair<const char*, SamplerOptions> cases[] = {{"defaults", {}},
                                                          {"greedy", {.temperature = 0}},
                                                          {"no top-k", top_p},
                                                          {"temperature alone", Plain()},
                                                          {"penalty", penalty}};
  const auto milliseconds = [](auto&& run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  };
  std::vector<std::pair<float, TokenId>> tokens(logits.size());
  for (const auto& [name, options] : cases) {
    Sampler sampler = Make(options);
    for (TokenId id = 0; id < 64; ++id) sampler.Accept(id * 1000);
    // The least of rounds that take turns: only the ratio is asserted.
    double best = HUGE_VAL, sorted = HUGE_VAL;
    for (int i = 0; i < 10; ++i) {
      best = std::min(best, milliseconds([&] { Pick(sampler, logits); }));
      for (std::size_t t = 0; t < tokens.size(); ++t)
        tokens[t] = {logits[t], static_cast<TokenId>(t)};
      sorted = std::min(sorted, milliseconds([&] { std::sort(tokens.begin(), tokens.end()); }));
    }
    std::printf("%-18s %.3f ms, a sort %.3f ms\n", name, best, sorted);
    EXPECT_LT(best, sorted) << name;
  }
}

/// The best `k` in the order of top_k (tilewright/top_k.h).
struct Best {
  std::vector<TokenId> ids;
  std::vector<float> logits;
};
Best BestOf(const std::vector<float>& logits, std::int32_t k) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return at(a) > at(b); });
  Best best;
  for (std::int32_t i = 0; i < k; ++i) {
    const TokenId id = order[static_cast<std::size_t>(i)];
    best.ids.push_back(at(id) == -kInfinity ? -1 : id);
    best.logits.push_back(at(id));
  }
  return best;
}

TEST(SamplerTest, TheBestLogitsGiveTheTokensThatAllOfThemGive) {
  const SamplerOptions cases[] = {
      {.temperature = 0},
      {.temperature = 0, .top_k = 0, .repeat_penalty = 1.5, .repeat_window = 0},
      {.seed = 3},
      {.temperature = 1, .top_k = 7, .top_p = 1, .min_p = 0, .seed = 4},
      {.temperature = 3, .top_k = 64, .top_p = 0.5, .min_p = 0, .seed = 5},
      {.temperature = 0.5, .top_k = 999, .seed = 6},
  };
  Random random(77);
  for (const SamplerOptions& options : cases) {
    Sampler all = Make(options), top = Make(options);
    for (int i = 0; i < 200; ++i) {
      std::vector<float> logits = RandomLogits(1000, random.Next());
      for (float& logit : logits) {
        if (i % 3 == 1) logit = std::round(logit);  // ties
        if (i % 5 == 2 && logit < 6) logit = -kInfinity;
        if (i % 4 == 3 && std::abs(logit) < 1) logit = std::copysign(0.0f, logit);
      }
      const std::int32_t k = top.TopNeeded(logits.size());
      ASSERT_GT(k, 0);
      const Best best = BestOf(logits, k);
      const Result<TokenId> want = all.Sample(logits), got = top.SampleTop(best.ids, best.logits);
      ASSERT_EQ(want.has_value(), got.has_value()) << "logits " << i;
      if (want) {
        ASSERT_EQ(*got, *want) << "top_k " << options.top_k << ", logits " << i;
      }
      all.Accept(want.value_or(0)), top.Accept(want.value_or(0));
    }
  }
}

TEST(SamplerTest, AllLogitsAreNeededWhereTheBestDoNotDecide) {
  const auto needed = [](const SamplerOptions& options, std::size_t vocab = 1000) {
    return Make(options).TopNeeded(vocab);
  };
  EXPECT_EQ(needed({.temperature = 0}), 1);
  EXPECT_EQ(needed({.temperature = 1e-310}), 1);
  EXPECT_EQ(needed({}), 40);
  EXPECT_EQ(needed({}, 41), 40);
  EXPECT_EQ(needed({}, 40), 0);
  EXPECT_EQ(needed({.top_k = 0}), 0);
  EXPECT_EQ(needed({.temperature = 0, .repeat_penalty = 1.1}), 0);
  EXPECT_EQ(needed({.repeat_penalty = 1.1}), 0);
  EXPECT_EQ(needed({.repeat_penalty = 1.1, .repeat_window = 0}), 40);
}

TEST(SamplerTest, BestLogitsOfAnotherNumberOrWithoutATokenAreRefused) {
  Sampler greedy = Make({.temperature = 0}), top = Make({.top_k = 2});
  const std::vector<TokenId> one = {5}, two = {5, 6}, none = {-1, -1};
  const std::vector<float> values = {3, 2};
  EXPECT_EQ(greedy.SampleTop(one, {}).value(), 5);
  EXPECT_THAT(top.SampleTop(two, values).value_or(-1), testing::AnyOf(5, 6));
  const auto code = [](const Result<TokenId>& result) {
    return result ? ErrorCode::kInternal : result.error().code;
  };
  EXPECT_EQ(code(greedy.SampleTop(two, values)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(greedy.SampleTop({}, {})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(top.SampleTop(one, values)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(top.SampleTop(two, {})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(Make({.top_k = 0}).SampleTop(one, values)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(Make({.repeat_penalty = 2}).SampleTop(two, values)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(top.SampleTop(none, values)), ErrorCode::kNumeric);
}

}  // namespace
}  // namespace tilewright
