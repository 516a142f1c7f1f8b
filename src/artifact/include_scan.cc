#include "artifact/include_scan.h"

#include <algorithm>
#include <cstddef>

#include "core/text.h"

namespace tilewright {
namespace {

bool IsWordStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWordPart(char c) { return IsWordStart(c) || IsDigit(c); }
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r'; }

/// `text` without spliced line ends (backslash, newline). They are removed from raw string literals
/// too, where they are not splices, but that changes only their contents, which do not matter here.
std::string Unsplice(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      // NVRTC does not treat them as a splice if there are blanks between them.
      std::size_t end = i + 1;
      while (end < text.size() && text[end] == '\r') ++end;
      if (end < text.size() && text[end] == '\n') {
        i = end;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

/// Skips the tokens of a text and stops at directives.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Result<std::vector<std::string>> Run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        line_start_ = true;
        ++at_;
      } else if (IsBlank(c)) {
        ++at_;
      } else if (SkipComment()) {
        // A directive may follow a comment on the same line.
      } else if (line_start_ && SkipHash()) {
        if (Status status = Directive(); !status) return Fail(status.error());
        line_start_ = false;
      } else {
        line_start_ = false;
        if (Status status = SkipToken(); !status) return Fail(status.error());
      }
    }
    return std::move(names_);
  }

 private:
  bool StartsWith(std::string_view word) const { return text_.substr(at_, word.size()) == word; }

  bool SkipComment() {
    if (StartsWith("//")) {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return true;
    }
    if (StartsWith("/*")) {
      const std::size_t end = text_.find("*/", at_ + 2);
      at_ = end == std::string_view::npos ? text_.size() : end + 2;
      return true;
    }
    return false;
  }

  bool SkipHash() {
    for (const std::string_view hash : {"#", "%:"}) {
      if (!StartsWith(hash)) continue;
      at_ += hash.size();
      return true;
    }
    return false;
  }

  void SkipBlanksAndComments() {
    while (at_ < text_.size()) {
      if (IsBlank(text_[at_])) {
        ++at_;
      } else if (!SkipComment()) {
        return;
      }
    }
  }

  std::string_view Word() {
    const std::size_t start = at_;
    while (at_ < text_.size() && IsWordPart(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }

  Status Directive() {
    SkipBlanksAndComments();
    const std::string_view word = Word();
    if (word == "include_next" || word == "import" || word == "embed") {
      return Fail(
          ErrorCode::kInvalidArgument,
          Format(
              "#{} is not allowed in a kernel source: the file that it reads cannot be determined",
              word));
    }
    if (word == "ifdef" || word == "ifndef") SkipName();
    if (word != "include") return {};
    SkipBlanksAndComments();
    const char open = at_ < text_.size() ? text_[at_] : '\0';
    const char close = open == '<' ? '>' : '"';
    const std::size_t line_end = std::min(text_.find('\n', at_), text_.size());
    if (open == '<' || open == '"') {
      const std::size_t end = text_.find(close, at_ + 1);
      if (end < line_end) {
        names_.emplace_back(text_.substr(at_ + 1, end - at_ - 1));
        at_ = end + 1;
        return {};
      }
    }
    return Fail(ErrorCode::kInvalidArgument, Format("#include {} must name a file in quotes",
                                                    text_.substr(at_, line_end - at_)));
  }

  /// A literal's prefix is part of the word before it, a digit separator part of the number.
  Status SkipToken() {
    const char c = text_[at_];
    if (IsWordStart(c)) {
      const std::string_view word = Word();
      if (word == "__DATE__" || word == "__TIME__" || word == "__TIMESTAMP__") {
        return Fail(ErrorCode::kInvalidArgument,
                    Format("{} is not allowed in a kernel source: equal keys would have different "
                           "code",
                           word));
      }
      if (word == "defined") SkipName();
      if (word.starts_with("__has_include") || word == "__has_embed") return HasInclude(word);
      if (at_ >= text_.size()) return {};
      const bool raw = word == "R" || word == "u8R" || word == "uR" || word == "UR" || word == "LR";
      if (text_[at_] == '"' && raw) {
        SkipRawString();
      } else if (text_[at_] == '"' || text_[at_] == '\'') {
        SkipLiteral();
      }
    } else if (IsDigit(c)) {
      while (at_ < text_.size() &&
             (IsWordPart(text_[at_]) || text_[at_] == '.' || IsSeparator(at_))) {
        ++at_;
      }
    } else if (c == '"' || c == '\'') {
      SkipLiteral();
    } else {
      ++at_;
    }
    return {};
  }

  /// Skips a name that is only tested for: "X", "(X)", "( X )" up to the last parenthesis.
  void SkipName() {
    SkipBlanksAndComments();
    if (StartsWith("(")) ++at_;
    SkipBlanksAndComments();
    (void)Word();
  }

  /// For anything but a virtual name, NVRTC would look among the files of this machine.
  Status HasInclude(std::string_view word) {
    SkipBlanksAndComments();
    if (word == "__has_include" && StartsWith("(")) {
      ++at_;
      SkipBlanksAndComments();
      const char open = at_ < text_.size() ? text_[at_] : '\0';
      if (open == '"' || open == '<') {
        const std::size_t end = text_.find(open == '<' ? '>' : '"', at_ + 1);
        if (end != std::string_view::npos && IsVirtualName(text_.substr(at_ + 1, end - at_ - 1))) {
          at_ = end + 1;
          return {};
        }
      }
    }
    return Fail(ErrorCode::kInvalidArgument,
                Format("{} may only test for the virtual name of a file (relative, printable, no "
                       "\"..\"): it could find files of this machine",
                       word));
  }

  bool IsSeparator(std::size_t at) const {
    return text_[at] == '\'' && at + 1 < text_.size() && IsWordPart(text_[at + 1]);
  }

  void SkipLiteral() {
    const char quote = text_[at_++];
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
      at_ += text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n' ? 2 : 1;
    }
    if (at_ < text_.size() && text_[at_] == quote) ++at_;
  }

  void SkipRawString() {
    const std::size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) {
      at_ = text_.size();
      return;
    }
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const std::size_t end = text_.find(close, open + 1);
    at_ = end == std::string_view::npos ? text_.size() : end + close.size();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool line_start_ = true;
  std::vector<std::string> names_;
};

}  // namespace

Result<std::vector<std::string>> ScanIncludes(std::string_view text) {
  const std::string unspliced = Unsplice(text);
  return Scanner(unspliced).Run();
}

bool IsVirtualName(std::string_view name) {
  constexpr std::size_t kMaxBytes = 255;
  if (name.empty() || name.size() > kMaxBytes) return false;
  for (const char c : name) {
    if (c <= ' ' || c >= 127 || c == '"' || c == '<' || c == '>' || c == '\\') return false;
  }
  while (true) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

}  // namespace tilewright
