#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/fingerprint.h"
#include "tilewright/kernel.h"

namespace tilewright {

/// What every CPU kernel of ours says of itself. Each row of these operations is computed on its
/// own, in a fixed order: the result depends neither on the threads nor on the other rows.
inline KernelInfo CpuKernelInfo(std::string name, std::string_view tu, std::uint32_t features) {
  KernelInfo info;
  info.name = std::move(name);
  info.fingerprint = std::string(TuFingerprint(tu));
  info.features = features;
  info.batch_invariant = true;
  return info;
}

/// A kernel made of a record of functions, `Impl`, which a kernel file exports: what the kernels of
/// one operation share is in the three functions, what differs by instruction set is in the record.
/// Immutable; any thread.
template <class Desc, class Args, class Impl>
class FunctionKernel final : public OpKernel<Desc, Args> {
 public:
  struct Shared {
    std::optional<Rejection> (*feasible)(const Impl&, const Desc&);
    double (*estimate_us)(const Impl&, const Desc&, const DeviceSpec&);
    Status (*launch)(const Impl&, const Args&, Stream);
  };

  FunctionKernel(KernelInfo info, const Impl& impl, const Shared& shared)
      : OpKernel<Desc, Args>(std::move(info)), impl_(impl), shared_(shared) {}

  std::optional<Rejection> IsFeasible(const Desc& desc) const override {
    return shared_.feasible(impl_, desc);
  }
  double EstimateUs(const Desc& desc, const DeviceSpec& device) const override {
    return shared_.estimate_us(impl_, desc, device);
  }
  Status Launch(const Args& args, Stream stream) const override {
    return shared_.launch(impl_, args, stream);
  }

 private:
  Impl impl_;
  Shared shared_;
};

}  // namespace tilewright
