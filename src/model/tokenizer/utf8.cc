#include "model/tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

namespace tilewright {
namespace {

std::uint8_t ByteAt(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

bool IsContinuation(std::uint8_t byte) { return (byte & 0xc0) == 0x80; }

/// Length of the well-formed character at the front of `text` (Unicode 15, table 3-7), or 0.
/// If 0, `prefix` is the number of bytes that could begin one (at least 1), and `cut_short` says
/// whether it is incomplete only because the text ends.
struct Character {
  std::size_t size;
  std::size_t prefix;
  bool cut_short;
};

Character FirstCharacter(std::string_view text) {
  const std::uint8_t lead = ByteAt(text, 0);
  if (lead < 0x80) return {1, 1, false};
  std::size_t size = 0;
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    size = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    size = 3;
    if (lead == 0xe0) low = 0xa0;   // shorter forms exist
    if (lead == 0xed) high = 0x9f;  // surrogates
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    size = 4;
    if (lead == 0xf0) low = 0x90;   // shorter forms exist
    if (lead == 0xf4) high = 0x8f;  // above U+10FFFF
  } else {
    return {0, 1, false};
  }
  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {0, i, true};
    const std::uint8_t byte = ByteAt(text, i);
    if (byte < low || byte > high) return {0, i, false};
    low = 0x80;
    high = 0xbf;
  }
  return {size, size, false};
}

/// Number of bytes at the front of `text` that are well-formed UTF-8.
std::size_t WellFormedPrefix(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint64_t eight;
    while (i + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if (eight & 0x8080808080808080u) break;
      i += sizeof eight;
    }
    if (i == text.size()) break;
    const Character character = FirstCharacter(text.substr(i));
    if (character.size == 0) return i;
    i += character.size;
  }
  return i;
}

void AppendCodePoint(std::uint32_t code, std::string& out) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (code >> 6)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | (code >> 12)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xf0 | (code >> 18)));
    out.push_back(static_cast<char>(0x80 | ((code >> 12) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

/// Reads a character by its bit pattern alone, so overlong forms and surrogates are accepted.
/// Returns its length, or 0.
std::size_t ReadLeniently(std::string_view text, std::uint32_t& code) {
  const std::uint8_t lead = ByteAt(text, 0);
  std::size_t size = 0;
  if (lead < 0x80) {
    code = lead;
    return 1;
  }
  if ((lead & 0xe0) == 0xc0) {
    size = 2;
    code = lead & 0x1f;
  } else if ((lead & 0xf0) == 0xe0) {
    size = 3;
    code = lead & 0x0f;
  } else if ((lead & 0xf8) == 0xf0) {
    size = 4;
    code = lead & 0x07;
  } else {
    return 0;
  }
  if (text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    const std::uint8_t byte = ByteAt(text, i);
    if (!IsContinuation(byte)) return 0;
    code = (code << 6) | (byte & 0x3f);
  }
  return code > 0x10ffff ? 0 : size;
}

}  // namespace

NormalText Normalize(std::string_view text, NormalizeBuffer& buffer) {
  std::size_t done = WellFormedPrefix(text);
  if (done == text.size()) return {text, text};
  buffer.bytes.assign(text.substr(0, done));
  buffer.match.assign(text.substr(0, done));
  while (done < text.size()) {
    std::uint32_t code = 0;
    const std::size_t size = ReadLeniently(text.substr(done), code);
    if (size == 0) {
      buffer.bytes.append(kReplacement);
      buffer.match.append(kReplacement);
      done += 1;
    } else {
      const bool surrogate = code >= 0xd800 && code <= 0xdfff;
      AppendCodePoint(code, buffer.bytes);
      AppendCodePoint(surrogate ? 0xe000 : code, buffer.match);
      done += size;
    }
    const std::size_t good = WellFormedPrefix(text.substr(done));
    buffer.bytes.append(text.substr(done, good));
    buffer.match.append(text.substr(done, good));
    done += good;
  }
  return {buffer.bytes, buffer.match};
}

void TakeCompleteCharacters(std::string& bytes, std::string& out) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const std::size_t good = WellFormedPrefix(rest);
    out.append(rest.substr(0, good));
    rest.remove_prefix(good);
    if (rest.empty()) break;
    const Character character = FirstCharacter(rest);
    if (character.cut_short) break;
    out.append(kReplacement);
    rest.remove_prefix(character.prefix);
  }
  bytes.erase(0, bytes.size() - rest.size());
}

}  // namespace tilewright
