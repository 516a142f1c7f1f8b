#include "tilewright/batch_scheduler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/random.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

std::vector<TokenId> Tokens(std::int32_t count, TokenId first) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

BatchScheduler Make(const BatchSchedulerOptions& options) {
  Result<BatchScheduler> made = BatchScheduler::Create(options);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

/// The token that a pass finds in these tests: it tells the slot and the position of its row.
TokenId FoundBy(const Row& row) { return 1000 * (row.slot + 1) + row.position; }

std::vector<TokenId> FoundBy(std::span<const Row> rows) {
  std::vector<TokenId> found;
  for (const Row& row : rows) {
    if (row.logits) found.push_back(FoundBy(row));
  }
  return found;
}

bool Same(const Row& a, const Row& b) {
  return a.token == b.token && a.position == b.position && a.slot == b.slot && a.logits == b.logits;
}

TEST(BatchScheduler, a_prompt_that_does_not_fit_comes_in_pieces_beside_who_generates) {
  BatchScheduler scheduler = Make({.slots = 2, .max_rows = 4, .context = 16});
  ASSERT_EQ(scheduler.Add({7, 8}, 3).value(), 0);
  ASSERT_EQ(scheduler.Add(Tokens(5, 50), 2).value(), 1);
  std::span<const Row> rows = scheduler.Next();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_TRUE(Same(rows[0], Row{7, 0, 0, false}));
  EXPECT_TRUE(Same(rows[1], Row{8, 1, 0, true}));
  EXPECT_TRUE(Same(rows[2], Row{50, 0, 1, false}));
  EXPECT_TRUE(Same(rows[3], Row{51, 1, 1, false}));
  auto taken = scheduler.Take(std::vector<TokenId>{90});
  ASSERT_TRUE(taken) << taken.error().message;
  ASSERT_EQ(taken->size(), 1u);
  EXPECT_EQ((*taken)[0].token, 90);
  EXPECT_FALSE((*taken)[0].last);

  rows = scheduler.Next();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_TRUE(Same(rows[0], Row{90, 2, 0, true})) << "who generates comes first";
  EXPECT_TRUE(Same(rows[1], Row{52, 2, 1, false}));
  EXPECT_TRUE(Same(rows[3], Row{54, 4, 1, true}));
  taken = scheduler.Take(std::vector<TokenId>{91, 95});
  ASSERT_TRUE(taken) << taken.error().message;
  ASSERT_EQ(taken->size(), 2u);
  EXPECT_EQ((*taken)[0].sequence, 0);
  EXPECT_EQ((*taken)[1].sequence, 1);
  EXPECT_EQ((*taken)[1].token, 95);

  rows = scheduler.Next();
  ASSERT_EQ(rows.size(), 2u);
  taken = scheduler.Take(std::vector<TokenId>{92, 96});
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_TRUE((*taken)[0].last);
  EXPECT_TRUE((*taken)[1].last);
  EXPECT_TRUE(scheduler.Next().empty());
  EXPECT_EQ(scheduler.running(), 0);
}

TEST(BatchScheduler, without_mixing_nobody_generates_while_a_prompt_could_run) {
  BatchScheduler scheduler = Make({.slots = 2, .max_rows = 4, .context = 16, .mixed = false});
  ASSERT_TRUE(scheduler.Add(Tokens(2, 10), 2));
  ASSERT_TRUE(scheduler.Add(Tokens(7, 50), 1));
  for (const std::size_t want : {4u, 4u, 1u}) {
    const std::span<const Row> rows = scheduler.Next();
    EXPECT_EQ(rows.size(), want);
    ASSERT_TRUE(scheduler.Take(FoundBy(rows)));
  }
  EXPECT_EQ(scheduler.Next()[0].token, 1001);
}

TEST(BatchScheduler, the_end_of_text_gives_the_slot_to_who_waits) {
  BatchScheduler scheduler =
      Make({.slots = 1, .max_rows = 8, .context = 16, .end_of_text = {2, 3}});
  ASSERT_TRUE(scheduler.Add({10}, 9));
  ASSERT_TRUE(scheduler.Add({20, 21}, 9));
  scheduler.Next();
  EXPECT_EQ(scheduler.waiting(), 1);
  const auto taken = scheduler.Take(std::vector<TokenId>{3});
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_TRUE((*taken)[0].last);
  const std::span<const Row> rows = scheduler.Next();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(Same(rows[0], Row{20, 0, 0, false})) << "from position 0 on";
  EXPECT_EQ(scheduler.waiting(), 0);
}

TEST(BatchScheduler, the_rows_of_a_pass_stay_until_it_is_taken) {
  BatchScheduler scheduler = Make({.slots = 2, .max_rows = 3, .context = 16});
  ASSERT_TRUE(scheduler.Add(Tokens(2, 10), 4));
  const std::span<const Row> first = scheduler.Next();
  const std::vector<Row> rows(first.begin(), first.end());
  ASSERT_TRUE(scheduler.Add(Tokens(2, 20), 4));
  const std::span<const Row> again = scheduler.Next();
  EXPECT_TRUE(std::equal(rows.begin(), rows.end(), again.begin(), again.end(), Same));
}

TEST(BatchScheduler, refuses_what_it_cannot_serve_and_names_the_limit) {
  const auto refusal = [](const BatchSchedulerOptions& options) {
    return BatchScheduler::Create(options).error().message;
  };
  EXPECT_THAT(refusal({.slots = 0, .max_rows = 4, .context = 8}), HasSubstr("slots = 0"));
  EXPECT_THAT(refusal({.slots = 1, .max_rows = 4, .context = 0}), HasSubstr("context = 0"));
  EXPECT_THAT(refusal({.slots = 5, .max_rows = 4, .context = 8}),
              HasSubstr("max_rows = 4: must be at least slots = 5"));

  BatchScheduler scheduler = Make({.slots = 1, .max_rows = 4, .context = 8});
  EXPECT_THAT(scheduler.Add({}, 1).error().message, HasSubstr("no tokens"));
  EXPECT_THAT(scheduler.Add({1}, 0).error().message, HasSubstr("max_tokens = 0"));
  EXPECT_THAT(scheduler.Add(Tokens(6, 1), 4).error().message,
              HasSubstr("take 9 positions: the context has 8"));
  EXPECT_TRUE(scheduler.Add(Tokens(6, 1), 3));
  EXPECT_EQ(scheduler.waiting(), 1);

  EXPECT_THAT(scheduler.Take(std::vector<TokenId>{1}).error().message, HasSubstr("0 rows"));
  scheduler.Next();
  EXPECT_THAT(scheduler.Take(std::vector<TokenId>{1}).error().message,
              HasSubstr("1 tokens for a pass of 4 rows of which 0 want logits"));
  ASSERT_TRUE(scheduler.Take({}));
  ASSERT_EQ(scheduler.Next().size(), 2u);
  const auto broken = scheduler.Take(std::vector<TokenId>{-1});
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, ErrorCode::kNumeric);
  EXPECT_THAT(broken.error().message, HasSubstr("sequence 0 at position 5"));
  EXPECT_EQ(scheduler.Next().size(), 2u) << "nothing has changed";
}

