#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright {

/// Lines of our JSON Lines files. A sealed line is an object whose last member "sum" is the first
/// 16 hex digits of the SHA-256 of the object without it, dumped compactly with sorted keys. So an
/// editor may change white space and the order of members, but not the content.

/// `object` with its seal, without the line's end.
std::string Seal(const nlohmann::json& object);

/// The object without its seal; nullopt for anything else: text that does not parse, nests deeper
/// than 16, is longer than 64 KiB, has no seal or a wrong one. Never throws.
std::optional<nlohmann::json> Unseal(std::string_view line);

/// The value of a member; nullopt if it is absent or of another type.
std::optional<std::string> StringMember(const nlohmann::json& object, const char* name);
std::optional<double> NumberMember(const nlohmann::json& object, const char* name);
std::optional<long long> IntegerMember(const nlohmann::json& object, const char* name);

}  // namespace tilewright
