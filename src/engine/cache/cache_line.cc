#include "engine/cache/cache_line.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/text.h"
#include "engine/sealed_json.h"

namespace tilewright {

using nlohmann::json;

namespace {

constexpr std::string_view kFormat = "tilewright.dispatch_cache";
// 1 knew GEMM only, and swizzle and splits as the only launch parameters.
constexpr int kSchema = 2;

// Of launch parameters as schema 1 wrote them.
std::optional<std::string> SpecOfIntegers(const json& object) {
  const auto swizzle = IntegerMember(object, "swizzle"), splits = IntegerMember(object, "splits");
  if (!swizzle || !splits || *swizzle < 0 || *swizzle > 30 || *splits < 1 || *splits > 4096)
    return std::nullopt;
  return Format("swizzle={} splits={}", *swizzle, *splits);
}

bool IsPolicy(std::string_view word) {
  return word == MeasurePolicyName(MeasurePolicy::kCold) ||
         word == MeasurePolicyName(MeasurePolicy::kWarm);
}

}  // namespace

std::string CacheHeader(const std::string& device) {
  return Seal(json{{"format", kFormat}, {"schema", kSchema}, {"device", device}});
}

std::string TextOf(const CacheLine& line) {
  json object = line.extra.empty() ? json::object() : json::parse(line.extra, nullptr, false);
  if (!object.is_object()) object = json::object();
  object["schema"] = kSchema;
  object["op"] = line.op;
  object["problem"] = line.problem;
  object["device"] = line.device;
  object["policy"] = line.policy;
  object["kernel"] = line.kernel;
  object["fingerprint"] = line.fingerprint;
  object["spec"] = line.spec;
  object["measured_us"] = line.measured_us;
  object["predicted_us"] = line.predicted_us;
  if (line.provisional) object["provisional"] = true;
  return Seal(object);
}

CacheLineKind ReadCacheLine(const std::string& text, CacheLine& line) {
  auto object = Unseal(text);
  if (!object) return CacheLineKind::kCorrupt;
  if (object->contains("format")) {
    return StringMember(*object, "format") == kFormat ? CacheLineKind::kHeader
                                                      : CacheLineKind::kCorrupt;
  }
  const auto schema = IntegerMember(*object, "schema");
  if (!schema || *schema < 1) return CacheLineKind::kCorrupt;
  if (*schema > kSchema) return CacheLineKind::kLater;

  bool whole = true;
  const auto text_of = [&](const char* name, std::optional<std::string_view> absent = {}) {
    if (absent && !object->contains(name)) return std::string(*absent);
    auto value = StringMember(*object, name);
    whole = whole && value.has_value();
    return value.value_or("");
  };
  line.op = text_of("op", "gemm");
  line.problem = text_of("problem"), line.device = text_of("device");
  line.kernel = text_of("kernel"), line.fingerprint = text_of("fingerprint");
  // Lines of versions that did not say it were measured cold, as is the default.
  line.policy = text_of("policy", MeasurePolicyName(MeasurePolicy::kCold));
  const bool integers = !object->contains("spec");
  const auto spec = integers ? SpecOfIntegers(*object) : StringMember(*object, "spec");
  const auto measured = NumberMember(*object, "measured_us"),
             predicted = NumberMember(*object, "predicted_us");
  whole = whole && spec && measured && IsPolicy(line.policy);
  if (!whole || !(*measured >= 0 && *measured <= std::numeric_limits<float>::max()))
    return CacheLineKind::kCorrupt;
  line.spec = *spec;
  line.measured_us = *measured, line.predicted_us = predicted.value_or(0);
  if (const auto at = object->find("provisional"); at != object->end()) {
    if (!at->is_boolean()) return CacheLineKind::kCorrupt;
    line.provisional = at->get<bool>();
  }
  for (const char* known : {"schema", "op", "problem", "kernel", "device", "policy", "fingerprint",
                            "spec", "measured_us", "predicted_us", "provisional"}) {
    object->erase(known);
  }
  if (integers) object->erase("swizzle"), object->erase("splits");
  line.extra = object->empty() ? std::string() : object->dump();
  return CacheLineKind::kEntry;
}

std::string Resealed(const std::string& text) {
  const auto object = Unseal(text);
  return object ? Seal(*object) : text;
}

void ImportTally::Count(ImportedLine line, int number) {
  Kind& kind = kinds_[static_cast<int>(line)];
  kind.first = kind.seen++ == 0 ? number : std::min(kind.first, number);
}

void ImportTally::Overtaken(int number) {
  --kinds_[static_cast<int>(ImportedLine::kResolved)].seen;
  Count(ImportedLine::kWorse, number);
}

ImportReport ImportTally::Report() const {
  const auto seen = [this](ImportedLine line) { return kinds_[static_cast<int>(line)].seen; };
  ImportReport report;
  report.resolved = seen(ImportedLine::kResolved);
  report.unknown_kernel = seen(ImportedLine::kUnknownKernel);
  report.stale = seen(ImportedLine::kStale) + seen(ImportedLine::kInfeasible) +
                 seen(ImportedLine::kUnknownLaunch);
  report.foreign = seen(ImportedLine::kForeign);
  report.corrupt = seen(ImportedLine::kCorrupt);
  report.worse = seen(ImportedLine::kWorse);
  const std::pair<ImportedLine, std::string_view> words[] = {
      {ImportedLine::kUnknownKernel, "name a kernel that is not here: kept aside"},
      {ImportedLine::kStale, "are of a kernel that changed since: kept aside"},
      {ImportedLine::kInfeasible, "name a kernel that refuses the problem: kept aside"},
      {ImportedLine::kUnknownLaunch,
       "have launch parameters that the kernel does not take: kept aside"},
      {ImportedLine::kForeign,
       "are of another operation, device or policy, or of a later version: kept aside"},
      {ImportedLine::kCorrupt, "do not parse or fail their checksum: skipped"},
      {ImportedLine::kWorse, "are slower than others of the same problem"}};
  for (const auto& [line, text] : words) {
    const Kind& kind = kinds_[static_cast<int>(line)];
    if (kind.seen > 0) {
      report.messages.push_back(
          Format("{} entries {} (first: line {})", kind.seen, text, kind.first));
    }
  }
  if (stopped_) report.messages.emplace_back("reading stopped early");
  return report;
}

BuildReport& BuildReport::operator+=(const BuildReport& other) {
  problems += other.problems, measurements += other.measurements;
  stale += other.stale, foreign += other.foreign, unknown_kernel += other.unknown_kernel;
  unreadable += other.unreadable, quarantined += other.quarantined;
  return *this;
}

}  // namespace tilewright
