#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tilewright/generate.h"

/// Goldens of a real model by llama.cpp, for tests.

namespace tilewright::test {

inline std::string ReadText(const std::string& name) {
  std::ifstream file(std::string(TILEWRIGHT_TEST_DATA) + "/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
inline nlohmann::json ReadJson(const std::string& name) {
  return nlohmann::json::parse(ReadText(name));
}

/// The path in TILEWRIGHT_MODEL, or "" when there is no such file: the test then skips.
inline std::string ModelPath() {
  const char* path = std::getenv("TILEWRIGHT_MODEL");
  return path != nullptr && std::filesystem::exists(path) ? path : "";
}

/// Gap between the two best logits, as llama.cpp saw it, at the first place where the greedy picks
/// part; infinity where they agree. Everything after the first gap below `close` is another text
/// and not compared.
struct Divergence {
  double gap = INFINITY;
  std::size_t at = 0;
};

inline Divergence FirstDivergence(const std::vector<TokenId>& got, const nlohmann::json& prompt,
                                  double close) {
  const auto want = prompt["greedy"].get<std::vector<TokenId>>();
  const auto gaps = prompt["gaps"].get<std::vector<double>>();
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (i >= got.size() || got[i] != want[i]) return {gaps[i], i};
    if (gaps[i] < close) break;
  }
  return {};
}

inline std::vector<TokenId> Greedy(Session& session, const nlohmann::json& prompt) {
  GenerateOptions options;
  options.sampler.temperature = 0;
  options.max_tokens = static_cast<std::int32_t>(prompt["greedy"].size());
  const auto ids = prompt["ids"].get<std::vector<TokenId>>();
  Result<GenerateResult> result = Generate(session, ids, {}, options);
  EXPECT_TRUE(result) << result.error().message;
  return result ? result->tokens : std::vector<TokenId>();
}

}  // namespace tilewright::test
