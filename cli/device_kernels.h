#pragma once

#include <memory>
#include <string>

#include "common.h"

namespace tilewright::cli {

/// The kernels that a decision for a device is about: those of the context, or, for a GPU, those
/// that would be compiled for it. Views live as long as this and the context.
class DeviceKernels {
 public:
  explicit DeviceKernels(const Kernels& kernels) : kernels_(&kernels) {}
  /// kUnsupported for a GPU that no kernel is made for.
  static Result<DeviceKernels> For(const DeviceSpec& device, const Context& context,
                                   const CommonOptions& common);
  const Kernels& operator*() const { return *kernels_; }
  const Kernels* operator->() const { return kernels_; }

 private:
  std::unique_ptr<ArtifactStore> store_;
  std::unique_ptr<Kernels> compiled_;
  const Kernels* kernels_ = nullptr;
};

}  // namespace tilewright::cli
