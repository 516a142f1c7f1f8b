#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gemm_words.h"
#include "tilewright/features.h"

namespace tilewright::cli {
namespace {

using Json = nlohmann::json;

Error Wrong(const std::string& path, std::string_view key, std::string_view wanted) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: \"{}\" must be {}", path, key, wanted)};
}

Status ReadFeatures(const std::string& path, const Json& value, DeviceSpec& spec) {
  std::string known;
  for (const FeatureName& feature : FeatureNames()) known += fmt::format(" {}", feature.name);
  if (!value.is_array()) return Fail(Wrong(path, "features", "a list of:" + known));
  for (const Json& word : value) {
    bool found = false;
    for (const FeatureName& feature : FeatureNames()) {
      if (!word.is_string() || word.get<std::string>() != feature.name) continue;
      spec.features |= feature.bit;
      found = true;
    }
    if (!found) return Fail(Wrong(path, "features", "a list of:" + known));
  }
  return {};
}

Status ReadIsa(const std::string& path, const Json& value, DeviceSpec& spec) {
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (value.is_string() && value.get<std::string>() == IsaName(isa)) {
      spec.isa = isa;
      return {};
    }
  }
  return Fail(Wrong(path, "isa", "scalar, avx2, avx512 or amx"));
}

Status ReadRate(const std::string& path, const std::string& key, const Json& value, double& rate) {
  // What every device has must be positive; a unit that some lack, whose default is 0, may be 0.
  bool needed = false;
  constexpr DeviceRates kDefaults;
  ForEachRate(kDefaults, [&](std::string_view name, double value_of_default) {
    if (key == name) needed = value_of_default > 0;
  });
  const double given = value.is_number() ? value.get<double>() : -1;
  if (!(given >= 0) || (needed && given == 0))
    return Fail(Wrong(path, key, needed ? "a number above 0" : "a number of 0 or more"));
  rate = given;
  return {};
}

Status ReadField(const std::string& path, const std::string& key, const Json& value,
                 DeviceSpec& spec) {
  const std::pair<std::string_view, std::string*> texts[] = {
      {"name", &spec.name}, {"driver", &spec.driver}, {"amx_refusal", &spec.amx_refusal}};
  const std::pair<std::string_view, int*> counts[] = {
      {"cores", &spec.cores},
      {"compute_capability", &spec.compute_capability},
      {"sm_count", &spec.sm_count}};
  const std::pair<std::string_view, std::int64_t*> sizes[] = {{"l1d_bytes", &spec.l1d_bytes},
                                                              {"l2_bytes", &spec.l2_bytes},
                                                              {"llc_bytes", &spec.llc_bytes},
                                                              {"smem_bytes", &spec.smem_bytes}};
  if (key == "features") return ReadFeatures(path, value, spec);
  if (key == "isa") return ReadIsa(path, value, spec);
  if (key == "kind") {
    if (value != "cpu" && value != "cuda") return Fail(Wrong(path, key, "cpu or cuda"));
    spec.kind = value == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
    return {};
  }
  for (const auto& [name, field] : texts) {
    if (key != name) continue;
    if (!value.is_string()) return Fail(Wrong(path, key, "a text"));
    *field = value.get<std::string>();
    return {};
  }
  for (const auto& [name, field] : counts) {
    if (key != name) continue;
    const std::int64_t number = value.is_number_integer() ? value.get<std::int64_t>() : -1;
    if (number < 0 || number > 65535) return Fail(Wrong(path, key, "a number from 0 to 65535"));
    *field = static_cast<int>(number);
    return {};
  }
  for (const auto& [name, field] : sizes) {
    if (key != name) continue;
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0) {
      return Fail(Wrong(path, key, "a number of bytes"));
    }
    *field = value.get<std::int64_t>();
    return {};
  }
  double* rate = nullptr;
  ForEachRate(spec, [&](std::string_view name, double& field) {
    if (key == name) rate = &field;
  });
  if (rate != nullptr) return ReadRate(path, key, value, *rate);
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: \"{}\" is not a field of a device", path, key));
}

/// Required for a decision for a GPU: no default is close to any of them.
Status CheckGpu(const std::string& path, const Json& json) {
  for (const char* key :
       {"compute_capability", "sm_count", "read_gb_s", "f32_gflop_s", "bf16_gflop_s"}) {
    if (!json.contains(key)) return Fail(Wrong(path, key, "given for a cuda device"));
  }
  return {};
}

}  // namespace

Result<DeviceSpec> ReadDeviceSpec(const std::string& path) {
  Result<std::string> text = ReadFile(path);
  if (!text) return Fail(text.error());
  const Json json = Json::parse(*text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: not a JSON object", path));
  }
  DeviceSpec spec;
  for (const auto& [key, value] : json.items()) {
    if (Status status = ReadField(path, key, value, spec); !status) return Fail(status.error());
  }
  const bool gpu = spec.kind == DeviceKind::kCuda;
  if (Status status = gpu ? CheckGpu(path, json) : Status(); !status) return Fail(status.error());
  constexpr DeviceRates kUnknown{.read_gb_s = 0, .f32_gflop_s = 0, .i8_gop_s = 0};
  static_cast<DeviceRates&>(spec) = gpu ? kUnknown : DefaultRates(spec.features, spec.cores);
  ForEachRate(spec, [&](const char* name, double& rate) {
    if (json.contains(name)) rate = json[name].get<double>();
  });
  if (!json.contains("isa")) {
    if (spec.Has(kFeatureAvx2)) spec.isa = Isa::kAvx2;
    if (spec.Has(kFeatureAvx512)) spec.isa = Isa::kAvx512;
    if (spec.Has(kFeatureAmxTile)) spec.isa = Isa::kAmx;
  }
  if (spec.cores < 1) return Fail(Wrong(path, "cores", "at least 1"));
  return spec;
}

}  // namespace tilewright::cli
