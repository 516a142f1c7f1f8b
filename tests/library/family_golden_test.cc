// Tiny models of every architecture compute what llama.cpp computes on the same file, at positions
// beyond the original context too; tools/goldens/make_families.py says how the goldens are made.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "family_goldens.h"
#include "models.h"

namespace tilewright {
namespace {

using nlohmann::json;
using test::CompareWithGolden;
using test::FamilyGoldens;
using test::Runner;

/// Relative L2 distance of the logits of a position.
constexpr double kAllowed = 1e-4;

TEST(FamilyGoldensOnCpu, logits_and_greedy_ids_are_those_of_llama_cpp_fused_and_not) {
  const test::TempDir folder;
  const json goldens = FamilyGoldens();
  for (const json& golden : goldens["cases"]) {
    const std::string path = test::WriteGolden(folder, golden, goldens["seed"]);
    for (const bool fuse : {true, false}) {
      SCOPED_TRACE(golden["name"].get<std::string>() + (fuse ? "" : ", unfused"));
      auto runner = Runner::Make(path, {.fuse = fuse, .context = golden["context"].get<int>()});
      ASSERT_NE(runner, nullptr);
      CompareWithGolden(*runner->session, golden, kAllowed);
    }
    SCOPED_TRACE(golden["name"].get<std::string>() + ", float64");
    auto reference = Runner::Make(path, {.float64 = true, .context = golden["context"].get<int>()});
    ASSERT_NE(reference, nullptr);
    CompareWithGolden(*reference->session, golden, kAllowed);
    test::NoteGolden(golden, "cpu");
  }
}

TEST(FamilyGoldensOnCpu, every_registered_architecture_and_way_to_scale_is_among_the_cases) {
  std::string all;
  const json goldens = FamilyGoldens();
  for (const json& golden : goldens["cases"]) {
    const SynthShape shape = FindSynthPreset(golden["preset"].get<std::string>()).value();
    all += std::string(shape.architecture) + " " + golden["keys"].dump() + " ";
    const auto end = golden["prompt"].size() + golden["greedy"].size();
    EXPECT_LE(end, golden["context"].get<std::size_t>()) << golden["name"];
  }
  for (const SynthShape& preset : SynthPresets())
    EXPECT_THAT(all, testing::HasSubstr(std::string(preset.architecture) + " "));
  for (const char* word : {"linear", "yarn", "none", "attn_factor", "original_context_length",
                           "sliding_window_pattern", "softcapping", "freq_base_swa"})
    EXPECT_THAT(all, testing::HasSubstr(word));
}

}  // namespace
}  // namespace tilewright
