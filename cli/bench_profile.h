#pragma once

#include <string_view>

#include "machine_floor.h"
#include "report.h"
#include "tilewright/step_times.h"

namespace tilewright::cli {

/// The groups of steps of a pass with their times and floors, and the sum beside the whole pass.
Report ReportSteps(const StepTimes& steps, const MachineRates& rates);
/// The same as a table on standard output, the longest group first.
void PrintSteps(std::string_view test, int batch, const StepTimes& steps,
                const MachineRates& rates);

}  // namespace tilewright::cli
