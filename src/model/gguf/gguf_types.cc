#include <array>
#include <string_view>

#include "core/formats/formats.h"
#include "tilewright/gguf.h"

namespace tilewright {
namespace {

constexpr std::array<std::string_view, 13> kTypeNames = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

using GgmlTypes = std::array<GgmlTypeInfo, 43>;

// Every type number that was ever assigned, in order. Removed ones (block 0) keep their names, for
// messages. Those without a name are supported block formats, described by their descriptors.
constexpr GgmlTypes kNumbers = {{
    {0, "f32", 1, 4, DataType::kF32},
    {1, "f16", 1, 2, DataType::kF16},
    {2, {}, 0, 0, DataType::kNone},
    {3, {}, 0, 0, DataType::kNone},
    {4, "q4_2", 0, 0, DataType::kNone},
    {5, "q4_3", 0, 0, DataType::kNone},
    {6, "q5_0", 32, 22, DataType::kNone},
    {7, "q5_1", 32, 24, DataType::kNone},
    {8, {}, 0, 0, DataType::kNone},
    {9, "q8_1", 32, 36, DataType::kNone},
    {10, "q2_k", 256, 84, DataType::kNone},
    {11, "q3_k", 256, 110, DataType::kNone},
    {12, {}, 0, 0, DataType::kNone},
    {13, "q5_k", 256, 176, DataType::kNone},
    {14, {}, 0, 0, DataType::kNone},
    {15, "q8_k", 256, 292, DataType::kNone},
    {16, "iq2_xxs", 256, 66, DataType::kNone},
    {17, "iq2_xs", 256, 74, DataType::kNone},
    {18, "iq3_xxs", 256, 98, DataType::kNone},
    {19, "iq1_s", 256, 50, DataType::kNone},
    {20, "iq4_nl", 32, 18, DataType::kNone},
    {21, "iq3_s", 256, 110, DataType::kNone},
    {22, "iq2_s", 256, 82, DataType::kNone},
    {23, "iq4_xs", 256, 136, DataType::kNone},
    {24, "i8", 1, 1, DataType::kI8},
    {25, "i16", 1, 2, DataType::kNone},
    {26, "i32", 1, 4, DataType::kI32},
    {27, "i64", 1, 8, DataType::kI64},
    {28, "f64", 1, 8, DataType::kF64},
    {29, "iq1_m", 256, 56, DataType::kNone},
    {30, "bf16", 1, 2, DataType::kBF16},
    {31, "q4_0_4_4", 0, 0, DataType::kNone},
    {32, "q4_0_4_8", 0, 0, DataType::kNone},
    {33, "q4_0_8_8", 0, 0, DataType::kNone},
    {34, "tq1_0", 256, 54, DataType::kNone},
    {35, "tq2_0", 256, 66, DataType::kNone},
    {36, "iq4_nl_4_4", 0, 0, DataType::kNone},
    {37, "iq4_nl_4_8", 0, 0, DataType::kNone},
    {38, "iq4_nl_8_8", 0, 0, DataType::kNone},
    {39, "mxfp4", 32, 17, DataType::kNone},
    {40, "nvfp4", 64, 36, DataType::kNone},
    {41, "q1_0", 128, 18, DataType::kNone},
    {42, "q2_0", 64, 18, DataType::kNone},
}};

constexpr GgmlTypes WithFormats(GgmlTypes types) {
  for (const BlockFormat& format : kFormats) {
    types[format.gguf_type] = {format.gguf_type, format.name, format.elements, format.bytes,
                               format.type};
  }
  return types;
}
constexpr GgmlTypes kGgmlTypes = WithFormats(kNumbers);

// A supported format has the name and size that its number had before it was supported.
constexpr bool FormatsAreAsNumbered() {
  for (const BlockFormat& format : kFormats) {
    const GgmlTypeInfo& known = kNumbers[format.gguf_type];
    if (!known.name.empty() && (known.name != format.name || known.block_bytes != format.bytes))
      return false;
  }
  return true;
}
static_assert(FormatsAreAsNumbered());

constexpr bool IdsAreIndices() {
  for (std::size_t i = 0; i < kGgmlTypes.size(); ++i) {
    if (kGgmlTypes[i].id != i || kGgmlTypes[i].name.empty()) return false;
  }
  return true;
}
static_assert(IdsAreIndices());

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < kTypeNames.size() ? kTypeNames[index] : "unknown";
}

const GgmlTypeInfo* FindGgmlType(std::uint32_t id) {
  return id < kGgmlTypes.size() ? &kGgmlTypes[id] : nullptr;
}

const GgmlTypeInfo* FindGgmlType(DataType dtype) {
  if (dtype == DataType::kNone) return nullptr;
  for (const GgmlTypeInfo& info : kGgmlTypes) {
    if (info.dtype == dtype) return &info;
  }
  return nullptr;
}

}  // namespace tilewright
