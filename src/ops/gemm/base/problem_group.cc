#include "ops/gemm/base/problem_group.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/hash.h"
#include "engine/cache/problem_group.h"
#include "tilewright/gemm.h"

namespace tilewright {
namespace {

// Field names in the order in which KeyOf writes them, from a key of it.
const std::vector<std::string>& FieldNames() {
  static const auto* const kNames = new std::vector<std::string>(FieldNamesOf(KeyOf(GemmDesc{})));
  return *kNames;
}

// The fields after m, n and k: whether they are those of this version, in its order, and which
// dimension is the batch.
struct Tail {
  std::string text;
  bool canonical = false, by_m = true;
  std::uint64_t hash = 0;
};
Tail ReadTail(std::string_view text) {
  Tail tail;
  tail.text = text;
  const auto& names = FieldNames();
  for (std::size_t field = 3; field < names.size(); ++field) {
    if (!text.starts_with(names[field])) return tail;
    const std::string_view value =
        text.substr(names[field].size(), text.find(' ') - names[field].size());
    if (names[field] == "batch_dim=") tail.by_m = value == "m";
    text.remove_prefix(names[field].size() + value.size());
    const bool last = field + 1 == names.size();
    if (last != text.empty()) return tail;
    if (!last) text.remove_prefix(1);
  }
  tail.canonical = true;
  return tail;
}

// Removes "name=value " from the front of `key`; nullopt if it is not there.
std::optional<std::string_view> TakeField(std::string_view& key, std::string_view name) {
  const std::size_t space = key.find(' ');
  if (!key.starts_with(name) || space == std::string_view::npos) return std::nullopt;
  const std::string_view value = key.substr(name.size(), space - name.size());
  key.remove_prefix(space + 1);
  return value;
}

// nullopt where `key` does not list exactly the fields of this version, in their order.
std::optional<std::uint64_t> GroupOfCanonical(std::string_view key) {
  const auto m = TakeField(key, "m="), n = TakeField(key, "n=");
  const std::string_view after_sizes = key;
  if (!m || !n || !TakeField(key, "k=")) return std::nullopt;
  // A file has few tails: one for each type and layout.
  thread_local std::array<Tail, 64> tails;
  const std::uint64_t hash = Hash64(key);
  Tail& tail = tails[hash % tails.size()];
  if (tail.hash != hash || tail.text != key) tail = ReadTail(key);
  tail.hash = hash;
  if (!tail.canonical) return std::nullopt;
  return Hash64(after_sizes, Hash64(tail.by_m ? *n : *m, tail.by_m ? 1 : 2));
}

}  // namespace

std::uint64_t GroupOfProblem(std::string_view key) {
  if (const auto group = GroupOfCanonical(key)) return *group;
  const auto desc = ParseKey(key);
  const auto group = desc ? GroupOfCanonical(KeyOf(*desc)) : std::nullopt;
  return group ? *group : Hash64(key);
}

}  // namespace tilewright
