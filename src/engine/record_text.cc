#include "engine/record_text.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/sha256.h"
#include "core/text.h"
#include "engine/sealed_json.h"

namespace tilewright {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;

// Lengths go in before the bytes, so that no two lists of fields read alike.
void Add(std::string& out, std::string_view text) {
  out.append(std::to_string(text.size())).append(1, ':').append(text);
}
void Add(std::string& out, double value) {
  Add(out, std::to_string(std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value)));
}
void Add(std::string& out, std::int64_t value) { Add(out, std::to_string(value)); }

double Finite(double value) { return std::isfinite(value) ? value : 0.0; }

constexpr const char* kMembers[] = {"schema",       "op",      "problem",     "device", "libraries",
                                    "policy",       "kernel",  "fingerprint", "spec",   "verdict",
                                    "evidence",     "samples", "median_us",   "low_us", "high_us",
                                    "predicted_us", "chosen",  "unix_ms",     "id"};

}  // namespace

std::string RecordId(const Record& r) {
  std::string all;
  for (const std::string_view text :
       {std::string_view(r.op), std::string_view(r.problem), std::string_view(r.scope.device),
        std::string_view(r.scope.libraries), MeasurePolicyName(r.scope.policy),
        std::string_view(r.kernel), std::string_view(r.fingerprint), std::string_view(r.spec),
        VerdictName(r.verdict), std::string_view(r.evidence)}) {
    Add(all, text);
  }
  Add(all, r.samples);
  for (const double value : {r.median_us, r.low_us, r.high_us, r.predicted_us}) Add(all, value);
  Add(all, std::int64_t{r.chosen});
  Add(all, r.unix_ms);
  Add(all, r.extra);
  const auto hex = Sha256Hex(all);
  return hex ? hex->substr(0, 32) : std::string();
}

void Normalise(Record& record) {
  for (double* value : {&record.median_us, &record.low_us, &record.high_us, &record.predicted_us})
    *value = Finite(*value);
  // Texts go through JSON: what is no UTF-8 (a crashed kernel's last words) is replaced now, or the
  // id would not survive.
  for (std::string* text :
       {&record.op, &record.problem, &record.scope.device, &record.scope.libraries, &record.kernel,
        &record.fingerprint, &record.spec, &record.evidence}) {
    const json parsed = json::parse(
        json(*text).dump(-1, ' ', false, json::error_handler_t::replace), nullptr, false);
    if (parsed.is_string()) *text = parsed.get<std::string>();
  }
  if (record.extra.empty()) return;
  const json extra = json::parse(record.extra, nullptr, false);
  record.extra = extra.is_object() && !extra.empty() ? extra.dump() : std::string();
}

std::optional<Verdict> ParseVerdict(std::string_view word) {
  for (int i = 0; i <= static_cast<int>(Verdict::kHang); ++i) {
    if (VerdictName(static_cast<Verdict>(i)) == word) return static_cast<Verdict>(i);
  }
  return std::nullopt;
}

std::optional<MeasurePolicy> ParseMeasurePolicy(std::string_view word) {
  for (const MeasurePolicy policy : {MeasurePolicy::kCold, MeasurePolicy::kWarm}) {
    if (MeasurePolicyName(policy) == word) return policy;
  }
  return std::nullopt;
}

std::string RecordLine(const Record& r) {
  json object = r.extra.empty() ? json::object() : json::parse(r.extra, nullptr, false);
  if (!object.is_object()) object = json::object();
  object["schema"] = kSchema;
  object["op"] = r.op;
  object["problem"] = r.problem;
  object["device"] = r.scope.device;
  object["libraries"] = r.scope.libraries;
  object["policy"] = MeasurePolicyName(r.scope.policy);
  object["kernel"] = r.kernel;
  object["fingerprint"] = r.fingerprint;
  object["spec"] = r.spec;
  object["verdict"] = VerdictName(r.verdict);
  if (!r.evidence.empty()) object["evidence"] = r.evidence;
  object["samples"] = r.samples;
  object["median_us"] = r.median_us;
  object["low_us"] = r.low_us;
  object["high_us"] = r.high_us;
  object["predicted_us"] = r.predicted_us;
  object["chosen"] = r.chosen;
  object["unix_ms"] = r.unix_ms;
  object["id"] = r.id;
  return Seal(object);
}

std::optional<Record> ParseRecord(const json& object) {
  if (IntegerMember(object, "schema") != kSchema) return std::nullopt;
  Record r;
  bool fine = true;
  const auto text = [&](const char* name, std::string& out, bool required = true) {
    const auto value = StringMember(object, name);
    if (value) out = *value;
    fine = fine && (value || (!required && !object.contains(name)));
  };
  const auto number = [&](const char* name, double& out) {
    const auto value = NumberMember(object, name);
    fine = fine && value && std::isfinite(*value);
    out = value.value_or(0);
  };
  const auto integer = [&](const char* name, std::int64_t& out) {
    const auto value = IntegerMember(object, name);
    fine = fine && value;
    out = value.value_or(0);
  };
  std::string policy, verdict;
  text("op", r.op), text("problem", r.problem), text("device", r.scope.device),
      text("libraries", r.scope.libraries);
  text("policy", policy), text("kernel", r.kernel), text("fingerprint", r.fingerprint),
      text("spec", r.spec);
  text("verdict", verdict), text("evidence", r.evidence, false), text("id", r.id);
  integer("samples", r.samples), integer("unix_ms", r.unix_ms);
  number("median_us", r.median_us), number("low_us", r.low_us), number("high_us", r.high_us);
  number("predicted_us", r.predicted_us);
  const auto chosen = object.find("chosen");
  fine = fine && chosen != object.end() && chosen->is_boolean();
  const auto parsed_policy = ParseMeasurePolicy(policy);
  const auto parsed_verdict = ParseVerdict(verdict);
  if (!fine || !parsed_policy || !parsed_verdict) return std::nullopt;
  r.chosen = chosen->get<bool>();
  r.scope.policy = *parsed_policy;
  r.verdict = *parsed_verdict;
  json extra = object;
  for (const char* member : kMembers) extra.erase(member);
  if (!extra.empty()) r.extra = extra.dump();
  if (r.id != RecordId(r)) return std::nullopt;
  return r;
}

}  // namespace tilewright
