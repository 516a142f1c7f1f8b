#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja/value.h"
#include "tilewright/result.h"

namespace tilewright::jinja {

struct MacroNode;

/// Names and their values; what it lacks, its parent may have.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;

  void Set(std::string_view name, Value value);
};

struct Macro {
  const MacroNode* node = nullptr;
  Scope* scope = nullptr;  ///< where it was defined
};

/// Owns what the values of one rendering point to, until it ends: values may then refer to each
/// other in circles. It also holds the budget, which bounds time and memory, and the first error:
/// after one, every operation returns an undefined value and means nothing. One thread.
class Heap {
 public:
  /// `budget`: in bytes made; one step of the interpreter counts as kStep bytes.
  explicit Heap(std::uint64_t budget) : budget_(budget) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  static constexpr std::uint64_t kStep = 64;
  static constexpr int kDeepest = 64;  ///< lists in lists

  Value MakeText(std::string text);
  Value MakeSequence(std::vector<Value> items, Sequence::Kind kind = Sequence::Kind::kList);
  Value MakeDict(std::vector<std::pair<Value, Value>> entries);
  Value MakeNamespace(std::vector<NamedValue> members);
  Value MakeLoop(const Loop& loop);
  Value MakeMacro(const Macro& macro);
  Value MakeBound(Value receiver, std::string_view name);
  Loop* LastLoop() { return &loops_.back(); }
  Scope* MakeScope(Scope* parent);
  /// The value of a name in `scope` or those around it; nullptr if it has none.
  const Value* Lookup(const Scope* scope, std::string_view name);

  /// False, with an error, once the budget is spent. To be asked before the work is done.
  bool Spend(std::uint64_t bytes);
  /// Keeps the first error; returns undefined.
  Value Error(ErrorCode code, std::string message);
  bool ok() const { return !error_.has_value(); }
  const std::optional<tilewright::Error>& error() const { return error_; }

 private:
  /// Depth and weight of a container of `value` besides those found before.
  void Weigh(const Value& value, int* depth, std::uint64_t* weight);
  bool Allowed(int depth, std::uint64_t weight);

  std::uint64_t budget_;
  std::optional<tilewright::Error> error_;
  std::deque<Sequence> sequences_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> namespaces_;
  std::deque<Loop> loops_;
  std::deque<Macro> macros_;
  std::deque<Bound> bounds_;
  std::deque<Scope> scopes_;
};

}  // namespace tilewright::jinja
