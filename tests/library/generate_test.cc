// Generate(): why it stops, what it refuses, and that a seed is a seed.
#include "tilewright/generate.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "models.h"
#include "serving.h"

namespace tilewright {
namespace {

using test::RandomTokens;
using test::Runner;
using ::testing::AllOf;
using ::testing::HasSubstr;

class GenerateTest : public testing::Test {
 protected:
  void SetUp() override {
    runner_ = Runner::Make(test::WriteTiny(folder_, "q4_1", test::TinyShape(), DataType::kQ4_1),
                           {.context = 64});
    ASSERT_NE(runner_, nullptr);
    vocab_ = runner_->model->config().vocab;
    prompt_ = RandomTokens(10, vocab_, 9);
  }
  GenerateResult Run(const GenerateOptions& options, std::span<const TokenId> end = {}) {
    auto result = Generate(*runner_->session, prompt_, end, options);
    if (!result) {
      ADD_FAILURE() << result.error().message;
      return {};
    }
    EXPECT_EQ(result->prompt_tokens, static_cast<std::int32_t>(prompt_.size()));
    return *result;
  }
  static GenerateOptions Greedy(int tokens) {
    GenerateOptions options;
    options.max_tokens = tokens;
    options.sampler.temperature = 0;
    return options;
  }

