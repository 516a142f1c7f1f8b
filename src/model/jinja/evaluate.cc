#include "core/text.h"
#include "model/jinja/evaluator.h"
#include "model/jinja/print.h"

namespace tilewright::jinja {
namespace {

constexpr std::string_view kStrftimeNow = "strftime_now";

}  // namespace

Value Evaluator::Evaluate(const Expr& expr, Scope* scope) {
  if (!heap_.Spend(Heap::kStep)) return {};
  if (++depth_ > kDeepest) {
    heap_.Error(ErrorCode::kExhausted, "calls and expressions are nested too deep");
  }
  Value value = heap_.ok() ? EvaluateKind(expr, scope) : Value();
  --depth_;
  if (!heap_.ok() && error_line_ == 0) error_line_ = expr.line;
  return value;
}

Value Evaluator::EvaluateKind(const Expr& expr, Scope* scope) {
  const auto arg = [&](std::size_t i) { return Evaluate(*expr.args[i], scope); };
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return Name(expr, scope);
    case ExprKind::kList:
      return ListOf(expr, scope, Sequence::Kind::kList);
    case ExprKind::kTuple:
      return ListOf(expr, scope, Sequence::Kind::kTuple);
    case ExprKind::kDict:
      return DictOf(expr, scope);
    case ExprKind::kUnary:
      return Unary(expr, scope);
    case ExprKind::kBinary: {
      const Value left = arg(0);
      return BinaryOperation(heap_, expr.name, left, arg(1));
    }
    case ExprKind::kCompare:
      return Compare(expr, scope);
    case ExprKind::kAnd: {
      Value left = arg(0);
      return Truth(left) ? arg(1) : left;
    }
    case ExprKind::kOr: {
      Value left = arg(0);
      return Truth(left) ? left : arg(1);
    }
    case ExprKind::kConcat:
      return Concat(expr, scope);
    case ExprKind::kCondition:
      return Condition(expr, scope);
    case ExprKind::kMember:
      return Member(heap_, arg(0), expr.name);
    case ExprKind::kItem: {
      const Value object = arg(0);
      return Item(heap_, object, arg(1));
    }
    case ExprKind::kSlice:
      return SliceOf(expr, scope);
    case ExprKind::kCall:
      return Call(expr, scope);
    case ExprKind::kFilter: {
      const Value to = arg(0);
      return ApplyFilter(expr, &to, scope);
    }
    case ExprKind::kTest:
      return ApplyTest(expr, scope);
  }
  return {};
}

Value Evaluator::Name(const Expr& expr, Scope* scope) {
  if (const Value* value = heap_.Lookup(scope, expr.name)) {
    if (!value->undefined()) return *value;
  } else if (const Function* function = FindGlobal(expr.name)) {
    return heap_.MakeBound({}, function->name);
  } else if (expr.name == kStrftimeNow) {
    return heap_.MakeBound({}, kStrftimeNow);
  }
  return Value(Undefined{&expr.name});
}

Value Evaluator::ListOf(const Expr& expr, Scope* scope, Sequence::Kind kind) {
  std::vector<Value> items;
  for (const ExprPtr& item : expr.args) items.push_back(Evaluate(*item, scope));
  return heap_.MakeSequence(std::move(items), kind);
}

Value Evaluator::DictOf(const Expr& expr, Scope* scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (std::size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    Value key = Evaluate(*expr.args[i], scope);
    entries.emplace_back(std::move(key), Evaluate(*expr.args[i + 1], scope));
  }
  return heap_.MakeDict(std::move(entries));
}

Value Evaluator::Unary(const Expr& expr, Scope* scope) {
  const Value value = Evaluate(*expr.args[0], scope);
  if (expr.name == "not") return Value(!Truth(value));
  if (const double* number = value.As<double>()) {
    return Value(expr.name == "-" ? -*number : *number);
  }
  return BinaryOperation(heap_, expr.name, Value(std::int64_t{0}), value);
}

