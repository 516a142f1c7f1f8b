#include "engine/record_text.h"

#include <algorithm>
#include <bit>
#include <charconv>
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

// Lengths precede the bytes, so that different lists of fields never give the same text.
void Add(std::string& out, std::string_view text) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, text.size()).ptr;
  out.append(digits, end).append(1, ':').append(text);
}
template <class Integer>
void AddInteger(std::string& out, Integer value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  Add(out, std::string_view(digits, static_cast<std::size_t>(end - digits)));
}
void Add(std::string& out, double value) {
  AddInteger(out, std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value));
}
void Add(std::string& out, std::int64_t value) { AddInteger(out, value); }

double Finite(double value) { return std::isfinite(value) ? value : 0.0; }

constexpr const char* kMembers[] = {
    "schema", "op",      "problem",  "device",   "libraries",  "policy", "kernel",  "fingerprint",
    "spec",   "verdict", "evidence", "samples",  "median_us",  "low_us", "high_us", "predicted_us",
    "chosen", "unix_ms", "id",       "finished", "generation", "session"};

}  // namespace

bool DigestMatches(const StoredRow& row, std::string& scratch) {
  scratch.clear();
  for (const std::string_view text : row.texts) Add(scratch, text);
  Add(scratch, row.samples);
  for (const double value : row.times) Add(scratch, value);
  Add(scratch, row.chosen);
  Add(scratch, row.unix_ms);
  Add(scratch, row.extra);
  const auto digest = Sha256(scratch);
  if (!digest || row.id.size() != kIdDigits) return false;
  for (std::size_t i = 0; i < kIdDigits; ++i) {
    const unsigned byte = (*digest)[i / 2], digit = i % 2 == 0 ? byte >> 4 : byte & 15;
    if (row.id[i] != "0123456789abcdef"[digit]) return false;
  }
  return true;
}

std::string StoredExtra(const Record& record) {
  const bool plain = record.finished && record.generation == 0 && record.session.empty();
  if (plain) return record.extra;
  json object = json::object();
  if (!record.extra.empty()) object = json::parse(record.extra, nullptr, false);
  if (!object.is_object()) object = json::object();
  if (!record.finished) object["finished"] = false;
  if (record.generation != 0) object["generation"] = record.generation;
  if (!record.session.empty()) object["session"] = record.session;
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

namespace {

// Moves the members that are fields of Record out of `object`. False if one is not as StoredExtra
// writes it.
bool TakeSessionMembers(json& object, Record& record) {
  bool fine = true;
  if (const auto at = object.find("finished"); at != object.end()) {
    fine = at->is_boolean();
    if (fine) record.finished = at->get<bool>();
    object.erase(at);
  }
  if (object.contains("generation")) {
    const auto generation = IntegerMember(object, "generation");
    fine = fine && generation && *generation >= 0 && *generation <= kMaxGeneration;
    if (fine) record.generation = *generation;
    object.erase("generation");
  }
  if (object.contains("session")) {
    const auto session = StringMember(object, "session");
    fine = fine && session && !session->empty();
    if (fine) record.session = *session;
    object.erase("session");
  }
  return fine;
}

// Reads what StoredExtra writes for nearly every row,
// {"generation":3,"session":"0123456789abcdef"}, without a parser; false for anything else.
bool TakePlainSession(std::string_view text, Record& record) {
  constexpr std::string_view kFirst = "{\"generation\":", kSecond = ",\"session\":\"", kEnd = "\"}";
  if (!text.starts_with(kFirst) || !text.ends_with(kEnd)) return false;
  text.remove_prefix(kFirst.size());
  text.remove_suffix(kEnd.size());
  std::int64_t generation = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), generation);
  if (error != std::errc() || generation <= 0 || generation > kMaxGeneration) return false;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  if (!text.starts_with(kSecond)) return false;
  text.remove_prefix(kSecond.size());
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_hex)) return false;
  record.generation = generation;
  record.session = text;
  return true;
}

}  // namespace

bool TakeStoredExtra(std::string_view text, Record& record) {
  if (text.empty() || TakePlainSession(text, record)) return true;
  json object = json::parse(text, nullptr, false);
  if (!object.is_object() || !(object.contains("finished") || object.contains("generation") ||
                               object.contains("session"))) {
    record.extra = text;
    return true;
  }
  if (!TakeSessionMembers(object, record)) return false;
  if (!object.empty()) record.extra = object.dump(-1, ' ', false, json::error_handler_t::replace);
  return StoredExtra(record) == text;
}

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
  Add(all, StoredExtra(r));
  const auto hex = Sha256Hex(all);
  return hex ? hex->substr(0, kIdDigits) : std::string();
}

void Normalise(Record& record) {
  for (double* value : {&record.median_us, &record.low_us, &record.high_us, &record.predicted_us})
    *value = Finite(*value);
  // Texts are exported as JSON: anything that is not UTF-8 (a crashed kernel's output) is replaced
  // now, or the id would not match later.
  for (std::string* text :
       {&record.op, &record.problem, &record.scope.device, &record.scope.libraries, &record.kernel,
        &record.fingerprint, &record.spec, &record.evidence, &record.session}) {
    const json parsed = json::parse(
        json(*text).dump(-1, ' ', false, json::error_handler_t::replace), nullptr, false);
    if (parsed.is_string()) *text = parsed.get<std::string>();
  }
  record.generation = std::clamp<std::int64_t>(record.generation, 0, kMaxGeneration);
  if (record.extra.empty()) return;
  json extra = json::parse(record.extra, nullptr, false);
  if (extra.is_object()) {
    for (const char* member : kMembers) extra.erase(member);
  }
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
  if (!r.finished) object["finished"] = false;
  if (r.generation != 0) object["generation"] = r.generation;
  if (!r.session.empty()) object["session"] = r.session;
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
  if (!TakeSessionMembers(extra, r)) return std::nullopt;
  for (const char* member : kMembers) extra.erase(member);
  if (!extra.empty()) r.extra = extra.dump();
  if (r.id != RecordId(r)) return std::nullopt;
  return r;
}

}  // namespace tilewright
