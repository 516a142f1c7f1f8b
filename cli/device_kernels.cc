#include "device_kernels.h"

#include <utility>

#include "artifacts.h"

namespace tilewright::cli {
namespace {

/// Whether a context on `here` has the kernels that `device` would have.
bool SameKernels(const DeviceSpec& device, const DeviceSpec& here) {
  if (device.kind != here.kind) return false;
  return device.kind == DeviceKind::kCpu ||
         NativeArch(device.compute_capability) == NativeArch(here.compute_capability);
}

}  // namespace

Result<DeviceKernels> DeviceKernels::For(const DeviceSpec& device, const Context& context,
                                         const CommonOptions& common) {
  if (SameKernels(device, context.device_spec())) return DeviceKernels(context.kernels());
  if (device.kind == DeviceKind::kCpu) {
    return Fail(ErrorCode::kInvalidArgument,
                "a decision for a CPU needs --device cpu: the kernels here are a GPU's");
  }
  // Nothing is bound, so nothing is compiled or written.
  const CacheMode mode = CacheMode::kReadonly;
  Result<std::unique_ptr<ArtifactStore>> store = OpenArtifacts(common, {}, &mode);
  if (!store) return Fail(store.error());
  Result<std::unique_ptr<Kernels>> compiled =
      MakeCudaKernels(**store, NativeArch(device.compute_capability));
  if (!compiled) return Fail(compiled.error());
  DeviceKernels kernels(**compiled);
  kernels.store_ = std::move(*store);
  kernels.compiled_ = std::move(*compiled);
  return kernels;
}

}  // namespace tilewright::cli
