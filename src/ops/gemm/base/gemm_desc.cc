#include <string>
#include <string_view>

#include "engine/problem_key.h"
#include "ops/gemm/base/packs.h"
#include "tilewright/gemm.h"

namespace tilewright {

// Words of every enum in a key, in enumerator order. Keys are in files: a word never changes its
// meaning.
constexpr std::string_view kOrderWords[] = {"col", "row"};
constexpr std::string_view kStridingWords[] = {"flat", "blocked", "indexed"};
constexpr std::string_view kEpilogueWords[] = {"none", "gated_silu"};
constexpr std::string_view kPrologueWords[] = {"none", "rms_norm"};
constexpr std::string_view kScalingWords[] = {"one_zero", "one_one", "any"};
constexpr std::string_view kBatchDimWords[] = {"m", "n"};

constexpr std::span<const std::string_view> WordsOf(Order) { return kOrderWords; }
constexpr std::span<const std::string_view> WordsOf(Striding) { return kStridingWords; }
constexpr std::span<const std::string_view> WordsOf(Epilogue) { return kEpilogueWords; }
constexpr std::span<const std::string_view> WordsOf(Prologue) { return kPrologueWords; }
constexpr std::span<const std::string_view> WordsOf(Scaling) { return kScalingWords; }
constexpr std::span<const std::string_view> WordsOf(BatchDim) { return kBatchDimWords; }

namespace {

std::optional<Pack> ParsePack(std::string_view text) {
  for (const PackRow& row : kPackTable) {
    if (row.name() == text) return row.pack;
  }
  Pack pack = 0;
  if (text.starts_with("pack") && ParseNumber(text.substr(4), pack)) return pack;
  return std::nullopt;
}

/// Beside the plain fields: quantisation, and packs, which are the 16-bit integers.
struct GemmCodec : FieldCodec {
  using FieldCodec::Append;
  using FieldCodec::Parse;

  static void Append(std::string_view, const Quant& value, std::string& out) {
    if (value.type == QuantType::kNone) {
      out += "none";
      return;
    }
    out += value.type == QuantType::kK ? "k/" : "b/";
    AppendNumber(value.group, out);
  }
  static void Append(std::string_view, const Pack& value, std::string& out) {
    out += PackName(value);
  }

  static bool Parse(std::string_view, std::string_view text, Quant& value) {
    value = {};
    if (text == "none") return true;
    if (text.starts_with("k/")) value.type = QuantType::kK;
    if (text.starts_with("b/")) value.type = QuantType::kB;
    return value.type != QuantType::kNone && ParseNumber(text.substr(2), value.group) &&
           value.group > 0;
  }
  static bool Parse(std::string_view, std::string_view text, Pack& value) {
    const auto pack = ParsePack(text);
    if (pack) value = *pack;
    return pack.has_value();
  }
};

}  // namespace

std::string PackName(Pack pack) {
  for (const PackRow& row : kPackTable) {
    if (row.pack == pack) return row.name();
  }
  return "pack" + std::to_string(pack);
}

std::string KeyOf(const GemmDesc& desc) { return FieldsKey<GemmDesc, GemmCodec>(desc); }

Result<GemmDesc> ParseKey(std::string_view key) {
  std::uint64_t seen = 0;
  Result<GemmDesc> desc = ParseFields<GemmDesc, GemmCodec>(key, GemmOp::kName, &seen);
  if (desc && (seen & 7) != 7)
    return Fail(ErrorCode::kInvalidArgument, "a key of gemm must give m, n and k");
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
