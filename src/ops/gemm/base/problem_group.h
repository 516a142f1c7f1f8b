#pragma once

#include <cstdint>
#include <string_view>

namespace tilewright {

/// A number for a problem (its KeyOf): equal for problems that differ in the batch dimension only,
/// almost certainly different for others. Text as this version writes it takes a fifth of a
/// microsecond; any other that ParseKey reads is brought to that form first. Valid in this process
/// only; never stored.
std::uint64_t GroupOfProblem(std::string_view key);

}  // namespace tilewright
