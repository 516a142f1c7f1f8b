#include "model/jinja/heap.h"

#include <algorithm>

#include "core/text.h"

namespace tilewright::jinja {
namespace {

/// No text is as long: walking over a heavier value would spend every budget.
constexpr std::uint64_t kHeaviest = std::uint64_t{1} << 40;

}  // namespace

void Scope::Set(std::string_view name, Value value) {
  for (auto& [own, old] : names) {
    if (own == name) {
      old = std::move(value);
      return;
    }
  }
  names.emplace_back(name, std::move(value));
}

const Value* Heap::Lookup(const Scope* scope, std::string_view name) {
  std::uint64_t visited = 0;
  const Value* found = nullptr;
  for (; scope != nullptr && found == nullptr; scope = scope->parent) {
    for (const auto& [own, value] : scope->names) {
      ++visited;
      if (own != name) continue;
      found = &value;
      break;
    }
  }
  return Spend(4 * visited) ? found : nullptr;
}

bool Heap::Spend(std::uint64_t bytes) {
  if (!ok()) return false;
  if (bytes > budget_) {
    Error(ErrorCode::kExhausted,
          "the template takes too much time or memory, and was stopped (a loop without end?)");
    return false;
  }
  budget_ -= bytes;
  return true;
}

Value Heap::Error(ErrorCode code, std::string message) {
  if (ok()) error_ = tilewright::Error{code, std::move(message)};
  return {};
}

void Heap::Weigh(const Value& value, int* depth, std::uint64_t* weight) {
  *depth = std::max(*depth, DepthOf(value) + 1);
  *weight = std::min(kHeaviest, *weight + WeightOf(value));
}

bool Heap::Allowed(int depth, std::uint64_t weight) {
  if (depth > kDeepest) {
    Error(ErrorCode::kExhausted, Format("values are nested deeper than {}", kDeepest));
  } else if (weight >= kHeaviest) {
    Error(ErrorCode::kExhausted, "a value grows beyond every limit");
  }
  return ok();
}

Value Heap::MakeText(std::string text) {
  if (!Spend(text.size() + kStep)) return {};
  return Value::Of(std::move(text));
}

Value Heap::MakeSequence(std::vector<Value> items, Sequence::Kind kind) {
  if (!Spend(items.size() * sizeof(Value) + kStep)) return {};
  Sequence made{.kind = kind, .items = std::move(items)};
  for (const Value& item : made.items) Weigh(item, &made.depth, &made.weight);
  if (!Allowed(made.depth, made.weight)) return {};
  sequences_.push_back(std::move(made));
  const Sequence* kept = &sequences_.back();
  return Value(kept);
}

Value Heap::MakeDict(std::vector<std::pair<Value, Value>> entries) {
  // Keys are compared with all before them.
  if (!Spend(entries.size() * (entries.size() / 2 + 2 * sizeof(Value)) + kStep)) return {};
  Dict made;
  for (auto& entry : entries) {
    Value& key = entry.first;
    Value& value = entry.second;
    if (key.sequence() != nullptr || key.dict() != nullptr) {
      return Error(ErrorCode::kUnsupported,
                   Format("a {} cannot be a key of a dictionary here", TypeName(key)));
    }
    Weigh(key, &made.depth, &made.weight);
    Weigh(value, &made.depth, &made.weight);
    auto old = std::find_if(made.entries.begin(), made.entries.end(),
                            [&](const auto& old_entry) { return Equal(old_entry.first, key); });
    if (old == made.entries.end()) {
      made.entries.emplace_back(std::move(key), std::move(value));
    } else {
      old->second = std::move(value);
    }
  }
  if (!Allowed(made.depth, made.weight)) return {};
  dicts_.push_back(std::move(made));
  const Dict* kept = &dicts_.back();
  return Value(kept);
}

Value Heap::MakeNamespace(std::vector<NamedValue> members) {
  namespaces_.push_back({std::move(members)});
  return Value(&namespaces_.back());
}

Value Heap::MakeLoop(const Loop& loop) {
  loops_.push_back(loop);
  const Loop* kept = &loops_.back();
  return Value(kept);
}

Value Heap::MakeMacro(const Macro& macro) {
  macros_.push_back(macro);
  const Macro* kept = &macros_.back();
  return Value(kept);
}

Value Heap::MakeBound(Value receiver, std::string_view name) {
  bounds_.push_back({std::move(receiver), name});
  const Bound* kept = &bounds_.back();
  return Value(kept);
}

Scope* Heap::MakeScope(Scope* parent) {
  scopes_.push_back({parent, {}});
  return &scopes_.back();
}

}  // namespace tilewright::jinja
