#pragma once

#include <span>
#include <vector>

#include "engine/cpu_threads.h"
#include "tilewright/gemm.h"

namespace tilewright::gemm {

/// Base of the GEMM kernels that run on an executor: how many of its workers is their launch
/// configuration.
class CpuKernel : public Kernel {
 public:
  using Kernel::Kernel;
  std::span<const ConfigField> ConfigFields() const override { return kThreadsField; }

  /// All workers with every swizzle and number of splits; then, if that takes little time, fewer
  /// workers with the first of these. More combinations for fewer workers would only cost the tuner
  /// time.
  std::vector<LaunchSpec> Specs(const GemmDesc& problem, const DeviceSpec& device,
                                const LaunchLimits& limits) const override;
  Status Launch(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                Stream stream) final;

 protected:
  /// Launch on all workers of `stream`.
  virtual Status LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                          Stream stream) = 0;
};

}  // namespace tilewright::gemm
