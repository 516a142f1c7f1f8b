#include "engine/cache/problem_group.h"

#include "core/hash.h"

namespace tilewright {

std::vector<std::string> FieldNamesOf(std::string_view key) {
  std::vector<std::string> names;
  while (!key.empty()) {
    const std::size_t equals = key.find('='), end = key.find(' ', equals);
    names.emplace_back(key.substr(0, equals + 1));
    key.remove_prefix(end == std::string_view::npos ? key.size() : end + 1);
  }
  return names;
}

std::optional<std::uint64_t> GroupOfCanonicalKey(std::string_view key,
                                                 std::span<const std::string> names,
                                                 std::string_view batch) {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!key.starts_with(names[i])) return std::nullopt;
    key.remove_prefix(names[i].size());
    const std::size_t space = key.find(' ');
    if ((space == std::string_view::npos) != (i + 1 == names.size())) return std::nullopt;
    const std::string_view value = key.substr(0, space);
    if (names[i] != batch) hash = Hash64(value, hash);
    key.remove_prefix(space == std::string_view::npos ? key.size() : space + 1);
  }
  return hash;
}

}  // namespace tilewright
