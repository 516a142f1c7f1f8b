#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "device/cuda/driver.h"
#include "tilewright/result.h"

namespace tilewright::cuda {

/// Whether a GPU still works. An illegal address in a kernel and its like end the context: whatever
/// is called from then on fails with the same error. The call that meets it first reports it; after
/// that no call shall reach the driver. Any thread.
class DeviceHealth {
 public:
  /// `device`: "GPU 0 (NVIDIA H200)". The driver must outlive it.
  DeviceHealth(const CudaDriver& driver, std::string device);
  ~DeviceHealth();

  bool lost() const { return loss_.load(std::memory_order_acquire) != nullptr; }
  /// Success while the device works; else kUnavailable: `call` was not made, since when and why.
  Status Alive(std::string_view call) const {
    if (!lost()) [[likely]]
      return {};
    return Lost(call);
  }
  /// What the driver answered to `call`, with the device's name.
  Status Check(CUresult result, std::string_view call) {
    if (result == CUDA_SUCCESS) [[likely]]
      return {};
    return Failed(result, call);
  }

 private:
  [[gnu::cold]] Status Lost(std::string_view call) const;
  [[gnu::cold]] Status Failed(CUresult result, std::string_view call);

  const CudaDriver& driver_;
  const std::string device_;
  std::atomic<const std::string*> loss_{nullptr};  ///< what ended it; owned
};

/// Whether no later call of the context can succeed after `result`.
bool EndsContext(CUresult result);

}  // namespace tilewright::cuda
