// Tiny models of every architecture compute what llama.cpp computes on the same file, at positions
// beyond the original context too; tools/goldens/make_families.py says how the goldens are made.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models.h"

namespace tilewright {
namespace {

using nlohmann::json;
using test::EditedModel;
using test::Runner;
using test::WorstRow;

/// Relative L2 distance of the logits of a position.
constexpr double kAllowed = 1e-4;

class FamilyGoldens : public testing::Test {
 protected:
  static json Goldens() {
    std::ifstream file(std::string(TILEWRIGHT_TEST_DATA) + "/goldens/families.json");
    return json::parse(file);
  }

  std::string Write(const json& golden, const json& seed) const {
    SynthOptions options;
    const Result<SynthShape> shape = FindSynthPreset(golden["preset"].get<std::string>());
    if (!shape) return ADD_FAILURE() << shape.error().message, "";
    options.shape = *shape;
    options.quant = DataType::kF32;
    options.seed = seed.get<std::uint64_t>();
    const Result<SynthReport> written = WriteSynthetic(options, folder_ / "plain.gguf");
    if (!written) return ADD_FAILURE() << written.error().message, "";
    EditedModel model(folder_ / "plain.gguf");
    for (const auto& [key, value] : golden["keys"].items()) {
      if (value.is_string()) {
        model.SetString(key, value.get<std::string>());
      } else if (value.is_number_integer()) {
        model.SetU32(key, value.get<std::uint32_t>());
      } else {
        model.SetF32(key, value.get<float>());
      }
    }
    model.Write(folder_ / "edited.gguf");
    return folder_ / "edited.gguf";
  }

  /// The prompt in one pass, then each id of the golden in a pass of its own, as it was made.
  static void Compare(Runner& runner, const json& golden) {
    const auto prompt = golden["prompt"].get<std::vector<TokenId>>();
    const auto greedy = golden["greedy"].get<std::vector<TokenId>>();
    const auto gaps = golden["gaps"].get<std::vector<double>>();
    const auto wanted = golden["logits"].get<std::vector<std::vector<float>>>();
    auto position = static_cast<std::int32_t>(prompt.size());
    Result<std::span<const float>> logits = runner.session->Prefill(prompt, 0, 0);
    ASSERT_TRUE(logits) << logits.error().message;
    EXPECT_LE(WorstRow(*logits, wanted.front(), wanted.front().size()), kAllowed);
    double norm = 0;
    for (const float value : wanted.front()) norm += std::pow(static_cast<double>(value), 2);
    const double close = 2 * kAllowed * std::sqrt(norm);
    for (std::size_t i = 0; i < greedy.size(); ++i) {
      const auto best = std::max_element(logits->begin(), logits->end()) - logits->begin();
      if (gaps[i] > close) {
        EXPECT_EQ(best, greedy[i]) << "id " << i;
      }
      const Row row{greedy[i], position++, 0, true};
      logits = runner.session->Forward({&row, 1});
      ASSERT_TRUE(logits) << logits.error().message;
    }
    EXPECT_LE(WorstRow(*logits, wanted.back(), wanted.back().size()), kAllowed);
  }

  test::TempDir folder_;
};

TEST_F(FamilyGoldens, logits_and_greedy_ids_are_those_of_llama_cpp_fused_and_not) {
  const json goldens = Goldens();
  for (const json& golden : goldens["cases"]) {
    const std::string path = Write(golden, goldens["seed"]);
    for (const bool fuse : {true, false}) {
      SCOPED_TRACE(golden["name"].get<std::string>() + (fuse ? "" : ", unfused"));
      auto runner = Runner::Make(path, {.fuse = fuse, .context = golden["context"].get<int>()});
      ASSERT_NE(runner, nullptr);
      Compare(*runner, golden);
    }
    SCOPED_TRACE(golden["name"].get<std::string>() + ", float64");
    auto reference = Runner::Make(path, {.float64 = true, .context = golden["context"].get<int>()});
    ASSERT_NE(reference, nullptr);
    Compare(*reference, golden);
  }
}

TEST_F(FamilyGoldens, every_registered_architecture_and_way_to_scale_is_among_the_cases) {
  std::string all;
  const json goldens = Goldens();
  for (const json& golden : goldens["cases"]) {
    const SynthShape shape = FindSynthPreset(golden["preset"].get<std::string>()).value();
    all += std::string(shape.architecture) + " " + golden["keys"].dump() + " ";
    const auto end = golden["prompt"].size() + golden["greedy"].size();
    EXPECT_LE(end, golden["context"].get<std::size_t>()) << golden["name"];
  }
  for (const SynthShape& preset : SynthPresets())
    EXPECT_THAT(all, testing::HasSubstr(std::string(preset.architecture) + " "));
  for (const char* word : {"linear", "yarn", "none", "attn_factor", "original_context_length"})
    EXPECT_THAT(all, testing::HasSubstr(word));
}

}  // namespace
}  // namespace tilewright