  test::TempDir folder_;
  std::unique_ptr<Runner> runner_;
  int vocab_ = 0;
  std::vector<TokenId> prompt_;
};

TEST_F(GenerateTest, the_same_seed_gives_the_same_tokens_and_another_one_others) {
  GenerateOptions options;
  options.max_tokens = 24;
  options.sampler.temperature = 1.5;
  options.sampler.seed = 42;
  const std::vector<TokenId> first = Run(options).tokens;
  EXPECT_EQ(first.size(), 24u);
  EXPECT_EQ(Run(options).tokens, first);
  options.sampler.seed = 43;
  EXPECT_NE(Run(options).tokens, first);
}

TEST_F(GenerateTest, greedy_follows_the_largest_logit_of_each_position) {
  const std::vector<TokenId> tokens = Run(Greedy(6)).tokens;
  ASSERT_EQ(tokens.size(), 6u);
  std::vector<TokenId> all = prompt_;
  all.insert(all.end(), tokens.begin(), tokens.end());
  const std::vector<float> logits = test::LogitsOf(*runner_->session, all, 0, 0, 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>((prompt_.size() - 1 + i) *
                                                                  static_cast<std::size_t>(vocab_));
    EXPECT_EQ(std::max_element(row, row + vocab_) - row, tokens[i]) << "token " << i;
  }
}

TEST_F(GenerateTest, it_stops_before_a_token_that_ends_the_text_unless_told_to_ignore_it) {
  const std::vector<TokenId> free = Run(Greedy(8)).tokens;
  ASSERT_EQ(free.size(), 8u);
  const TokenId end = free[5];
  const auto first = std::find(free.begin(), free.end(), end);
  const GenerateResult stopped = Run(Greedy(8), std::span(&end, 1));
  EXPECT_EQ(stopped.reason, StopReason::kEndOfText);
  EXPECT_EQ(stopped.tokens, std::vector<TokenId>(free.begin(), first));
  GenerateOptions ignoring = Greedy(8);
  ignoring.ignore_end_of_text = true;
  const GenerateResult all = Run(ignoring, std::span(&end, 1));
  EXPECT_EQ(all.tokens, free);
  EXPECT_EQ(all.reason, StopReason::kLength);
}

TEST_F(GenerateTest, no_token_and_one_token_are_lengths_too) {
  const GenerateResult none = Run(Greedy(0));
  EXPECT_TRUE(none.tokens.empty());
  EXPECT_EQ(none.reason, StopReason::kLength);
  EXPECT_GT(none.prompt_seconds, 0);
  const GenerateResult one = Run(Greedy(1));
  EXPECT_EQ(one.tokens, std::vector<TokenId>{Run(Greedy(3)).tokens[0]});
  EXPECT_EQ(one.reason, StopReason::kLength);
  EXPECT_EQ(one.decode_tokens_per_second(), 0) << "nothing was decoded after the first token";
}

TEST_F(GenerateTest, the_callback_sees_every_token_and_may_stop) {
  GenerateOptions options = Greedy(20);
  std::vector<TokenId> seen;
  options.on_token = [&](TokenId token) {
    seen.push_back(token);
    return seen.size() < 3;
  };
  const GenerateResult result = Run(options);
  EXPECT_EQ(result.reason, StopReason::kCancelled);
  EXPECT_EQ(result.tokens, seen);
  EXPECT_EQ(seen.size(), 3u);
}

TEST_F(GenerateTest, a_flag_set_elsewhere_stops_it) {
  std::atomic<bool> cancel{false};
  GenerateOptions options = Greedy(20);
  options.cancel = &cancel;
  int tokens = 0;
  options.on_token = [&](TokenId) {
    cancel = ++tokens == 2;
    return true;
  };
  const GenerateResult result = Run(options);
  EXPECT_EQ(result.reason, StopReason::kCancelled);
  EXPECT_EQ(result.tokens.size(), 2u);
}

TEST_F(GenerateTest, a_flag_set_elsewhere_stops_it_between_the_passes_of_a_prompt) {
  std::atomic<bool> cancel{false};
  int passes = 0;
  const auto traced = MakeTraceDispatch(runner_->dispatch(), [&](std::string_view line) {
    if (line.find(" embedding ") != std::string_view::npos) cancel = ++passes == 2;
  });
  const auto session = Session::Create(*runner_->model, *traced, {.context = 64, .max_rows = 3});
  ASSERT_TRUE(session) << session.error().message;
  GenerateOptions options = Greedy(4);
  options.cancel = &cancel;
  const auto result = Generate(**session, prompt_, {}, options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(passes, 2);
  EXPECT_EQ(result->reason, StopReason::kCancelled);
  EXPECT_TRUE(result->tokens.empty());
  EXPECT_EQ(result->prompt_tokens_per_second(), 0);
  // What ran is held, and no more.
  const Row beyond{prompt_[7], 7, 0, true};
  EXPECT_FALSE((*session)->Forward(std::span(&beyond, 1)));
  const auto rest = std::span<const TokenId>(prompt_).subspan(6);
  const auto refused = (*session)->Prefill(rest, 0, 6, &cancel);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCancelled);
  cancel = false;
  EXPECT_TRUE((*session)->Prefill(rest, 0, 6, &cancel));
}

TEST_F(GenerateTest, a_full_context_stops_it_and_says_so) {
  // 64 positions: 10 of the prompt, 54 generated tokens that were fed, and one more that was picked
  // from the last of them.
  const GenerateResult result = Run(Greedy(-1));
  EXPECT_EQ(result.reason, StopReason::kContextFull);
  EXPECT_EQ(result.tokens.size(), 55u);
  prompt_ = RandomTokens(64, vocab_, 3);
  const GenerateResult full = Run(Greedy(5));
  EXPECT_EQ(full.reason, StopReason::kContextFull);
  EXPECT_EQ(full.tokens.size(), 1u);
}

TEST_F(GenerateTest, a_limit_beyond_the_context_reserves_no_memory_for_it) {
  const GenerateResult result = Run(Greedy(std::numeric_limits<int>::max()));
  EXPECT_EQ(result.reason, StopReason::kContextFull);
  EXPECT_LE(result.tokens.capacity(), 128u);
}

TEST_F(GenerateTest, a_prompt_beyond_the_context_is_refused_with_both_lengths) {
  const std::vector<TokenId> prompt = RandomTokens(65, vocab_, 3);
  const auto result = Generate(*runner_->session, prompt, {}, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().message, AllOf(HasSubstr("65 tokens"), HasSubstr("holds 64")));
}

TEST_F(GenerateTest, an_empty_prompt_and_impossible_options_are_refused) {
  EXPECT_THAT(Generate(*runner_->session, {}, {}, {}).error().message, HasSubstr("empty"));
  GenerateOptions options;
  options.sampler.top_p = 2;
  EXPECT_THAT(Generate(*runner_->session, prompt_, {}, options).error().message,
              HasSubstr("top_p"));
  options = {};
  options.slot = 1;
  EXPECT_THAT(Generate(*runner_->session, prompt_, {}, options).error().message,
              HasSubstr("slot = 1"));
}

TEST_F(GenerateTest, tokens_and_rows_out_of_range_are_named_and_leave_the_session_usable) {
  const std::vector<TokenId> before = Run(Greedy(4)).tokens;
  Session& session = *runner_->session;
  const auto refuses = [&](Row row, const std::string& words,
                           ErrorCode code = ErrorCode::kInvalidArgument) {
    const std::vector<Row> rows = {{1, 0, 0, true}, row};
    const auto logits = session.Forward(rows);
    ASSERT_FALSE(logits);
    EXPECT_EQ(logits.error().code, code) << logits.error().message;
    EXPECT_THAT(logits.error().message, AllOf(HasSubstr("row 1"), HasSubstr(words)));
  };
  refuses({vocab_, 1, 0, true}, "token = 512");
  refuses({-1, 1, 0, true}, "token = -1");
  refuses({1, 1, 1, true}, "slot = 1");
  refuses({1, 64, 0, true}, "position = 64", ErrorCode::kExhausted);
  refuses({1, -1, 0, true}, "position = -1", ErrorCode::kExhausted);
  EXPECT_FALSE(session.Forward({}));
  EXPECT_FALSE(session.GraphFor(0, 0));
  EXPECT_FALSE(session.GraphFor(2, 3));
  EXPECT_EQ(Run(Greedy(4)).tokens, before);
}

TEST_F(GenerateTest, the_best_logits_decide_as_all_of_them_do) {
  const SessionOptions options{.kv = DataType::kF32, .context = 64, .slots = 2};
  auto all = Session::Create(*runner_->model, *runner_->cpu, options);
  auto best = Session::Create(*runner_->model, *runner_->cpu, options);
  ASSERT_TRUE(all && best);
  test::ExpectBestOfAllLogits(**all, **best, vocab_);
  test::ExpectGeneratedAsSampled(**best, **all, vocab_);
}

TEST_F(GenerateTest, passes_submitted_ahead_find_what_passes_in_turn_find) {
  const SessionOptions options{
      .kv = DataType::kF32, .context = 192, .slots = 2, .max_rows = 64, .page_size = 64};
  auto ahead = Session::Create(*runner_->model, *runner_->cpu, options);
  auto in_turn = Session::Create(*runner_->model, *runner_->cpu, options);
  ASSERT_TRUE(ahead && in_turn);
  EXPECT_FALSE((*ahead)->asynchronous());
  test::ExpectSubmittedAsInTurn(**ahead, **in_turn, vocab_);
}

TEST_F(GenerateTest, a_pass_that_cannot_be_submitted_is_refused_and_changes_nothing) {
  const SessionOptions options{.kv = DataType::kF32, .context = 8, .slots = 2};
  auto created = Session::Create(*runner_->model, *runner_->cpu, options);
  ASSERT_TRUE(created) << created.error().message;
  Session& session = **created;
  const auto refused = [&](const std::vector<Row>& rows) -> std::string {
    const Status submitted = session.Submit(rows);
    return submitted ? "" : submitted.error().message;
  };
  EXPECT_FALSE(session.Receive());
  EXPECT_THAT(refused({{kBestOfLast, 0, 0, true}}), HasSubstr("no pass was submitted in front"));
  EXPECT_THAT(refused({{3, 0, 0, true}, {4, 1, 0, false}}), HasSubstr("row 1"));
  EXPECT_THAT(refused({{3, 1, 0, true}}), HasSubstr("must be 0 to 0"));
  EXPECT_THAT(refused({}), HasSubstr("0 rows"));
  ASSERT_TRUE(session.Submit(std::vector<Row>{{3, 0, 0, true}, {4, 0, 1, true}}));
  EXPECT_THAT(refused({{kBestOfLast, 1, 0, true}, {4, 1, 1, true}}), HasSubstr("all rows or none"));
  EXPECT_THAT(refused({{kBestOfLast, 1, 1, true}}), HasSubstr("in slot 1"));
  EXPECT_THAT(refused({{kBestOfLast, 2, 0, true}}), HasSubstr("position = 2"));
  EXPECT_THAT(refused({{kBestOfLast, 8, 0, true}}), HasSubstr("position = 8"));
  ASSERT_TRUE(session.Submit(std::vector<Row>{{kBestOfLast, 1, 0, true}}));
  EXPECT_THAT(refused({{kBestOfLast, 2, 0, true}}), HasSubstr("2 passes are submitted"));
  EXPECT_THAT(refused({{7, 2, 0, true}}), HasSubstr("2 passes are submitted"));
  EXPECT_EQ(session.Receive().value().size(), 2u);
  EXPECT_EQ(session.Receive().value().size(), 1u);
  EXPECT_FALSE(session.Receive());
}

TEST_F(GenerateTest, a_row_without_an_order_has_no_best_and_all_its_logits_can_be_read) {
  SynthShape shape = test::TinyShape();
  shape.tied = false;  // so that the embedding of a token is no part of every token's logits
  test::EditedModel edited(test::WriteTiny(folder_, "untied", shape, DataType::kF32));
  auto& table = edited.tensor("token_embd.weight");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto hidden = static_cast<std::size_t>(table.spec.shape[0]);
  ASSERT_EQ(table.spec.dtype, DataType::kF32);
  std::memcpy(table.bytes.data() + 5 * hidden * sizeof nan, &nan, sizeof nan);  // of token 5
  edited.Write(folder_ / "nan.gguf");
  const auto runner = Runner::Make(folder_ / "nan.gguf", {.context = 64, .slots = 2});
  ASSERT_NE(runner, nullptr);
  Session& session = *runner->session;
  EXPECT_FALSE(session.Logits()) << "no pass ran yet";
  const std::vector<Row> rows = {{4, 0, 0, true}, {5, 0, 1, true}};
  for (const std::int32_t k : {1, 3}) {
    const auto best = session.ForwardTop(rows, k);
    ASSERT_TRUE(best) << best.error().message;
    EXPECT_GE(best->ids[0], 0);
    EXPECT_EQ(best->ids[static_cast<std::size_t>(k)], -1);
    const auto logits = session.Logits();
    ASSERT_TRUE(logits) << logits.error().message;
    ASSERT_EQ(logits->size(), 2 * static_cast<std::size_t>(vocab_));
    EXPECT_TRUE(std::isfinite(logits->front()));
    EXPECT_TRUE(std::isnan(logits->back()));
  }
  const auto refused = session.ForwardTop(rows, 0);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("k = 0"));
  // A text that comes to such a token ends with what is wrong, as with all logits.
  GenerateOptions options = Greedy(20);
  const auto sound = Generate(session, std::vector<TokenId>{4}, {}, options);
  ASSERT_TRUE(sound) << sound.error().message;
  const auto at = static_cast<std::size_t>(sound->tokens.at(1)) * hidden * sizeof nan;
  std::memcpy(table.bytes.data() + at, &nan, sizeof nan);
  edited.Write(folder_ / "later.gguf");
  const auto later = Runner::Make(folder_ / "later.gguf", {.context = 64});
  ASSERT_NE(later, nullptr);
  const auto broken = Generate(*later->session, std::vector<TokenId>{4}, {}, options);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, ErrorCode::kNumeric);
  EXPECT_THAT(broken.error().message, AllOf(HasSubstr("logit 0 of"), HasSubstr("is NaN")));
}

