#include "problem_words.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

#include "gemm_words.h"

namespace tilewright::cli {

std::string FieldsThatDiffer(const std::string& key, const std::string& usual, std::size_t always,
                             std::string_view separator) {
  std::vector<std::string> usual_fields;
  std::stringstream usual_words(usual), words(key);
  for (std::string field; usual_words >> field;) usual_fields.push_back(field);
  std::string text;
  std::size_t at = 0;
  for (std::string field; words >> field; ++at) {
    if (at >= always && at < usual_fields.size() && usual_fields[at] == field) continue;
    if (!text.empty()) text += separator;
    text += field;
  }
  return text;
}

std::string ShortProblem(std::string_view op, const std::string& key) {
  std::string text = fmt::format("{} {}", op, key);
  ForEachOperation([&]<class Op>() {
    if (Op::kName != op) return;
    const auto desc = ParseProblem<Op>(key);
    if (!desc) return;
    if constexpr (std::is_same_v<Op, GemmOp>) {
      text = ShortGemm(*desc);
    } else {
      text = fmt::format("{} {}", op, FieldsThatDiffer(key, KeyOf(typename Op::Desc{}), 1, " "));
    }
  });
  return text;
}

bool IsOperation(std::string_view name) {
  bool found = false;
  ForEachOperation([&]<class Op>() { found = found || Op::kName == name; });
  return found;
}

std::string OperationNames() {
  std::string names;
  ForEachOperation([&]<class Op>() { names.append(names.empty() ? "" : ", ").append(Op::kName); });
  return names;
}

}  // namespace tilewright::cli
