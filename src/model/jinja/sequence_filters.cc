#include <algorithm>

#include "core/text.h"
#include "model/jinja/functions.h"
#include "model/jinja/letters.h"
#include "model/jinja/print.h"

namespace tilewright::jinja {
namespace {

Value Wrong(Heap& heap, std::string_view what) {
  return heap.Error(ErrorCode::kUnsupported, std::string(what));
}

Value Length(Heap& heap, const Value& self, const Arguments&) {
  if (const std::string* text = self.text()) {
    if (!heap.Spend(text->size())) return {};
    return Value(static_cast<std::int64_t>(CountCharacters(*text)));
  }
  if (self.dict() != nullptr) {
    return Value(static_cast<std::int64_t>(self.dict()->entries.size()));
  }
  if (self.undefined()) return Value(std::int64_t{0});
  if (self.sequence() == nullptr || self.sequence()->kind == Sequence::Kind::kGenerator) {
    return Wrong(heap, Format("a {} has no length", TypeName(self)));
  }
  return Value(static_cast<std::int64_t>(self.sequence()->items.size()));
}

Value List(Heap& heap, const Value& self, const Arguments&) {
  const std::vector<Value>* items = Items(heap, self);
  return items == nullptr ? Value() : heap.MakeSequence(*items);
}

Value First(Heap& heap, const Value& self, const Arguments&) {
  const std::vector<Value>* items = Items(heap, self);
  return items == nullptr || items->empty() ? Value() : items->front();
}

Value Last(Heap& heap, const Value& self, const Arguments&) {
  const std::vector<Value>* items = Items(heap, self);
  return items == nullptr || items->empty() ? Value() : items->back();
}

Value Reverse(Heap& heap, const Value& self, const Arguments&) {
  const std::vector<Value>* items = Items(heap, self);
  if (items == nullptr) return {};
  std::vector<Value> reversed(items->rbegin(), items->rend());
  if (self.text() == nullptr) {
    return heap.MakeSequence(std::move(reversed), Sequence::Kind::kGenerator);
  }
  std::string text;
  for (const Value& character : reversed) text += *character.text();
  return heap.MakeText(std::move(text));
}

Value PairsOf(Heap& heap, const Value& self, const Arguments&) {
  std::vector<Value> items;
  if (self.dict() == nullptr && !self.undefined()) {
    return Wrong(heap, "the filter 'items' needs a dictionary");
  }
  if (self.dict() != nullptr) {
    for (const auto& [key, value] : self.dict()->entries) {
      items.push_back(heap.MakeSequence({key, value}, Sequence::Kind::kTuple));
    }
  }
  return heap.MakeSequence(std::move(items), Sequence::Kind::kGenerator);
}

/// "a.b.0" of a value, as map and selectattr look attributes up.
Value Attribute(Heap& heap, Value of, const Value& path) {
  const std::string* text = path.text();
  if (text == nullptr) return Item(heap, of, path);
  for (std::size_t begin = 0; begin <= text->size() && heap.ok();) {
    const std::size_t end = std::min(text->find('.', begin), text->size());
    const std::string part = text->substr(begin, end - begin);
    const bool index = !part.empty() && part.size() < 10 &&
                       part.find_first_not_of("0123456789") == std::string::npos;
    of = Item(heap, of, index ? Value(std::int64_t{std::stoi(part)}) : heap.MakeText(part));
    begin = end + 1;
  }
  return of;
}

const Value* Named(const Arguments& arguments, std::string_view name) {
  for (const auto& [own, value] : arguments.named) {
    if (own == name) return &value;
  }
  return nullptr;
}

Value MapItem(Heap& heap, const Value& item, const Arguments& arguments) {
  if (const Value* attribute = Named(arguments, "attribute")) {
    Value found = Attribute(heap, item, *attribute);
    const Value* fallback = Named(arguments, "default");
    return found.undefined() && fallback != nullptr ? *fallback : found;
  }
  const std::string* name =
      arguments.positional.empty() ? nullptr : arguments.positional.front().text();
  const Function* filter = name == nullptr ? nullptr : FindFilter(*name);
  if (filter == nullptr) return Wrong(heap, "map() needs a known filter or an attribute");
  Arguments rest{.positional = {arguments.positional.begin() + 1, arguments.positional.end()},
                 .named = arguments.named};
  return CallFunction(heap, *filter, item, rest);
}

Value Map(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::vector<Value>* items = Items(heap, self);
  std::vector<Value> mapped;
  for (std::size_t i = 0; items != nullptr && i < items->size() && heap.ok(); ++i) {
    mapped.push_back(MapItem(heap, (*items)[i], arguments));
  }
  return heap.MakeSequence(std::move(mapped), Sequence::Kind::kGenerator);
}

/// The elements of which a test, given as arguments from `first` on, is `wanted`; without one,
/// their truth. With `by_attribute` the first argument says of what of them.
Value Selected(Heap& heap, const Value& self, const Arguments& arguments, bool by_attribute,
               bool wanted) {
  const std::vector<Value>& given = arguments.positional;
  if (by_attribute && given.empty()) return Wrong(heap, "selectattr() needs an attribute");
  const std::size_t at = by_attribute ? 1 : 0;
  const std::string* name = given.size() > at ? given[at].text() : nullptr;
  const Function* test = name == nullptr ? nullptr : FindTest(*name);
  if (given.size() > at && test == nullptr) return Wrong(heap, "select() needs a known test");
  const std::vector<Value>* items = Items(heap, self);
  std::vector<Value> selected;
  for (std::size_t i = 0; items != nullptr && i < items->size() && heap.ok(); ++i) {
    Value value = by_attribute ? Attribute(heap, (*items)[i], given[0]) : (*items)[i];
    if (test != nullptr) {
      Arguments rest;
      rest.positional = {given.begin() + static_cast<std::ptrdiff_t>(at) + 1, given.end()};
      value = CallFunction(heap, *test, value, rest);
    }
    if (Truth(value) == wanted) selected.push_back((*items)[i]);
  }
  return heap.MakeSequence(std::move(selected), Sequence::Kind::kGenerator);
}

Value Select(Heap& heap, const Value& self, const Arguments& arguments) {
  return Selected(heap, self, arguments, false, true);
}
Value Reject(Heap& heap, const Value& self, const Arguments& arguments) {
  return Selected(heap, self, arguments, false, false);
}
Value SelectAttribute(Heap& heap, const Value& self, const Arguments& arguments) {
  return Selected(heap, self, arguments, true, true);
}
Value RejectAttribute(Heap& heap, const Value& self, const Arguments& arguments) {
  return Selected(heap, self, arguments, true, false);
}

Value Join(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::vector<Value>* items = Items(heap, self);
  const std::string between = arguments.At(0) == nullptr ? "" : ToText(heap, *arguments.At(0));
  std::string out;
  for (std::size_t i = 0; items != nullptr && i < items->size(); ++i) {
    if (!heap.Spend(between.size())) return {};
    if (i > 0) out += between;
    const Value& item = (*items)[i];
    AppendText(heap, arguments.At(1) == nullptr ? item : Attribute(heap, item, *arguments.At(1)),
               out);
  }
  return heap.MakeText(std::move(out));
}

/// What sort, min, max and unique compare: without regard to case unless asked.
Value SortKey(Heap& heap, const Value& value, bool case_sensitive) {
  if (value.text() == nullptr || case_sensitive) return value;
  return heap.MakeText(LowerCase(heap, *value.text()));
}

Value Sorted(Heap& heap, const std::vector<Value>& items, const std::vector<Value>& keys,
             bool descending) {
  std::uint64_t weight = 0;
  for (const Value& key : keys) weight += WeightOf(key);
  std::uint64_t rounds = 1;
  while ((std::uint64_t{1} << rounds) < items.size()) ++rounds;
  if (!heap.Spend(weight * rounds)) return {};
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  bool comparable = true;
  // A comparison that fails orders by nothing, which std::stable_sort can bear.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int less = Compare(keys[a], keys[b], &comparable);
    return comparable && (descending ? less > 0 : less < 0);
  });
  if (!comparable) return Wrong(heap, "values of several types are sorted");
  std::vector<Value> sorted;
  for (const std::size_t i : order) sorted.push_back(items[i]);
  return heap.MakeSequence(std::move(sorted));
}

