#include "model/jinja/functions.h"

#include <algorithm>

#include "core/text.h"

namespace tilewright::jinja {
namespace {

const Function* Find(std::span<const Function> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Function& function) { return function.name == name; });
  return found == table.end() ? nullptr : &*found;
}

Value Get(Heap& heap, const Value& self, const Arguments& arguments) {
  if (arguments.At(0) == nullptr) {
    return heap.Error(ErrorCode::kUnsupported, "get() needs a key");
  }
  if (!heap.Spend(8 * self.dict()->entries.size())) return {};
  if (const Value* found = self.dict()->Find(*arguments.At(0))) return *found;
  return arguments.At(1) == nullptr ? Value::None() : *arguments.At(1);
}

Value Pairs(Heap& heap, const Dict& dict) {
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries) {
    items.push_back(heap.MakeSequence({key, value}, Sequence::Kind::kTuple));
  }
  return heap.MakeSequence(std::move(items), Sequence::Kind::kView);
}

Value DictItems(Heap& heap, const Value& self, const Arguments&) {
  return Pairs(heap, *self.dict());
}

Value Keys(Heap& heap, const Value& self, const Arguments&) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries) items.push_back(key);
  return heap.MakeSequence(std::move(items), Sequence::Kind::kView);
}

Value Values(Heap& heap, const Value& self, const Arguments&) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries) items.push_back(value);
  return heap.MakeSequence(std::move(items), Sequence::Kind::kView);
}

Value Copy(Heap&, const Value& self, const Arguments&) { return self; }

Value Refused(Heap& heap, const Value& self, const Arguments&) {
  return heap.Error(ErrorCode::kUnsupported,
                    Format("the template changes a {} in place", TypeName(self)));
}

Value IndexInList(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::vector<Value>& items = self.sequence()->items;
  if (arguments.At(0) != nullptr && heap.Spend(WeightOf(self))) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (Equal(items[i], *arguments.At(0))) return Value(static_cast<std::int64_t>(i));
    }
  }
  return heap.Error(ErrorCode::kUnsupported, "index(): the list does not have the value");
}

Value CountInList(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::vector<Value>& items = self.sequence()->items;
  if (arguments.At(0) == nullptr || !heap.Spend(WeightOf(self))) {
    return heap.Error(ErrorCode::kUnsupported, "count() needs a value");
  }
  return Value(static_cast<std::int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& v) { return Equal(v, *arguments.At(0)); })));
}

constexpr Function kDictMethods[] = {
    {"items", DictItems},
    {"keys", Keys},
    {"values", Values},
    {"copy", Copy},
    {"get", Get, {"key", "default"}},
    {"pop", Refused, {}, true},
    {"update", Refused, {}, true},
    {"setdefault", Refused, {}, true},
    {"clear", Refused, {}, true},
    {"popitem", Refused, {}, true},
};
constexpr Function kListMethods[] = {
    {"index", IndexInList, {"value"}},
    {"count", CountInList, {"value"}},
    {"copy", Copy},
    {"append", Refused, {}, true},
    {"extend", Refused, {}, true},
    {"insert", Refused, {}, true},
    {"pop", Refused, {}, true},
    {"remove", Refused, {}, true},
    {"reverse", Refused, {}, true},
    {"sort", Refused, {}, true},
    {"clear", Refused, {}, true},
};

