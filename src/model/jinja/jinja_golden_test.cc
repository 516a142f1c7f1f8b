#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/template.h"

namespace tilewright::jinja {
namespace {

using Json = nlohmann::ordered_json;

Value FromJson(const Json& json, Heap& heap) {
  if (json.is_string()) return Value::Of(json.get<std::string>());
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_integer()) return Value(json.get<std::int64_t>());
  if (json.is_number()) return Value(json.get<double>());
  if (json.is_null()) return Value::None();
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& item : json) items.push_back(FromJson(item, heap));
    return heap.MakeSequence(std::move(items));
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, value] : json.items()) {
    entries.emplace_back(Value::Of(key), FromJson(value, heap));
  }
  return heap.MakeDict(std::move(entries));
}

/// 2024-02-09 15:04:05, a Friday, as in make_jinja.py.
std::tm Now() {
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 1;
  now.tm_mday = 9;
  now.tm_hour = 15;
  now.tm_min = 4;
  now.tm_sec = 5;
  now.tm_wday = 5;
  now.tm_yday = 39;
  return now;
}

Result<std::string> Render(const Json& document, const Json& test_case) {
  const std::string text = test_case["template"].get<std::string>();
  const Json& families = document["templates"];
  const Result<Template> parsed =
      Template::Parse(families.contains(text) ? families[text].get<std::string>() : text);
  if (!parsed) return Fail(parsed.error());
  Json given = document["variables"][test_case["variables"].get<std::string>()];
  constexpr const char* kPrompt = "add_generation_prompt";
  if (test_case.contains(kPrompt)) given[kPrompt] = test_case[kPrompt];
  Heap heap(kBudget);
  std::vector<std::pair<std::string_view, Value>> variables;
  for (auto variable = given.begin(); variable != given.end(); ++variable) {
    variables.emplace_back(variable.key(), FromJson(variable.value(), heap));
  }
  return parsed->Render(heap, variables, Now());
}

TEST(JinjaGoldenTest, RendersWhatPythonRendersAndFailsWhereItFails) {
  std::ifstream file(std::string(TILEWRIGHT_TEST_DATA) + "/goldens/jinja.json");
  const Json document = Json::parse(file);
  ASSERT_GE(document["cases"].size(), 500u);
  for (const Json& test_case : document["cases"]) {
    const std::string name = test_case["name"].get<std::string>();
    const Result<std::string> rendered = Render(document, test_case);
    if (test_case.contains("rendered")) {
      ASSERT_TRUE(rendered) << name << ": " << (rendered ? "" : rendered.error().message);
      EXPECT_EQ(*rendered, test_case["rendered"].get<std::string>()) << name;
      continue;
    }
    ASSERT_FALSE(rendered) << name << ": " << *rendered;
    const bool refused = test_case["fails"] == "refused";
    EXPECT_EQ(rendered.error().code == ErrorCode::kInvalidArgument, refused) << name;
    EXPECT_EQ(rendered.error().message.find('\n'), std::string::npos) << name;
    if (refused) {
      EXPECT_NE(rendered.error().message.find(test_case["message"].get<std::string>()),
                std::string::npos)
          << name << ": " << rendered.error().message;
    }
  }
}

}  // namespace
}  // namespace tilewright::jinja
