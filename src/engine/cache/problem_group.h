#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// "name=" of every field of `key`, in the order of the key.
std::vector<std::string> FieldNamesOf(std::string_view key);

/// A hash of a key without the value of the field `batch` ("rows="), equal for all problems of a
/// group. nullopt if the key does not list exactly the fields `names`, in their order.
std::optional<std::uint64_t> GroupOfCanonicalKey(std::string_view key,
                                                 std::span<const std::string> names,
                                                 std::string_view batch);

}  // namespace tilewright
