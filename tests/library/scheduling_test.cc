// Sequences that a BatchScheduler serves together get the tokens that they get alone.
#include <gtest/gtest.h>

#include "models.h"
#include "tilewright/batch_scheduler.h"

namespace tilewright {
namespace {

using test::RandomTokens;
using test::Runner;

constexpr std::int32_t kContext = 64;

/// The tokens of every sequence, served in passes of `max_rows`.
std::vector<std::vector<TokenId>> Served(Session& session,
                                         const std::vector<std::vector<TokenId>>& prompts,
                                         std::int32_t slots, std::int32_t max_rows, bool mixed) {
  std::vector<std::vector<TokenId>> tokens(prompts.size());
  auto scheduler = BatchScheduler::Create(
      {.slots = slots, .max_rows = max_rows, .context = kContext, .mixed = mixed});
  EXPECT_TRUE(scheduler) << scheduler.error().message;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    EXPECT_TRUE(scheduler->Add(prompts[i], 5 + static_cast<std::int32_t>(i)));
  for (auto rows = scheduler->Next(); !rows.empty(); rows = scheduler->Next()) {
    const auto best = session.ForwardTop(rows, 1);
    EXPECT_TRUE(best) << best.error().message;
    if (!best) return tokens;
    const auto taken = scheduler->Take(best->ids);
    EXPECT_TRUE(taken) << taken.error().message;
    if (!taken) return tokens;
    for (const ScheduledToken& token : *taken)
      tokens[static_cast<std::size_t>(token.sequence)].push_back(token.token);
  }
  return tokens;
}

TEST(Scheduling, sequences_served_together_get_the_tokens_that_they_get_alone) {
  const test::TempDir folder;
  const auto runner = Runner::Make(
      test::WriteTiny(folder, "q8_0", test::WideShape(), DataType::kQ8_0),
      {.guarantee = Guarantee::kBatchInvariant, .context = kContext, .slots = 4, .max_rows = 32});
  ASSERT_NE(runner, nullptr);
  const int vocab = runner->model->config().vocab;
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 11; ++i)
    prompts.push_back(RandomTokens(1 + 17 * i % 45, vocab, 100 + static_cast<std::uint64_t>(i)));

  std::vector<std::vector<TokenId>> alone;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    GenerateOptions options;
    options.max_tokens = 5 + static_cast<std::int32_t>(i);
    options.sampler.temperature = 0;
    const auto generated = Generate(*runner->session, prompts[i], {}, options);
    ASSERT_TRUE(generated) << generated.error().message;
    alone.push_back(generated->tokens);
  }
  for (const std::int32_t max_rows : {4, 7, 32}) {
    for (const bool mixed : {true, false}) {
      EXPECT_EQ(Served(*runner->session, prompts, 4, max_rows, mixed), alone)
          << "max_rows = " << max_rows << ", mixed = " << mixed;
    }
  }
}

}  // namespace
}  // namespace tilewright
