#include "ops/gemm/base/problem_group.h"

#include <optional>
#include <string>
#include <vector>

#include "core/hash.h"
#include "tilewright/gemm.h"

namespace tilewright {
namespace {

// Field names in the order in which KeyOf writes them, from a key of it.
const std::vector<std::string>& FieldNames() {
  static const auto* const kNames = [] {
    auto* names = new std::vector<std::string>;
    const std::string key = KeyOf(GemmDesc{});
    for (std::size_t at = 0; at < key.size();) {
      const std::size_t equals = key.find('=', at);
      names->push_back(key.substr(at, equals + 1 - at));
      const std::size_t end = key.find(' ', equals);
      at = end == std::string::npos ? key.size() : end + 1;
    }
    return names;
  }();
  return *kNames;
}

// nullopt where `key` does not list exactly the fields of this version, in their order.
std::optional<std::uint64_t> GroupOfCanonical(std::string_view key) {
  std::string_view m, n, batch_dim, rest = key, after_sizes;
  std::size_t field = 0;
  for (const std::string& name : FieldNames()) {
    if (!rest.starts_with(name)) return std::nullopt;
    const std::string_view value = rest.substr(name.size(), rest.find(' ') - name.size());
    if (name == "m=") m = value;
    if (name == "n=") n = value;
    if (name == "batch_dim=") batch_dim = value;
    rest.remove_prefix(name.size() + value.size());
    const bool last = ++field == FieldNames().size();
    if (last != rest.empty()) return std::nullopt;
    if (!last) rest.remove_prefix(1);
    if (field == 2) after_sizes = rest;  // m and n come first
  }
  const bool by_m = batch_dim == "m";
  return Hash64(after_sizes, Hash64(by_m ? n : m, by_m ? 1 : 2));
}

}  // namespace

std::uint64_t GroupOfProblem(std::string_view key) {
  if (const auto group = GroupOfCanonical(key)) return *group;
  const auto desc = ParseKey(key);
  const auto group = desc ? GroupOfCanonical(KeyOf(*desc)) : std::nullopt;
  return group ? *group : Hash64(key);
}

}  // namespace tilewright
