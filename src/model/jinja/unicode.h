#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::jinja {

/// The character at bytes[at] and the number of its bytes; a byte that is part of no character
/// counts as one. `at` must be in range.
struct Character {
  std::uint32_t code = 0;
  std::size_t size = 1;
};
Character CharacterAt(std::string_view bytes, std::size_t at);
void AppendUtf8(std::uint32_t code, std::string& out);

/// What Python's str.strip() and str.split() take for white space.
bool IsSpace(std::uint32_t code);
std::string_view StripLeft(std::string_view text);
std::string_view StripRight(std::string_view text);
/// As str.strip(chars): whatever characters of `chars` the ends consist of.
std::string_view StripLeft(std::string_view text, std::string_view chars);
std::string_view StripRight(std::string_view text, std::string_view chars);

bool IsAscii(std::string_view text);
std::size_t CountCharacters(std::string_view text);
/// Offsets of the characters, and the size of the text at the end.
std::vector<std::size_t> CharacterOffsets(std::string_view text);

}  // namespace tilewright::jinja