Value Sort(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::vector<Value>* items = Items(heap, self);
  if (items == nullptr) return {};
  const bool case_sensitive = arguments.At(1) != nullptr && Truth(*arguments.At(1));
  std::vector<Value> keys;
  for (const Value& item : *items) {
    const Value by = arguments.At(2) == nullptr || arguments.At(2)->none()
                         ? item
                         : Attribute(heap, item, *arguments.At(2));
    keys.push_back(SortKey(heap, by, case_sensitive));
  }
  return heap.ok()
             ? Sorted(heap, *items, keys, arguments.At(0) != nullptr && Truth(*arguments.At(0)))
             : Value();
}

Value DictSort(Heap& heap, const Value& self, const Arguments& arguments) {
  if (self.dict() == nullptr) return Wrong(heap, "the filter 'dictsort' needs a dictionary");
  const bool case_sensitive = arguments.At(0) != nullptr && Truth(*arguments.At(0));
  const std::string* by = arguments.At(1) == nullptr ? nullptr : arguments.At(1)->text();
  std::vector<Value> items, keys;
  for (const auto& [key, value] : self.dict()->entries) {
    items.push_back(heap.MakeSequence({key, value}, Sequence::Kind::kTuple));
    keys.push_back(SortKey(heap, by != nullptr && *by == "value" ? value : key, case_sensitive));
  }
  return heap.ok()
             ? Sorted(heap, items, keys, arguments.At(2) != nullptr && Truth(*arguments.At(2)))
             : Value();
}

