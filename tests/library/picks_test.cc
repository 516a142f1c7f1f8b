// The comparison of greedy texts, on made-up logits and, where there is a model, on two precisions of
// the CPU; cuda_text_test.cc is the same for a GPU.
#include "picks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

namespace tilewright {
namespace {

using test::DifferentPick;
using test::DifferentPicks;

TEST(Picks, that_are_the_best_of_the_wanted_logits_are_no_difference) {
  const std::vector<float> want = {1, 3, 2, 0, 0, 5}, got = {1, 2.9F, 2, 0, 1, 4};
  EXPECT_TRUE(DifferentPicks(std::vector<TokenId>{1, 2}, got, want, 3).empty());
}

TEST(Picks, that_differ_by_what_the_logits_are_off_are_near_ties) {
  const std::vector<float> want = {0, 0, 9, 1, 3.0F, 2.75F}, got = {0, 0, 9, 1, 2.75F, 3.0F};
  const auto found = DifferentPicks(std::vector<TokenId>{2, 2}, got, want, 3);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].at, 1U);
  EXPECT_EQ(found[0].wanted, 1);
  EXPECT_EQ(found[0].got, 2);
  EXPECT_EQ(found[0].gap, 0.25);
  EXPECT_EQ(found[0].error_wanted, 0.25);
  EXPECT_EQ(found[0].error_got, 0.25);
  EXPECT_NEAR(found[0].rms, std::sqrt((1 + 9 + 2.75 * 2.75) / 3), 1e-12);
  EXPECT_TRUE(found[0].NearTie());
  EXPECT_TRUE(found[0].Within(0.11));
  EXPECT_FALSE(found[0].Within(0.10));
}

TEST(Picks, of_a_token_that_is_behind_by_more_than_the_errors_are_no_near_ties) {
  // The device's logits are right, and it picks another token nevertheless.
  const std::vector<float> want = {1, 3, 2}, got = {1, 2.9F, 2.1F};
  const auto found = DifferentPicks(std::vector<TokenId>{2}, got, want, 3);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_FALSE(found[0].NearTie());
  EXPECT_TRUE(found[0].Within(0.1));
}

TEST(Picks, of_logits_that_are_wrong_are_explained_but_not_within_what_is_allowed) {
  const std::vector<float> want = {1, 8, 2}, got = {1, 8, 9};
  const auto found = DifferentPicks(std::vector<TokenId>{2}, got, want, 3);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].NearTie());
  EXPECT_FALSE(found[0].Within(0.5));
}

TEST(Picks, of_logits_that_are_no_numbers_are_never_excused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& got : {std::vector<float>{nan, 3, 2}, {1, nan, 2}, {1, 3, nan}}) {
    const auto found = DifferentPicks(std::vector<TokenId>{0}, got, std::vector<float>{1, 3, 2}, 3);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_FALSE(found[0].NearTie() && found[0].Within(10));
  }
}

TEST(Picks, of_smollm2_in_int8_differ_from_those_in_f32_only_in_near_ties) {
  const char* const path = std::getenv("TILEWRIGHT_MODEL");
  if (path == nullptr || !std::filesystem::exists(path)) GTEST_SKIP() << "no SmolLM2 here";
  const auto exact = test::Runner::Make(path, {.context = 128});
  const auto rounded =
      test::Runner::Make(path, {.activations = Precision::kAuto, .kv = DataType::kF16});
  ASSERT_TRUE(exact != nullptr && rounded != nullptr);
  const Result<Tokenizer> tokenizer = Tokenizer::FromGguf(exact->model->file());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto vocab = static_cast<std::size_t>(exact->model->config().vocab);
  std::size_t rows = 0, different = 0;
  for (const std::string& text : test::GreedyPrompts()) {
    const std::vector<TokenId> prompt = tokenizer->Encode(text).value();
    const test::Picks want =
        test::PickTokens(*exact->session, prompt, {}, 24, tokenizer->end_of_generation());
    const test::Picks got = test::PickTokens(*rounded->session, prompt, want.ids, want.ids.size());
    for (const DifferentPick& pick : DifferentPicks(got.ids, got.logits, want.logits, vocab)) {
      EXPECT_TRUE(pick.NearTie()) << text << ", token " << pick.at;
      EXPECT_TRUE(pick.Within(4 * test::kCpuInt8.p95)) << text << ", token " << pick.at;
      ++different;
    }
    rows += want.ids.size();
  }
  EXPECT_GT(rows, 150U);
  EXPECT_LT(different, rows / 10);
}

}  // namespace
}  // namespace tilewright
