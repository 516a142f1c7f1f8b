#include "engine/compiled/loaded_kernel.h"

#include <utility>

#include "core/text.h"

namespace tilewright {

Result<LoadedKernel> LoadedKernel::Load(ArtifactStore& store, const KernelSpec& spec,
                                        Device& device) {
  cuda::CudaDevice* const cuda = cuda::CudaDevice::Of(device);
  if (cuda == nullptr) {
    return Fail(ErrorCode::kUnsupported, Format("compiled for {}: {} cannot run it",
                                                spec.arch.ToString(), device.spec().ClassId()));
  }
  const Result<KernelHandle> compiled = store.Compile(spec);
  if (!compiled) return Fail(compiled.error());
  const ArtifactData& artifact = **compiled;
  Result<std::unique_ptr<DeviceModule>> module =
      device.LoadModule(std::as_bytes(std::span(artifact.cubin)));
  if (!module) return Fail(module.error());
  const Result<void*> function = (*module)->Function(artifact.symbol.c_str());
  if (!function) return Fail(function.error());
  // 48 KiB may be used without a request, static arrays of the kernel included, which are up to 16.
  constexpr std::uint32_t kAlwaysAllowed = 32 << 10;
  if (artifact.launch.dynamic_smem_bytes > kAlwaysAllowed) {
    Status allowed = cuda->AllowDynamicSmem(*function, artifact.launch.dynamic_smem_bytes);
    if (!allowed) return Fail(allowed.error());
  }
  Status fits =
      cuda->CheckFits(*function, artifact.launch.threads, artifact.launch.dynamic_smem_bytes);
  if (!fits) return Fail(fits.error());
  // The instructions that such a kernel waits by are those of sm_90 and newer.
  constexpr std::uint32_t kFirstToWait = 90;
  const KernelFamily* family = store.families().Find(spec.family);
  const bool waits =
      family != nullptr && family->waits_for_prerequisites && spec.arch.number >= kFirstToWait;
  if (waits) {
    // It is to start beside the kernels in front of it, which a multiprocessor that has to divide its
    // memory anew does not allow.
    if (Status same = cuda->PreferSharedMemory(*function); !same) return Fail(same.error());
  }
  return LoadedKernel(*cuda, std::move(*module), *function, waits);
}

Status LoadedKernel::Launch(cuda::LaunchResult launch, Stream stream) const {
  if (!launch) [[unlikely]]
    return Fail(ErrorCode::kInvalidArgument, launch.error().ToString());
  launch->programmatic = waits_ && !launch->cooperative;
  if (record_ != nullptr) {
    record_->push_back(*std::move(launch));
    return {};
  }
  return device_->Launch(function_, *launch, stream);
}

LoadedKernel LoadedKernel::Recording(std::vector<cuda::CudaLaunch>& launches) const {
  LoadedKernel recording = *this;
  recording.record_ = &launches;
  return recording;
}

Result<std::unique_ptr<ReadyLaunch>> LoadedKernel::Ready(const cuda::CudaLaunch& launch,
                                                         cuda::CudaDevice::Explain explain) const {
  return device_->Ready(function_, launch, module_, std::move(explain));
}

}  // namespace tilewright
