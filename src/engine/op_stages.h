#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/op.h"
#include "engine/stage_templates.h"

namespace tilewright {

/// A kernel of an operation without launch parameters, as the stages see it.
template <class KernelT>
struct OpSpec {
  KernelT* kernel = nullptr;
  float measured_us = 0;
  float predicted_us = 0;

  bool operator==(const OpSpec& o) const { return kernel == o.kernel; }
};

template <class Desc, class Args>
struct OpOf {
  using Problem = Desc;
  using KernelType = OpKernel<Desc, Args>;
  using Spec = OpSpec<KernelType>;
};

template <class Desc, class Args>
struct OpTraits<OpOf<Desc, Args>> {
  using Op = OpOf<Desc, Args>;
  using Spec = typename Op::Spec;

  static std::string FamilyKey(const Desc& desc) { return KeyOf(desc); }
  static std::optional<Rejection> IsFeasible(const OpKernel<Desc, Args>& kernel, const Desc& desc) {
    if constexpr (requires { desc.guarantee; }) {
      if (auto no = kernel.CheckGuarantee(desc.guarantee)) return no;
    }
    return kernel.IsFeasible(desc);
  }
  static std::vector<Spec> Specs(OpKernel<Desc, Args>& kernel, const Desc&, const FeasibleOptions&,
                                 std::optional<Rejection>&) {
    return {Spec{&kernel}};
  }
  static double EstimateUs(const Desc& desc, const Spec& spec, const DeviceSpec& device) {
    return spec.kernel->EstimateUs(desc, device);
  }
};

/// Nobody has pinned or measured anything.
template <class Op>
struct NoRecords {
  Result<std::optional<typename Op::Spec>> Pinned(const Candidates<Op>&) const {
    return std::optional<typename Op::Spec>();
  }
  std::optional<RecordedSpec<Op>> Exact(const Candidates<Op>&) const { return std::nullopt; }
  std::optional<RecordedSpec<Op>> Interpolated(const Candidates<Op>&) const { return std::nullopt; }
  bool WantsMeasurement() const { return false; }
};

template <class Desc, class Args>
using OpChoice = Choice<OpOf<Desc, Args>>;

/// Every kernel of `registry` for `desc`, feasible or with its reason. The operation's room
/// validates `desc` beforehand.
template <class Desc, class Args>
Candidates<OpOf<Desc, Args>> FeasibleOp(const Desc& desc, const OpRegistry<Desc, Args>& registry,
                                        const DeviceSpec& device,
                                        const FeasibleOptions& options = {}) {
  using S = Stages<OpOf<Desc, Args>>;
  return S::Feasible(S::Pass(desc), registry.kernels(), device, options);
}

/// The kernel that the model ranks first; the reference kernel when nothing else can;
/// ErrorCode::kUnsupported with every kernel's reason when nothing can. `providers` is a mask of
/// Bit(Provider).
template <class Desc, class Args>
Result<OpChoice<Desc, Args>> ChooseOp(const Desc& desc, const OpRegistry<Desc, Args>& registry,
                                      const DeviceSpec& device,
                                      std::uint32_t providers = FeasibleOptions{}.providers) {
  FeasibleOptions options;
  options.providers = providers;
  return Stages<OpOf<Desc, Args>>::Choose(FeasibleOp(desc, registry, device, options),
                                          NoRecords<OpOf<Desc, Args>>{});
}

}  // namespace tilewright
