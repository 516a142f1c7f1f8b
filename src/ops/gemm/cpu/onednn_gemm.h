#pragma once

#include "tilewright/gemm.h"

namespace tilewright::gemm {

/// oneDNN's sgemm over plain f32 operands in any order: a provider in the race like any other. It
/// runs on oneDNN's own OpenMP team, with as many threads as the caller's executor has workers, and
/// allocates inside its call.
class OneDnnGemm : public Kernel {
 public:
  OneDnnGemm();

  std::optional<Rejection> IsFeasible(const GemmDesc& problem) const override;
  double EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                    const DeviceSpec& device) const override;
  Status Launch(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                Stream stream) override;
};

}  // namespace tilewright::gemm
