// Which positions a pass may name: a cache is filled without gaps, and what it does not hold is
// never read.
#include <gmock/gmock.h>

#include "models.h"

namespace tilewright {
namespace {

using test::LogitsOf;
using test::RandomTokens;
using test::Runner;
using test::RunnerOptions;
using test::WriteTiny;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Positions : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = WriteTiny(folder_, "f32", test::TinyShape(), DataType::kF32);
    runner_ = Runner::Make(path, {.guarantee = Guarantee::kBatchInvariant,
                                  .context = 64,
                                  .slots = 2,
                                  .max_rows = 16,
                                  .threads = 1});
    ASSERT_NE(runner_, nullptr);
    vocab_ = runner_->model->config().vocab;
  }

  void Refuses(const std::vector<Row>& rows, const std::string& row, const std::string& words) {
    const auto logits = runner_->session->Forward(rows);
    ASSERT_FALSE(logits) << row << " " << words;
    EXPECT_EQ(logits.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(logits.error().message, AllOf(HasSubstr(row), HasSubstr(words)));
  }

  test::TempDir folder_;
  std::unique_ptr<Runner> runner_;
  int vocab_ = 0;
};

TEST_F(Positions, a_gap_after_what_a_slot_holds_is_refused_with_what_was_expected) {
  Session& session = *runner_->session;
  Refuses({{1, 1, 0, true}}, "row 0: position = 1", "0 to 0");
  ASSERT_TRUE(session.Forward(std::vector<Row>{{1, 0, 0}, {2, 1, 0}, {3, 2, 0}}));
  Refuses({{4, 20, 0, true}}, "row 0: position = 20", "0 to 3: slot 0 holds 3 positions");
  Refuses({{4, 3, 0, false}, {5, 1, 1, true}}, "row 1: position = 1", "slot 1 holds 0 positions");
  EXPECT_TRUE(session.Forward(std::vector<Row>{{4, 3, 0, true}, {5, 0, 1, true}}));
}

TEST_F(Positions, rows_of_a_slot_that_repeat_descend_or_skip_within_a_pass_are_refused) {
  Refuses({{1, 0, 0}, {2, 0, 0, true}}, "row 1: position = 0", "must be 1");
  Refuses({{1, 0, 0}, {2, 1, 0}, {3, 0, 0, true}}, "row 2: position = 0", "must be 2");
  Refuses({{1, 0, 0}, {2, 2, 0, true}}, "row 1: position = 2", "must be 1");
  // A refused pass fills nothing.
  Refuses({{1, 1, 0, true}}, "row 0: position = 1", "0 to 0");
}

TEST_F(Positions, a_slot_that_goes_back_forgets_what_lay_behind_and_gives_the_same_numbers) {
  Session& session = *runner_->session;
  const std::vector<TokenId> tokens = RandomTokens(12, vocab_, 5);
  const std::vector<float> whole = LogitsOf(session, tokens, 0, 0, 12);
  const std::vector<TokenId> other = RandomTokens(8, vocab_, 6);
  LogitsOf(session, other, 0, 4, 8);
  const std::vector<float> again = LogitsOf(session, std::span(tokens).subspan(4), 0, 4, 3);
  ASSERT_EQ(again.size(), 8 * static_cast<std::size_t>(vocab_));
  EXPECT_TRUE(std::equal(again.begin(), again.end(), whole.end() - 8 * vocab_));
  ASSERT_TRUE(session.Forward(std::vector<Row>{{1, 2, 0, true}}));
  Refuses({{1, 4, 0, true}}, "row 0: position = 4", "slot 0 holds 3 positions");
}

TEST_F(Positions, perplexity_does_not_depend_on_the_rows_of_a_pass) {
  const std::vector<TokenId> text = RandomTokens(50, vocab_, 8);
  EXPECT_EQ(runner_->session->max_rows(), 16);
  const auto narrow = Perplexity(*runner_->session, text, {.window = 40});
  ASSERT_TRUE(narrow) << narrow.error().message;
  EXPECT_EQ(narrow->tokens, 48);
  RunnerOptions wide{.guarantee = Guarantee::kBatchInvariant, .context = 64, .threads = 1};
  const auto runner = Runner::Make(folder_ / "f32.gguf", wide);
  ASSERT_NE(runner, nullptr);
  EXPECT_EQ(runner->session->max_rows(), 64);
  const auto whole = Perplexity(*runner->session, text, {.window = 40});
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(narrow->nll_mean, whole->nll_mean);
}

}  // namespace
}  // namespace tilewright
