#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/text.h"
#include "tilewright/kernel.h"
#include "tilewright/result.h"
#include "tilewright/types.h"

namespace tilewright {

// The text of a problem, "rows=8 cols=576 type_in=f32": every field by name, so that an unknown one
// is seen and a reordered struct changes nothing. Keys are in files: a word never changes its
// meaning. An enum of an operation brings its words with it: `WordsOf(Enum)`, found by
// argument-dependent lookup, in enumerator order.

constexpr std::string_view kGuaranteeWords[] = {"fastest", "deterministic", "batch_invariant"};
constexpr std::span<const std::string_view> WordsOf(Guarantee) { return kGuaranteeWords; }
constexpr std::string_view kPrecisionWords[] = {"auto", "f32", "bf16", "i8", "w8a8"};
constexpr std::span<const std::string_view> WordsOf(Precision) { return kPrecisionWords; }

template <class T>
void AppendNumber(T value, std::string& out) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}

template <class T>
bool ParseNumber(std::string_view text, T& value) {
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  return error == std::errc() && end == last && !text.empty();
}

/// How the values of plain fields are written. An operation with other kinds of fields derives from
/// it and adds overloads (ops/gemm/base/gemm_desc.cc).
struct FieldCodec {
  template <class T>
  static void Append(std::string_view, const T& value, std::string& out) {
    if constexpr (std::is_same_v<T, DataType>) {
      out += DataTypeName(value);
    } else if constexpr (std::is_same_v<T, bool>) {
      out += value ? "yes" : "no";
    } else if constexpr (std::is_enum_v<T>) {
      const auto words = WordsOf(T{});
      const auto index = static_cast<std::size_t>(value);
      if (index < words.size()) {
        out += words[index];
      } else {
        AppendNumber(static_cast<unsigned>(index), out);
      }
    } else {
      AppendNumber(static_cast<std::int64_t>(value), out);
    }
  }

  template <class T>
  static bool Parse(std::string_view, std::string_view text, T& value) {
    if constexpr (std::is_same_v<T, DataType>) {
      const auto type = text == "none" ? DataType::kNone : ParseDataType(text);
      if (type) value = *type;
      return type.has_value();
    } else if constexpr (std::is_same_v<T, bool>) {
      value = text == "yes";
      return text == "yes" || text == "no";
    } else if constexpr (std::is_enum_v<T>) {
      const auto words = WordsOf(T{});
      for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] != text) continue;
        value = static_cast<T>(i);
        return true;
      }
      return false;
    } else {
      return ParseNumber(text, value);
    }
  }
};

/// "name=value" for every field that ForEachField lists, in its order.
template <class Desc, class Codec = FieldCodec>
std::string FieldsKey(const Desc& desc) {
  std::string key;
  key.reserve(420);
  ForEachField(desc, [&key](std::string_view name, const auto& value) {
    if (!key.empty()) key += ' ';
    key += name;
    key += '=';
    Codec::Append(name, value, key);
  });
  return key;
}

/// The inverse; fields may come in any order and may be left out. kInvalidArgument names what is
/// wrong. `seen`, if given, gets a bit for every field that was there, in ForEachField's order.
template <class Desc, class Codec = FieldCodec>
Result<Desc> ParseFields(std::string_view key, std::string_view op, std::uint64_t* seen = nullptr) {
  const auto fail = [op](std::string what) {
    return Fail(ErrorCode::kInvalidArgument, std::move(what) + " in a key of " + std::string(op));
  };
  Desc desc;
  std::uint64_t given = 0;
  while (!key.empty()) {
    if (key.front() == ' ') {
      key.remove_prefix(1);
      continue;
    }
    const std::string_view item = key.substr(0, key.find(' '));
    key.remove_prefix(item.size());
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      return fail("'" + Printable(item) + "': must be name=value");
    const std::string_view name = item.substr(0, equals), text = item.substr(equals + 1);
    bool known = false, parsed = false, repeated = false;
    int index = 0;
    ForEachField(desc, [&](std::string_view field, auto& value) {
      if (field == name) {
        known = true;
        repeated = ((given >> index) & 1) != 0;
        given |= std::uint64_t{1} << index;
        parsed = Codec::Parse(name, text, value);
      }
      ++index;
    });
    if (!known) return fail("'" + Printable(name) + "': no such field");
    if (!parsed)
      return fail(std::string(name) + " = '" + Printable(text) + "': not a value of this field");
    if (repeated) return fail(std::string(name) + ": given twice");
  }
  if (seen != nullptr) *seen = given;
  return desc;
}

}  // namespace tilewright
