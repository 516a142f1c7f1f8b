#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <type_traits>

#include "device/cuda/launch.h"
#include "device/ready_launch.h"
#include "tilewright/device.h"

namespace tilewright::cuda {

/// A CUDA device as the operation rooms see it: what Device has, and launches as values. It names
/// no header of CUDA, so these rooms are built without a toolkit. Any thread; the work of one
/// stream is given by one thread at a time.
class CudaDevice : public Device {
 public:
  /// `device` as one of these; nullptr where it is another.
  static CudaDevice* Of(Device& device) { return dynamic_cast<CudaDevice*>(&device); }

  /// Lets launches of `function` (of a DeviceModule of this device) ask for this much dynamic
  /// shared memory.
  virtual Status AllowDynamicSmem(void* function, std::uint32_t bytes) = 0;

  /// Launches of `function` ask a multiprocessor for as much shared memory as it can have, beside the
  /// L1 cache. It is divided anew only when it is idle: kernels that are to overlap must ask for the
  /// same.
  virtual Status PreferSharedMemory(void* function) = 0;

  /// kUnsupported, with what it needs, where no CTA of `function` fits on a multiprocessor with so
  /// many threads and so much dynamic shared memory.
  virtual Status CheckFits(void* function, std::uint32_t threads,
                           std::uint32_t dynamic_smem_bytes) = 0;

  /// Encodes the tensor maps of `launch` into its parameter block and queues it. Maps are encoded
  /// once for every description and kept. Allocates and locks nothing once it has seen them. A
  /// fault while the kernel runs shows at a later call.
  virtual Status Launch(void* function, CudaLaunch& launch, Stream stream) = 0;

  /// An error of a launch, with what its caller knows of it.
  using Explain = std::function<Error(const Error&)>;
  /// The same launch, to be queued any number of times: encodes its tensor maps. What it returns
  /// keeps `module`, the function's, and allocates and locks nothing when it launches, but for an
  /// error.
  virtual Result<std::unique_ptr<ReadyLaunch>> Ready(void* function, CudaLaunch launch,
                                                     std::shared_ptr<DeviceModule> module,
                                                     Explain explain) = 0;

  /// To be called when work was given to `stream` past this interface, as by a vendor's library: the
  /// next launch waits for it to end, whatever it is. Neither locks nor allocates.
  virtual void GaveOtherWork(Stream stream) = 0;

  /// Calls `f()`, which returns a Status, with the device's context current on this thread: for
  /// libraries that work in the current context. Returns what it returns; kUnavailable, without
  /// calling it, where the device is lost. `call` is for that message. Allocates nothing.
  template <class F>
  Status InContext(std::string_view call, F&& f) {
    using Function = std::remove_reference_t<F>;
    return InContext(
        call, [](void* of) { return (*static_cast<Function*>(of))(); }, &f);
  }

 protected:
  virtual Status InContext(std::string_view call, Status (*f)(void*), void* of) = 0;
};

}  // namespace tilewright::cuda
