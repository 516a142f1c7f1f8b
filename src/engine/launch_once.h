#pragma once

#include "engine/stage_templates.h"

namespace tilewright {

/// Owns the scratch memory of one launch.
class OwnedWorkspace {
 public:
  explicit OwnedWorkspace(const WorkspaceSize& size)
      : barriers_(Buffer::Make(size.barriers)), partials_(Buffer::Make(size.partials)) {
    workspace_.barriers = barriers_.data(), workspace_.barriers_size = size.barriers;
    workspace_.partials = partials_.data(), workspace_.partials_size = size.partials;
    auto* bytes = barriers_.as<unsigned char>();
    for (std::size_t i = 0; i < size.barriers; ++i) bytes[i] = 0;
  }
  Workspace& workspace() { return workspace_; }

 private:
  Buffer barriers_, partials_;
  Workspace workspace_;
};

/// The whole path with one kernel as the registry, on the CPU: validate, feasible, choose, bind,
/// run. For tests and tools; a program keeps its plan.
template <class Op>
Status LaunchOnce(typename Op::KernelType& kernel, const typename Op::Args& args, Stream stream,
                  CallTerms terms = {}) {
  using S = Stages<Op>;
  terms.threads = stream.exec().workers();
  const auto desc = DescOf(args, terms);
  if (!desc) return Fail(desc.error());
  const Result<Checked<Op>> checked = Validate(*desc);
  if (!checked) return Fail(checked.error());
  typename Op::KernelType* const kernels[] = {&kernel};
  const Candidates<Op> candidates = S::Feasible(*checked, kernels, HostDevice().spec(), {});
  const Result<Choice<Op>> choice =
      S::Choose(candidates, nullptr, nullptr, DispatchPolicy::kDefault);
  if (!choice) return Fail(choice.error());
  const Result<Plan<Op>> plan = S::Bind(*choice, HostDevice());
  if (!plan) return Fail(plan.error());
  OwnedWorkspace owned(plan->workspace());
  return Run(*plan, args, owned.workspace(), stream);
}

}  // namespace tilewright
