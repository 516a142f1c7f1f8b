#pragma once

#include <memory>

#include "tilewright/device.h"
#include "tilewright/tune_gemm.h"

namespace tilewright {

/// MakeMeasurer<GemmOp> on a device whose memory the host cannot access: operands are made and packed
/// on the host and copied, results are copied back and compared there.
std::unique_ptr<GemmMeasurer> MakeDeviceGemmMeasurer(Device& device,
                                                     const MeasurerOptions& options);

}  // namespace tilewright
