#include "core/text.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

constexpr std::string_view kIsaNames[] = {"scalar", "avx2", "avx512", "amx"};

struct FeatureWord {
  std::uint32_t bit;
  const char* word;
};

/// What ClassId says beyond the level, in this order.
constexpr FeatureWord kExtraFeatures[] = {
    {kFeatureAvx512Vnni, "+vnni"},
    {kFeatureAvx512Bf16, "+bf16"},
    {kFeatureAmxInt8, "+amx_int8"},
    {kFeatureAmxBf16, "+amx_bf16"},
};

}  // namespace

std::string_view IsaName(Isa isa) {
  const auto index = static_cast<unsigned>(isa);
  return index < 4 ? kIsaNames[index] : "unknown";
}

std::string DeviceSpec::ClassId() const {
  if (kind == DeviceKind::kCuda) {
    return Format("cuda/{}/sm_{}/{} sms/l2 {}K/driver {}", name, compute_capability, sm_count,
                  l2_bytes >> 10, driver);
  }
  std::string level(IsaName(isa));
  for (const FeatureWord& extra : kExtraFeatures) {
    if (Has(extra.bit)) level += extra.word;
  }
  return Format("cpu/{}/{}/{} threads/l2 {}K/llc {}K", name, level, cores, l2_bytes >> 10,
                llc_bytes >> 10);
}

}  // namespace tilewright