TEST_F(GenerateTest,
       perplexity_of_a_random_model_is_near_its_vocabulary_and_equals_what_the_logits_say) {
  const std::vector<TokenId> text = RandomTokens(40, vocab_, 8);
  const auto result = Perplexity(*runner_->session, text, {.window = 40});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->tokens, 39);
  const std::vector<float> logits = test::LogitsOf(*runner_->session, text, 0, 0, 40);
  double sum = 0;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    double total = 0;
    const float* row = logits.data() + i * static_cast<std::size_t>(vocab_);
    for (int t = 0; t < vocab_; ++t) total += std::exp(static_cast<double>(row[t]));
    sum += std::log(total) - static_cast<double>(row[text[i + 1]]);
  }
  EXPECT_NEAR(result->nll_mean, sum / 39, 1e-4);
  EXPECT_GT(result->perplexity, vocab_ / 4.0);
}

TEST_F(GenerateTest, only_the_second_half_of_full_windows_counts_where_asked) {
  const std::vector<TokenId> text = RandomTokens(50, vocab_, 8);
  const TokenId bos = 3;
  const auto result =
      Perplexity(*runner_->session, text, {.window = 20, .second_half_only = true, .bos = bos});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->tokens, 2 * 9);
  double sum = 0;
  for (const std::size_t from : {0u, 20u}) {
    std::vector<TokenId> window(text.begin() + from, text.begin() + from + 20);
    window[0] = bos;
    const std::vector<float> logits = test::LogitsOf(*runner_->session, window, 0, 0, 20);
    for (std::size_t i = 10; i + 1 < 20; ++i) {
      const float* row = logits.data() + i * static_cast<std::size_t>(vocab_);
      double total = 0;
      for (int t = 0; t < vocab_; ++t) total += std::exp(static_cast<double>(row[t]));
      sum += std::log(total) - static_cast<double>(row[window[i + 1]]);
    }
  }
  EXPECT_NEAR(result->nll_mean, sum / 18, 1e-4);
  const auto little = Perplexity(*runner_->session, std::span(text).first(19),
                                 {.window = 20, .second_half_only = true});
  ASSERT_FALSE(little);
  EXPECT_THAT(little.error().message, AllOf(HasSubstr("19 tokens"), HasSubstr("20")));
}

