#pragma once

#include <string>

#include "tilewright/device.h"
#include "tilewright/result.h"

namespace tilewright::cuda {

/// Whether this build can drive a GPU: cuda.h was found when it was configured. Without it every
/// function here is kUnavailable.
bool BuiltWithDriver();

/// GPUs of this process; 0 where the driver is loaded and sees none. kUnavailable where there is no
/// driver (libcuda.so.1), or a toolkit's stub of it, with what was tried. Any thread.
Result<int> CudaDeviceCount();

/// The GPU `ordinal` as a value: name, compute capability, multiprocessors, opt-in shared memory of
/// a block, L2 size (as l2_bytes and llc_bytes) and the driver's version ("13.0"). Makes no
/// context. kUnavailable without a driver or GPU, kInvalidArgument beyond the last GPU.
Result<DeviceSpec> CudaDeviceSpec(int ordinal);

}  // namespace tilewright::cuda
