#pragma once

#include <string>

#include "device/cuda/driver.h"

namespace tilewright::cuda {

/// Where the GPU `ordinal` of the driver sits, as other libraries name it: "00000000:18:00.0".
Result<std::string> BusIdOf(const CudaDriver& driver, int ordinal);

}  // namespace tilewright::cuda
