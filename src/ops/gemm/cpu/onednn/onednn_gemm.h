#pragma once

#include "ops/gemm/base/cpu_kernel.h"
#include "tilewright/gemm.h"

namespace tilewright::gemm {

/// oneDNN's sgemm over plain f32 operands in any order: a provider in the race like any other. D is
/// cut into pieces whose sizes depend on its shape alone, one serial sgemm each, run as tasks of
/// the caller's executor: no OpenMP thread is started, and the caller's OpenMP settings are as
/// before after the call. oneDNN compiles its code at the first call of a kind: BindLaunch makes
/// that call. Needs the whole instruction-set level of this machine, whatever TILEWRIGHT_ISA says:
/// oneDNN would use it.
class OneDnnGemm : public CpuKernel {
 public:
  OneDnnGemm();

  std::optional<Rejection> IsFeasible(const GemmDesc& problem) const override;
  double EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                    const DeviceSpec& device) const override;
  Result<std::shared_ptr<const BoundLaunch<GemmOp>>> BindLaunch(const GemmDesc& problem,
                                                                const LaunchSpec& spec,
                                                                Device& device) const override;

 private:
  Status LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                  Stream stream) override;
};

}  // namespace tilewright::gemm
