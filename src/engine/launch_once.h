#pragma once

#include "engine/stage_templates.h"

namespace tilewright {

/// The whole path with one kernel as the registry, on the CPU: validate, feasible, choose, bind,
/// run. For tests and tools; a program keeps its plan.
template <class Op>
Status LaunchOnce(typename Op::KernelType& kernel, const typename Op::Args& args, Stream stream,
                  const CallTerms& terms = {}) {
  using S = Stages<Op>;
  const auto desc = DescOf(args, terms);
  if (!desc) return Fail(desc.error());
  const Result<Checked<Op>> checked = Validate(*desc);
  if (!checked) return Fail(checked.error());
  typename Op::KernelType* const kernels[] = {&kernel};
  DeviceSpec spec = HostDevice().spec();
  spec.cores = stream.exec().workers();
  const std::unique_ptr<Device> device = MakeCpuDevice(std::move(spec));
  const Candidates<Op> candidates = S::Feasible(*checked, kernels, device->spec(), {});
  const Result<Choice<Op>> choice =
      S::Choose(candidates, nullptr, nullptr, DispatchPolicy::kDefault);
  if (!choice) return Fail(choice.error());
  const Result<Plan<Op>> plan = S::Bind(*choice, *device);
  if (!plan) return Fail(plan.error());
  Result<OwnedWorkspace> owned = OwnedWorkspace::Make(plan->workspace(), *device);
  if (!owned) return Fail(owned.error());
  return Run(*plan, args, owned->get(), stream);
}

}  // namespace tilewright
