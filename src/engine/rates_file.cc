#include "engine/rates_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/paths.h"
#include "core/sha256.h"
#include "engine/sealed_json.h"

namespace tilewright {
namespace {

constexpr std::size_t kMaxBytes = 64 << 10;
constexpr std::size_t kNameDigits = 16;

/// The rates that every device has: predicted times are divided by them.
bool IsUsable(const DeviceRates& rates) {
  bool usable = rates.read_gb_s > 0 && rates.f32_gflop_s > 0 && rates.i8_gop_s > 0;
  ForEachRate(rates, [&](const char*, double rate) {
    usable = usable && std::isfinite(rate) && rate >= 0;
  });
  return usable;
}

}  // namespace

Result<std::string> RatesPath(const std::string& folder, const std::string& class_id) {
  const auto digest = Sha256Hex(class_id);
  if (!digest) return Fail(digest.error());
  return folder + "/rates/" + digest->substr(0, kNameDigits) + ".json";
}

std::optional<DeviceRates> LoadRates(const std::string& folder, const std::string& class_id) {
  const Result<std::string> path = RatesPath(folder, class_id);
  if (!path) return std::nullopt;
  const Result<std::string> text = ReadFile(*path, kMaxBytes);
  if (!text) return std::nullopt;
  const auto object = Unseal(*text);
  if (!object || StringMember(*object, "class") != class_id) return std::nullopt;
  DeviceRates rates;
  bool complete = true;
  ForEachRate(rates, [&](const char* name, double& rate) {
    const std::optional<double> value = NumberMember(*object, name);
    complete = complete && value.has_value();
    rate = value.value_or(0);
  });
  if (!complete || !IsUsable(rates)) return std::nullopt;
  return rates;
}

Status SaveRates(const std::string& folder, const std::string& class_id, const DeviceRates& rates) {
  if (!IsUsable(rates)) {
    return Fail(ErrorCode::kInvalidArgument,
                "rates of " + class_id + ": must be finite, and above 0 for memory, f32 and int8");
  }
  const Result<std::string> path = RatesPath(folder, class_id);
  if (!path) return Fail(path.error());
  nlohmann::json object = {{"class", class_id}};
  ForEachRate(rates, [&](const char* name, double rate) { object[name] = rate; });
  if (Status made = MakeDirs(path->substr(0, path->rfind('/'))); !made) return made;
  return WriteFileAtomic(*path, Seal(object) + "\n");
}

}  // namespace tilewright
