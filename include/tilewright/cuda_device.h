#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tilewright/device.h"
#include "tilewright/result.h"

namespace tilewright::cuda {

/// Whether this build can use a GPU, that is, cuda.h was found at configuration time. Without it
/// every function here returns kUnavailable.
bool BuiltWithDriver();

/// The number of GPUs visible to this process; 0 if the driver is loaded but sees none.
/// kUnavailable, listing what was tried, if there is no driver (libcuda.so.1) or only a toolkit's
/// stub of it. `library`: as CudaDeviceOptions::library. Any thread.
Result<int> CudaDeviceCount(const std::string& library = "");

/// The GPU `ordinal` as a value: name, compute capability, multiprocessors, opt-in shared memory
/// per block, L2 size (as l2_bytes and llc_bytes), peak rates from its clocks, and the driver's
/// version ("13.0"). Creates no context. kUnavailable without a driver or GPU, kInvalidArgument
/// beyond the last GPU.
Result<DeviceSpec> CudaDeviceSpec(int ordinal, const std::string& library = "");

struct CudaDeviceOptions {
  /// The driver's library; "": libcuda.so.1, found as by CudaDeviceCount.
  std::string library;
  /// Executor of the device's streams, for work done on the host; nullptr: SerialExecutor(). Must
  /// outlive the device.
  Executor* executor = nullptr;
  /// What predicted times are made of, where it is known better than from the board's clocks.
  std::optional<DeviceRates> rates = std::nullopt;
  /// Whether kernels that wait by themselves for those before them may be started before these have
  /// ended (programmatic dependent launch, compute capability 9.0 and newer). The results are the
  /// same bits. The environment's TILEWRIGHT_PDL=0 forbids it too.
  bool programmatic_launches = true;
};

/// The GPU `ordinal` as a device, in its primary context, which is shared with other libraries in
/// the process. Stream::native is a CUstream; nullptr is the legacy default stream, for which the
/// device's own streams do not wait. Memory is aligned to 256 bytes; freeing it waits for the GPU's
/// work. Every call leaves the current context of the calling thread unchanged, unless the thread
/// had none.
///
/// Two devices in a process, on one GPU or on several, share only the driver.
///
/// Errors name the GPU, the driver's function and its message. An error that destroys the context,
/// such as an illegal address in a kernel, is reported once, by the call that encounters it. The
/// GPU is then lost for this process: every later call returns kUnavailable, with a message that
/// says since when, and does not call the driver.
///
/// kUnavailable without a driver or GPU, or with a driver older than CUDA 12.0; kInvalidArgument
/// beyond the last GPU.
Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal, const CudaDeviceOptions& options = {});

}  // namespace tilewright::cuda
