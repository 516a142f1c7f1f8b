#include "model/jinja/unicode.h"

#include <algorithm>

namespace tilewright::jinja {

Character CharacterAt(std::string_view bytes, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u;
  };
  const std::uint32_t first = byte(at);
  const std::size_t size = first < 0x80   ? 1
                           : first < 0xc0 ? 0
                           : first < 0xe0 ? 2
                           : first < 0xf0 ? 3
                           : first < 0xf8 ? 4
                                          : 0;
  if (size <= 1) return {first, 1};
  std::uint32_t code = first & (0xffu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xc0u) != 0x80) return {first, 1};
    code = code << 6 | (byte(at + i) & 0x3fu);
  }
  return {code, size};
}

void AppendUtf8(std::uint32_t code, std::string& out) {
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | (code >> shift & 0x3f)));
  };
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xc0 | code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | code >> 12));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xf0 | code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool IsSpace(std::uint32_t code) {
  return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
         code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
         code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

namespace {

/// Begin of the last character of a text that is not empty.
std::size_t LastCharacter(std::string_view text) {
  std::size_t at = text.size() - 1;
  for (int i = 0; i < 3 && at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0u) == 0x80; ++i) {
    --at;
  }
  return CharacterAt(text, at).size == text.size() - at ? at : text.size() - 1;
}

template <class Drops>
std::string_view DropLeft(std::string_view text, const Drops& drops) {
  while (!text.empty()) {
    const Character first = CharacterAt(text, 0);
    if (!drops(text.substr(0, first.size), first.code)) break;
    text.remove_prefix(first.size);
  }
  return text;
}

template <class Drops>
std::string_view DropRight(std::string_view text, const Drops& drops) {
  while (!text.empty()) {
    const std::size_t at = LastCharacter(text);
    if (!drops(text.substr(at), CharacterAt(text, at).code)) break;
    text = text.substr(0, at);
  }
  return text;
}

bool Space(std::string_view character, std::uint32_t code) {
  return IsSpace(code) && (character.size() > 1 || code < 0x80);
}

}  // namespace

std::string_view StripLeft(std::string_view text) { return DropLeft(text, Space); }
std::string_view StripRight(std::string_view text) { return DropRight(text, Space); }
std::string_view StripLeft(std::string_view text, std::string_view chars) {
  return DropLeft(text, [&](std::string_view character, std::uint32_t) {
    return chars.find(character) != std::string_view::npos;
  });
}
std::string_view StripRight(std::string_view text, std::string_view chars) {
  return DropRight(text, [&](std::string_view character, std::uint32_t) {
    return chars.find(character) != std::string_view::npos;
  });
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::size_t CountCharacters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += CharacterAt(text, at).size) ++count;
  return count;
}

std::vector<std::size_t> CharacterOffsets(std::string_view text) {
  std::vector<std::size_t> offsets;
  for (std::size_t at = 0; at < text.size(); at += CharacterAt(text, at).size) {
    offsets.push_back(at);
  }
  offsets.push_back(text.size());
  return offsets;
}

}  // namespace tilewright::jinja
