#include "tilewright/kernel.h"

#include <charconv>

#include "tilewright/features.h"
#include "tilewright/operation.h"

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
    std::string have = "features " + FeatureList(device.features);
    if ((info_.features & kFeatureAmxTile) != 0 && !device.amx_refusal.empty())
      have += "; " + device.amx_refusal;
    return Rejection{Reason::kDevice, std::move(have), FeatureList(info_.features)};
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

namespace {

/// Takes "name=number" from the front of `text`, and the space behind it.
bool TakeNumber(std::string_view& text, std::string_view name, std::int64_t& value) {
  if (!text.starts_with(name) || text.size() <= name.size() || text[name.size()] != '=')
    return false;
  const char* from = text.data() + name.size() + 1;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(from, last, value);
  if (error != std::errc() || (end != last && *end != ' ')) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + (end != last ? 1 : 0));
  return true;
}

}  // namespace

std::string KernelBase::ConfigText(const LaunchConfig& config) const {
  std::string text;
  std::size_t i = 0;
  for (const ConfigField& field : ConfigFields()) {
    const std::int64_t value = config.words[i++];
    if (field.optional && value == 0) continue;
    if (!text.empty()) text += ' ';
    text.append(field.name).append("=").append(std::to_string(value));
  }
  return text;
}

std::optional<LaunchConfig> KernelBase::ParseConfig(std::string_view text) const {
  LaunchConfig config;
  std::size_t i = 0;
  for (const ConfigField& field : ConfigFields()) {
    std::int64_t& value = config.words[i++];
    const bool given = TakeNumber(text, field.name, value);
    if (field.optional && value == 0) continue;
    if (!given || value < field.least || value > field.most) return std::nullopt;
  }
  if (!text.empty()) return std::nullopt;
  return config;
}

Status CheckNewKernel(const KernelBase* kernel, const KernelBase* existing) {
  if (kernel == nullptr)
    return Fail(ErrorCode::kInvalidArgument, "a null kernel cannot be registered");
  if (kernel->name().empty())
    return Fail(ErrorCode::kInvalidArgument, "a kernel needs a name: records refer to it");
  if (kernel->ConfigFields().size() > LaunchConfig::kWords) {
    return Fail(ErrorCode::kInvalidArgument, "kernel " + std::string(kernel->name()) + ": " +
                                                 std::to_string(kernel->ConfigFields().size()) +
                                                 " fields of configuration, at most " +
                                                 std::to_string(LaunchConfig::kWords));
  }
  if (existing != nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                "kernel " + std::string(kernel->name()) + " is registered twice");
  }
  return {};
}

std::string LaunchText(const KernelBase& kernel, std::int32_t swizzle, std::int32_t splits,
                       const LaunchConfig& config) {
  std::string text = "swizzle=" + std::to_string(swizzle) + " splits=" + std::to_string(splits);
  const std::string own = kernel.ConfigText(config);
  if (!own.empty()) text.append(" ").append(own);
  return text;
}

std::optional<LaunchWords> ParseLaunch(std::string_view text, const KernelBase& kernel) {
  const std::string_view whole = text;
  std::int64_t swizzle = 0, splits = 0;
  if (!TakeNumber(text, "swizzle", swizzle) || !TakeNumber(text, "splits", splits))
    return std::nullopt;
  if (swizzle < 0 || swizzle > 30 || splits < 1 || splits > 4096) return std::nullopt;
  const std::optional<LaunchConfig> config = kernel.ParseConfig(text);
  if (!config) return std::nullopt;
  const LaunchWords words{static_cast<std::int32_t>(swizzle), static_cast<std::int32_t>(splits),
                          *config};
  // Another spelling of the same launch ("splits=01", a space at the end) would be another record.
  if (LaunchText(kernel, words.swizzle, words.splits, words.config) != whole) return std::nullopt;
  return words;
}

}  // namespace tilewright
