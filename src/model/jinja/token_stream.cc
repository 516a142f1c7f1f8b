#include "core/text.h"
#include "model/jinja/parser.h"

namespace tilewright::jinja {

Token TokenStream::Take() {
  if (error_) return end_;
  return at_ + 1 < tokens_.size() ? std::move(tokens_[at_++]) : tokens_[at_];
}

bool TokenStream::TakeOperator(std::string_view word) {
  if (!AtOperator(word)) return false;
  Take();
  return true;
}

bool TokenStream::TakeName(std::string_view word) {
  if (!AtName(word)) return false;
  Take();
  return true;
}

void TokenStream::ExpectOperator(std::string_view word) {
  if (!TakeOperator(word)) Expected(Format("'{}'", word));
}

void TokenStream::ExpectName(std::string_view word) {
  if (!TakeName(word)) Expected(Format("'{}'", word));
}

void TokenStream::ExpectTagEnd() {
  if (!At(TokenKind::kTagEnd)) return Expected("%}");
  Take();
}

std::string TokenStream::ExpectAnyName() {
  if (!At(TokenKind::kName)) Expected("a name");
  return Take().text;
}

void TokenStream::Fail(ErrorCode code, std::string_view what) {
  if (!error_) error_ = Error{code, Format("line {}: {}", now().line, what)};
}

void TokenStream::Expected(std::string_view what) {
  const std::string found =
      At(TokenKind::kEnd) ? "the end" : Format("'{}'", Printable(now().text, 40));
  Fail(ErrorCode::kCorrupt, Format("expected {}, but there is {}", what, found));
}

}  // namespace tilewright::jinja