Value Range(Heap& heap, const Value&, const Arguments& arguments) {
  std::int64_t bounds[3] = {0, 0, 1};
  const std::size_t count = arguments.positional.size();
  bool integers = count >= 1 && count <= 3 && arguments.named.empty();
  for (std::size_t i = 0; integers && i < count; ++i) {
    integers = AsInteger(arguments.positional[i], &bounds[i]);
  }
  if (!integers || bounds[2] == 0) {
    return heap.Error(ErrorCode::kUnsupported, "range() takes one to three integers");
  }
  if (count == 1) std::swap(bounds[0], bounds[1]);
  constexpr std::size_t kMost = 100000;  // as in Jinja's sandbox
  std::vector<Value> items;
  const auto [begin, end, step] = std::array{bounds[0], bounds[1], bounds[2]};
  for (std::int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (items.size() == kMost) {
      return heap.Error(ErrorCode::kExhausted, Format("range() has more than {} values", kMost));
    }
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return heap.MakeSequence(std::move(items), Sequence::Kind::kView);
}

Value MakeNamespace(Heap& heap, const Value&, const Arguments& arguments) {
  std::vector<NamedValue> members;
  if (arguments.positional.size() == 1 && arguments.positional[0].dict() != nullptr) {
    for (const auto& [key, value] : arguments.positional[0].dict()->entries) {
      if (key.text() != nullptr) members.emplace_back(*key.text(), value);
    }
  } else if (!arguments.positional.empty()) {
    return heap.Error(ErrorCode::kUnsupported, "namespace() takes one dictionary");
  }
  members.insert(members.end(), arguments.named.begin(), arguments.named.end());
  if (!heap.Spend(members.size() * sizeof(NamedValue) + Heap::kStep)) return {};
  return heap.MakeNamespace(std::move(members));
}

Value MakeDictionary(Heap& heap, const Value&, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() == 1 && arguments.positional[0].dict() != nullptr) {
    entries = arguments.positional[0].dict()->entries;
  } else if (!arguments.positional.empty()) {
    return heap.Error(ErrorCode::kUnsupported, "dict() takes one dictionary");
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(Value::Of(name), value);
  return heap.MakeDict(std::move(entries));
}

Value RaiseException(Heap& heap, const Value&, const Arguments& arguments) {
  const std::string* message = arguments.At(0) == nullptr ? nullptr : arguments.At(0)->text();
  return heap.Error(ErrorCode::kInvalidArgument,
                    Format("the chat template refuses this conversation: {}",
                           Printable(message == nullptr ? "it does not say why" : *message)));
}

constexpr Function kGlobals[] = {
    {"range", Range, {}, true},
    {"namespace", MakeNamespace, {}, true},
    {"dict", MakeDictionary, {}, true},
    {"raise_exception", RaiseException, {"message"}},
};

}  // namespace

Value CallFunction(Heap& heap, const Function& function, const Value& self, Arguments& arguments) {
  if (!heap.Spend(Heap::kStep)) return {};
  if (function.variadic) return function.code(heap, self, arguments);
  arguments.bound = {};
  const auto refuse = [&](std::string_view what) {
    return heap.Error(ErrorCode::kUnsupported,
                      Format("{}() does not take {}", function.name, what));
  };
  const auto& parameters = function.parameters;
  const auto known = static_cast<std::size_t>(
      std::find(parameters.begin(), parameters.end(), std::string_view()) - parameters.begin());
  if (arguments.positional.size() > known) return refuse("so many arguments");
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    arguments.bound[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto at = static_cast<std::size_t>(
        std::find(parameters.begin(), parameters.begin() + known, name) - parameters.begin());
    if (at == known || arguments.bound[at] != nullptr) {
      return refuse(Format("the argument '{}'", Printable(name, 40)));
    }
    arguments.bound[at] = &value;
  }
  return function.code(heap, self, arguments);
}

const Function* FindFilter(std::string_view name) {
  const Function* found = Find(SequenceFilters(), name);
  return found != nullptr ? found : Find(TextFilters(), name);
}

const Function* FindMethod(const Value& self, std::string_view name) {
  if (self.text() != nullptr) return Find(TextMethods(), name);
  if (self.dict() != nullptr) return Find(kDictMethods, name);
  if (self.sequence() != nullptr && self.sequence()->kind <= Sequence::Kind::kTuple) {
    return Find(kListMethods, name);
  }
  return nullptr;
}

const Function* FindGlobal(std::string_view name) { return Find(kGlobals, name); }

}  // namespace tilewright::jinja
