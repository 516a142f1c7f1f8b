#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/result.h"

namespace tilewright::jinja {

enum class TokenKind : std::uint8_t {
  kData,  ///< text between tags, white space already removed as the tags say
  kOutputBegin,
  kOutputEnd,  ///< {{ and }}
  kTagBegin,
  kTagEnd,  ///< {% and %}
  kName,
  kInteger,
  kFloat,
  kString,  ///< with its escapes resolved
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;

  bool Is(TokenKind other, std::string_view word) const { return kind == other && text == word; }
};

/// The tokens of a template, kEnd last, with the white-space rules that chat templates are written
/// for: trim_blocks (the line end after a tag goes), lstrip_blocks (spaces before a tag that begins
/// its line go), and the signs "-" and "+" of a tag. Comments are left out, raw blocks are data.
/// Errors: kCorrupt for what no template may contain, with its line.
Result<std::vector<Token>> Tokenize(std::string_view source);

/// A tag that breaks off the text, or the end of the source.
struct TagStart {
  enum class Kind : std::uint8_t { kNone, kOutput, kTag, kComment };
  Kind kind = Kind::kNone;
  std::size_t at = 0;  ///< where it begins
};

}  // namespace tilewright::jinja
