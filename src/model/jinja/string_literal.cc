#include "model/jinja/string_literal.h"

#include <cstdint>

#include "model/jinja/unicode.h"

namespace tilewright::jinja {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// Reads `count` hexadecimal digits at literal[*at] and appends their character.
bool ReadHex(std::string_view literal, std::size_t count, std::size_t* at, std::string& out) {
  if (*at + count > literal.size()) return false;
  std::uint32_t code = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int digit = HexDigit(literal[*at + i]);
    if (digit < 0) return false;
    code = code << 4 | static_cast<std::uint32_t>(digit);
  }
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
  AppendUtf8(code, out);
  *at += count;
  return true;
}

void ReadOctal(std::string_view literal, std::size_t* at, std::string& out) {
  std::uint32_t code = 0;
  for (int i = 0; i < 3 && *at < literal.size() && literal[*at] >= '0' && literal[*at] <= '7';
       ++i) {
    code = code * 8 + static_cast<std::uint32_t>(literal[(*at)++] - '0');
  }
  AppendUtf8(code, out);
}

}  // namespace

bool ReadEscapes(std::string_view literal, std::string& out) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
  for (std::size_t at = 0; at < literal.size();) {
    const char c = literal[at++];
    if (c != '\\') {
      out.push_back(c);
      continue;
    }
    if (at == literal.size()) return false;
    const char escaped = literal[at++];
    if (const std::size_t known = kLetters.find(escaped); known != std::string_view::npos) {
      out.push_back(kMeanings[known]);
    } else if (escaped >= '0' && escaped <= '7') {
      --at;
      ReadOctal(literal, &at, out);
    } else if (escaped == 'x' || escaped == 'u' || escaped == 'U') {
      if (!ReadHex(literal, escaped == 'x' ? 2 : escaped == 'u' ? 4 : 8, &at, out)) return false;
    } else if (escaped == 'N') {
      return false;
    } else if (escaped != '\n') {  // a line end after a backslash is no part of the text
      out.push_back('\\');
      out.push_back(escaped);
    }
  }
  return true;
}

}  // namespace tilewright::jinja
