#pragma once

#include <string_view>

#include "tilewright/device.h"
#include "tilewright/gemm.h"

namespace tilewright::cli {

/// The best unit of `device` for products of `precision` (kAuto: as kI8), measured now. If it
/// cannot be measured, the rates of `device` and "assumed".
PeakRate BestPeak(const DeviceSpec& device, Executor& executor, Precision precision);

}  // namespace tilewright::cli
