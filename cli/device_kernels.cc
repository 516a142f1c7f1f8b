#include "device_kernels.h"

#include <utility>

#include "artifacts.h"

namespace tilewright::cli {

Result<DeviceKernels> DeviceKernels::For(const DeviceSpec& device, const Context& context,
                                         const CommonOptions& common) {
  DeviceKernels kernels;
  kernels.kernels_ = &context.kernels();
  if (device.kind == DeviceKind::kCpu) return kernels;
  // Nothing is bound, so nothing is compiled or written.
  const CacheMode mode = CacheMode::kReadonly;
  Result<std::unique_ptr<ArtifactStore>> store = OpenArtifacts(common, {}, &mode);
  if (!store) return Fail(store.error());
  kernels.store_ = std::move(*store);
  Result<std::unique_ptr<Kernels>> compiled =
      MakeCudaKernels(*kernels.store_, NativeArch(device.compute_capability));
  if (!compiled) return Fail(compiled.error());
  kernels.compiled_ = std::move(*compiled);
  kernels.kernels_ = kernels.compiled_.get();
  return kernels;
}

}  // namespace tilewright::cli
