#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "device/cuda/gpu.h"
#include "device/cuda/stream_tails.h"
#include "device/ready_launch.h"

namespace tilewright::cuda {

/// A launch as the driver takes it. To queue it is one function that reads one block of memory:
/// between two launches the driver leaves little of either in the first caches.
class GpuLaunch final : public ReadyLaunch {
 public:
  /// `launch`: its tensor maps are encoded. `early`: it may start before a kernel in front of it has
  /// ended. `module` is kept as long as this; the others must outlive it.
  GpuLaunch(Gpu& gpu, StreamTails& tails, void* function, const CudaLaunch& launch, bool early,
            std::shared_ptr<DeviceModule> module, CudaDevice::Explain explain)
      : gpu_(gpu),
        tails_(tails),
        function_(static_cast<CUfunction>(function)),
        early_(early),
        config_(launch),
        params_(launch.params),
        module_(std::move(module)),
        explain_(std::move(explain)) {}

  Status Launch(Stream stream) const override {
    const auto of = static_cast<CUstream>(stream.native);
    std::atomic<bool>* const behind_kernel = tails_.IsKernel(of);
    const bool early =
        early_ && behind_kernel != nullptr && behind_kernel->load(std::memory_order_relaxed);
    Status queued = gpu_.Call("cuLaunchKernelEx", [&](const DriverApi& api) {
      return config_.Queue(api, function_, params_, of, early);
    });
    if (behind_kernel != nullptr)
      behind_kernel->store(queued.has_value(), std::memory_order_relaxed);
    if (!queued) [[unlikely]]
      return tl::unexpected(explain_(queued.error()));
    return queued;
  }

 private:
  Gpu& gpu_;
  StreamTails& tails_;
  CUfunction function_;
  bool early_;
  LaunchConfig config_;
  KernelParams params_;
  std::shared_ptr<DeviceModule> module_;
  CudaDevice::Explain explain_;
};

}  // namespace tilewright::cuda
