#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/verified_test_util.h"
#include "models.h"

/// Goldens of tiny models of every architecture, by llama.cpp on the same file;
/// tools/goldens/make_families.py says how they are made. For tests.

namespace tilewright::test {

inline nlohmann::json FamilyGoldens() {
  std::ifstream file(std::string(TILEWRIGHT_TEST_DATA) + "/goldens/families.json");
  return nlohmann::json::parse(file);
}

inline SynthShape ShapeOf(const nlohmann::json& golden) {
  const Result<SynthShape> shape = FindSynthPreset(golden["preset"].get<std::string>());
  if (!shape) ADD_FAILURE() << shape.error().message;
  return shape.value_or(SynthShape{});
}

/// Notes for the tables of the documentation that a device computes what the golden says.
inline void NoteGolden(const nlohmann::json& golden, std::string_view device) {
  const auto name = golden["name"].get<std::string>();  // "family" or "family, what is different"
  const std::size_t comma = name.find(", ");
  const std::string how = comma == std::string::npos ? "as published" : name.substr(comma + 2);
  NoteVerified({.operation = "architecture",
                .subject = name.substr(0, comma),
                .device = device,
                .how = how});
}

/// Writes the model of a golden; returns its path.
inline std::string WriteGolden(const TempDir& folder, const nlohmann::json& golden,
                               const nlohmann::json& seed) {
  SynthOptions options;
  options.shape = ShapeOf(golden);
  options.quant = DataType::kF32;
  options.seed = seed.get<std::uint64_t>();
  const Result<SynthReport> written = WriteSynthetic(options, folder / "plain.gguf");
  if (!written) return ADD_FAILURE() << written.error().message, "";
  EditedModel model(folder / "plain.gguf");
  for (const auto& [key, value] : golden["keys"].items()) {
    if (value.is_string()) {
      model.SetString(key, value.get<std::string>());
    } else if (value.is_number_integer()) {
      model.SetU32(key, value.get<std::uint32_t>());
    } else {
      model.SetF32(key, value.get<float>());
    }
  }
  model.Write(folder / "edited.gguf");
  return folder / "edited.gguf";
}

/// The prompt in one pass, then each id of the golden in a pass of its own, as it was made. The
/// relative L2 of logits is at most `allowed`, and ids are the same where the gap is larger than
/// that.
inline void CompareWithGolden(Session& session, const nlohmann::json& golden, double allowed) {
  const auto prompt = golden["prompt"].get<std::vector<TokenId>>();
  const auto greedy = golden["greedy"].get<std::vector<TokenId>>();
  const auto gaps = golden["gaps"].get<std::vector<double>>();
  const auto wanted = golden["logits"].get<std::vector<std::vector<float>>>();
  auto position = static_cast<std::int32_t>(prompt.size());
  Result<std::span<const float>> logits = session.Prefill(prompt, 0, 0);
  ASSERT_TRUE(logits) << logits.error().message;
  EXPECT_LE(WorstRow(*logits, wanted.front(), wanted.front().size()), allowed);
  double norm = 0;
  for (const float value : wanted.front()) norm += std::pow(static_cast<double>(value), 2);
  const double close = 2 * allowed * std::sqrt(norm);
  for (std::size_t i = 0; i < greedy.size(); ++i) {
    const auto best = std::max_element(logits->begin(), logits->end()) - logits->begin();
    if (gaps[i] > close) {
      EXPECT_EQ(best, greedy[i]) << "id " << i;
    }
    const Row row{greedy[i], position++, 0, true};
    logits = session.Forward({&row, 1});
    ASSERT_TRUE(logits) << logits.error().message;
  }
  EXPECT_LE(WorstRow(*logits, wanted.back(), wanted.back().size()), allowed);
}

}  // namespace tilewright::test
