#include <gmock/gmock.h>

#include <cmath>

#include "goldens.h"
#include "harness.h"
#include "tilewright/tokenizer.h"

namespace tilewright {
namespace {

using test::Divergence;
using test::FirstDivergence;
using test::Greedy;
using test::Runner;

/// Logits differ from llama.cpp's by at most 6e-5 with f32 activations and cache: picks may part
/// where two tokens are closer than some times that.
constexpr double kClose = 1e-3;

class ModelGoldens : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::ModelPath().empty()) GTEST_SKIP() << "no model at TILEWRIGHT_MODEL";
    goldens_ = test::ReadJson("goldens/generation.json");
  }
  nlohmann::json goldens_;
};

TEST_F(ModelGoldens, prompts_become_the_ids_of_llama_cpp) {
  Result<GgufFile> file = GgufFile::Open(test::ModelPath());
  ASSERT_TRUE(file);
  Result<Tokenizer> tokenizer = Tokenizer::FromGguf(*file);
  ASSERT_TRUE(tokenizer);
  for (const auto& prompt : goldens_["prompts"]) {
    const auto ids = tokenizer->Encode(prompt["text"].get<std::string>());
    ASSERT_TRUE(ids);
    EXPECT_EQ(*ids, prompt["ids"].get<std::vector<TokenId>>()) << prompt["name"];
  }
}

TEST_F(ModelGoldens, f32_activations_and_cache_pick_the_tokens_of_llama_cpp_f32) {
  auto runner =
      Runner::Make(test::ModelPath(), {.activations = Precision::kF32, .kv = DataType::kF32});
  ASSERT_NE(runner, nullptr);
  for (const auto& prompt : goldens_["prompts"]) {
    const Divergence d = FirstDivergence(Greedy(*runner->session, prompt), prompt, kClose);
    EXPECT_TRUE(std::isinf(d.gap) || d.gap < kClose)
        << prompt["name"] << " parts at " << d.at << ", gap " << d.gap;
  }
}

TEST_F(ModelGoldens, unfused_picks_the_same_tokens) {
  auto runner = Runner::Make(test::ModelPath(),
                             {.activations = Precision::kF32, .kv = DataType::kF32, .fuse = false});
  ASSERT_NE(runner, nullptr);
  for (const auto& prompt : goldens_["prompts"]) {
    if (prompt["ids"].size() > 200) continue;
    const Divergence d = FirstDivergence(Greedy(*runner->session, prompt), prompt, kClose);
    EXPECT_TRUE(std::isinf(d.gap) || d.gap < kClose)
        << prompt["name"] << " parts at " << d.at << ", gap " << d.gap;
  }
}

TEST_F(ModelGoldens, defaults_part_only_where_two_tokens_are_close) {
  auto runner = Runner::Make(test::ModelPath(), {});
  ASSERT_NE(runner, nullptr);
  for (const auto& prompt : goldens_["prompts"]) {
    const Divergence d = FirstDivergence(Greedy(*runner->session, prompt), prompt, 0.0);
    EXPECT_TRUE(std::isinf(d.gap) || d.gap <= 0.5)
        << prompt["name"] << " parts at " << d.at << ", gap " << d.gap;
  }
}

TEST_F(ModelGoldens, the_last_position_has_the_best_logits_of_llama_cpp) {
  auto runner =
      Runner::Make(test::ModelPath(), {.activations = Precision::kF32, .kv = DataType::kF32});
  ASSERT_NE(runner, nullptr);
  for (const auto& prompt : goldens_["prompts"]) {
    const auto ids = prompt["ids"].get<std::vector<TokenId>>();
    auto logits = runner->session->Prefill(ids, 0, 0);
    ASSERT_TRUE(logits) << logits.error().message;
    for (const auto& entry : prompt["top5"]) {
      EXPECT_NEAR((*logits)[entry[0].get<std::size_t>()], entry[1].get<double>(), 2e-4)
          << prompt["name"];
    }
  }
}

TEST_F(ModelGoldens, perplexity_is_that_of_llama_cpp) {
  const nlohmann::json golden = test::ReadJson("goldens/perplexity.json");
  const auto ids = golden["ids"].get<std::vector<TokenId>>();
  const double want = golden["f32"]["perplexity"].get<double>();
  struct Case {
    Precision activations;
    DataType kv;
    double allowed;
  };
  for (const Case& c : {Case{Precision::kF32, DataType::kF32, 5e-6},
                        Case{Precision::kAuto, DataType::kF16, 0.005}}) {
    auto runner = Runner::Make(test::ModelPath(), {.activations = c.activations, .kv = c.kv});
    ASSERT_NE(runner, nullptr);
    Result<PerplexityResult> got = Perplexity(*runner->session, ids, 512);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->tokens, golden["predicted_tokens"].get<std::int64_t>());
    EXPECT_NEAR(got->perplexity / want, 1.0, c.allowed) << got->perplexity << " against " << want;
  }
}

}  // namespace
}  // namespace tilewright
