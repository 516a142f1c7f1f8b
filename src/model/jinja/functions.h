#pragma once

#include <array>
#include <ctime>
#include <span>
#include <string_view>
#include <vector>

#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tilewright::jinja {

// What templates call: filters, tests, methods and global functions, each in a table of its file.

/// Arguments of a call. At() is for functions with parameters, whose order it has.
struct Arguments {
  std::vector<Value> positional;
  std::vector<NamedValue> named;
  std::array<const Value*, 4> bound{};

  const Value* At(std::size_t parameter) const { return bound[parameter]; }
};

/// A function: `self` is the value before the dot, the bar or the word `is`.
struct Function {
  using Code = Value (*)(Heap&, const Value& self, const Arguments&);

  std::string_view name;
  Code code;
  std::array<std::string_view, 4> parameters{};
  bool variadic = false;  ///< takes arguments as they are given
};

/// Binds the arguments to the parameters and calls; unknown or too many arguments are errors.
Value CallFunction(Heap& heap, const Function& function, const Value& self, Arguments& arguments);

/// nullptr if there is none.
const Function* FindFilter(std::string_view name);
const Function* FindTest(std::string_view name);
inline bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }
inline bool IsTest(std::string_view name) { return FindTest(name) != nullptr; }
/// A method of the value's type. Those that change a value are not there: in chat templates they
/// are forbidden.
const Function* FindMethod(const Value& self, std::string_view name);
/// range, dict, namespace, raise_exception; `strftime_now` is FormatTime's.
const Function* FindGlobal(std::string_view name);

std::span<const Function> SequenceFilters();
std::span<const Function> TextFilters();
std::span<const Function> TextMethods();

/// `text` with the directives of strftime for the date and time of `now`, in English.
Value FormatTime(Heap& heap, const std::tm& now, std::string_view format);

// Operations that evaluation and functions share.

/// What iterating over a value yields: elements, keys, characters; nullptr, with an error, for a
/// value that has none. Owned by the heap or the value.
const std::vector<Value>* Items(Heap& heap, const Value& value);
/// `object.name`, and `object[name]`: undefined if there is none; an error for an undefined object.
Value Member(Heap& heap, const Value& object, std::string_view name);
Value Item(Heap& heap, const Value& object, const Value& key);
/// object[begin:end:step]; undefined values are left out.
Value Slice(Heap& heap, const Value& object, const std::array<Value, 3>& range);
/// Python's `item in container`.
bool Contains(Heap& heap, const Value& container, const Value& item);
Value BinaryOperation(Heap& heap, std::string_view op, const Value& a, const Value& b);
/// "==", "<", "in", ...
bool Comparison(Heap& heap, std::string_view op, const Value& a, const Value& b);

}  // namespace tilewright::jinja