Value Unique(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::vector<Value>* items = Items(heap, self);
  const bool case_sensitive = arguments.At(0) != nullptr && Truth(*arguments.At(0));
  std::vector<Value> kept, keys;
  for (std::size_t i = 0; items != nullptr && i < items->size() && heap.ok(); ++i) {
    const Value key = SortKey(heap, (*items)[i], case_sensitive);
    if (!heap.Spend(keys.size() * 8 + WeightOf(key))) return {};
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return Equal(k, key); })) {
      continue;
    }
    keys.push_back(key);
    kept.push_back((*items)[i]);
  }
  return heap.MakeSequence(std::move(kept), Sequence::Kind::kGenerator);
}

Value Extreme(Heap& heap, const Value& self, bool largest) {
  const std::vector<Value>* items = Items(heap, self);
  if (items == nullptr || items->empty() || !heap.Spend(2 * WeightOf(self))) return {};
  bool comparable = true;
  const Value* best = &items->front();
  Value best_key = SortKey(heap, *best, false);
  for (const Value& item : *items) {
    const Value key = SortKey(heap, item, false);
    const int order = Compare(key, best_key, &comparable);
    if (largest ? order <= 0 : order >= 0) continue;
    best = &item;
    best_key = key;
  }
  return comparable ? *best : Wrong(heap, "values of several types are compared");
}

Value Min(Heap& heap, const Value& self, const Arguments&) { return Extreme(heap, self, false); }
Value Max(Heap& heap, const Value& self, const Arguments&) { return Extreme(heap, self, true); }

Value Sum(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::vector<Value>* items = Items(heap, self);
  Value sum{std::int64_t{0}};
  for (std::size_t i = 0; items != nullptr && i < items->size() && heap.ok(); ++i) {
    const Value& item = (*items)[i];
    sum = BinaryOperation(
        heap, "+", sum,
        arguments.At(0) == nullptr ? item : Attribute(heap, item, *arguments.At(0)));
  }
  return sum;
}

constexpr Function kFilters[] = {
    {"count", Length},
    {"dictsort", DictSort, {"case_sensitive", "by", "reverse"}},
    {"first", First},
    {"items", PairsOf},
    {"join", Join, {"d", "attribute"}},
    {"last", Last},
    {"length", Length},
    {"list", List},
    {"map", Map, {}, true},
    {"max", Max},
    {"min", Min},
    {"reject", Reject, {}, true},
    {"rejectattr", RejectAttribute, {}, true},
    {"reverse", Reverse},
    {"select", Select, {}, true},
    {"selectattr", SelectAttribute, {}, true},
    {"sort", Sort, {"reverse", "case_sensitive", "attribute"}},
    {"sum", Sum, {"attribute"}},
    {"unique", Unique, {"case_sensitive"}},
};

}  // namespace

std::span<const Function> SequenceFilters() { return kFilters; }

}  // namespace tilewright::jinja
