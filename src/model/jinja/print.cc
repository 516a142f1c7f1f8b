#include "model/jinja/print.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "core/text.h"
#include "model/jinja/unicode.h"

namespace tilewright::jinja {
namespace {

/// Whether repr() escapes a character beyond ASCII. The blocks without printable characters are
/// given whole, and what Unicode has not assigned counts as printable.
bool Unprintable(std::uint32_t code) {
  const auto in = [code](std::uint32_t first, std::uint32_t last) {
    return code >= first && code <= last;
  };
  return in(0x7f, 0xa0) || code == 0xad || IsSpace(code) || in(0x200b, 0x200f) ||
         in(0x202a, 0x202e) || in(0x2060, 0x206f) || in(0xd800, 0xf8ff) || code == 0xfeff ||
         in(0xfff0, 0xfffb) || in(0xe0000, 0x10ffff);
}

void AppendReprOfText(std::string_view text, std::string& out) {
  const bool doubled =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  out.push_back(quote);
  for (std::size_t at = 0; at < text.size();) {
    const Character c = CharacterAt(text, at);
    constexpr std::string_view kNamed = "\n\r\t", kLetters = "nrt";
    if (c.code == '\\' || c.code == static_cast<unsigned char>(quote)) {
      out.push_back('\\');
      out.push_back(text[at]);
    } else if (c.code < 0x20 && kNamed.find(text[at]) != std::string_view::npos) {
      out.push_back('\\');
      out.push_back(kLetters[kNamed.find(text[at])]);
    } else if (c.code != ' ' && (c.code < 0x20 || Unprintable(c.code))) {
      out += c.code < 0x100     ? Format("\\x{:02x}", c.code)
             : c.code < 0x10000 ? Format("\\u{:04x}", c.code)
                                : Format("\\U{:08x}", c.code);
    } else {
      out.append(text.substr(at, c.size));
    }
    at += c.size;
  }
  out.push_back(quote);
}

void AppendRepr(Heap& heap, const Value& value, std::string& out);

void AppendReprOfSequence(Heap& heap, const Sequence& sequence, std::string& out) {
  const bool tuple = sequence.kind == Sequence::Kind::kTuple;
  if (!tuple && sequence.kind != Sequence::Kind::kList) {
    heap.Error(ErrorCode::kUnsupported, "a view or a generator is printed: make it a list");
    return;
  }
  out.push_back(tuple ? '(' : '[');
  bool first = true;
  for (const Value& item : sequence.items) {
    if (!first) out += ", ";
    first = false;
    AppendRepr(heap, item, out);
  }
  if (tuple && sequence.items.size() == 1) out.push_back(',');
  out.push_back(tuple ? ')' : ']');
}

void AppendReprOfDict(Heap& heap, const Dict& dict, std::string& out) {
  out.push_back('{');
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out += ", ";
    first = false;
    AppendRepr(heap, key, out);
    out += ": ";
    AppendRepr(heap, value, out);
  }
  out.push_back('}');
}

/// Recursion is bounded by Heap::kDeepest.
void AppendRepr(Heap& heap, const Value& value, std::string& out) {
  if (value.text() != nullptr) {
    AppendReprOfText(*value.text(), out);
  } else if (value.none()) {
    out += "None";
  } else if (value.undefined()) {
    out += "Undefined";
  } else if (const bool* flag = value.As<bool>()) {
    out += *flag ? "True" : "False";
  } else if (const std::int64_t* integer = value.As<std::int64_t>()) {
    out += Format("{}", *integer);
  } else if (const double* number = value.As<double>()) {
    AppendDouble(*number, out);
  } else if (value.sequence() != nullptr) {
    AppendReprOfSequence(heap, *value.sequence(), out);
  } else if (value.dict() != nullptr) {
    AppendReprOfDict(heap, *value.dict(), out);
  } else {
    heap.Error(ErrorCode::kUnsupported, Format("a {} is printed", TypeName(value)));
  }
}

}  // namespace

void AppendDouble(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    return;
  }
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) {
    out += text;  // to_chars has the form of Python here
    return;
  }
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  const std::string_view plain(buffer, static_cast<std::size_t>(fixed.ptr - buffer));
  out += plain;
  if (plain.find('.') == std::string_view::npos) out += ".0";
}

void AppendText(Heap& heap, const Value& value, std::string& out) {
  // The repr of a text takes at most ten bytes for one.
  if (!heap.Spend(value.text() != nullptr ? value.text()->size() + Heap::kStep
                                          : 10 * WeightOf(value) + Heap::kStep)) {
    return;
  }
  if (value.text() != nullptr) {
    out += *value.text();
  } else if (!value.undefined()) {
    AppendRepr(heap, value, out);
  }
}

std::string ToText(Heap& heap, const Value& value) {
  std::string out;
  AppendText(heap, value, out);
  return out;
}

}  // namespace tilewright::jinja
