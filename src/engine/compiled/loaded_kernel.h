#pragma once

#include <memory>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "tilewright/artifact_store.h"

namespace tilewright {

/// A compiled kernel in the memory of a CUDA device. Refers to the device, which must outlive it.
/// Any thread.
class LoadedKernel {
 public:
  /// Finds or compiles `spec` and loads it into `device`. kUnsupported for a device of another
  /// kind; else what ArtifactStore::Compile and Device::LoadModule fail with.
  static Result<LoadedKernel> Load(ArtifactStore& store, const KernelSpec& spec, Device& device);

  /// Queues a launch. What the launcher rejects, such as an address, is kInvalidArgument: the
  /// arguments do not match the plan's problem. Allocates only for an error message.
  Status Launch(cuda::LaunchResult launch, Stream stream) const;
  /// The same kernel, but Launch appends to `launches` what it would queue; `launches` must outlive
  /// it.
  LoadedKernel Recording(std::vector<cuda::CudaLaunch>& launches) const;
  /// A launch that was recorded, to be queued any number of times (CudaDevice::Ready).
  Result<std::unique_ptr<ReadyLaunch>> Ready(const cuda::CudaLaunch& launch,
                                             cuda::CudaDevice::Explain explain) const;
  const DeviceSpec& device() const { return device_->spec(); }

 private:
  LoadedKernel(cuda::CudaDevice& device, std::shared_ptr<DeviceModule> module, void* function,
               bool waits)
      : device_(&device), module_(std::move(module)), function_(function), waits_(waits) {}

  cuda::CudaDevice* device_;
  std::shared_ptr<DeviceModule> module_;
  void* function_;
  bool waits_;  // by itself for the kernels before it: launches say so
  std::vector<cuda::CudaLaunch>* record_ = nullptr;
};

}  // namespace tilewright
