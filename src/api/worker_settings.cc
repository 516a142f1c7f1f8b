#include "api/worker_settings.h"

#include <charconv>

#include "core/fingerprint.h"
#include "core/sha256.h"
#include "core/text.h"
#include "engine/record_text.h"
#include "tilewright/kernel_family.h"

namespace tilewright {
namespace {

bool Parse(const std::string& text, std::string& value) {
  value = text;
  return true;
}
bool Parse(const std::string& text, std::vector<std::string>& value) {
  value.push_back(text);
  return true;
}
template <class T>
requires std::is_integral_v<T>
bool Parse(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && value >= 0;
}
bool Parse(const std::string& text, bool& value) {
  value = text == "yes";
  return value || text == "no";
}
bool Parse(const std::string& text, CacheMode& value) {
  const Result<CacheMode> mode = ParseCacheMode(text);
  if (mode) value = *mode;
  return mode.has_value();
}
bool Parse(const std::string& text, MeasurePolicy& value) {
  const std::optional<MeasurePolicy> policy = ParseMeasurePolicy(text);
  if (policy) value = *policy;
  return policy.has_value();
}

std::vector<std::string> TextsOf(const std::string& value) { return {value}; }
std::vector<std::string> TextsOf(const std::vector<std::string>& value) { return value; }
std::vector<std::string> TextsOf(bool value) { return {value ? "yes" : "no"}; }
template <class T>
requires std::is_integral_v<T> std::vector<std::string> TextsOf(T value) {
  return {std::to_string(value)};
}
std::vector<std::string> TextsOf(CacheMode value) { return {std::string(CacheModeName(value))}; }
std::vector<std::string> TextsOf(MeasurePolicy value) {
  return {std::string(MeasurePolicyName(value))};
}

/// Calls f(name, value) for every setting. The one list of them.
template <class Settings, class F>
void ForEachSetting(Settings& settings, F&& f) {
  auto& context = settings.context;
  f("device", context.device), f("threads", context.threads);
  f("cache_dir", context.cache_dir), f("cache_mode", context.cache_mode);
  f("cuda_library", context.cuda_library);
  auto& artifacts = context.artifacts;
  f("store", artifacts.root), f("bundle", artifacts.bundles), f("site", artifacts.site_dirs);
  f("site_by_group", artifacts.site_by_group);
  f("shared", artifacts.shared_dir), f("shared_by_group", artifacts.shared_by_group);
  f("nvrtc", artifacts.nvrtc.path);
  auto& measure = settings.measure;
  f("policy", measure.policy), f("llc_bytes", measure.llc_bytes), f("max_bytes", measure.max_bytes);
  f("seed", measure.trial.seed), f("positions", measure.trial.positions);
}

}  // namespace

std::vector<std::string> WordsOf(const WorkerSettings& settings) {
  std::vector<std::string> words;
  ForEachSetting(settings, [&](const char* name, const auto& value) {
    for (std::string& text : TextsOf(value)) words.insert(words.end(), {name, std::move(text)});
  });
  return words;
}

Status TakeWords(const std::vector<std::string>& words, WorkerSettings& settings) {
  if (words.size() % 2 != 0)
    return Fail(ErrorCode::kInvalidArgument, "settings: a name without a value");
  for (std::size_t i = 0; i < words.size(); i += 2) {
    bool known = false, parsed = false;
    ForEachSetting(settings, [&](const char* name, auto& value) {
      if (words[i] != name) return;
      known = true;
      parsed = Parse(words[i + 1], value);
    });
    if (known && parsed) continue;
    return Fail(ErrorCode::kInvalidArgument,
                Format("settings: {} '{}' of {}", known ? "no such value," : "unknown,",
                       Printable(words[i + 1], 60), Printable(words[i], 40)));
  }
  return {};
}

Result<std::string> BuildIdentity() {
  std::string parts;
  const auto add = [&parts](std::string_view text) {
    parts.append(std::to_string(text.size())).append(":").append(text);
  };
  add(Version());
  for (const TuDigest& unit : AllTuDigests()) add(unit.tu), add(unit.digest);
  for (const SourceFile& file : EmbeddedSources()) add(file.name), add(file.text);
  const Result<std::string> digest = Sha256Hex(parts);
  if (!digest) return Fail(digest.error());
  constexpr std::size_t kDigits = 16;
  return Format("tilewright {} ({})", Version(), digest->substr(0, kDigits));
}

}  // namespace tilewright
