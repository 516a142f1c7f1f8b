#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tilewright/records.h"

namespace tilewright {

/// Digest of everything a record says (all fields but `id`): identity and checksum in one. 32
/// hexadecimal digits.
std::string RecordId(const Record& record);

/// Times that are no numbers become 0 and `extra` becomes "" unless it is a JSON object: what is
/// stored can be read back.
void Normalise(Record& record);

std::optional<Verdict> ParseVerdict(std::string_view word);
std::optional<MeasurePolicy> ParseMeasurePolicy(std::string_view word);

/// One line of docs/records.md and back; nullopt for a line that is no record of this schema or
/// fails its checksum.
std::string RecordLine(const Record& record);
std::optional<Record> ParseRecord(const nlohmann::json& object);

}  // namespace tilewright
