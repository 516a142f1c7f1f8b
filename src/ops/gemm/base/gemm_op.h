#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/op_traits.h"
#include "ops/gemm/base/problem_group.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {

/// GEMM as the stages see it: weights whose layout is still open, and arguments with layouts of
/// their own.
template <>
struct OpTraits<GemmOp> {
  static std::string QuarantineKey(const GemmDesc& problem);
  static Result<GemmDesc> ParseKey(std::string_view key) { return tilewright::ParseKey(key); }
  static std::uint64_t GroupOfKey(std::string_view key) { return GroupOfProblem(key); }
  /// `problem` with pack_b replaced by the layout that `kernel` reads, where the problem leaves it
  /// open.
  static GemmDesc Resolve(const GemmDesc& problem, const Kernel& kernel);
  /// One problem for each layout that feasible kernels read.
  static std::vector<GemmDesc> LookupKeys(const GemmCandidates& candidates);
  static bool Fits(const GemmPlan& plan, const GemmArgs& args, const Workspace& workspace);
  /// Weights are packed once for the kernels of one layout, so every layout has a winner, and the
  /// time of the only kernel of a layout is compared with those of the others.
  static int LayoutOf(const Kernel& kernel) { return kernel.desc().pack_b; }
  static std::vector<int> GroupsOf(std::span<const LaunchSpec> specs);
  static constexpr bool kTimesOnlyCandidate = true;
  static Status Mismatch(const GemmPlan& plan, const GemmArgs& args, const Workspace& workspace);
};

inline GemmDesc Packed(const GemmDesc& problem, const Kernel& kernel) {
  return OpTraits<GemmOp>::Resolve(problem, kernel);
}

}  // namespace tilewright
