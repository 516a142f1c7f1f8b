#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "core/text.h"
#include "model/jinja/functions.h"
#include "model/jinja/parser.h"

namespace tilewright::jinja {
namespace {

constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<", "<=", ">", ">="};

}  // namespace

Expr ExprParser::Node(ExprKind kind, std::string name) const {
  Expr expr;
  expr.kind = kind;
  expr.line = tokens_.now().line;
  expr.name = std::move(name);
  return expr;
}

ExprPtr ExprParser::Make(Expr expr) {
  const auto below = [&](const ExprPtr& child) {
    if (child != nullptr) expr.depth = std::max(expr.depth, child->depth + 1);
  };
  for (const ExprPtr& child : expr.args) below(child);
  for (const auto& [name, child] : expr.named) below(child);
  if (expr.depth > kDeepestSyntax) {
    tokens_.Fail(ErrorCode::kUnsupported,
                 Format("an expression is nested deeper than {}", kDeepestSyntax));
    return Constant({});
  }
  return std::make_unique<const Expr>(std::move(expr));
}

ExprPtr ExprParser::Constant(Value value) {
  Expr expr = Node(ExprKind::kConstant);
  expr.constant = std::move(value);
  return std::make_unique<const Expr>(std::move(expr));
}

ExprPtr ExprParser::Two(ExprKind kind, std::string name, ExprPtr a, ExprPtr b) {
  Expr expr = Node(kind, std::move(name));
  expr.args.push_back(std::move(a));
  expr.args.push_back(std::move(b));
  return Make(std::move(expr));
}

ExprPtr ExprParser::Parse(bool conditional) {
  if (++nesting_ > kDeepestSyntax) {
    tokens_.Fail(ErrorCode::kUnsupported,
                 Format("an expression is nested deeper than {}", kDeepestSyntax));
  }
  ExprPtr parsed = tokens_.ok() ? (conditional ? Condition() : Or()) : Constant({});
  --nesting_;
  return parsed;
}

ExprPtr ExprParser::Condition() {
  ExprPtr value = Or();
  while (tokens_.TakeName("if")) {
    Expr expr = Node(ExprKind::kCondition);
    expr.args.push_back(std::move(value));
    expr.args.push_back(Or());
    if (tokens_.TakeName("else")) expr.args.push_back(Parse());
    value = Make(std::move(expr));
  }
  return value;
}

ExprPtr ExprParser::Or() {
  ExprPtr left = And();
  while (tokens_.TakeName("or")) left = Two(ExprKind::kOr, "or", std::move(left), And());
  return left;
}

ExprPtr ExprParser::And() {
  ExprPtr left = Not();
  while (tokens_.TakeName("and")) left = Two(ExprKind::kAnd, "and", std::move(left), Not());
  return left;
}

ExprPtr ExprParser::Not() {
  int negations = 0;
  while (tokens_.TakeName("not")) ++negations;
  ExprPtr value = Comparison();
  for (; negations > 0 && tokens_.ok(); --negations) {
    Expr expr = Node(ExprKind::kUnary, "not");
    expr.args.push_back(std::move(value));
    value = Make(std::move(expr));
  }
  return value;
}

ExprPtr ExprParser::Comparison() {
  ExprPtr first = Sum();
  Expr expr = Node(ExprKind::kCompare);
  while (true) {
    const Token& now = tokens_.now();
    if (now.kind == TokenKind::kOperator &&
        std::find(kComparisons.begin(), kComparisons.end(), now.text) != kComparisons.end()) {
      expr.ops.push_back(tokens_.Take().text);
    } else if (tokens_.TakeName("in")) {
      expr.ops.emplace_back("in");
    } else if (tokens_.AtName("not") && tokens_.next().Is(TokenKind::kName, "in")) {
      tokens_.Take();
      tokens_.Take();
      expr.ops.emplace_back("not in");
    } else {
      break;
    }
    expr.args.push_back(Sum());
  }
  if (expr.ops.empty()) return first;
  expr.args.insert(expr.args.begin(), std::move(first));
  return Make(std::move(expr));
}

ExprPtr ExprParser::Sum() {
  ExprPtr left = Concat();
  while (tokens_.AtOperator("+") || tokens_.AtOperator("-")) {
    std::string word = tokens_.Take().text;
    left = Two(ExprKind::kBinary, std::move(word), std::move(left), Concat());
  }
  return left;
}

ExprPtr ExprParser::Concat() {
  ExprPtr first = Product();
  if (!tokens_.AtOperator("~")) return first;
  Expr expr = Node(ExprKind::kConcat);
  expr.args.push_back(std::move(first));
  while (tokens_.TakeOperator("~")) expr.args.push_back(Product());
  return Make(std::move(expr));
}

ExprPtr ExprParser::Product() {
  ExprPtr left = Power();
  while (tokens_.AtOperator("*") || tokens_.AtOperator("/") || tokens_.AtOperator("//") ||
         tokens_.AtOperator("%")) {
    std::string word = tokens_.Take().text;
    left = Two(ExprKind::kBinary, std::move(word), std::move(left), Power());
  }
  return left;
}

ExprPtr ExprParser::Power() {
  ExprPtr left = Unary();
  while (tokens_.TakeOperator("**")) {
    left = Two(ExprKind::kBinary, "**", std::move(left), Unary());
  }
  return left;
}

ExprPtr ExprParser::Unary() {
  // "--x" is read without recursion.
  std::string signs;
  while (tokens_.AtOperator("-") || tokens_.AtOperator("+")) signs += tokens_.Take().text;
  ExprPtr value = Primary();
  for (; !signs.empty() && tokens_.ok(); signs.pop_back()) {
    value = Postfix(std::move(value));
    Expr expr = Node(ExprKind::kUnary, std::string(1, signs.back()));
    expr.args.push_back(std::move(value));
    value = Make(std::move(expr));
  }
  value = Postfix(std::move(value));
  return FiltersAndTests(std::move(value));
}

ExprPtr ExprParser::Primary() {
  switch (tokens_.now().kind) {
    case TokenKind::kName:
      return NameOrConstant();
    case TokenKind::kString: {
      std::string text = tokens_.Take().text;
      while (tokens_.At(TokenKind::kString)) text += tokens_.Take().text;
      return Constant(Value::Of(std::move(text)));
    }
    case TokenKind::kInteger: {
      const std::string text = tokens_.Take().text;
      errno = 0;
      const std::int64_t value = std::strtoll(text.c_str(), nullptr, 10);
      if (errno != 0) tokens_.Fail(ErrorCode::kUnsupported, "a number has more than 64 bits");
      return Constant(Value(value));
    }
    case TokenKind::kFloat:
      return Constant(Value(std::strtod(tokens_.Take().text.c_str(), nullptr)));
    default:
      if (tokens_.TakeOperator("(")) return Parenthesised();
      if (tokens_.TakeOperator("[")) return ListLiteral();
      if (tokens_.TakeOperator("{")) return DictLiteral();
      tokens_.Expected("an expression");
      return Constant({});
  }
}

ExprPtr ExprParser::NameOrConstant() {
  std::string name = tokens_.Take().text;
  if (name == "true" || name == "True") return Constant(Value(true));
  if (name == "false" || name == "False") return Constant(Value(false));
  if (name == "none" || name == "None") return Constant(Value::None());
  return Make(Node(ExprKind::kName, std::move(name)));
}

bool ExprParser::TupleEnds() const {
  return tokens_.At(TokenKind::kOutputEnd) || tokens_.At(TokenKind::kTagEnd) ||
         tokens_.At(TokenKind::kEnd) || tokens_.AtOperator(")") || tokens_.AtName("recursive");
}

ExprPtr ExprParser::ParseTuple(bool conditional) {
  ExprPtr first = Parse(conditional);
  if (!tokens_.AtOperator(",")) return first;
  Expr expr = Node(ExprKind::kTuple);
  expr.args.push_back(std::move(first));
  while (tokens_.TakeOperator(",") && !TupleEnds()) expr.args.push_back(Parse(conditional));
  return Make(std::move(expr));
}

ExprPtr ExprParser::Parenthesised() {
  if (tokens_.TakeOperator(")")) return Make(Node(ExprKind::kTuple));
  ExprPtr inner = ParseTuple(true);
  tokens_.ExpectOperator(")");
  return inner;
}

ExprPtr ExprParser::ListLiteral() {
  Expr expr = Node(ExprKind::kList);
  while (tokens_.ok() && !tokens_.AtOperator("]")) {
    expr.args.push_back(Parse());
    if (!tokens_.TakeOperator(",")) break;
  }
  tokens_.ExpectOperator("]");
  return Make(std::move(expr));
}

ExprPtr ExprParser::DictLiteral() {
  Expr expr = Node(ExprKind::kDict);
  while (tokens_.ok() && !tokens_.AtOperator("}")) {
    expr.args.push_back(Parse());
    tokens_.ExpectOperator(":");
    expr.args.push_back(Parse());
    if (!tokens_.TakeOperator(",")) break;
  }
  tokens_.ExpectOperator("}");
  return Make(std::move(expr));
}

}  // namespace tilewright::jinja
