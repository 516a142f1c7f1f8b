#pragma once

#include <string>

#include "tilewright/device.h"
#include "tilewright/gemm.h"

namespace tilewright::cli {

/// The most multiplications and additions that all workers can do in a second, in 1e9.
struct Peak {
  double giga_ops = 0;
  std::string how;  ///< "vpdpbusd", or "assumed" where this processor has nothing to measure with
};

/// Measured now with the best instruction of `device` for `precision` (kAuto: as kI8), about 30 ms:
/// a loop in registers, so a bound that no kernel can pass.
Peak MeasurePeak(const DeviceSpec& device, Executor& executor, Precision precision);

}  // namespace tilewright::cli
