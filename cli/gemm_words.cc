#include "gemm_words.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::cli {
namespace {

/// As the command line spells words: "batch-invariant" for "batch_invariant", "int8" for "i8".
std::string KeyWord(std::string_view name, std::string word) {
  if (name == "precision" && word == "int8") return "i8";
  const bool number = word.find_first_not_of("-0123456789") == std::string::npos;
  if (!number) std::replace(word.begin(), word.end(), '-', '_');
  return word;
}

void Append(std::string& key, std::string_view name, const std::string& word) {
  if (word.empty()) return;
  if (!key.empty()) key += ' ';
  key.append(name).append("=").append(KeyWord(name, word));
}

bool Has(std::string_view key, std::string_view name) {
  const std::string start = fmt::format("{}=", name);
  return key.starts_with(start) || key.find(" " + start) != std::string_view::npos;
}

}  // namespace

Result<GemmDesc> MakeGemm(const GemmWords& words) {
  std::string set;
  for (const std::string& word : words.set) {
    if (!set.empty()) set += ' ';
    set += word;
  }
  std::string key = set;
  const std::pair<std::string_view, const std::string*> fields[] = {
      {"m", &words.m},
      {"n", &words.n},
      {"k", &words.k},
      {"type_a", &words.type_a},
      {"type_b", &words.type_b},
      {"type_c", &words.type_c},
      {"type_u", &words.type_u},
      {"type_v", &words.type_v},
      {"scaling", &words.scaling},
      {"epilogue", &words.epilogue},
      {"pack_b", &words.pack_b},
      {"precision", &words.precision},
      {"guarantee", &words.guarantee},
  };
  for (const auto& [name, word] : fields) {
    if (!Has(set, name)) Append(key, name, *word);
  }
  return ParseKey(key);
}

Result<GemmDesc> ParseGemm(std::string_view text, GemmWords words) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find_first_of(", "));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' in a GEMM: must be field=value, as in m=1,n=576,k=576", item));
    }
    std::string name(item.substr(0, equals));
    if (name == "type") name = "type_b";
    words.set.push_back(name + "=" + KeyWord(name, std::string(item.substr(equals + 1))));
  }
  return MakeGemm(words);
}

std::string ShortGemm(const GemmDesc& desc) {
  std::string text =
      fmt::format("{} x {} x {} {}", desc.m, desc.n, desc.k, DataTypeName(desc.type_b));
  if (desc.type_a != DataType::kF32) text += fmt::format(", {} in", DataTypeName(desc.type_a));
  if (desc.num > 1) text += fmt::format(", {} groups", desc.num);
  if (desc.scaling != Scaling::kOneZero) text += ", + C";
  if (desc.epilogue == Epilogue::kGatedSilu) text += ", gated";
  return text;
}

}  // namespace tilewright::cli
