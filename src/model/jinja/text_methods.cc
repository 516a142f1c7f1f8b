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

/// A text argument, or nullptr, also for none. Another type is an error.
const std::string* TextAt(Heap& heap, const Arguments& arguments, std::size_t parameter) {
  const Value* value = arguments.At(parameter);
  if (value == nullptr || value->none()) return nullptr;
  if (value->text() == nullptr) Wrong(heap, "a method of a text needs a text");
  return value->text();
}

Value Stripped(Heap& heap, const Value& self, const Arguments& arguments, bool left, bool right) {
  const std::string* chars = TextAt(heap, arguments, 0);
  std::string_view text = *self.text();
  if (!heap.Spend(text.size())) return {};
  if (left) text = chars == nullptr ? StripLeft(text) : StripLeft(text, *chars);
  if (right) text = chars == nullptr ? StripRight(text) : StripRight(text, *chars);
  return heap.MakeText(std::string(text));
}

Value Strip(Heap& heap, const Value& self, const Arguments& arguments) {
  return Stripped(heap, self, arguments, true, true);
}
Value LeftStrip(Heap& heap, const Value& self, const Arguments& arguments) {
  return Stripped(heap, self, arguments, true, false);
}
Value RightStrip(Heap& heap, const Value& self, const Arguments& arguments) {
  return Stripped(heap, self, arguments, false, true);
}

/// Words between white space; at most `most` cuts from the left.
std::vector<Value> Words(std::string_view text, std::int64_t most) {
  std::vector<Value> words;
  for (text = StripLeft(text); !text.empty(); text = StripLeft(text)) {
    std::size_t end = 0;
    while (end < text.size()) {
      const Character c = CharacterAt(text, end);
      if (IsSpace(c.code) && (c.size > 1 || c.code < 0x80)) break;
      end += c.size;
    }
    if (most >= 0 && static_cast<std::int64_t>(words.size()) == most) end = text.size();
    words.push_back(Value::Of(std::string(text.substr(0, end))));
    text.remove_prefix(end);
  }
  return words;
}

Value SplitFrom(Heap& heap, const Value& self, const Arguments& arguments, bool from_right) {
  const std::string* separator = TextAt(heap, arguments, 0);
  std::int64_t most = -1;
  if (arguments.At(1) != nullptr && !AsInteger(*arguments.At(1), &most)) {
    return Wrong(heap, "the number of cuts is an integer");
  }
  if (!heap.Spend(self.text()->size() * (sizeof(Value) + Heap::kStep))) return {};
  std::string_view text = *self.text();
  if (separator == nullptr) {
    if (from_right && most >= 0) return Wrong(heap, "rsplit() by white space with a limit");
    return heap.MakeSequence(Words(text, most));
  }
  if (separator->empty()) return Wrong(heap, "a text is split at nothing");
  std::vector<Value> parts;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
    if (at == std::string_view::npos) break;
    const std::string_view after = text.substr(at + separator->size());
    parts.push_back(Value::Of(std::string(from_right ? after : text.substr(0, at))));
    text = from_right ? text.substr(0, at) : after;
  }
  parts.push_back(Value::Of(std::string(text)));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return heap.MakeSequence(std::move(parts));
}

Value Split(Heap& heap, const Value& self, const Arguments& arguments) {
  return SplitFrom(heap, self, arguments, false);
}
Value RightSplit(Heap& heap, const Value& self, const Arguments& arguments) {
  return SplitFrom(heap, self, arguments, true);
}

/// Whether the text begins, or ends, with the argument or one of a tuple of them.
Value HasEdge(Heap& heap, const Value& self, const Arguments& arguments, bool end) {
  const Value* wanted = arguments.At(0);
  if (wanted == nullptr) return Wrong(heap, "startswith() and endswith() need a text");
  const auto has = [&](const Value& edge) {
    if (edge.text() == nullptr) {
      Wrong(heap, "startswith() and endswith() need a text");
      return false;
    }
    return end ? self.text()->ends_with(*edge.text()) : self.text()->starts_with(*edge.text());
  };
  const Sequence* several = wanted->sequence();
  if (several == nullptr || several->kind != Sequence::Kind::kTuple) return Value(has(*wanted));
  if (!heap.Spend(WeightOf(*wanted))) return {};
  return Value(std::any_of(several->items.begin(), several->items.end(), has));
}

Value StartsWith(Heap& heap, const Value& self, const Arguments& arguments) {
  return HasEdge(heap, self, arguments, false);
}
Value EndsWith(Heap& heap, const Value& self, const Arguments& arguments) {
  return HasEdge(heap, self, arguments, true);
}

Value Found(Heap& heap, const Value& self, const Arguments& arguments, bool last) {
  const std::string* part = TextAt(heap, arguments, 0);
  if (part == nullptr) return Wrong(heap, "find() needs a text");
  if (!heap.Spend(2 * self.text()->size())) return {};
  const std::size_t at = last ? self.text()->rfind(*part) : self.text()->find(*part);
  if (at == std::string::npos) return Value(std::int64_t{-1});
  return Value(
      static_cast<std::int64_t>(CountCharacters(std::string_view(*self.text()).substr(0, at))));
}
Value Find(Heap& heap, const Value& self, const Arguments& arguments) {
  return Found(heap, self, arguments, false);
}
Value RightFind(Heap& heap, const Value& self, const Arguments& arguments) {
  return Found(heap, self, arguments, true);
}

