#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/ast.h"
#include "model/jinja/lexer.h"
#include "tilewright/result.h"

namespace tilewright::jinja {

/// Deeper nesting of expressions or of blocks is refused.
inline constexpr int kDeepestSyntax = 100;

/// Reads tokens, one after another. After the first error it is at the end for good, so that loops
/// end by themselves.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return error_ ? end_ : tokens_[at_]; }
  const Token& next() const {
    return error_ || at_ + 1 >= tokens_.size() ? end_ : tokens_[at_ + 1];
  }
  Token Take();
  bool AtOperator(std::string_view word) const { return now().Is(TokenKind::kOperator, word); }
  bool AtName(std::string_view word) const { return now().Is(TokenKind::kName, word); }
  bool At(TokenKind kind) const { return now().kind == kind; }
  bool TakeOperator(std::string_view word);  ///< false if there is another token
  bool TakeName(std::string_view word);
  void ExpectOperator(std::string_view word);
  void ExpectName(std::string_view word);
  void ExpectTagEnd();
  std::string ExpectAnyName();

  void Fail(ErrorCode code, std::string_view what);
  /// "expected ..., but there is ...".
  void Expected(std::string_view what);
  bool ok() const { return !error_.has_value(); }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::optional<Error> error_;
  const Token end_;
};

/// Parses expressions, with the precedence of Jinja2.
class ExprParser {
 public:
  explicit ExprParser(TokenStream& tokens) : tokens_(tokens) {}

  /// An expression; with `conditional` also `a if b else c`. Never null: after an error it is a
  /// constant.
  ExprPtr Parse(bool conditional = true);
  /// One expression, or several that a comma makes a tuple. Ends before `in` and `recursive`.
  ExprPtr ParseTuple(bool conditional);
  /// `name(args) | name ...` of a filter block: the innermost has no args[0].
  ExprPtr ParseFilterChain();

 private:
  ExprPtr Condition();
  ExprPtr Or();
  ExprPtr And();
  ExprPtr Not();
  ExprPtr Comparison();
  ExprPtr Sum();
  ExprPtr Concat();
  ExprPtr Product();
  ExprPtr Power();
  ExprPtr Unary();
  ExprPtr Primary();
  ExprPtr NameOrConstant();
  ExprPtr Parenthesised();
  ExprPtr ListLiteral();
  ExprPtr DictLiteral();
  ExprPtr Postfix(ExprPtr of);
  ExprPtr FiltersAndTests(ExprPtr of);
  ExprPtr Subscript(ExprPtr of);
  ExprPtr Filter(ExprPtr of);
  ExprPtr Test(ExprPtr of);
  void Arguments(Expr& call);
  bool TupleEnds() const;

  Expr Node(ExprKind kind, std::string name = {}) const;
  ExprPtr Make(Expr expr);
  ExprPtr Constant(Value value);
  ExprPtr Two(ExprKind kind, std::string name, ExprPtr a, ExprPtr b);

  TokenStream& tokens_;
  int nesting_ = 0;
};

/// Parses a template's statements.
Result<Block> ParseTemplate(std::vector<Token> tokens);

}  // namespace tilewright::jinja
