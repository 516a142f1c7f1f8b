#include "core/text.h"
#include "model/jinja/evaluator.h"
#include "model/jinja/print.h"

namespace tilewright::jinja {

Evaluator::Flow Evaluator::Run(const Block& block, Scope* scope, std::string& out) {
  if (++depth_ > kDeepest) {
    heap_.Error(ErrorCode::kExhausted, "calls and expressions are nested too deep");
  }
  Flow flow = Flow::kOn;
  for (std::size_t i = 0; i < block.size() && flow == Flow::kOn; ++i) {
    if (!heap_.Spend(Heap::kStep)) break;
    flow = RunOne(block[i], scope, out);
    if (!heap_.ok() && error_line_ == 0) error_line_ = block[i].line;
  }
  --depth_;
  return flow;
}

Evaluator::Flow Evaluator::RunOne(const Statement& statement, Scope* scope, std::string& out) {
  switch (statement.kind) {
    case StatementKind::kText:
      if (heap_.Spend(statement.text.size())) out += statement.text;
      return Flow::kOn;
    case StatementKind::kPrint:
      Append(Evaluate(*statement.expr, scope), out);
      return Flow::kOn;
    case StatementKind::kIf:
      return RunIf(statement, scope, out);
    case StatementKind::kFor:
      return RunFor(statement, scope, out);
    case StatementKind::kSet:
    case StatementKind::kSetBlock:
      RunSet(statement, scope);
      return Flow::kOn;
    case StatementKind::kFilter:
      Append(RunToText(statement.body, statement.filter, scope), out);
      return Flow::kOn;
    case StatementKind::kBlock:
      return Run(statement.body, heap_.MakeScope(scope), out);
    case StatementKind::kMacro:
      scope->Set(statement.macro->name, heap_.MakeMacro({statement.macro.get(), scope}));
      return Flow::kOn;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

void Evaluator::Append(const Value& value, std::string& out) {
  if (heap_.ok()) AppendText(heap_, value, out);
}

Evaluator::Flow Evaluator::RunIf(const Statement& statement, Scope* scope, std::string& out) {
  for (const auto& [condition, block] : statement.branches) {
    if (condition != nullptr && !Truth(Evaluate(*condition, scope))) continue;
    return heap_.ok() ? Run(block, scope, out) : Flow::kOn;
  }
  return Flow::kOn;
}

std::vector<Value> Evaluator::LoopItems(const Statement& statement, Scope* scope) {
  const Value over = Evaluate(*statement.expr, scope);
  const std::vector<Value>* items = heap_.ok() ? Items(heap_, over) : nullptr;
  if (items == nullptr || !heap_.Spend(items->size() * sizeof(Value))) return {};
  if (statement.filter == nullptr) return *items;
  std::vector<Value> kept;
  for (const Value& item : *items) {
    if (!heap_.Spend(Heap::kStep)) break;
    Scope* inner = heap_.MakeScope(scope);
    Assign(statement.target, item, inner);
    if (Truth(Evaluate(*statement.filter, inner))) kept.push_back(item);
  }
  return kept;
}

Evaluator::Flow Evaluator::RunFor(const Statement& statement, Scope* scope, std::string& out) {
  const std::vector<Value> items = LoopItems(statement, scope);
  if (items.empty()) {
    return heap_.ok() ? Run(statement.otherwise, heap_.MakeScope(scope), out) : Flow::kOn;
  }
  const Value loop = heap_.MakeLoop({.items = &items});
  Loop& counter = *heap_.LastLoop();
  for (; counter.index0 < static_cast<std::int64_t>(items.size()); ++counter.index0) {
    // What an iteration sets ends with it. A scope is about ten values.
    if (!heap_.Spend(10 * sizeof(Value))) break;
    Scope* inner = heap_.MakeScope(scope);
    inner->Set("loop", loop);
    Assign(statement.target, items[static_cast<std::size_t>(counter.index0)], inner);
    if (Run(statement.body, inner, out) == Flow::kBreak) break;
  }
  // A template may have kept `loop`.
  static const std::vector<Value> kNothing;
  counter.items = &kNothing;
  return Flow::kOn;
}

void Evaluator::RunSet(const Statement& statement, Scope* scope) {
  const Value value = statement.kind == StatementKind::kSet
                          ? Evaluate(*statement.expr, scope)
                          : RunToText(statement.body, statement.filter, scope);
  if (heap_.ok()) Assign(statement.target, value, scope);
}

Value Evaluator::RunToText(const Block& body, const ExprPtr& filter, Scope* scope) {
  std::string out;
  Run(body, heap_.MakeScope(scope), out);
  Value value = heap_.MakeText(std::move(out));
  // The chain's outermost filter comes last; the innermost has nothing before its bar.
  std::vector<const Expr*> chain;
  for (const Expr* at = filter.get(); at != nullptr; at = at->args[0].get()) chain.push_back(at);
  for (auto at = chain.rbegin(); at != chain.rend(); ++at) value = ApplyFilter(**at, &value, scope);
  return value;
}

void Evaluator::Assign(const Target& target, const Value& value, Scope* scope) {
  if (!target.parts.empty()) {
    const std::vector<Value>* items = Items(heap_, value);
    if (items == nullptr) return;
    if (items->size() != target.parts.size()) {
      heap_.Error(ErrorCode::kUnsupported,
                  Format("{} values are assigned to {} names", items->size(), target.parts.size()));
      return;
    }
    for (std::size_t i = 0; i < items->size(); ++i) Assign(target.parts[i], (*items)[i], scope);
    return;
  }
  if (target.member.empty()) {
    scope->Set(target.name, value);
    return;
  }
  const Value* object = heap_.Lookup(scope, target.name);
  Namespace* space = object == nullptr ? nullptr : object->name_space();
  if (space == nullptr) {
    heap_.Error(ErrorCode::kUnsupported, Format("'{}' is no namespace, so '{}' of it cannot be set",
                                                target.name, target.member));
    return;
  }
  if (Value* old = space->Find(target.member)) {
    *old = value;
  } else {
    space->members.emplace_back(target.member, value);
  }
}

}  // namespace tilewright::jinja
