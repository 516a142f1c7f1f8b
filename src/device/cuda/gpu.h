#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "device/cuda/context_scope.h"
#include "device/cuda/device_health.h"
#include "device/cuda/driver.h"

namespace tilewright::cuda {

/// Calls of the driver, in the context of one GPU and as long as that works. Any thread.
class Gpu {
 public:
  Gpu(Context context, std::string name)
      : context_(std::move(context)), health_(context_.driver(), std::move(name)) {}

  const CudaDriver& driver() const { return context_.driver(); }
  Status Alive(std::string_view call) const { return health_.Alive(call); }
  bool lost() const { return health_.lost(); }

  /// `f(api)`, which is a call of `name`.
  template <class F>
  Status Call(std::string_view name, F&& f) {
    if (lost()) [[unlikely]]
      return Alive(name);
    const ContextScope scope(driver().api(), context_.get());
    CUresult result = scope.result();
    if (result == CUDA_SUCCESS) [[likely]]
      result = f(driver().api());
    return health_.Check(result, name);
  }
  /// What `f(of)` returns, which calls another library in this context.
  Status Within(std::string_view name, Status (*f)(void*), void* of) {
    if (lost()) [[unlikely]]
      return Alive(name);
    const ContextScope scope(driver().api(), context_.get());
    if (scope.result() != CUDA_SUCCESS) return health_.Check(scope.result(), name);
    return f(of);
  }
  /// A call that releases something. Of a lost context nothing is left to release.
  template <class F>
  void Release(std::string_view name, F&& f) {
    static_cast<void>(Call(name, std::forward<F>(f)));
  }

 private:
  Context context_;
  DeviceHealth health_;
};

}  // namespace tilewright::cuda
