#pragma once

#include "engine/stage_templates.h"

namespace tilewright {

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
  Result<OwnedWorkspace> owned = OwnedWorkspace::Make(plan->workspace(), HostDevice());
  if (!owned) return Fail(owned.error());
  return Run(*plan, args, owned->get(), stream);
}

}  // namespace tilewright
