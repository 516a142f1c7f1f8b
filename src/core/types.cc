#include "tilewright/types.h"

#include <array>

#include "core/formats/formats.h"
#include "core/i8x32.h"

namespace tilewright {
namespace {

using Types = std::array<TypeInfo, static_cast<std::size_t>(kDataTypeCount)>;

// Indexed by DataType.
constexpr Types MakeTypes() {
  Types types = {{
      {"none", 1, 0, false},
      {"f32", 1, 4, false},
      {"f16", 1, 2, false},
      {"bf16", 1, 2, false},
      {"f64", 1, 8, false},
      {"f8_e4m3", 1, 1, false},
      {"i8", 1, 1, false},
      {"i32", 1, 4, false},
      {"i64", 1, 8, false},
      {"u8", 1, 1, false},
      {"u4", 2, 1, false},
  }};
  for (const BlockFormat& format : kFormats) {
    types[static_cast<std::size_t>(format.type)] = {format.name, format.elements, format.bytes,
                                                    true};
  }
  types.back() = {"i8x32", BlockI8x32::kElements, sizeof(BlockI8x32), true};
  return types;
}
constexpr Types kTypes = MakeTypes();

}  // namespace

const TypeInfo& GetTypeInfo(DataType type) {
  const auto index = static_cast<std::size_t>(type);
  return kTypes[index < kTypes.size() ? index : 0];
}

std::optional<DataType> ParseDataType(std::string_view name) {
  for (std::size_t i = 1; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

}  // namespace tilewright