TEST_F(GenerateTest, a_model_does_not_differ_from_itself_but_from_another_one) {
  const std::vector<TokenId> text = RandomTokens(40, vocab_, 8);
  const auto twin = Runner::Make(folder_ / "q4_1.gguf", {.context = 64});
  ASSERT_NE(twin, nullptr);
  const auto same = CompareModels(*runner_->session, *twin->session, text, {.window = 40});
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->own.tokens, 39);
  EXPECT_NEAR(same->kl_max, 0, 1e-12);
  EXPECT_EQ(same->log_ratio, 0);
  EXPECT_EQ(same->same_top, 1);
  const auto other = Runner::Make(
      test::WriteTiny(folder_, "q8_0", test::TinyShape(), DataType::kQ8_0), {.context = 64});
  ASSERT_NE(other, nullptr);
  const auto far = CompareModels(*runner_->session, *other->session, text, {.window = 40});
  ASSERT_TRUE(far) << far.error().message;
  EXPECT_GT(far->kl_mean, 0);
  EXPECT_GE(far->kl_max, far->kl_p99);
  EXPECT_GE(far->kl_p99, far->kl_median);
  EXPECT_GT(far->kl_error, 0);
  EXPECT_NEAR(far->log_ratio, far->own.nll_mean - far->base.nll_mean, 1e-9);
}

