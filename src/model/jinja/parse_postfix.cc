#include <cstdlib>

#include "core/text.h"
#include "model/jinja/functions.h"
#include "model/jinja/parser.h"

namespace tilewright::jinja {

ExprPtr ExprParser::Postfix(ExprPtr of) {
  while (tokens_.ok()) {
    if (tokens_.AtOperator(".") || tokens_.AtOperator("[")) {
      of = Subscript(std::move(of));
    } else if (tokens_.AtOperator("(")) {
      Expr expr = Node(ExprKind::kCall);
      expr.args.push_back(std::move(of));
      Arguments(expr);
      of = Make(std::move(expr));
    } else {
      break;
    }
  }
  return of;
}

ExprPtr ExprParser::Subscript(ExprPtr of) {
  if (tokens_.TakeOperator(".")) {
    if (tokens_.At(TokenKind::kInteger)) {
      Expr expr = Node(ExprKind::kItem);
      expr.args.push_back(std::move(of));
      expr.args.push_back(Primary());
      return Make(std::move(expr));
    }
    Expr expr = Node(ExprKind::kMember, tokens_.ExpectAnyName());
    expr.args.push_back(std::move(of));
    return Make(std::move(expr));
  }
  tokens_.ExpectOperator("[");
  Expr expr = Node(ExprKind::kItem);
  expr.args.push_back(std::move(of));
  const auto part_ends = [&] { return tokens_.AtOperator(":") || tokens_.AtOperator("]"); };
  expr.args.push_back(part_ends() ? nullptr : Parse());
  while (tokens_.AtOperator(":") && expr.args.size() < 4) {
    tokens_.Take();
    expr.kind = ExprKind::kSlice;
    expr.args.push_back(part_ends() ? nullptr : Parse());
  }
  if (expr.kind == ExprKind::kSlice) expr.args.resize(4);
  if (expr.kind == ExprKind::kItem && expr.args[1] == nullptr) tokens_.Expected("a subscript");
  tokens_.ExpectOperator("]");
  return tokens_.ok() ? Make(std::move(expr)) : Constant({});
}

void ExprParser::Arguments(Expr& call) {
  tokens_.ExpectOperator("(");
  while (tokens_.ok() && !tokens_.AtOperator(")")) {
    if (tokens_.AtOperator("*") || tokens_.AtOperator("**")) {
      tokens_.Fail(ErrorCode::kUnsupported, "arguments that are unpacked (*, **)");
    }
    if (tokens_.At(TokenKind::kName) && tokens_.next().Is(TokenKind::kOperator, "=")) {
      std::string name = tokens_.Take().text;
      tokens_.Take();
      call.named.emplace_back(std::move(name), Parse());
    } else {
      if (!call.named.empty()) tokens_.Expected("an argument with a name");
      call.args.push_back(Parse());
    }
    if (!tokens_.TakeOperator(",")) break;
  }
  tokens_.ExpectOperator(")");
}

ExprPtr ExprParser::FiltersAndTests(ExprPtr of) {
  while (tokens_.ok()) {
    if (tokens_.TakeOperator("|")) {
      of = Filter(std::move(of));
    } else if (tokens_.TakeName("is")) {
      of = Test(std::move(of));
    } else if (tokens_.AtOperator("(")) {  // a filter's result can be called
      Expr expr = Node(ExprKind::kCall);
      expr.args.push_back(std::move(of));
      Arguments(expr);
      of = Make(std::move(expr));
    } else {
      break;
    }
  }
  return of;
}

ExprPtr ExprParser::Filter(ExprPtr of) {
  Expr expr = Node(ExprKind::kFilter, tokens_.ExpectAnyName());
  if (tokens_.ok() && !IsFilter(expr.name)) {
    tokens_.Fail(ErrorCode::kUnsupported,
                 Format("the filter '{}' is not known", Printable(expr.name, 40)));
  }
  expr.args.push_back(std::move(of));
  if (tokens_.AtOperator("(")) Arguments(expr);
  return Make(std::move(expr));
}

ExprPtr ExprParser::ParseFilterChain() {
  ExprPtr chain = Filter(nullptr);
  while (tokens_.TakeOperator("|")) chain = Filter(std::move(chain));
  return chain;
}

ExprPtr ExprParser::Test(ExprPtr of) {
  const bool negated = tokens_.TakeName("not");
  Expr expr = Node(ExprKind::kTest, tokens_.ExpectAnyName());
  if (tokens_.ok() && !IsTest(expr.name)) {
    tokens_.Fail(ErrorCode::kUnsupported,
                 Format("the test '{}' is not known", Printable(expr.name, 40)));
  }
  expr.args.push_back(std::move(of));
  const TokenKind kind = tokens_.now().kind;
  if (tokens_.AtOperator("(")) {
    Arguments(expr);
  } else if (kind == TokenKind::kString || kind == TokenKind::kInteger ||
             kind == TokenKind::kFloat || tokens_.AtOperator("[") || tokens_.AtOperator("{") ||
             (kind == TokenKind::kName && !tokens_.AtName("else") && !tokens_.AtName("or") &&
              !tokens_.AtName("and"))) {
    if (tokens_.AtName("is")) tokens_.Expected("no second 'is'");
    // An argument without brackets: `x is divisibleby 3`.
    if (++nesting_ > kDeepestSyntax) {
      tokens_.Fail(ErrorCode::kUnsupported,
                   Format("an expression is nested deeper than {}", kDeepestSyntax));
    }
    expr.args.push_back(Postfix(Primary()));
    --nesting_;
  }
  ExprPtr test = Make(std::move(expr));
  if (!negated) return test;
  Expr no = Node(ExprKind::kUnary, "not");
  no.args.push_back(std::move(test));
  return Make(std::move(no));
}

}  // namespace tilewright::jinja
