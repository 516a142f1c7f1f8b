#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "model/jinja/print.h"
#include "model/jinja/unicode.h"

namespace tilewright::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style, std::string& out)
      : heap_(heap), style_(style), out_(out) {}

  void Write(const Value& value) {
    if (value.text() != nullptr) {
      WriteText(*value.text());
    } else if (value.sequence() != nullptr && value.sequence()->kind <= Sequence::Kind::kTuple) {
      WriteSequence(*value.sequence());
    } else if (value.dict() != nullptr) {
      WriteDict(*value.dict());
    } else {
      WriteScalar(value);
    }
  }

 private:
  void WriteScalar(const Value& value) {
    if (value.none()) {
      out_ += "null";
    } else if (const bool* flag = value.As<bool>()) {
      out_ += *flag ? "true" : "false";
    } else if (const std::int64_t* integer = value.As<std::int64_t>()) {
      out_ += Format("{}", *integer);
    } else if (const double* number = value.As<double>()) {
      if (std::isfinite(*number)) {
        AppendDouble(*number, out_);
      } else {
        out_ += std::isnan(*number) ? "NaN" : *number < 0 ? "-Infinity" : "Infinity";
      }
    } else {
      heap_.Error(ErrorCode::kUnsupported, Format("a {} has no JSON form", TypeName(value)));
    }
  }

  void WriteUnit(std::uint32_t unit) { out_ += Format("\\u{:04x}", unit); }

  void WriteText(std::string_view text) {
    out_.push_back('"');
    for (std::size_t at = 0; at < text.size();) {
      const Character c = CharacterAt(text, at);
      constexpr std::string_view kNamed = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
      if (c.code < 0x80 && kNamed.find(text[at]) != std::string_view::npos) {
        out_.push_back('\\');
        out_.push_back(kLetters[kNamed.find(text[at])]);
      } else if (c.code < 0x20 ||
                 (style_.escapes_unicode && c.code >= 0x7f && c.code < 0x10000 && c.code != 0x7f)) {
        WriteUnit(c.code);
      } else if (style_.escapes_unicode && c.code >= 0x10000) {
        WriteUnit(0xd800 + ((c.code - 0x10000) >> 10));
        WriteUnit(0xdc00 + ((c.code - 0x10000) & 0x3ff));
      } else {
        out_.append(text.substr(at, c.size));
      }
      at += c.size;
    }
    out_.push_back('"');
  }

  void LineEnd() {
    if (style_.indent < 0) return;
    const std::size_t spaces = static_cast<std::size_t>(style_.indent) * depth_;
    if (!heap_.Spend(spaces + 1)) return;
    out_.push_back('\n');
    out_.append(spaces, ' ');
  }

  void WriteSequence(const Sequence& sequence) {
    out_.push_back('[');
    ++depth_;
    for (std::size_t i = 0; i < sequence.items.size() && heap_.ok(); ++i) {
      if (i > 0) out_ += style_.between_items;
      LineEnd();
      Write(sequence.items[i]);
    }
    --depth_;
    if (!sequence.items.empty()) LineEnd();
    out_.push_back(']');
  }

  void WriteKey(const Value& key) {
    if (key.text() != nullptr) return WriteText(*key.text());
    out_.push_back('"');
    WriteScalar(key);
    out_.push_back('"');
  }

  void WriteDict(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    bool comparable = true;
    if (style_.sorts_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return Compare(a->first, b->first, &comparable) < 0;
      });
    }
    if (!comparable) heap_.Error(ErrorCode::kUnsupported, "keys of several types are sorted");
    out_.push_back('{');
    ++depth_;
    for (std::size_t i = 0; i < entries.size() && heap_.ok(); ++i) {
      if (i > 0) out_ += style_.between_items;
      LineEnd();
      WriteKey(entries[i]->first);
      out_ += style_.after_key;
      Write(entries[i]->second);
    }
    --depth_;
    if (!entries.empty()) LineEnd();
    out_.push_back('}');
  }

  Heap& heap_;
  const JsonStyle& style_;
  std::string& out_;
  std::size_t depth_ = 0;
};

}  // namespace

void AppendJson(Heap& heap, const Value& value, const JsonStyle& style, std::string& out) {
  // A byte takes at most six, an element its separators.
  const std::uint64_t own = style.between_items.size() + style.after_key.size() + 8;
  if (!heap.Spend(WeightOf(value) * own)) return;
  JsonWriter(heap, style, out).Write(value);
}

}  // namespace tilewright::jinja