/// log softmax of one row of logits, by its definition in double.
std::vector<double> LogProbabilities(std::span<const float> logits) {
  double total = 0;
  for (const float x : logits) total += std::exp(static_cast<double>(x));
  std::vector<double> result;
  for (const float x : logits) result.push_back(static_cast<double>(x) - std::log(total));
  return result;
}

TEST_F(GenerateTest, divergences_are_what_the_logits_of_both_models_say) {
  const auto base = Runner::Make(
      test::WriteTiny(folder_, "q8_0", test::TinyShape(), DataType::kQ8_0), {.context = 64});
  ASSERT_NE(base, nullptr);
  const std::vector<TokenId> text = RandomTokens(40, vocab_, 8);
  const auto got = CompareModels(*runner_->session, *base->session, text, {.window = 16});
  ASSERT_TRUE(got) << got.error().message;

  const auto vocab = static_cast<std::size_t>(vocab_);
  std::vector<double> kl, ratios;
  double own_nll = 0, base_nll = 0, same = 0;
  for (const std::size_t from : {0u, 16u, 32u}) {
    const std::size_t size = std::min<std::size_t>(16, text.size() - from);
    const auto window = std::span<const TokenId>(text).subspan(from, size);
    // As many rows in a pass as CompareModels takes, so that the logits have the same bits.
    const auto rows = window.first(size - 1);
    const auto chunk = static_cast<int>(rows.size());
    const std::vector<float> own = test::LogitsOf(*runner_->session, rows, 0, 0, chunk);
    const std::vector<float> other = test::LogitsOf(*base->session, rows, 0, 0, chunk);
    ASSERT_EQ(own.size(), rows.size() * vocab);
    ASSERT_EQ(other.size(), own.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::vector<double> q = LogProbabilities(std::span(own).subspan(i * vocab, vocab));
      const std::vector<double> p = LogProbabilities(std::span(other).subspan(i * vocab, vocab));
      double sum = 0;
      for (std::size_t t = 0; t < vocab; ++t) sum += std::exp(p[t]) * (p[t] - q[t]);
      kl.push_back(sum);
      const auto target = static_cast<std::size_t>(window[i + 1]);
      own_nll -= q[target];
      base_nll -= p[target];
      ratios.push_back(p[target] - q[target]);
      same += std::max_element(p.begin(), p.end()) - p.begin() ==
                      std::max_element(q.begin(), q.end()) - q.begin()
                  ? 1
                  : 0;
    }
  }
  // Mean and its standard error in two passes; the library sums squares in one.
  const auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double v : values) sum += v;
    return sum / static_cast<double>(values.size());
  };
  const auto error = [&](const std::vector<double>& values) {
    const double center = mean(values), n = static_cast<double>(values.size());
    double squares = 0;
    for (const double v : values) squares += (v - center) * (v - center);
    return std::sqrt(squares / (n * (n - 1)));
  };
  ASSERT_EQ(kl.size(), 15u + 15u + 7u);
  const double n = static_cast<double>(kl.size());
  EXPECT_EQ(got->own.tokens, 37);
  EXPECT_NEAR(got->own.nll_mean, own_nll / n, 1e-10);
  EXPECT_NEAR(got->base.nll_mean, base_nll / n, 1e-10);
  EXPECT_NEAR(got->log_ratio, mean(ratios), 1e-10);
  EXPECT_NEAR(got->log_ratio_error, error(ratios), 1e-10);
  EXPECT_NEAR(got->kl_mean, mean(kl), 1e-10);
  EXPECT_NEAR(got->kl_error, error(kl), 1e-10);
  EXPECT_NEAR(got->same_top, same / n, 1e-10);
  std::sort(kl.begin(), kl.end());
  ASSERT_GT(kl.front(), 1e-6) << "so close that the tolerance would hide an error";
  EXPECT_NEAR(got->kl_median, kl[18], 1e-10);
  EXPECT_NEAR(got->kl_p99, 0.36 * kl[35] + 0.64 * kl[36], 1e-10);
  EXPECT_NEAR(got->kl_max, kl[36], 1e-10);
  // The divergence has a direction.
  const auto swapped = CompareModels(*base->session, *runner_->session, text, {.window = 16});
  ASSERT_TRUE(swapped) << swapped.error().message;
  EXPECT_GT(std::abs(swapped->kl_mean - got->kl_mean), 1e-8);
}

