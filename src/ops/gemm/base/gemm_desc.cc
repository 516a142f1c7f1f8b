#include <charconv>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/text.h"
#include "ops/gemm/base/packs.h"
#include "tilewright/gemm.h"

namespace tilewright {
namespace {

// Words of every enum in a key, in enumerator order. Keys are in files: a word never changes its
// meaning.
constexpr std::string_view kOrderWords[] = {"col", "row"};
constexpr std::string_view kStridingWords[] = {"flat", "blocked", "indexed"};
constexpr std::string_view kEpilogueWords[] = {"none", "gated_silu"};
constexpr std::string_view kScalingWords[] = {"one_zero", "one_one", "any"};
constexpr std::string_view kBatchDimWords[] = {"m", "n"};
constexpr std::string_view kPrecisionWords[] = {"auto", "f32", "bf16", "i8"};
constexpr std::string_view kGuaranteeWords[] = {"fastest", "deterministic", "batch_invariant"};

constexpr std::span<const std::string_view> WordsOf(Order) { return kOrderWords; }
constexpr std::span<const std::string_view> WordsOf(Striding) { return kStridingWords; }
constexpr std::span<const std::string_view> WordsOf(Epilogue) { return kEpilogueWords; }
constexpr std::span<const std::string_view> WordsOf(Scaling) { return kScalingWords; }
constexpr std::span<const std::string_view> WordsOf(BatchDim) { return kBatchDimWords; }
constexpr std::span<const std::string_view> WordsOf(Precision) { return kPrecisionWords; }
constexpr std::span<const std::string_view> WordsOf(Guarantee) { return kGuaranteeWords; }

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

void AppendValue(DataType value, std::string& out) { out += DataTypeName(value); }
void AppendValue(Quant value, std::string& out) {
  if (value.type == QuantType::kNone) {
    out += "none";
    return;
  }
  out += value.type == QuantType::kK ? "k/" : "b/";
  AppendNumber(value.group, out);
}

// A field is a pack only by its name: Pack is a plain 16-bit integer, as the number of threads is.
template <class T>
void AppendField(std::string_view name, const T& value, std::string& out) {
  if constexpr (std::is_same_v<T, DataType> || std::is_same_v<T, Quant>) {
    AppendValue(value, out);
  } else if constexpr (std::is_enum_v<T>) {
    const auto words = WordsOf(T{});
    const auto index = static_cast<std::size_t>(value);
    if (index < words.size()) {
      out += words[index];
    } else {
      AppendNumber(static_cast<unsigned>(index), out);
    }
  } else if (name.starts_with("pack_")) {
    out += PackName(static_cast<Pack>(value));
  } else {
    AppendNumber(static_cast<std::int64_t>(value), out);
  }
}

std::optional<Pack> ParsePack(std::string_view text) {
  for (const PackRow& row : kPackTable) {
    if (row.name() == text) return row.pack;
  }
  Pack pack = 0;
  if (text.starts_with("pack") && ParseNumber(text.substr(4), pack)) return pack;
  return std::nullopt;
}

bool ParseValue(std::string_view text, Quant& value) {
  value = {};
  if (text == "none") return true;
  if (text.starts_with("k/")) value.type = QuantType::kK;
  if (text.starts_with("b/")) value.type = QuantType::kB;
  return value.type != QuantType::kNone && ParseNumber(text.substr(2), value.group) &&
         value.group > 0;
}

template <class T>
bool ParseField(std::string_view name, std::string_view text, T& value) {
  if constexpr (std::is_same_v<T, DataType>) {
    const auto type = text == "none" ? DataType::kNone : ParseDataType(text);
    if (type) value = *type;
    return type.has_value();
  } else if constexpr (std::is_same_v<T, Quant>) {
    return ParseValue(text, value);
  } else if constexpr (std::is_enum_v<T>) {
    const auto words = WordsOf(T{});
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == text) {
        value = static_cast<T>(i);
        return true;
      }
    }
    return false;
  } else if (name.starts_with("pack_")) {
    const auto pack = ParsePack(text);
    if (pack) value = static_cast<T>(*pack);
    return pack.has_value();
  } else {
    return ParseNumber(text, value);
  }
}

}  // namespace

std::string PackName(Pack pack) {
  for (const PackRow& row : kPackTable) {
    if (row.pack == pack) return row.name();
  }
  return "pack" + std::to_string(pack);
}

std::string KeyOf(const GemmDesc& desc) {
  std::string key;
  key.reserve(420);
  ForEachField(desc, [&key](std::string_view name, const auto& value) {
    if (!key.empty()) key += ' ';
    key += name;
    key += '=';
    AppendField(name, value, key);
  });
  return key;
}

Result<GemmDesc> ParseKey(std::string_view key) {
  GemmDesc desc;
  std::uint64_t seen = 0;
  while (!key.empty()) {
    if (key.front() == ' ') {
      key.remove_prefix(1);
      continue;
    }
    const std::string_view item = key.substr(0, key.find(' '));
    key.remove_prefix(item.size());
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("'{}' in a GEMM key: must be name=value", item));
    }
    const std::string_view name = item.substr(0, equals), text = item.substr(equals + 1);
    bool known = false, parsed = false, repeated = false;
    int index = 0;
    ForEachField(desc, [&](std::string_view field, auto& value) {
      if (field == name) {
        known = true;
        repeated = ((seen >> index) & 1) != 0;
        seen |= std::uint64_t{1} << index;
        parsed = ParseField(name, text, value);
      }
      ++index;
    });
    if (!known)
      return Fail(ErrorCode::kInvalidArgument, Format("'{}': no such field in a GEMM key", name));
    if (!parsed)
      return Fail(ErrorCode::kInvalidArgument,
                  Format("{} = '{}': not a value of this field", name, text));
    if (repeated)
      return Fail(ErrorCode::kInvalidArgument, Format("{}: given twice in a GEMM key", name));
  }
  if ((seen & 7) != 7) return Fail(ErrorCode::kInvalidArgument, "a GEMM key must give m, n and k");
  return desc;
}

GemmDesc Transpose(const GemmDesc& desc) {
  GemmDesc t = desc;
  t.m = desc.n, t.n = desc.m;
  t.quant_a = desc.quant_b, t.quant_b = desc.quant_a;
  t.pack_a = desc.pack_b, t.pack_b = desc.pack_a;
  t.type_a = desc.type_b, t.type_b = desc.type_a;
  t.type_u = desc.type_v, t.type_v = desc.type_u;
  t.order_a = Flip(desc.order_b), t.order_b = Flip(desc.order_a), t.order_c = Flip(desc.order_c);
  t.striding_a = desc.striding_b, t.striding_b = desc.striding_a;
  t.align_a = desc.align_b, t.align_b = desc.align_a;
  t.batch_dim = desc.batch_dim == BatchDim::kM ? BatchDim::kN : BatchDim::kM;
  if (desc.group_axis >= 0) t.group_axis = static_cast<std::int8_t>(1 - desc.group_axis);
  return t;
}

}  // namespace tilewright
