#include <algorithm>

#include "core/text.h"
#include "model/jinja/functions.h"
#include "model/jinja/unicode.h"

namespace tilewright::jinja {
namespace {

using Check = bool (*)(const Value&);

/// A test without arguments.
template <Check kCheck>
Value Plain(Heap&, const Value& self, const Arguments&) {
  return Value(kCheck(self));
}

/// A comparison with one argument.
template <const char* kOp>
Value Compared(Heap& heap, const Value& self, const Arguments& arguments) {
  if (arguments.At(0) == nullptr) {
    return heap.Error(ErrorCode::kUnsupported, "a test needs an argument");
  }
  return Value(Comparison(heap, kOp, self, *arguments.At(0)));
}
constexpr char kEqual[] = "==", kNotEqual[] = "!=", kLess[] = "<",
               kLessOrEqual[] = "<=", kGreater[] = ">", kGreaterOrEqual[] = ">=", kIn[] = "in";

template <const char* kCase>
Value HasCase(Heap& heap, const Value& self, const Arguments&) {
  const std::string* text = self.text();
  if (text == nullptr || !IsAscii(*text)) {
    return heap.Error(ErrorCode::kUnsupported, "the case of what is no ASCII text is tested");
  }
  const auto in = [&](char first, char last) {
    return std::any_of(text->begin(), text->end(), [&](char c) { return c >= first && c <= last; });
  };
  const bool upper = in('A', 'Z'), lower = in('a', 'z');
  return Value(kCase[0] == 'u' ? upper && !lower : lower && !upper);
}
constexpr char kUpperCase[] = "upper", kLowerCase[] = "lower";

/// `self % divisor == rest`.
Value Divisible(Heap& heap, const Value& self, const Value& divisor, std::int64_t rest) {
  return Value(Equal(BinaryOperation(heap, "%", self, divisor), Value(rest)));
}
Value DivisibleBy(Heap& heap, const Value& self, const Arguments& arguments) {
  return Divisible(heap, self, arguments.At(0) == nullptr ? Value() : *arguments.At(0), 0);
}
Value Even(Heap& heap, const Value& self, const Arguments&) {
  return Divisible(heap, self, Value(std::int64_t{2}), 0);
}
Value Odd(Heap& heap, const Value& self, const Arguments&) {
  return Divisible(heap, self, Value(std::int64_t{2}), 1);
}

/// Python's `is`, for the values for which it is of use.
Value SameAs(Heap& heap, const Value& self, const Arguments& arguments) {
  if (arguments.At(0) == nullptr) {
    return heap.Error(ErrorCode::kUnsupported, "a test needs an argument");
  }
  return Value(TypeName(self) == TypeName(*arguments.At(0)) &&
               Comparison(heap, "==", self, *arguments.At(0)));
}

bool IsBool(const Value& v) { return v.As<bool>() != nullptr; }
bool IsTrue(const Value& v) { return IsBool(v) && *v.As<bool>(); }
bool IsFalse(const Value& v) { return IsBool(v) && !*v.As<bool>(); }
bool IsDefined(const Value& v) { return !v.undefined(); }
bool IsUndefined(const Value& v) { return v.undefined(); }
bool IsNone(const Value& v) { return v.none(); }
bool IsString(const Value& v) { return v.text() != nullptr; }
bool IsMapping(const Value& v) { return v.dict() != nullptr; }
bool IsInteger(const Value& v) { return v.As<std::int64_t>() != nullptr; }
bool IsFloat(const Value& v) { return v.As<double>() != nullptr; }
bool IsNumber(const Value& v) { return IsInteger(v) || IsFloat(v) || IsBool(v); }
bool IsIterable(const Value& v) {
  return v.sequence() != nullptr || v.dict() != nullptr || v.text() != nullptr || v.undefined();
}
bool IsSequence(const Value& v) {
  const bool list = v.sequence() != nullptr && v.sequence()->kind <= Sequence::Kind::kTuple;
  return list || v.dict() != nullptr || v.text() != nullptr || v.undefined();
}
bool IsCallable(const Value& v) {
  return v.As<const Macro*>() != nullptr || v.As<const Bound*>() != nullptr || v.undefined();
}

constexpr Function kTests[] = {
    {"==", Compared<kEqual>, {"other"}},
    {"eq", Compared<kEqual>, {"other"}},
    {"equalto", Compared<kEqual>, {"other"}},
    {"!=", Compared<kNotEqual>, {"other"}},
    {"ne", Compared<kNotEqual>, {"other"}},
    {"<", Compared<kLess>, {"other"}},
    {"lt", Compared<kLess>, {"other"}},
    {"lessthan", Compared<kLess>, {"other"}},
    {"<=", Compared<kLessOrEqual>, {"other"}},
    {"le", Compared<kLessOrEqual>, {"other"}},
    {">", Compared<kGreater>, {"other"}},
    {"gt", Compared<kGreater>, {"other"}},
    {"greaterthan", Compared<kGreater>, {"other"}},
    {">=", Compared<kGreaterOrEqual>, {"other"}},
    {"ge", Compared<kGreaterOrEqual>, {"other"}},
    {"in", Compared<kIn>, {"seq"}},
    {"boolean", Plain<IsBool>},
    {"callable", Plain<IsCallable>},
    {"defined", Plain<IsDefined>},
    {"divisibleby", DivisibleBy, {"num"}},
    {"even", Even},
    {"false", Plain<IsFalse>},
    {"float", Plain<IsFloat>},
    {"integer", Plain<IsInteger>},
    {"iterable", Plain<IsIterable>},
    {"lower", HasCase<kLowerCase>},
    {"mapping", Plain<IsMapping>},
    {"none", Plain<IsNone>},
    {"number", Plain<IsNumber>},
    {"odd", Odd},
    {"sameas", SameAs, {"other"}},
    {"sequence", Plain<IsSequence>},
    {"string", Plain<IsString>},
    {"true", Plain<IsTrue>},
    {"undefined", Plain<IsUndefined>},
    {"upper", HasCase<kUpperCase>},
};

}  // namespace

const Function* FindTest(std::string_view name) {
  const auto* const end = kTests + sizeof(kTests) / sizeof(kTests[0]);
  const auto* const found =
      std::find_if(kTests, end, [&](const Function& test) { return test.name == name; });
  return found == end ? nullptr : found;
}

}  // namespace tilewright::jinja