Value Count(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::string* part = TextAt(heap, arguments, 0);
  if (part == nullptr || part->empty()) return Wrong(heap, "count() needs a text");
  if (!heap.Spend(self.text()->size())) return {};
  std::int64_t count = 0;
  for (std::size_t at = self.text()->find(*part); at != std::string::npos;
       at = self.text()->find(*part, at + part->size())) {
    ++count;
  }
  return Value(count);
}

Value Replace(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::string* from = TextAt(heap, arguments, 0);
  const std::string* to = TextAt(heap, arguments, 1);
  std::int64_t most = -1;
  if (from == nullptr || to == nullptr ||
      (arguments.At(2) != nullptr && !AsInteger(*arguments.At(2), &most))) {
    return Wrong(heap, "replace() needs what to replace, and by what");
  }
  return heap.MakeText(ReplaceAll(heap, *self.text(), *from, *to, most));
}

Value RemovePrefix(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::string* prefix = TextAt(heap, arguments, 0);
  if (prefix == nullptr) return Wrong(heap, "removeprefix() needs a text");
  const bool has = self.text()->starts_with(*prefix);
  return has ? heap.MakeText(self.text()->substr(prefix->size())) : self;
}

Value RemoveSuffix(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::string* suffix = TextAt(heap, arguments, 0);
  if (suffix == nullptr) return Wrong(heap, "removesuffix() needs a text");
  const bool has = self.text()->ends_with(*suffix);
  return has ? heap.MakeText(self.text()->substr(0, self.text()->size() - suffix->size())) : self;
}

/// A method that is the filter of the same name.
template <const char* kName>
Value AsFilter(Heap& heap, const Value& self, const Arguments&) {
  Arguments none;
  return CallFunction(heap, *FindFilter(kName), self, none);
}
constexpr char kUpper[] = "upper", kLower[] = "lower", kCapitalize[] = "capitalize";

/// Unlike the filter, every letter that does not follow one is upper case.
Value Title(Heap& heap, const Value& self, const Arguments&) {
  std::string text = LowerCase(heap, *self.text());
  bool letter = false;
  for (char& c : text) {
    const bool is_letter = c >= 'a' && c <= 'z';
    if (is_letter && !letter) c = static_cast<char>(c - 0x20);
    letter = is_letter;
  }
  return heap.MakeText(std::move(text));
}

Value Join(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::vector<Value>* items =
      arguments.At(0) == nullptr ? nullptr : Items(heap, *arguments.At(0));
  if (items == nullptr) return Wrong(heap, "join() needs a list");
  std::string out;
  for (std::size_t i = 0; i < items->size(); ++i) {
    if ((*items)[i].text() == nullptr) return Wrong(heap, "join() needs a list of texts");
    if (!heap.Spend((*items)[i].text()->size() + self.text()->size())) return {};
    if (i > 0) out += *self.text();
    out += *(*items)[i].text();
  }
  return heap.MakeText(std::move(out));
}

Value IsDigit(Heap& heap, const Value& self, const Arguments&) {
  if (!IsAscii(*self.text())) return Wrong(heap, "isdigit() of characters beyond ASCII");
  return Value(!self.text()->empty() &&
               self.text()->find_first_not_of("0123456789") == std::string::npos);
}

Value SplitLines(Heap& heap, const Value& self, const Arguments&) {
  std::string_view text = *self.text();
  if (!heap.Spend(text.size() * (sizeof(Value) + Heap::kStep))) return {};
  std::vector<Value> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = CharacterAt(text, at);
    const bool ends = (c.code >= 0x0a && c.code <= 0x0d) || (c.code >= 0x1c && c.code <= 0x1e) ||
                      (c.size > 1 && (c.code == 0x85 || c.code == 0x2028 || c.code == 0x2029));
    if (ends) lines.push_back(Value::Of(std::string(text.substr(begin, at - begin))));
    at += c.size;
    if (c.code == '\r' && at < text.size() && text[at] == '\n') ++at;
    if (ends) begin = at;
  }
  if (begin < text.size()) lines.push_back(Value::Of(std::string(text.substr(begin))));
  return heap.MakeSequence(std::move(lines));
}

constexpr Function kMethods[] = {
    {"strip", Strip, {"chars"}},
    {"lstrip", LeftStrip, {"chars"}},
    {"rstrip", RightStrip, {"chars"}},
    {"split", Split, {"sep", "maxsplit"}},
    {"rsplit", RightSplit, {"sep", "maxsplit"}},
    {"splitlines", SplitLines},
    {"startswith", StartsWith, {"prefix"}},
    {"endswith", EndsWith, {"suffix"}},
    {"find", Find, {"sub"}},
    {"rfind", RightFind, {"sub"}},
    {"count", Count, {"sub"}},
    {"replace", Replace, {"old", "new", "count"}},
    {"removeprefix", RemovePrefix, {"prefix"}},
    {"removesuffix", RemoveSuffix, {"suffix"}},
    {"upper", AsFilter<kUpper>},
    {"lower", AsFilter<kLower>},
    {"title", Title},
    {"capitalize", AsFilter<kCapitalize>},
    {"join", Join, {"iterable"}},
    {"isdigit", IsDigit},
};

}  // namespace

std::span<const Function> TextMethods() { return kMethods; }

}  // namespace tilewright::jinja
