#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/device.h"

namespace tilewright {

/// A Feature by name. The names are the same everywhere: in listings, rejections and device files.
struct FeatureName {
  std::string_view name;  ///< "avx2", "avx512", "avx512vnni", "avx512bf16", "amx-tile", "amx-int8",
                          ///< "amx-bf16"
  std::uint32_t bit = 0;
};
/// Every feature, by rising bit.
std::span<const FeatureName> FeatureNames();

/// The names in a mask of Feature bits with '+' between them; "none" for 0.
std::string FeatureList(std::uint32_t features);

}  // namespace tilewright
