#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tilewright/records.h"

namespace tilewright {

/// Generations up to this are exact as doubles (JSON).
inline constexpr std::int64_t kMaxGeneration = std::int64_t{1} << 53;

inline constexpr std::size_t kIdDigits = 32;

/// A row as stored in the file, before its checksum is verified.
struct StoredRow {
  std::string_view id;
  /// op, problem, device, libraries, policy, kernel, fingerprint, spec, verdict, evidence
  std::array<std::string_view, 10> texts;
  std::int64_t samples = 0;
  std::array<double, 4> times = {};  ///< median, low, high, predicted
  std::int64_t chosen = 0;
  std::int64_t unix_ms = 0;
  std::string_view extra;
};

/// Whether the id is the digest of the rest: RecordId without a Record. `scratch` saves allocations
/// from row to row.
bool DigestMatches(const StoredRow& row, std::string& scratch);

/// The column `extra`: finished, generation and session where they are not the default, and
/// Record::extra, as one JSON object with sorted members; "" when there is none.
std::string StoredExtra(const Record& record);
/// The inverse; false for anything that StoredExtra does not write.
bool TakeStoredExtra(std::string_view text, Record& record);

/// Digest of all fields of a record but `id`, which is both its identity and its checksum. 32
/// hexadecimal digits.
std::string RecordId(const Record& record);

/// Makes a record storable: times that are not finite become 0, and `extra` becomes "" unless it is
/// a JSON object.
void Normalise(Record& record);

std::optional<Verdict> ParseVerdict(std::string_view word);
std::optional<MeasurePolicy> ParseMeasurePolicy(std::string_view word);

/// A record as a line of docs/records.md, and back; nullopt for a line that is not a record of this
/// schema or fails its checksum.
std::string RecordLine(const Record& record);
std::optional<Record> ParseRecord(const nlohmann::json& object);

}  // namespace tilewright
