#include "tilewright/kernel.h"

#include "tilewright/features.h"

namespace tilewright {

std::string_view ProvenanceName(Provenance provenance) {
  switch (provenance) {
    case Provenance::kPinned:
      return "pinned";
    case Provenance::kMeasured:
      return "measured";
    case Provenance::kInterpolated:
      return "interpolated";
    case Provenance::kModel:
      return "model";
    case Provenance::kDefault:
      return "default";
  }
  return "unknown";
}

std::string_view ProviderName(Provider provider) {
  switch (provider) {
    case Provider::kOwn:
      return "own";
    case Provider::kVendor:
      return "vendor";
    case Provider::kUser:
      return "user";
  }
  return "unknown";
}

std::string_view GuaranteeName(Guarantee guarantee) {
  switch (guarantee) {
    case Guarantee::kFastest:
      return "fastest";
    case Guarantee::kDeterministic:
      return "deterministic";
    case Guarantee::kBatchInvariant:
      return "batch-invariant";
  }
  return "unknown";
}

std::optional<Rejection> KernelBase::CheckDevice(const DeviceSpec& device) const {
  if (device.kind != info_.device) {
    const auto word = [](DeviceKind kind) { return kind == DeviceKind::kCpu ? "cpu" : "cuda"; };
    return Rejection{Reason::kDevice, std::string("device is ") + word(device.kind),
                     word(info_.device)};
  }
  if (!device.Has(info_.features)) {
    return Rejection{Reason::kDevice, "features " + FeatureList(device.features),
                     FeatureList(info_.features)};
  }
  if (info_.smem_bytes > 0 && device.smem_bytes > 0 && info_.smem_bytes > device.smem_bytes) {
    return Rejection{Reason::kDevice,
                     "shared memory " + std::to_string(device.smem_bytes) + " bytes",
                     std::to_string(info_.smem_bytes)};
  }
  return std::nullopt;
}

std::optional<Rejection> KernelBase::CheckGuarantee(Guarantee guarantee) const {
  const bool kept =
      guarantee == Guarantee::kFastest ||
      (guarantee == Guarantee::kDeterministic && info_.deterministic) ||
      (guarantee == Guarantee::kBatchInvariant && info_.deterministic && info_.batch_invariant);
  if (kept) return std::nullopt;
  return Rejection{Reason::kGuarantee,
                   std::string("problem asks for ") + std::string(GuaranteeName(guarantee)),
                   "a kernel that declares it"};
}

}  // namespace tilewright
