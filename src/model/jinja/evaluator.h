#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/ast.h"
#include "model/jinja/functions.h"
#include "model/jinja/heap.h"

namespace tilewright::jinja {

/// Runs the statements of a template. After an error nothing has an effect any more; whoever loops
/// asks the heap. One rendering, one thread.
class Evaluator {
 public:
  Evaluator(Heap& heap, const std::tm& now) : heap_(heap), now_(now) {}

  /// How a block ended.
  enum class Flow : std::uint8_t { kOn, kBreak, kContinue };
  Flow Run(const Block& block, Scope* scope, std::string& out);
  /// Line of the statement or expression that failed.
  int error_line() const { return error_line_; }

 private:
  // Statements.
  Flow RunOne(const Statement& statement, Scope* scope, std::string& out);
  Flow RunIf(const Statement& statement, Scope* scope, std::string& out);
  Flow RunFor(const Statement& statement, Scope* scope, std::string& out);
  std::vector<Value> LoopItems(const Statement& statement, Scope* scope);
  void RunSet(const Statement& statement, Scope* scope);
  Value RunToText(const Block& body, const ExprPtr& filter, Scope* scope);
  void Assign(const Target& target, const Value& value, Scope* scope);
  void Append(const Value& value, std::string& out);

  // Expressions.
  Value Evaluate(const Expr& expr, Scope* scope);
  Value EvaluateKind(const Expr& expr, Scope* scope);
  Value Name(const Expr& expr, Scope* scope);
  Value ListOf(const Expr& expr, Scope* scope, Sequence::Kind kind);
  Value DictOf(const Expr& expr, Scope* scope);
  Value Unary(const Expr& expr, Scope* scope);
  Value Compare(const Expr& expr, Scope* scope);
  Value Concat(const Expr& expr, Scope* scope);
  Value Condition(const Expr& expr, Scope* scope);
  Value SliceOf(const Expr& expr, Scope* scope);
  Value Call(const Expr& expr, Scope* scope);
  Value CallMacro(const Macro& macro, const Arguments& arguments);
  Value ApplyFilter(const Expr& expr, const Value* to, Scope* scope);
  Value ApplyTest(const Expr& expr, Scope* scope);
  Arguments ArgumentsOf(const Expr& expr, Scope* scope);

  static constexpr int kDeepest = 400;

  Heap& heap_;
  const std::tm& now_;
  int depth_ = 0;
  int error_line_ = 0;
};

}  // namespace tilewright::jinja
