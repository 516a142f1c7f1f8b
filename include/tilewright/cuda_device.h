#pragma once

#include <memory>
#include <string>

#include "tilewright/device.h"
#include "tilewright/result.h"

namespace tilewright::cuda {

/// Whether this build can use a GPU, that is, cuda.h was found at configuration time. Without it
/// every function here returns kUnavailable.
bool BuiltWithDriver();

/// The number of GPUs visible to this process; 0 if the driver is loaded but sees none.
/// kUnavailable, listing what was tried, if there is no driver (libcuda.so.1) or only a toolkit's
/// stub of it. Any thread.
Result<int> CudaDeviceCount();

/// The GPU `ordinal` as a value: name, compute capability, multiprocessors, opt-in shared memory of
/// a block, L2 size (as l2_bytes and llc_bytes), peak rates from its clocks, and the driver's
/// version ("13.0"). Makes no context. kUnavailable without a driver or GPU, kInvalidArgument beyond the last GPU.
Result<DeviceSpec> CudaDeviceSpec(int ordinal);

struct CudaDeviceOptions {
  /// The driver's library; "": libcuda.so.1, looked for as CudaDeviceCount does.
  std::string library;
  /// Of the device's streams, for work that a host does beside the GPU; nullptr: SerialExecutor().
  /// Must outlive the device.
  Executor* executor = nullptr;
};

/// The GPU `ordinal` as a device, in its primary context, which other libraries of the process
/// share. Stream::native is a CUstream, nullptr the legacy default stream; the device's own streams
/// do not wait for that one. Memory is aligned to 256 bytes; freeing it waits for the work of the
/// GPU. Every call leaves the context of the calling thread as it was, unless the thread had none.
///
/// Two devices of one process, on one GPU or on several, share nothing but the driver.
///
/// Errors of a call name the GPU, the driver's function and its words. One that ends the context,
/// such as an illegal address in a kernel, is reported once, by the call that meets it: the GPU is
/// lost for this process, and from then on every call is kUnavailable, says so and since when, and
/// reaches no driver.
///
/// kUnavailable without a driver or GPU, or with a driver older than CUDA 12.0; kInvalidArgument
/// beyond the last GPU.
Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal, const CudaDeviceOptions& options = {});

}  // namespace tilewright::cuda
