#pragma once

#include "device/cuda/driver_api.h"

namespace tilewright::cuda {

/// Makes a context current on this thread, which driver calls are about, until the end of a block;
/// then the caller's is current again. A thread that had none keeps ours, so that its next call
/// finds it in place.
class ContextScope {
 public:
  /// For a block that makes another one current itself.
  explicit ContextScope(const DriverApi& api) : api_(api), result_(api.cuCtxGetCurrent(&before_)) {}
  ContextScope(const DriverApi& api, CUcontext context) : api_(api) {
    result_ = api.cuCtxGetCurrent(&before_);
    if (result_ != CUDA_SUCCESS || before_ == context) {
      before_ = nullptr;
      return;
    }
    result_ = api.cuCtxSetCurrent(context);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    if (before_ != nullptr) api_.cuCtxSetCurrent(before_);
  }
  CUresult result() const { return result_; }

 private:
  const DriverApi& api_;
  CUcontext before_ = nullptr;  ///< to be made current again; nullptr: none
  CUresult result_ = CUDA_SUCCESS;
};

}  // namespace tilewright::cuda
