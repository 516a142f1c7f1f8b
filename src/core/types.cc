#include "tilewright/types.h"

#include <array>

namespace tilewright {
namespace {

// Indexed by DataType.
constexpr std::array<TypeInfo, 16> kTypes = {{
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
    {"q4_0", 32, 18, true},
    {"q4_1", 32, 20, true},
    {"q8_0", 32, 34, true},
    {"q6_k", 256, 210, true},
    {"q4_k", 256, 144, true},
}};
static_assert(kTypes.size() == static_cast<std::size_t>(DataType::kQ4_K) + 1);

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
