#include <algorithm>
#include <initializer_list>

#include "core/text.h"
#include "model/jinja/parser.h"

namespace tilewright::jinja {
namespace {

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens)
      : tokens_(std::move(tokens)), expressions_(tokens_) {}

  Result<Block> Run() {
    Block block = ParseBlock({});
    if (tokens_.error()) return tilewright::Fail(*tokens_.error());
    return block;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  bool AtTag(Ends names) const {
    return tokens_.At(TokenKind::kTagBegin) && tokens_.next().kind == TokenKind::kName &&
           std::find(names.begin(), names.end(), tokens_.next().text) != names.end();
  }

  /// Statements up to one of the tags `ends`, which stays; without any, up to the end.
  Block ParseBlock(Ends ends) {
    Block block;
    if (++nesting_ > kDeepestSyntax) {
      tokens_.Fail(ErrorCode::kUnsupported,
                   Format("blocks are nested deeper than {}", kDeepestSyntax));
    }
    while (tokens_.ok() && !tokens_.At(TokenKind::kEnd) && !AtTag(ends)) {
      block.push_back(ParseOne());
    }
    if (ends.size() != 0 && tokens_.ok() && tokens_.At(TokenKind::kEnd)) {
      tokens_.Expected(Format("{{% {} %}}", *(ends.end() - 1)));
    }
    --nesting_;
    return block;
  }

  /// `body` of a tag that ends with `end`.
  Block ParseBody(std::string_view end) {
    tokens_.ExpectTagEnd();
    Block body = ParseBlock({end});
    ExpectTag(end);
    return body;
  }

  void ExpectTag(std::string_view name) {
    if (tokens_.ok() && !tokens_.At(TokenKind::kTagBegin)) tokens_.Expected("{%");
    tokens_.Take();
    tokens_.ExpectName(name);
    tokens_.ExpectTagEnd();
  }

  Statement ParseOne() {
    Statement statement;
    statement.line = tokens_.now().line;
    if (tokens_.At(TokenKind::kData)) {
      statement.text = tokens_.Take().text;
    } else if (tokens_.At(TokenKind::kOutputBegin)) {
      tokens_.Take();
      statement.kind = StatementKind::kPrint;
      statement.expr = expressions_.ParseTuple(true);
      if (!tokens_.At(TokenKind::kOutputEnd)) tokens_.Expected("}}");
      tokens_.Take();
    } else {
      tokens_.Take();
      ParseTag(statement);
    }
    return statement;
  }

  void ParseTag(Statement& statement) {
    const std::string name = tokens_.ExpectAnyName();
    if (name == "if") return ParseIf(statement);
    if (name == "for") return ParseFor(statement);
    if (name == "set") return ParseSet(statement);
    if (name == "macro") return ParseMacro(statement);
    if (name == "filter") {
      statement.kind = StatementKind::kFilter;
      statement.filter = expressions_.ParseFilterChain();
      statement.body = ParseBody("endfilter");
      return;
    }
    if (name == "generation") {
      statement.kind = StatementKind::kBlock;
      statement.body = ParseBody("endgeneration");
      return;
    }
    if ((name == "break" || name == "continue") && loops_ > 0) {
      statement.kind = name == "break" ? StatementKind::kBreak : StatementKind::kContinue;
      return tokens_.ExpectTagEnd();
    }
    if (tokens_.ok()) {
      tokens_.Fail(ErrorCode::kUnsupported,
                   Format("the statement '{}' is not known here", Printable(name, 40)));
    }
  }

  void ParseIf(Statement& statement) {
    statement.kind = StatementKind::kIf;
    ExprPtr condition = expressions_.ParseTuple(false);
    while (tokens_.ok()) {
      tokens_.ExpectTagEnd();
      Block block = ParseBlock({"elif", "else", "endif"});
      const bool otherwise = condition == nullptr;
      statement.branches.emplace_back(std::move(condition), std::move(block));
      if (!tokens_.ok()) return;
      tokens_.Take();
      const Token tag = tokens_.Take();
      if (tag.text == "endif") return tokens_.ExpectTagEnd();
      if (otherwise) return tokens_.Expected("{% endif %}");
      condition = tag.text == "elif" ? expressions_.ParseTuple(false) : nullptr;
    }
  }

  void ParseFor(Statement& statement) {
    statement.kind = StatementKind::kFor;
    statement.target = ParseTarget("in");
    tokens_.ExpectName("in");
    statement.expr = expressions_.ParseTuple(false);
    if (tokens_.TakeName("if")) statement.filter = expressions_.Parse();
    if (tokens_.AtName("recursive")) {
      tokens_.Fail(ErrorCode::kUnsupported, "loops that call themselves (recursive)");
    }
    tokens_.ExpectTagEnd();
    ++loops_;
    statement.body = ParseBlock({"else", "endfor"});
    --loops_;
    if (AtTag({"else"})) {
      tokens_.Take();
      tokens_.Take();
      statement.otherwise = ParseBody("endfor");
    } else {
      ExpectTag("endfor");
    }
  }

  void ParseSet(Statement& statement) {
    statement.target = ParseTarget("=");
    if (tokens_.TakeOperator("=")) {
      statement.kind = StatementKind::kSet;
      statement.expr = expressions_.ParseTuple(true);
      return tokens_.ExpectTagEnd();
    }
    statement.kind = StatementKind::kSetBlock;
    if (tokens_.TakeOperator("|")) statement.filter = expressions_.ParseFilterChain();
    statement.body = ParseBody("endset");
  }

  void ParseMacro(Statement& statement) {
    statement.kind = StatementKind::kMacro;
    auto macro = std::make_unique<MacroNode>();
    macro->name = tokens_.ExpectAnyName();
    tokens_.ExpectOperator("(");
    while (tokens_.ok() && !tokens_.AtOperator(")")) {
      std::string name = tokens_.ExpectAnyName();
      ExprPtr by_default = tokens_.TakeOperator("=") ? expressions_.Parse() : nullptr;
      macro->parameters.emplace_back(std::move(name), std::move(by_default));
      if (!tokens_.TakeOperator(",")) break;
    }
    tokens_.ExpectOperator(")");
    const int loops = std::exchange(loops_, 0);  // a macro cannot end the loop that it stands in
    macro->body = ParseBody("endmacro");
    loops_ = loops;
    statement.macro = std::move(macro);
  }

  Target ParseTarget(std::string_view end) {
    Target first = ParseTargetPart();
    if (!tokens_.AtOperator(",")) return first;
    Target tuple;
    tuple.parts.push_back(std::move(first));
    while (tokens_.TakeOperator(",") && !tokens_.AtName(end) && !tokens_.AtOperator(end)) {
      tuple.parts.push_back(ParseTargetPart());
    }
    return tuple;
  }

  Target ParseTargetPart() {
    if (++nesting_ > kDeepestSyntax) tokens_.Expected("fewer brackets");
    Target target;
    if (tokens_.TakeOperator("(")) {
      target = ParseTarget(")");
      tokens_.ExpectOperator(")");
    } else {
      target.name = tokens_.ExpectAnyName();
      if (tokens_.TakeOperator(".")) target.member = tokens_.ExpectAnyName();
    }
    --nesting_;
    return target;
  }

  TokenStream tokens_;
  ExprParser expressions_;
  int nesting_ = 0;
  int loops_ = 0;  ///< that the statement stands in
};

}  // namespace

Result<Block> ParseTemplate(std::vector<Token> tokens) {
  return StatementParser(std::move(tokens)).Run();
}

}  // namespace tilewright::jinja
