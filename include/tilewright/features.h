#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/device.h"

namespace tilewright {

/// The name of a Feature, the same in listings, rejections and device files.
struct FeatureName {
  /// "avx2", "avx512", "avx512vnni", "avx512bf16", "amx-tile", "amx-int8", "amx-bf16"
  std::string_view name;
  std::uint32_t bit = 0;
  /// What DeviceSpec::ClassId adds to the level for it; "" where the level says it. Records are
  /// stored under the class id, so these words must not change.
  std::string_view class_suffix = {};
};
/// Every feature, lowest bit first.
std::span<const FeatureName> FeatureNames();

/// The names of the Feature bits in a mask, joined by '+'; "none" for 0.
std::string FeatureList(std::uint32_t features);

}  // namespace tilewright