/// Follows what a session would see, and checks it against the session's rules.
class FollowedSession {
 public:
  FollowedSession(std::int32_t slots, std::int32_t max_rows)
      : filled_(static_cast<std::size_t>(slots)), max_rows_(max_rows) {}

  void Run(std::span<const Row> rows) {
    ASSERT_LE(rows.size(), static_cast<std::size_t>(max_rows_));
    for (const Row& row : rows) {
      ASSERT_GE(row.slot, 0);
      ASSERT_LT(row.slot, static_cast<std::int32_t>(filled_.size()));
      std::vector<TokenId>& held = filled_[static_cast<std::size_t>(row.slot)];
      if (row.position == 0) held.clear();
      ASSERT_EQ(row.position, static_cast<std::int32_t>(held.size()));
      held.push_back(row.token);
    }
  }
  const std::vector<TokenId>& slot(std::int32_t index) const {
    return filled_[static_cast<std::size_t>(index)];
  }

 private:
  std::vector<std::vector<TokenId>> filled_;
  std::int32_t max_rows_;
};

TEST(BatchScheduler, every_sequence_gets_its_prompt_and_its_tokens_however_passes_are_cut) {
  Random random(20261125);
  for (int round = 0; round < 300; ++round) {
    const auto slots = static_cast<std::int32_t>(random.Between(1, 9));
    const auto max_rows = slots + static_cast<std::int32_t>(random.Between(0, 20));
    const bool mixed = random.Between(0, 1) != 0;
    SCOPED_TRACE(testing::Message() << "round " << round << ": slots = " << slots
                                    << ", max_rows = " << max_rows << ", mixed = " << mixed);
    BatchScheduler scheduler =
        Make({.slots = slots, .max_rows = max_rows, .context = 100, .mixed = mixed});
    FollowedSession session(slots, max_rows);
    std::map<std::int64_t, std::pair<std::int32_t, std::int32_t>> wanted;  // prompt, tokens
    std::map<std::int64_t, std::vector<TokenId>> found;
    int waiting = static_cast<int>(random.Between(1, 30));
    std::size_t ended = 0;
    for (int pass = 0;; ++pass) {
      ASSERT_LT(pass, 5000);
      for (; waiting > 0 && random.Between(0, 2) != 0; --waiting) {
        const auto length = static_cast<std::int32_t>(random.Between(1, 60));
        const auto tokens = static_cast<std::int32_t>(random.Between(1, 40));
        const std::int64_t number = scheduler.Add(Tokens(length, 5), tokens).value();
        wanted[number] = {length, tokens};
      }
      const std::span<const Row> rows = scheduler.Next();
      if (rows.empty() && waiting > 0) continue;
      if (rows.empty()) break;
      session.Run(rows);
      if (testing::Test::HasFatalFailure()) return;
      const std::vector<Row> ran(rows.begin(), rows.end());
      const auto taken = scheduler.Take(FoundBy(rows));
      ASSERT_TRUE(taken) << taken.error().message;
      std::size_t next = 0;
      for (const Row& row : ran) {
        if (!row.logits) continue;
        const ScheduledToken& token = (*taken)[next++];
        std::vector<TokenId>& tokens = found[token.sequence];
        tokens.push_back(token.token);
        ASSERT_EQ(token.token, FoundBy(row));
        // What the slot holds is the prompt, and then the tokens found but the last.
        const auto [length, most] = wanted[token.sequence];
        std::vector<TokenId> held = Tokens(length, 5);
        held.insert(held.end(), tokens.begin(), tokens.end() - 1);
        ASSERT_EQ(session.slot(row.slot), held);
        ASSERT_EQ(token.last, static_cast<std::int32_t>(tokens.size()) == most);
        ended += token.last ? 1 : 0;
      }
      ASSERT_EQ(next, taken->size());
    }
    EXPECT_EQ(ended, wanted.size());
    EXPECT_EQ(scheduler.running(), 0);
  }
}

}  // namespace
}  // namespace tilewright
