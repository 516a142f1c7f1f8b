#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

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
    Result<PerplexityResult> got = Perplexity(*runner->session, ids, {.window = 512});
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->tokens, golden["predicted_tokens"].get<std::int64_t>());
    EXPECT_NEAR(got->perplexity / want, 1.0, c.allowed) << got->perplexity << " against " << want;
  }
}

/// A copy of a GGUF file with another value of a key that is an f32.
void WriteWithKey(const std::filesystem::path& from, const std::filesystem::path& to,
                  const std::string& key, float value) {
  std::ifstream file(from, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t at = bytes.find(key);
  ASSERT_NE(at, std::string::npos);
  std::uint32_t type = 0;
  std::memcpy(&type, bytes.data() + at + key.size(), sizeof(type));
  ASSERT_EQ(type, 6u) << "GGUF's f32";
  std::memcpy(bytes.data() + at + key.size() + sizeof(type), &value, sizeof(value));
  std::ofstream(to, std::ios::binary) << bytes;
}

TEST_F(ModelGoldens, windows_and_divergences_are_those_of_llama_perplexity) {
  const nlohmann::json golden = test::ReadJson("goldens/llama_perplexity.json");
  const auto ids = test::ReadJson("goldens/perplexity.json")["ids"].get<std::vector<TokenId>>();
  const std::string changed = testing::TempDir() + "tilewright_other_angles.gguf";
  WriteWithKey(test::ModelPath(), changed, "llama.rope.freq_base",
               golden["freq_base"].get<float>());
  const Runner::Options exact{.activations = Precision::kF32, .kv = DataType::kF32};
  const auto base = Runner::Make(test::ModelPath(), exact), other = Runner::Make(changed, exact);
  std::filesystem::remove(changed);
  ASSERT_NE(base, nullptr);
  ASSERT_NE(other, nullptr);
  ScoringOptions scoring;
  scoring.window = golden["window"].get<std::int32_t>();
  scoring.second_half_only = true;
  const auto got = CompareModels(*other->session, *base->session, ids, scoring);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->own.tokens, 5 * 127);
  const auto near = [](double value, const nlohmann::json& want, double relative) {
    EXPECT_NEAR(value / want.get<double>(), 1.0, relative) << value << ", " << want;
  };
  // Of what llama-perplexity prints, all digits: the errors have six.
  const nlohmann::json& printed = golden["printed"];
  near(got->base.perplexity, golden["base"]["perplexity"], 5e-6);
  near(got->base.perplexity * got->base.nll_error, golden["base"]["perplexity_error"], 5e-6);
  near(got->own.perplexity, printed["perplexity"], 5e-6);
  near(got->own.perplexity * got->own.nll_error, printed["perplexity_error"], 5e-6);
  EXPECT_NEAR(100 * got->same_top, printed["same_top_percent"].get<double>(), 1e-3);
  EXPECT_NEAR(100 * got->same_top_error, printed["same_top_error_percent"].get<double>(), 1e-3);
  // Logits differ by up to 6e-5, and so does a logarithm of a probability.
  const nlohmann::json& want = golden["divergence"];
  EXPECT_NEAR(got->log_ratio, want["log_ratio"].get<double>(), 6e-6);
  near(got->log_ratio_error, want["log_ratio_error"], 2e-4);
  near(got->kl_mean, want["kl_mean"], 1e-4);
  near(got->kl_error, want["kl_error"], 2e-4);
  near(got->kl_median, want["kl_median"], 2e-4);
  near(got->kl_p99, want["kl_p99"], 2e-4);
  near(got->kl_max, want["kl_max"], 2e-4);

  const auto alone = Perplexity(*base->session, ids, scoring);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->nll_mean, got->base.nll_mean);
}

}  // namespace
}  // namespace tilewright
