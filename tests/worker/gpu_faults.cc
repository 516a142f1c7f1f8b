#include "gpu_faults.h"

#include <map>
#include <string_view>

#include "device/cuda/cuda_device.h"

namespace tilewright::test {
namespace {

constexpr std::string_view kSource = R"(
extern "C" __global__ void traps(long long) { asm volatile("trap;"); }
extern "C" __global__ void illegal(long long address) { *reinterpret_cast<volatile int*>(address) = 1; }
extern "C" __global__ void spins(long long) { for (;;) asm volatile("nanosleep.u32 100;"); }
)";

class FaultLaunch final : public BoundLaunch<norm::Op> {
 public:
  FaultLaunch(cuda::CudaDevice& device, std::unique_ptr<DeviceModule> module, void* function)
      : device_(device), module_(std::move(module)), function_(function) {}
  Status Launch(const norm::Args&, Workspace&, Stream stream) const override {
    cuda::CudaLaunch launch;
    launch.block = {32, 1, 1};
    launch.params = cuda::KernelParams(std::int64_t{64});
    return device_.Launch(function_, launch, stream);
  }

 private:
  cuda::CudaDevice& device_;
  std::unique_ptr<DeviceModule> module_;
  void* function_;
};

class FaultNorm final : public norm::Kernel {
 public:
  FaultNorm(const char* name, const char* symbol) : norm::Kernel(Info(name)), symbol_(symbol) {}
  std::optional<Rejection> IsFeasible(const norm::Desc&) const override { return std::nullopt; }
  double EstimateUs(const norm::Desc&, const Spec&, const DeviceSpec&) const override { return 1; }
  Result<std::shared_ptr<const BoundLaunch<norm::Op>>> BindLaunch(const norm::Desc&, const Spec&,
                                                                  Device& device) const override {
    const auto compiler = LoadNvrtc();
    if (!compiler) return Fail(compiler.error());
    const std::string options[] = {"--gpu-architecture=" +
                                   NativeArch(device.spec().compute_capability).ToString()};
    const CompileJob job{"fault.cu", kSource, {}, options, symbol_};
    const auto compiled = (*compiler)->Compile(job, {});
    if (!compiled) return Fail(compiled.error().error);
    auto module = device.LoadModule(std::as_bytes(std::span(compiled->cubin)));
    if (!module) return Fail(module.error());
    const Result<void*> function = (*module)->Function(symbol_);
    if (!function) return Fail(function.error());
    return std::shared_ptr<const BoundLaunch<norm::Op>>(std::make_shared<FaultLaunch>(
        *cuda::CudaDevice::Of(device), std::move(*module), *function));
  }
  Status Launch(const norm::Args&, const Spec&, Workspace&, Stream) override {
    return Fail(ErrorCode::kInternal, "only what was bound is launched");
  }

 private:
  static KernelInfo Info(const char* name) {
    KernelInfo info;
    info.name = name;
    info.fingerprint = "1";
    info.device = DeviceKind::kCuda;
    info.provider = Provider::kUser;
    return info;
  }
  const char* symbol_;
};

}  // namespace

Status AddGpuFaults(norm::Registry& registry) {
  for (const auto& [name, symbol] :
       {std::pair{kTraps, "traps"}, {kIllegal, "illegal"}, {kSpins, "spins"}}) {
    if (Status added = registry.Add(std::make_unique<FaultNorm>(name, symbol)); !added)
      return added;
  }
  return {};
}

}  // namespace tilewright::test
