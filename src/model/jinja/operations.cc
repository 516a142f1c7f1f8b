#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "model/jinja/functions.h"
#include "model/jinja/unicode.h"

namespace tilewright::jinja {
namespace {

Value Mismatch(Heap& heap, std::string_view op, const Value& a, const Value& b) {
  return heap.Error(ErrorCode::kUnsupported,
                    Format("{} {} {} is not possible", TypeName(a), op, TypeName(b)));
}

std::int64_t FloorDivide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

Value Power(Heap& heap, std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return heap.Error(ErrorCode::kUnsupported, "division by zero");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  for (; exponent > 0 && base != 1; --exponent) {
    if (base == 0) return Value(std::int64_t{0});
    if (base == -1) return Value(std::int64_t{exponent % 2 == 0 ? 1 : -1});
    if (__builtin_mul_overflow(result, base, &result)) {
      return heap.Error(ErrorCode::kUnsupported, "a number has more than 64 bits");
    }
  }
  return Value(result);
}

Value Integers(Heap& heap, std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    return Power(heap, a, b);
  } else if (b == 0) {
    return heap.Error(ErrorCode::kUnsupported, "division by zero");
  } else if (op == "/") {
    return Value(static_cast<double>(a) / static_cast<double>(b));
  } else if (b == -1) {
    if (op == "//") overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
  } else {
    result = op == "//" ? FloorDivide(a, b) : a - FloorDivide(a, b) * b;
  }
  if (overflow) return heap.Error(ErrorCode::kUnsupported, "a number has more than 64 bits");
  return Value(result);
}

Value Doubles(Heap& heap, std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) return heap.Error(ErrorCode::kUnsupported, "division by zero");
  if (op == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == "%") return Value(rest);
  return Value(std::round((a - rest) / b));
}

/// `value` repeated: texts and lists.
Value Repeat(Heap& heap, const Value& value, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  const std::size_t size =
      value.text() != nullptr ? value.text()->size() : value.sequence()->items.size();
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(size), static_cast<std::uint64_t>(times),
                             &total)) {
    total = ~std::uint64_t{0} / 64;
  }
  if (!heap.Spend(value.text() != nullptr ? total : total * sizeof(Value))) return {};
  if (value.text() != nullptr) {
    std::string out;
    out.reserve(total);
    for (; times > 0 && size > 0; --times) out += *value.text();
    return heap.MakeText(std::move(out));
  }
  std::vector<Value> items;
  items.reserve(total);
  const std::vector<Value>& own = value.sequence()->items;
  for (; times > 0 && size > 0; --times) items.insert(items.end(), own.begin(), own.end());
  return heap.MakeSequence(std::move(items), value.sequence()->kind);
}

bool IsListOrTuple(const Value& value) {
  return value.sequence() != nullptr && value.sequence()->kind <= Sequence::Kind::kTuple;
}

Value Add(Heap& heap, const Value& a, const Value& b) {
  if (a.text() != nullptr && b.text() != nullptr) {
    if (!heap.Spend(a.text()->size() + b.text()->size())) return {};
    return heap.MakeText(*a.text() + *b.text());
  }
  if (!IsListOrTuple(a) || !IsListOrTuple(b) || a.sequence()->kind != b.sequence()->kind) {
    return Mismatch(heap, "+", a, b);
  }
  std::vector<Value> items;
  items.reserve(a.sequence()->items.size() + b.sequence()->items.size());
  items = a.sequence()->items;
  items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
  return heap.MakeSequence(std::move(items), a.sequence()->kind);
}

}  // namespace

Value BinaryOperation(Heap& heap, std::string_view op, const Value& a, const Value& b) {
  std::int64_t i = 0, j = 0;
  if (AsInteger(a, &i) && AsInteger(b, &j)) return Integers(heap, op, i, j);
  double x = 0, y = 0;
  if (AsNumber(a, &x) && AsNumber(b, &y)) return Doubles(heap, op, x, y);
  for (const Value* undefined : {&a, &b}) {
    if (!undefined->undefined()) continue;
    const std::string* name = undefined->As<Undefined>()->name;
    return heap.Error(ErrorCode::kUnsupported,
                      Format("'{}' is undefined", name == nullptr ? "a value" : *name));
  }
  if (op == "+") return Add(heap, a, b);
  const auto repeats = [](const Value& v) { return v.text() != nullptr || IsListOrTuple(v); };
  if (op == "*" && repeats(a) && AsInteger(b, &j)) return Repeat(heap, a, j);
  if (op == "*" && repeats(b) && AsInteger(a, &i)) return Repeat(heap, b, i);
  return Mismatch(heap, op, a, b);
}

bool Contains(Heap& heap, const Value& container, const Value& item) {
  if (container.text() != nullptr) {
    if (item.text() == nullptr) {
      Mismatch(heap, "in", item, container);
      return false;
    }
    return heap.Spend(container.text()->size()) &&
           container.text()->find(*item.text()) != std::string::npos;
  }
  if (container.dict() != nullptr) {
    return heap.Spend(8 * container.dict()->entries.size()) &&
           container.dict()->Find(item) != nullptr;
  }
  const std::vector<Value>* items = Items(heap, container);
  if (items == nullptr || !heap.Spend(WeightOf(container))) return false;
  return std::any_of(items->begin(), items->end(),
                     [&](const Value& own) { return Equal(own, item); });
}

bool Comparison(Heap& heap, std::string_view op, const Value& a, const Value& b) {
  if (op == "in") return Contains(heap, b, a);
  if (op == "not in") return !Contains(heap, b, a);
  if (!heap.Spend(std::min(WeightOf(a), WeightOf(b)))) return false;
  if (op == "==") return Equal(a, b);
  if (op == "!=") return !Equal(a, b);
  bool comparable = true;
  const int order = Compare(a, b, &comparable);
  if (!comparable) Mismatch(heap, op, a, b);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

}  // namespace tilewright::jinja
