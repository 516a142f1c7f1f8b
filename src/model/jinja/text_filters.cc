#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "core/text.h"
#include "model/jinja/functions.h"
#include "model/jinja/letters.h"
#include "model/jinja/print.h"

namespace tilewright::jinja {
namespace {

Value Wrong(Heap& heap, std::string_view what) {
  return heap.Error(ErrorCode::kUnsupported, std::string(what));
}

/// An integer argument; `fallback` where it is absent or none.
std::int64_t IntegerOr(Heap& heap, const Value* value, std::int64_t fallback) {
  if (value == nullptr || value->none()) return fallback;
  if (!AsInteger(*value, &fallback)) Wrong(heap, "an argument is not an integer");
  return fallback;
}

Value Default(Heap&, const Value& self, const Arguments& arguments) {
  const bool falsy = arguments.At(1) != nullptr && Truth(*arguments.At(1)) && !Truth(self);
  if (!self.undefined() && !falsy) return self;
  return arguments.At(0) == nullptr ? Value::Of("") : *arguments.At(0);
}

Value String(Heap& heap, const Value& self, const Arguments&) {
  return self.text() != nullptr ? self : heap.MakeText(ToText(heap, self));
}

Value Safe(Heap&, const Value& self, const Arguments&) { return self; }

Value Trim(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::string text = ToText(heap, self);
  if (arguments.At(0) == nullptr || arguments.At(0)->none()) {
    return heap.MakeText(std::string(StripLeft(StripRight(text))));
  }
  if (arguments.At(0)->text() == nullptr) return Wrong(heap, "trim() takes characters");
  const std::string& chars = *arguments.At(0)->text();
  return heap.MakeText(std::string(StripLeft(StripRight(text, chars), chars)));
}

Value Lower(Heap& heap, const Value& self, const Arguments&) {
  return heap.MakeText(LowerCase(heap, ToText(heap, self)));
}
Value Upper(Heap& heap, const Value& self, const Arguments&) {
  return heap.MakeText(UpperCase(heap, ToText(heap, self)));
}
Value Capitalize(Heap& heap, const Value& self, const Arguments&) {
  std::string text = LowerCase(heap, ToText(heap, self));
  if (!text.empty()) text.replace(0, 1, UpperCase(heap, text.substr(0, 1)));
  return heap.MakeText(std::move(text));
}
Value Title(Heap& heap, const Value& self, const Arguments&) {
  std::string text = LowerCase(heap, ToText(heap, self));
  bool begins = true;
  for (char& c : text) {
    if (begins && c >= 'a' && c <= 'z') c = static_cast<char>(c - 0x20);
    begins = c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c < 0x20) ||
             std::string_view("-([{<").find(c) != std::string_view::npos;
  }
  return heap.MakeText(std::move(text));
}

Value Replace(Heap& heap, const Value& self, const Arguments& arguments) {
  if (arguments.At(0) == nullptr || arguments.At(1) == nullptr) {
    return Wrong(heap, "replace() needs what to replace, and by what");
  }
  const std::int64_t most = IntegerOr(heap, arguments.At(2), -1);
  return heap.MakeText(ReplaceAll(heap, ToText(heap, self), ToText(heap, *arguments.At(0)),
                                  ToText(heap, *arguments.At(1)), most));
}

Value Indent(Heap& heap, const Value& self, const Arguments& arguments) {
  std::string by = "    ";
  if (arguments.At(0) != nullptr && arguments.At(0)->text() != nullptr) {
    by = *arguments.At(0)->text();
  } else {
    const std::int64_t width = IntegerOr(heap, arguments.At(0), 4);
    if (!heap.Spend(static_cast<std::uint64_t>(std::max<std::int64_t>(width, 0)))) return {};
    by.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  const bool first = arguments.At(1) != nullptr && Truth(*arguments.At(1));
  const bool blank = arguments.At(2) != nullptr && Truth(*arguments.At(2));
  const std::string text = ToText(heap, self);
  std::string out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (!heap.Spend(by.size() + 1)) return {};
    if (begin == 0 ? first : blank || end > begin) out += by;
    out.append(text, begin, end - begin);
    if (end < text.size()) out.push_back('\n');
    begin = end + 1;
  }
  return heap.MakeText(std::move(out));
}

Value Int(Heap& heap, const Value& self, const Arguments& arguments) {
  std::int64_t integer = IntegerOr(heap, arguments.At(0), 0);
  if (AsInteger(self, &integer)) return Value(integer);
  double number = 0;
  const bool is_float = AsNumber(self, &number);
  if (const std::string* text = self.text()) {
    const std::string digits(StripLeft(StripRight(*text)));
    char* end = nullptr;
    errno = 0;
    const std::int64_t parsed = std::strtoll(digits.c_str(), &end, 10);
    if (!digits.empty() && *end == '\0' && errno == 0) return Value(parsed);
    number = std::strtod(digits.c_str(), &end);
    if (digits.empty() || *end != '\0') return Value(integer);
  } else if (!is_float) {
    return Value(integer);
  }
  if (!(std::fabs(number) < 9e18)) return Wrong(heap, "a number has more than 64 bits");
  return Value(static_cast<std::int64_t>(number));
}

Value Float(Heap&, const Value& self, const Arguments& arguments) {
  double number = 0;
  if (arguments.At(0) != nullptr) AsNumber(*arguments.At(0), &number);
  const double fallback = number;
  if (AsNumber(self, &number)) return Value(number);
  if (self.text() == nullptr) return Value(fallback);
  const std::string digits(StripLeft(StripRight(*self.text())));
  char* end = nullptr;
  number = std::strtod(digits.c_str(), &end);
  return Value(digits.empty() || *end != '\0' ? fallback : number);
}

Value Abs(Heap& heap, const Value& self, const Arguments&) {
  std::int64_t integer = 0;
  if (AsInteger(self, &integer)) {
    return integer < 0 ? BinaryOperation(heap, "-", Value(std::int64_t{0}), self) : Value(integer);
  }
  double number = 0;
  if (!AsNumber(self, &number)) return Wrong(heap, "abs() needs a number");
  return Value(std::fabs(number));
}

Value ToJson(Heap& heap, const Value& self, const Arguments& arguments) {
  JsonStyle style;
  style.escapes_unicode = arguments.At(0) != nullptr && Truth(*arguments.At(0));
  style.indent =
      static_cast<int>(std::min<std::int64_t>(IntegerOr(heap, arguments.At(1), -1), 1000));
  if (style.indent >= 0) style.between_items = ",";
  if (const Value* separators = arguments.At(2); separators != nullptr && !separators->none()) {
    const std::vector<Value>* two = Items(heap, *separators);
    if (two == nullptr || two->size() != 2 || two->front().text() == nullptr ||
        two->back().text() == nullptr) {
      return Wrong(heap, "the separators of tojson() are two texts");
    }
    style.between_items = *two->front().text();
    style.after_key = *two->back().text();
  }
  style.sorts_keys = arguments.At(3) != nullptr && Truth(*arguments.At(3));
  std::string out;
  AppendJson(heap, self, style, out);
  return heap.MakeText(std::move(out));
}

constexpr Function kFilters[] = {
    {"abs", Abs},
    {"capitalize", Capitalize},
    {"d", Default, {"default_value", "boolean"}},
    {"default", Default, {"default_value", "boolean"}},
    {"float", Float, {"default"}},
    {"indent", Indent, {"width", "first", "blank"}},
    {"int", Int, {"default"}},
    {"lower", Lower},
    {"replace", Replace, {"old", "new", "count"}},
    {"safe", Safe},
    {"string", String},
    {"title", Title},
    {"tojson", ToJson, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", Trim, {"chars"}},
    {"upper", Upper},
};

}  // namespace

std::span<const Function> TextFilters() { return kFilters; }

}  // namespace tilewright::jinja
