#include "engine/sealed_json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/sha256.h"

namespace tilewright {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxLine = 64 << 10;
constexpr int kMaxDepth = 16;

// The parser does not recurse, but dump does, so a hostile line of brackets must not reach it.
bool TooDeep(std::string_view line) {
  int depth = 0, deepest = 0;
  for (const char c : line) {
    if (c == '{' || c == '[') deepest = std::max(deepest, ++depth);
    if (c == '}' || c == ']') --depth;
  }
  return deepest > kMaxDepth;
}

// Replaces text that is not UTF-8 instead of throwing. The parser rejects it in input, so only our
// own evidence texts can contain any.
std::string Dump(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string DigestOf(const json& object) {
  const auto hex = Sha256Hex(Dump(object));
  return hex ? hex->substr(0, 16) : std::string();
}

}  // namespace

std::string Seal(const json& object) {
  std::string line = Dump(object);
  const std::string sum = DigestOf(object);
  line.pop_back();
  if (line.size() > 1) line += ',';
  return line + "\"sum\":\"" + sum + "\"}";
}

std::optional<json> Unseal(std::string_view line) {
  if (line.size() > kMaxLine || TooDeep(line)) return std::nullopt;
  json object = json::parse(line, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto sum = object.find("sum");
  if (sum == object.end() || !sum->is_string()) return std::nullopt;
  const std::string given = sum->get<std::string>();
  object.erase(sum);
  if (given.size() != 16 || given != DigestOf(object)) return std::nullopt;
  return object;
}

std::optional<std::string> StringMember(const json& object, const char* name) {
  const auto member = object.find(name);
  if (member == object.end() || !member->is_string()) return std::nullopt;
  return member->get<std::string>();
}

std::optional<double> NumberMember(const json& object, const char* name) {
  const auto member = object.find(name);
  if (member == object.end() || !member->is_number()) return std::nullopt;
  return member->get<double>();
}

std::optional<long long> IntegerMember(const json& object, const char* name) {
  const auto member = object.find(name);
  if (member == object.end() || !member->is_number_integer()) return std::nullopt;
  if (member->is_number_unsigned() &&
      member->get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<long long>::max())) {
    return std::nullopt;
  }
  return member->get<long long>();
}

}  // namespace tilewright
