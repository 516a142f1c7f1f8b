#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/stage_templates.h"
#include "tilewright/stages.h"

namespace tilewright {

/// GEMM as the stages see it.
template <>
struct OpTraits<GemmOp> {
  static std::string FamilyKey(const GemmDesc& problem);
  static std::optional<Rejection> IsFeasible(const Kernel& kernel, const GemmDesc& problem);
  static std::vector<LaunchSpec> Specs(Kernel& kernel, const GemmDesc& problem,
                                       const FeasibleOptions& options,
                                       std::optional<Rejection>& rejection);
  static double EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                           const DeviceSpec& device);
};

/// `problem` with pack_b replaced by the layout that `kernel` reads, where the problem leaves it
/// open.
GemmDesc Packed(const GemmDesc& problem, const Kernel& kernel);

}  // namespace tilewright