TEST_F(GenerateTest, what_the_slot_holds_is_not_evaluated_again) {
  const GenerateResult first = Run(Greedy(6));
  // The next turn: the prompt, the answer but its last token, and something new.
  std::vector<TokenId> next = prompt_;
  next.insert(next.end(), first.tokens.begin(), first.tokens.end() - 1);
  const auto held = static_cast<std::int32_t>(next.size());
  for (const TokenId token : RandomTokens(5, vocab_, 3)) next.push_back(token);
  GenerateOptions options = Greedy(8);
  options.cached_tokens = held;
  const auto reused = Generate(*runner_->session, next, {}, options);
  ASSERT_TRUE(reused) << reused.error().message;
  EXPECT_EQ(reused->cached_tokens, held);
  const auto whole = Generate(*runner_->session, next, {}, Greedy(8));
  ASSERT_TRUE(whole);
  EXPECT_EQ(reused->tokens, whole->tokens);
  EXPECT_EQ(whole->cached_tokens, 0);

  // A slot that holds other tokens gives other ones: what it holds is used as it is.
  std::vector<TokenId> other = RandomTokens(held, vocab_, 77);
  ASSERT_TRUE(runner_->session->Prefill(other, 0, 0));
  const auto wrong = Generate(*runner_->session, next, {}, options);
  ASSERT_TRUE(wrong);
  EXPECT_NE(wrong->tokens, whole->tokens);
}

TEST_F(GenerateTest, a_prompt_that_is_held_whole_still_evaluates_its_last_token) {
  const GenerateResult first = Run(Greedy(4));
  GenerateOptions options = Greedy(4);
  options.cached_tokens = static_cast<std::int32_t>(prompt_.size());
  const GenerateResult again = Run(options);
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(again.cached_tokens, options.cached_tokens - 1);
  ++options.cached_tokens;
  const auto beyond = Generate(*runner_->session, prompt_, {}, options);
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message, AllOf(HasSubstr("cached_tokens = 11"), HasSubstr("10")));
}

TEST(CommonPrefixTest, ends_where_tokens_differ_or_one_ends) {
  const std::vector<TokenId> a = {1, 2, 3}, b = {1, 2, 4, 5};
  EXPECT_EQ(CommonPrefix(a, b), 2);
  EXPECT_EQ(CommonPrefix(a, a), 3);
  EXPECT_EQ(CommonPrefix(a, std::span(a).first(2)), 2);
  EXPECT_EQ(CommonPrefix({}, a), 0);
}

}  // namespace
}  // namespace tilewright
