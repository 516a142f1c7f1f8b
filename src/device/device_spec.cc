#include <algorithm>

#include "core/text.h"
#include "tilewright/device.h"
#include "tilewright/features.h"

namespace tilewright {
namespace {

constexpr std::string_view kIsaNames[] = {"scalar", "avx2", "avx512", "amx"};

constexpr FeatureName kFeatureNames[] = {
    {"avx2", kFeatureAvx2},
    {"avx512", kFeatureAvx512},
    {"avx512vnni", kFeatureAvx512Vnni, "+vnni"},
    {"avx512bf16", kFeatureAvx512Bf16, "+bf16"},
    {"amx-tile", kFeatureAmxTile},
    {"amx-int8", kFeatureAmxInt8, "+amx_int8"},
    {"amx-bf16", kFeatureAmxBf16, "+amx_bf16"},
};

}  // namespace

std::string_view IsaName(Isa isa) {
  const auto index = static_cast<unsigned>(isa);
  return index < 4 ? kIsaNames[index] : "unknown";
}

std::span<const FeatureName> FeatureNames() { return kFeatureNames; }

std::string FeatureList(std::uint32_t features) {
  std::string text;
  for (const FeatureName& feature : kFeatureNames) {
    if ((features & feature.bit) == 0) continue;
    if (!text.empty()) text += '+';
    text += feature.name;
  }
  return text.empty() ? "none" : text;
}

DeviceRates DefaultRates(std::uint32_t features, int threads) {
  DeviceRates rates;
  // Too slow a memory does harm: every kernel seems to wait for it, and whichever comes first is taken.
  rates.read_gb_s = std::clamp(6.0 * threads, rates.read_gb_s, 160.0);
  // Peaks in the same proportion to f32 as the processors that have the units: a vpdpbusd does four
  // times the products of an FMA, a vdpbf16ps twice; that some start one only every other cycle is for
  // `tune` to measure.
  if ((features & kFeatureAvx512) != 0) rates.f32_gflop_s *= 2, rates.i8_gop_s *= 2;
  if ((features & kFeatureAvx512Vnni) != 0) rates.i8_gop_s = 4 * rates.f32_gflop_s;
  if ((features & kFeatureAvx512Bf16) != 0) rates.bf16_gflop_s = 2 * rates.f32_gflop_s;
  if ((features & kFeatureAmxBf16) != 0) rates.amx_bf16_gflop_s = 16 * rates.f32_gflop_s;
  if ((features & kFeatureAmxInt8) != 0) rates.amx_i8_gop_s = 32 * rates.f32_gflop_s;
  return rates;
}

std::string DeviceSpec::ClassId() const {
  if (kind == DeviceKind::kCuda) {
    return Format("cuda/{}/sm_{}/{} sms/l2 {}K/driver {}", name, compute_capability, sm_count,
                  l2_bytes >> 10, driver);
  }
  std::string level(IsaName(isa));
  for (const FeatureName& feature : kFeatureNames) {
    if (Has(feature.bit)) level += feature.class_suffix;
  }
  return Format("cpu/{}/{}/{} threads/l2 {}K/llc {}K", name, level, cores, l2_bytes >> 10,
                llc_bytes >> 10);
}

}  // namespace tilewright
