#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "device/cuda/gpu.h"
#include "device/cuda/stream_tails.h"
#include "device/ready_launch.h"

namespace tilewright::cuda {

/// Queues a launch behind what `stream` was given. `early`: it may start before a kernel in front of
/// it has ended.
inline Status QueueLaunch(Gpu& gpu, StreamTails& tails, const LaunchConfig& config,
                          CUfunction function, const KernelParams& params, CUstream stream,
                          bool early) {
  std::atomic<bool>* const last_is_kernel = tails.LastIsKernel(stream);
  early = early && last_is_kernel != nullptr && last_is_kernel->load(std::memory_order_relaxed);
  Status queued = gpu.Call("cuLaunchKernelEx", [&](const DriverApi& api) {
    return config.Queue(api, function, params, stream, early);
  });
  if (last_is_kernel != nullptr)
    last_is_kernel->store(queued.has_value(), std::memory_order_relaxed);
  return queued;
}

/// A launch as the driver takes it. To queue it is one function that reads one block of memory:
/// between two launches the driver leaves little of either in the first caches.
class GpuLaunch final : public ReadyLaunch {
 public:
  /// `launch`: its tensor maps are encoded. `early` as of QueueLaunch. `module` is kept as long as
  /// this; the others must outlive it.
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
    Status queued = QueueLaunch(gpu_, tails_, config_, function_, params_,
                                static_cast<CUstream>(stream.native), early_);
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
