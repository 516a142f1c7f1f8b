#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tilewright::jinja {

struct Sequence;
struct Dict;
struct Namespace;
struct Loop;
struct Macro;
struct Bound;

/// What a name without a value means: empty where it is printed, an error where it is used.
struct Undefined {
  const std::string* name = nullptr;  ///< as the template spells it; may be absent
};
using Text = std::shared_ptr<const std::string>;

/// A value of a template, as in Python: cheap to copy. Texts are shared, everything else that is
/// pointed to belongs to the heap of the rendering (heap.h).
class Value {
 public:
  using Data =
      std::variant<Undefined, std::nullptr_t, bool, std::int64_t, double, Text, const Sequence*,
                   const Dict*, Namespace*, const Loop*, const Macro*, const Bound*>;

  Value() = default;
  explicit Value(Data data) : data_(std::move(data)) {}
  static Value None() { return Value(Data(nullptr)); }
  static Value Of(std::string text) {
    return Value(Data(std::make_shared<const std::string>(std::move(text))));
  }

  /// The alternative T, or nullptr if the value is another.
  template <class T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  bool undefined() const { return As<Undefined>() != nullptr; }
  bool none() const { return As<std::nullptr_t>() != nullptr; }
  /// nullptr unless it is a text.
  const std::string* text() const { return As<Text>() == nullptr ? nullptr : As<Text>()->get(); }
  const Sequence* sequence() const { return Pointer<const Sequence*>(); }
  const Dict* dict() const { return Pointer<const Dict*>(); }
  Namespace* name_space() const { return Pointer<Namespace*>(); }

 private:
  template <class T>
  T Pointer() const {
    return As<T>() == nullptr ? nullptr : *As<T>();
  }

  Data data_;
};

using NamedValue = std::pair<std::string, Value>;

/// `weight` bounds what walking over a value costs: the bytes of its texts and 16 for each element,
/// counted as often as they occur in it.
struct Sequence {
  enum class Kind : std::uint8_t {
    kList,
    kTuple,
    kView,       ///< of a dictionary, and `range`: cannot be printed
    kGenerator,  ///< what `map` and `select` give: true, without a length, and read once
  };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  int depth = 1;
  std::uint64_t weight = 0;
  mutable bool consumed = false;  ///< of a generator
};

/// Keeps the order in which keys were entered. Found by walking: the dictionaries of templates are
/// small.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  std::uint64_t weight = 0;

  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
};

/// The only value that changes: `{% set ns.name = ... %}`.
struct Namespace {
  std::vector<NamedValue> members;

  Value* Find(std::string_view name);
};

/// `loop` in a for statement.
struct Loop {
  const std::vector<Value>* items = nullptr;
  std::int64_t index0 = 0;
};

/// A function of the interpreter, or a method of `receiver`. Its name is a literal of the
/// interpreter's tables.
struct Bound {
  Value receiver;
  std::string_view name;
};

/// Python's bool(x).
bool Truth(const Value& value);
/// Python's x == y.
bool Equal(const Value& a, const Value& b);
/// Order of two values: numbers, two texts, or two sequences of such; `*comparable` is false else.
int Compare(const Value& a, const Value& b, bool* comparable);
/// What a double or bool or integer is as a double; false for other values.
bool AsNumber(const Value& value, double* number);
/// bool and int64.
bool AsInteger(const Value& value, std::int64_t* integer);
/// Cost of walking over the value, see Sequence.
std::uint64_t WeightOf(const Value& value);
int DepthOf(const Value& value);
/// "str", "int", ...: Python's names, for messages.
std::string_view TypeName(const Value& value);

}  // namespace tilewright::jinja
