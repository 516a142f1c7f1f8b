#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// "name=" of every field, in the order in which a key writes them, from any key of it.
std::vector<std::string> FieldNamesOf(std::string_view key);

/// A hash of a key without the value of the field `batch` ("rows="): one for all problems of a
/// family. nullopt where the key does not list exactly the fields `names`, in their order.
std::optional<std::uint64_t> GroupOfCanonicalKey(std::string_view key,
                                                 std::span<const std::string> names,
                                                 std::string_view batch);

}  // namespace tilewright
