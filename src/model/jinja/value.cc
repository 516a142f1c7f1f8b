#include "model/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "model/jinja/heap.h"

namespace tilewright::jinja {

const Value* Dict::Find(const Value& key) const {
  for (const auto& [own, value] : entries) {
    if (Equal(own, key)) return &value;
  }
  return nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  for (const auto& [own, value] : entries) {
    if (own.text() != nullptr && *own.text() == key) return &value;
  }
  return nullptr;
}

Value* Namespace::Find(std::string_view name) {
  for (auto& [own, value] : members) {
    if (own == name) return &value;
  }
  return nullptr;
}

bool Truth(const Value& value) {
  if (const bool* flag = value.As<bool>()) return *flag;
  if (const std::int64_t* integer = value.As<std::int64_t>()) return *integer != 0;
  if (const double* number = value.As<double>()) return *number != 0;
  if (value.text() != nullptr) return !value.text()->empty();
  if (const Sequence* sequence = value.sequence()) {
    return sequence->kind == Sequence::Kind::kGenerator || !sequence->items.empty();
  }
  if (value.dict() != nullptr) return !value.dict()->entries.empty();
  return !value.undefined() && !value.none();
}

bool AsInteger(const Value& value, std::int64_t* integer) {
  if (const bool* flag = value.As<bool>()) {
    *integer = *flag ? 1 : 0;
    return true;
  }
  if (const std::int64_t* own = value.As<std::int64_t>()) {
    *integer = *own;
    return true;
  }
  return false;
}

bool AsNumber(const Value& value, double* number) {
  std::int64_t integer = 0;
  if (AsInteger(value, &integer)) {
    *number = static_cast<double>(integer);
    return true;
  }
  if (value.As<double>() == nullptr) return false;
  *number = *value.As<double>();
  return true;
}

namespace {

bool EqualItems(const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), Equal);
}

bool EqualDicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && Equal(entry.second, *other);
  });
}

}  // namespace

bool Equal(const Value& a, const Value& b) {
  std::int64_t i = 0, j = 0;
  if (AsInteger(a, &i) && AsInteger(b, &j)) return i == j;
  double x = 0, y = 0;
  if (AsNumber(a, &x) && AsNumber(b, &y)) return x == y;
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() == *b.text();
  if (a.undefined() || a.none()) return a.undefined() ? b.undefined() : b.none();
  if (a.sequence() != nullptr && b.sequence() != nullptr) {
    if (a.sequence() == b.sequence()) return true;
    const Sequence::Kind kind = a.sequence()->kind;
    if (kind != b.sequence()->kind || kind == Sequence::Kind::kGenerator) return false;
    return EqualItems(a.sequence()->items, b.sequence()->items);
  }
  if (a.dict() != nullptr && b.dict() != nullptr) return EqualDicts(*a.dict(), *b.dict());
  if (a.name_space() != nullptr) return a.name_space() == b.name_space();
  if (a.As<const Macro*>() != nullptr && b.As<const Macro*>() != nullptr) {
    return *a.As<const Macro*>() == *b.As<const Macro*>();
  }
  return false;
}

int Compare(const Value& a, const Value& b, bool* comparable) {
  std::int64_t i = 0, j = 0;
  if (AsInteger(a, &i) && AsInteger(b, &j)) return i < j ? -1 : i > j;
  double x = 0, y = 0;
  if (AsNumber(a, &x) && AsNumber(b, &y)) return x < y ? -1 : x > y;
  // Bytes of UTF-8 have the order of the characters.
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->compare(*b.text());
  const Sequence *s = a.sequence(), *t = b.sequence();
  if (s != nullptr && t != nullptr && s->kind == t->kind) {
    const std::size_t common = std::min(s->items.size(), t->items.size());
    for (std::size_t at = 0; at < common; ++at) {
      if (!Equal(s->items[at], t->items[at]))
        return Compare(s->items[at], t->items[at], comparable);
    }
    return s->items.size() < t->items.size() ? -1 : s->items.size() > t->items.size();
  }
  *comparable = false;
  return 0;
}

std::uint64_t WeightOf(const Value& value) {
  constexpr std::uint64_t kOwn = 16;
  if (value.text() != nullptr) return kOwn + value.text()->size();
  if (value.sequence() != nullptr) return kOwn + value.sequence()->weight;
  if (value.dict() != nullptr) return kOwn + value.dict()->weight;
  return kOwn;
}

int DepthOf(const Value& value) {
  if (value.sequence() != nullptr) return value.sequence()->depth;
  return value.dict() != nullptr ? value.dict()->depth : 0;
}

std::string_view TypeName(const Value& value) {
  if (value.undefined()) return "undefined";
  if (value.none()) return "None";
  if (value.As<bool>() != nullptr) return "bool";
  if (value.As<std::int64_t>() != nullptr) return "int";
  if (value.As<double>() != nullptr) return "float";
  if (value.text() != nullptr) return "str";
  if (value.dict() != nullptr) return "dict";
  if (value.name_space() != nullptr) return "namespace";
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr) return "function";
  constexpr std::string_view kKinds[] = {"list", "tuple", "view", "generator"};
  return kKinds[static_cast<int>(sequence->kind)];
}

}  // namespace tilewright::jinja
