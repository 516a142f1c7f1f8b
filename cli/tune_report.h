#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewright/tune.h"

namespace tilewright::cli {

// What `tune` says at its end; tune_html.h has the page.

void PrintTuneJson(const TuneReport& result, std::uint64_t seed);
void PrintTuneTable(const TuneReport& result);

// The parts that the table and the page share.

/// "1.20x (1.17 .. 1.23)", "same", "known", "inconclusive", or "-".
std::string GainText(const TuneRow& row);
/// "12 problems tuned in 3.2 s of device time, 4 known already".
std::string TotalsLine(const TuneReport& result);
/// "12 problems decided, 3 faster by another launch than before: ..."; "" where none was decided.
std::string GainsLine(const TuneReport& result);
/// Why problems ended without a decision, a line for each reason with how many it met.
std::vector<std::string> WhyInconclusive(const TuneReport& result);

}  // namespace tilewright::cli