Value Evaluator::Compare(const Expr& expr, Scope* scope) {
  Value left = Evaluate(*expr.args[0], scope);
  for (std::size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = Evaluate(*expr.args[i + 1], scope);
    if (!heap_.ok() || !Comparison(heap_, expr.ops[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Evaluator::Concat(const Expr& expr, Scope* scope) {
  std::string out;
  for (const ExprPtr& part : expr.args) AppendText(heap_, Evaluate(*part, scope), out);
  return heap_.MakeText(std::move(out));
}

Value Evaluator::Condition(const Expr& expr, Scope* scope) {
  if (Truth(Evaluate(*expr.args[1], scope))) return Evaluate(*expr.args[0], scope);
  return expr.args.size() > 2 ? Evaluate(*expr.args[2], scope) : Value();
}

Value Evaluator::SliceOf(const Expr& expr, Scope* scope) {
  const Value object = Evaluate(*expr.args[0], scope);
  std::array<Value, 3> range;
  for (std::size_t i = 0; i < 3; ++i) {
    if (expr.args[i + 1] != nullptr) range[i] = Evaluate(*expr.args[i + 1], scope);
  }
  return Slice(heap_, object, range);
}

Arguments Evaluator::ArgumentsOf(const Expr& expr, Scope* scope) {
  Arguments arguments;
  for (std::size_t i = 1; i < expr.args.size(); ++i) {
    arguments.positional.push_back(Evaluate(*expr.args[i], scope));
  }
  for (const auto& [name, value] : expr.named) {
    arguments.named.emplace_back(name, Evaluate(*value, scope));
  }
  return arguments;
}

Value Evaluator::Call(const Expr& expr, Scope* scope) {
  const Value callee = Evaluate(*expr.args[0], scope);
  Arguments arguments = ArgumentsOf(expr, scope);
  if (!heap_.ok()) return {};
  if (const auto* macro = callee.As<const Macro*>()) return CallMacro(**macro, arguments);
  const auto* bound = callee.As<const Bound*>();
  if (bound == nullptr) {
    const Undefined* undefined = callee.As<Undefined>();
    const std::string* name = undefined == nullptr ? nullptr : undefined->name;
    if (name == nullptr && expr.args[0]->kind == ExprKind::kMember) name = &expr.args[0]->name;
    return heap_.Error(ErrorCode::kUnsupported,
                       Format("'{}' is called, but is no function",
                              name == nullptr ? std::string(TypeName(callee)) : *name));
  }
  if ((*bound)->name == kStrftimeNow) {
    const bool one = arguments.positional.size() == 1 && arguments.named.empty();
    const std::string* format = one ? arguments.positional[0].text() : nullptr;
    if (format == nullptr) {
      return heap_.Error(ErrorCode::kUnsupported, "strftime_now() takes a format");
    }
    return FormatTime(heap_, now_, *format);
  }
  const Value& self = (*bound)->receiver;
  const Function* function =
      self.undefined() ? FindGlobal((*bound)->name) : FindMethod(self, (*bound)->name);
  return CallFunction(heap_, *function, self, arguments);
}

Value Evaluator::CallMacro(const Macro& macro, const Arguments& arguments) {
  const auto& parameters = macro.node->parameters;
  if (arguments.positional.size() > parameters.size()) {
    return heap_.Error(ErrorCode::kUnsupported,
                       Format("the macro '{}' takes no more than {} arguments", macro.node->name,
                              parameters.size()));
  }
  Scope* scope = heap_.MakeScope(macro.scope);
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    scope->Set(parameters[i].first, arguments.positional[i]);
  }
  std::size_t known = arguments.positional.size();
  for (std::size_t i = known; i < parameters.size(); ++i) {
    const auto& [name, by_default] = parameters[i];
    const Value* given = nullptr;
    for (const auto& [own, value] : arguments.named) {
      if (own == name) given = &value;
    }
    known += given != nullptr ? 1 : 0;
    if (given != nullptr) {
      scope->Set(name, *given);
    } else {
      scope->Set(name, by_default != nullptr ? Evaluate(*by_default, scope) : Value());
    }
  }
  if (known != arguments.positional.size() + arguments.named.size()) {
    return heap_.Error(ErrorCode::kUnsupported,
                       Format("the macro '{}' has no parameter of such a name", macro.node->name));
  }
  std::string out;
  Run(macro.node->body, scope, out);
  return heap_.MakeText(std::move(out));
}

Value Evaluator::ApplyFilter(const Expr& expr, const Value* to, Scope* scope) {
  Arguments arguments = ArgumentsOf(expr, scope);
  if (!heap_.ok()) return {};
  return CallFunction(heap_, *FindFilter(expr.name), *to, arguments);
}

Value Evaluator::ApplyTest(const Expr& expr, Scope* scope) {
  const Value self = Evaluate(*expr.args[0], scope);
  Arguments arguments = ArgumentsOf(expr, scope);
  if (!heap_.ok()) return {};
  return CallFunction(heap_, *FindTest(expr.name), self, arguments);
}

}  // namespace tilewright::jinja
