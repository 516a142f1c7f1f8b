#include <algorithm>

#include "core/text.h"
#include "model/jinja/functions.h"
#include "model/jinja/unicode.h"

namespace tilewright::jinja {
namespace {

Value MemberOfLoop(Heap& heap, const Loop& loop, std::string_view name) {
  const auto length = static_cast<std::int64_t>(loop.items->size());
  const auto at = [&](std::int64_t index) {
    return index < 0 || index >= length ? Value() : (*loop.items)[static_cast<std::size_t>(index)];
  };
  if (name == "index0") return Value(loop.index0);
  if (name == "index") return Value(loop.index0 + 1);
  if (name == "first") return Value(loop.index0 == 0);
  if (name == "last") return Value(loop.index0 + 1 == length);
  if (name == "length") return Value(length);
  if (name == "revindex") return Value(length - loop.index0);
  if (name == "revindex0") return Value(length - loop.index0 - 1);
  if (name == "previtem") return at(loop.index0 - 1);
  if (name == "nextitem") return at(loop.index0 + 1);
  return heap.Error(ErrorCode::kUnsupported, Format("loop.{} is not known here", name));
}

/// `bytes[offset[i]]` to the next offset, for each i of the range.
Value SliceOfText(Heap& heap, const std::string& text, const std::vector<std::size_t>& offsets,
                  const std::vector<std::size_t>& picked) {
  std::string out;
  for (const std::size_t i : picked) {
    out.append(text, offsets[i], offsets[i + 1] - offsets[i]);
  }
  return heap.MakeText(std::move(out));
}

/// The indices that Python's slice(begin, end, step).indices(size) goes through.
bool SliceIndices(Heap& heap, const std::array<Value, 3>& range, std::size_t size,
                  std::vector<std::size_t>* picked) {
  const auto length = static_cast<std::int64_t>(size);
  std::int64_t bounds[3] = {0, 0, 1};
  bool given[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    if (range[i].undefined() || range[i].none()) continue;
    given[i] = AsInteger(range[i], &bounds[i]);
    if (!given[i]) {
      heap.Error(ErrorCode::kUnsupported, "the bounds of a slice are integers");
      return false;
    }
  }
  const std::int64_t step = bounds[2];
  if (step == 0) {
    heap.Error(ErrorCode::kUnsupported, "the step of a slice is 0");
    return false;
  }
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? length : length - 1;
  const auto clamp = [&](std::int64_t bound) {
    return std::clamp(bound < 0 ? std::max(bound, -length - 1) + length : bound, low, high);
  };
  std::int64_t at = given[0] ? clamp(bounds[0]) : (step > 0 ? low : high);
  const std::int64_t end = given[1] ? clamp(bounds[1]) : (step > 0 ? high : low);
  while (step > 0 ? at < end : at > end) {
    picked->push_back(static_cast<std::size_t>(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return true;
}

Value UndefinedObject(Heap& heap, const Value& object, std::string_view what) {
  const std::string* name = object.As<Undefined>()->name;
  return heap.Error(ErrorCode::kUnsupported,
                    Format("'{}' is undefined, but {} of it is used",
                           name == nullptr ? "a value" : *name, Printable(what, 40)));
}

}  // namespace

const std::vector<Value>* Items(Heap& heap, const Value& value) {
  const Sequence* sequence = value.sequence();
  if (sequence != nullptr && !sequence->consumed) {
    if (!heap.Spend(sequence->items.size())) return nullptr;
    sequence->consumed = sequence->kind == Sequence::Kind::kGenerator;
    return &sequence->items;
  }
  std::vector<Value> made;
  if (value.dict() != nullptr) {
    for (const auto& [key, entry] : value.dict()->entries) made.push_back(key);
  } else if (const std::string* text = value.text()) {
    if (!heap.Spend(text->size() * (sizeof(Value) + Heap::kStep))) return nullptr;
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t size = CharacterAt(*text, at).size;
      made.push_back(Value::Of(text->substr(at, size)));
      at += size;
    }
  } else if (sequence == nullptr && !value.undefined()) {
    heap.Error(ErrorCode::kUnsupported, Format("a {} has no elements", TypeName(value)));
    return nullptr;
  }
  const Value list = heap.MakeSequence(std::move(made));
  return list.sequence() == nullptr ? nullptr : &list.sequence()->items;
}

Value Member(Heap& heap, const Value& object, std::string_view name) {
  if (object.undefined()) return UndefinedObject(heap, object, name);
  if (const Function* method = FindMethod(object, name)) {
    return heap.MakeBound(object, method->name);
  }
  if (object.dict() != nullptr) {
    if (!heap.Spend(4 * object.dict()->entries.size())) return {};
    const Value* found = object.dict()->Find(name);
    return found == nullptr ? Value() : *found;
  }
  if (object.name_space() != nullptr) {
    if (!heap.Spend(4 * object.name_space()->members.size())) return {};
    const Value* found = object.name_space()->Find(name);
    return found == nullptr ? Value() : *found;
  }
  if (object.As<const Loop*>() != nullptr) {
    return MemberOfLoop(heap, **object.As<const Loop*>(), name);
  }
  return {};
}

Value Item(Heap& heap, const Value& object, const Value& key) {
  if (object.undefined()) return UndefinedObject(heap, object, "an element");
  if (object.dict() != nullptr) {
    if (!heap.Spend(4 * object.dict()->entries.size())) return {};
    if (const Value* found = object.dict()->Find(key)) return *found;
  }
  if (key.text() != nullptr) return Member(heap, object, *key.text());
  std::int64_t index = 0;
  if (!AsInteger(key, &index)) return {};
  const Sequence* sequence = object.sequence();
  if (sequence != nullptr && sequence->kind <= Sequence::Kind::kTuple) {
    const auto size = static_cast<std::int64_t>(sequence->items.size());
    if (index < 0) index += size;
    if (index < 0 || index >= size) return {};
    return sequence->items[static_cast<std::size_t>(index)];
  }
  if (object.text() != nullptr) {
    if (!heap.Spend(8 * object.text()->size())) return {};
    const std::vector<std::size_t> offsets = CharacterOffsets(*object.text());
    const auto size = static_cast<std::int64_t>(offsets.size()) - 1;
    if (index < 0) index += size;
    if (index < 0 || index >= size) return {};
    return SliceOfText(heap, *object.text(), offsets, {static_cast<std::size_t>(index)});
  }
  return {};
}

Value Slice(Heap& heap, const Value& object, const std::array<Value, 3>& range) {
  std::vector<std::size_t> picked;
  if (object.text() != nullptr) {
    if (!heap.Spend(16 * object.text()->size())) return {};
    const std::vector<std::size_t> offsets = CharacterOffsets(*object.text());
    if (!SliceIndices(heap, range, offsets.size() - 1, &picked)) return {};
    return SliceOfText(heap, *object.text(), offsets, picked);
  }
  const Sequence* sequence = object.sequence();
  if (object.undefined()) return UndefinedObject(heap, object, "a slice");
  if (sequence == nullptr || sequence->kind > Sequence::Kind::kTuple) return {};
  if (!heap.Spend(16 * sequence->items.size()) ||
      !SliceIndices(heap, range, sequence->items.size(), &picked)) {
    return {};
  }
  std::vector<Value> items;
  for (const std::size_t i : picked) items.push_back(sequence->items[i]);
  return heap.MakeSequence(std::move(items), sequence->kind);
}

}  // namespace tilewright::jinja
