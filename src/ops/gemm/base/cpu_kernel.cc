#include "ops/gemm/base/cpu_kernel.h"

namespace tilewright::gemm {

std::vector<LaunchSpec> CpuKernel::Specs(const GemmDesc& problem, const DeviceSpec& device,
                                         const LaunchLimits& limits) const {
  std::vector<LaunchSpec> specs = Kernel::Specs(problem, device, limits);
  LaunchSpec first = specs.front();
  ForFewerThreads(device.cores, EstimateUs(problem, first, device), [&](int threads) {
    first.config = ThreadsConfig(threads);
    specs.push_back(first);
  });
  return specs;
}

Status CpuKernel::Launch(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                         Stream stream) {
  return LaunchOnThreads(spec.config, stream,
                         [&](Stream limited) { return LaunchOn(args, spec, workspace, limited); });
}

}  // namespace tilewright::gemm
