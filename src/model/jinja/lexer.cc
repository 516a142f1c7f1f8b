#include "model/jinja/lexer.h"

#include <algorithm>
#include <optional>

#include "core/text.h"
#include "model/jinja/string_literal.h"
#include "model/jinja/unicode.h"

namespace tilewright::jinja {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// "\r\n" and "\r" become "\n", and one line end at the very end goes.
std::string NormalizeLineEnds(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out.push_back(source[i] == '\r' ? '\n' : source[i]);
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> Run() {
    while (!error_ && at_ < source_.size()) ReadData();
    if (error_) return Fail(ErrorCode::kCorrupt, *error_);
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  using Kind = TagStart::Kind;

  bool At(std::string_view word) const { return source_.substr(at_).starts_with(word); }
  void Error(std::string_view what) {
    if (!error_) error_ = Format("line {}: {}", line_, what);
    at_ = source_.size();
  }
  void Advance(std::size_t bytes) {
    const std::string_view passed = source_.substr(at_, bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    at_ += passed.size();
  }
  void SkipSpace() {
    while (at_ < source_.size()) {
      const Character next = CharacterAt(source_, at_);
      if (!IsSpace(next.code) || (next.size == 1 && next.code >= 0x80)) break;
      Advance(next.size);
    }
  }
  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  TagStart FindTag() const {
    for (std::size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] != '{') continue;
      if (source_[i + 1] == '{') return {Kind::kOutput, i};
      if (source_[i + 1] == '%') return {Kind::kTag, i};
      if (source_[i + 1] == '#') return {Kind::kComment, i};
    }
    return {Kind::kNone, source_.size()};
  }

  /// Text up to a tag, without what the tag's sign or lstrip_blocks removes.
  std::string_view Trimmed(std::string_view data, Kind kind, char sign) const {
    if (sign == '-') return StripRight(data);
    if (sign == '+' || kind == Kind::kOutput || kind == Kind::kNone) return data;
    const std::size_t line = data.rfind('\n') + 1;  // npos + 1 is 0
    if (line == 0 && !at_line_start_) return data;
    return StripLeft(data.substr(line)).empty() ? data.substr(0, line) : data;
  }

  /// "-" or "+" right after the two characters that open a tag, else 0.
  char SignAt(std::size_t at) const {
    const char c = at < source_.size() ? source_[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void ReadData() {
    const TagStart tag = FindTag();
    const char sign = tag.kind == Kind::kNone ? '\0' : SignAt(tag.at + 2);
    const std::string_view data = Trimmed(source_.substr(at_, tag.at - at_), tag.kind, sign);
    if (!data.empty()) Add(TokenKind::kData, std::string(data));
    Advance(tag.at - at_ + (tag.kind == Kind::kNone ? 0 : 2) + (sign != '\0' ? 1 : 0));
    switch (tag.kind) {
      case Kind::kNone:
        break;
      case Kind::kOutput:
        Add(TokenKind::kOutputBegin, "{{");
        ReadExpression("}}", TokenKind::kOutputEnd);
        break;
      case Kind::kTag:
        if (!ReadRaw()) {
          Add(TokenKind::kTagBegin, "{%");
          ReadExpression("%}", TokenKind::kTagEnd);
        }
        break;
      case Kind::kComment:
        SkipComment();
        break;
    }
    at_line_start_ = at_ > 0 && at_ <= source_.size() && source_[at_ - 1] == '\n';
  }

  /// Reads the end of a tag, `close` with a sign before it, and the white space that goes with it;
  /// false if there is another thing.
  bool ReadClose(std::string_view close, bool trims_line_end) {
    const bool minus = At("-"), plus = At("+") && trims_line_end;
    if (!source_.substr(std::min(source_.size(), at_ + (minus || plus ? 1 : 0)))
             .starts_with(close)) {
      return false;
    }
    Advance(close.size() + (minus || plus ? 1 : 0));
    if (minus) {
      SkipSpace();
    } else if (!plus && trims_line_end && At("\n")) {
      Advance(1);
    }
    return true;
  }

  void SkipComment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) return Error("a comment ({#) has no end");
    const char sign = end > at_ ? SignAt(end - 1) : '\0';
    Advance(end - at_ - (sign != '\0' ? 1 : 0));
    ReadClose("#}", true);
  }

  /// {% raw %} up to {% endraw %}, as data; false, and nothing read, if it is another tag.
  bool ReadRaw() {
    const std::size_t begin = at_;
    const int line = line_;
    SkipSpace();
    const bool raw = At("raw");
    if (raw) Advance(3);
    SkipSpace();
    if (!raw || !ReadClose("%}", false)) {
      at_ = begin;
      line_ = line;
      return false;
    }
    at_line_start_ = source_[at_ - 1] == '\n';
    for (std::size_t end = source_.find("{%", at_); end != std::string_view::npos;
         end = source_.find("{%", end + 1)) {
      const char sign = SignAt(end + 2);
      std::string_view rest = StripLeft(source_.substr(end + 2 + (sign != '\0' ? 1 : 0)));
      if (!rest.starts_with("endraw")) continue;
      rest = StripLeft(rest.substr(6));
      const std::string_view data = Trimmed(source_.substr(at_, end - at_), Kind::kTag, sign);
      Add(TokenKind::kData, std::string(data));
      Advance(source_.size() - rest.size() - at_);
      if (!ReadClose("%}", true)) Error("after endraw: expected %}");
      return true;
    }
    Error("a raw block has no endraw");
    return true;
  }

  void ReadExpression(std::string_view close, TokenKind end) {
    std::string open;  // brackets that are open: "}}" may close two of them
    while (!error_) {
      SkipSpace();
      if (at_ >= source_.size()) {
        return Error(Format("{} is not closed by {}", close == "}}" ? "{{" : "{%", close));
      }
      if (open.empty() && ReadClose(close, end == TokenKind::kTagEnd)) {
        Add(end, std::string(close));
        return;
      }
      ReadToken(open);
    }
  }

  void ReadToken(std::string& open) {
    const char c = source_[at_];
    if (IsNameStart(c)) return ReadName();
    if (IsDigit(c)) return ReadNumber();
    if (c == '\'' || c == '"') return ReadString(c);
    ReadOperator(open);
  }

  void ReadName() {
    std::size_t end = at_;
    while (end < source_.size() && (IsNameStart(source_[end]) || IsDigit(source_[end]))) ++end;
    Add(TokenKind::kName, std::string(source_.substr(at_, end - at_)));
    Advance(end - at_);
  }

  void ReadNumber() {
    std::size_t end = at_;
    const auto digits = [&] {
      const std::size_t begin = end;
      while (end < source_.size() && (IsDigit(source_[end]) || source_[end] == '_')) ++end;
      return end > begin;
    };
    digits();
    bool is_float = false;
    // After a dot "1.0" is two subscripts, not a number.
    const bool member = !tokens_.empty() && tokens_.back().Is(TokenKind::kOperator, ".");
    const auto digit_at = [&](std::size_t i) { return i < source_.size() && IsDigit(source_[i]); };
    if (!member && end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      is_float = true;
      ++end;
      digits();
    }
    if (!member && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const std::size_t sign =
          end + 1 < source_.size() && (source_[end + 1] == '-' || source_[end + 1] == '+') ? 1 : 0;
      if (digit_at(end + 1 + sign)) {
        is_float = true;
        end += 1 + sign;
        digits();
      }
    }
    std::string text(source_.substr(at_, end - at_));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    Advance(end - at_);
  }

  void ReadString(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Error("a string has no end");
    std::string text;
    if (!ReadEscapes(source_.substr(at_ + 1, end - at_ - 1), text)) {
      return Error("a string has an escape that is not understood");
    }
    Add(TokenKind::kString, std::move(text));
    Advance(end + 1 - at_);
  }

  void ReadOperator(std::string& open) {
    for (const std::string_view word : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!At(word)) continue;
      Add(TokenKind::kOperator, std::string(word));
      return Advance(2);
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos) {
      return Error(Format("unexpected character '{}'", Printable(source_.substr(at_, 1))));
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(c);
    if (c == ')' || c == ']' || c == '}') {
      const char match = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != match) return Error(Format("unexpected '{}'", c));
      open.pop_back();
    }
    Add(TokenKind::kOperator, std::string(1, c));
    Advance(1);
  }

  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::optional<std::string> error_;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  const std::string text = NormalizeLineEnds(source);
  return Lexer(text).Run();
}

}  // namespace tilewright::jinja
