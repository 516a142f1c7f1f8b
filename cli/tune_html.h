#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tilewright/tilewright.h"
#include "tilewright/tune.h"
#include "verbs.h"

namespace tilewright::cli {

/// The page of `tune --report`: what was tuned and where, a row for each problem, and why some were
/// not decided.
std::string TuneHtml(const TuneReport& result, const TuneArguments& options,
                     const Context& context);

/// What a page of `tune` begins with: which problems were asked for, device, version, date.
std::vector<std::pair<std::string, std::string>> PageFacts(const TuneArguments& options,
                                                           const Context& context);
/// The cell of a problem: ShortProblem, and all its fields for who points at it.
std::string ProblemCell(std::string_view op, const std::string& problem);
/// The cell of a kernel or launch.
std::string CodeCell(std::string_view text);

}  // namespace tilewright::cli
