#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fingerprint.h"
#include "engine/cpu_threads.h"
#include "tilewright/operation.h"

namespace tilewright {

/// The description that all our CPU kernels share. Each row of these operations is computed on its
/// own, in a fixed order: the result depends neither on the threads nor on the other rows.
inline KernelInfo CpuKernelInfo(std::string name, std::string_view tu, std::uint32_t features) {
  KernelInfo info;
  info.name = std::move(name);
  info.fingerprint = std::string(TuFingerprint(tu));
  info.features = features;
  info.batch_invariant = true;
  return info;
}

/// The description of the float64 oracle as a kernel: it accepts every type and is chosen only when
/// nothing else can run.
inline KernelInfo ReferenceKernelInfo(std::string name) {
  KernelInfo info;
  info.name = std::move(name);
  info.fingerprint = "reference";
  info.batch_invariant = true;
  info.reference = true;
  return info;
}

/// A kernel made of a record of functions, `Impl`, which a kernel file exports: what the kernels of
/// one operation share is in the three functions, what differs by instruction set is in the record.
/// Immutable; any thread.
template <class Op, class Impl>
class FunctionKernel final : public OpKernel<Op> {
 public:
  using typename OpKernel<Op>::Desc;
  using typename OpKernel<Op>::Args;
  using typename OpKernel<Op>::Spec;
  struct Shared {
    std::optional<Rejection> (*feasible)(const Impl&, const Desc&);
    double (*estimate_us)(const Impl&, const Desc&, int workers);
    Status (*launch)(const Impl&, const Args&, Stream);
  };

  FunctionKernel(KernelInfo info, const Impl& impl, const Shared& shared)
      : OpKernel<Op>(std::move(info)), impl_(impl), shared_(shared) {}

  std::optional<Rejection> IsFeasible(const Desc& desc) const override {
    return shared_.feasible(impl_, desc);
  }
  std::span<const ConfigField> ConfigFields() const override { return kThreadsField; }
  /// Fewer threads are tried only where they would use fewer workers than all: a small problem is
  /// not divided anyway.
  std::vector<Spec> Specs(const Desc& desc, const DeviceSpec& device,
                          const LaunchLimits&) const override {
    std::vector<Spec> specs(1);
    const double all_us = EstimateUs(desc, specs[0], device);
    ForFewerThreads(device.cores, all_us, [&](int threads) {
      if (shared_.estimate_us(impl_, desc, threads) > all_us)
        specs.emplace_back().config = ThreadsConfig(threads);
    });
    return specs;
  }
  double EstimateUs(const Desc& desc, const Spec& spec, const DeviceSpec& device) const override {
    return shared_.estimate_us(impl_, desc, WorkersOf(spec.config, device.cores));
  }
  Status Launch(const Args& args, const Spec& spec, Workspace&, Stream stream) override {
    return LaunchOnThreads(spec.config, stream,
                           [&](Stream limited) { return shared_.launch(impl_, args, limited); });
  }

 private:
  Impl impl_;
  Shared shared_;
};

/// The oracle of an operation as its kernel of last resort.
template <class Op>
class ReferenceOpKernel final : public OpKernel<Op> {
 public:
  using typename OpKernel<Op>::Desc;
  using typename OpKernel<Op>::Args;
  using typename OpKernel<Op>::Spec;
  struct Functions {
    std::optional<Rejection> (*feasible)(const Desc&);
    double (*estimate_us)(const Desc&);
    Status (*launch)(const Args&);
  };

  ReferenceOpKernel(std::string name, const Functions& functions)
      : OpKernel<Op>(ReferenceKernelInfo(std::move(name))), functions_(functions) {}

  std::optional<Rejection> IsFeasible(const Desc& desc) const override {
    return functions_.feasible(desc);
  }
  double EstimateUs(const Desc& desc, const Spec&, const DeviceSpec&) const override {
    return functions_.estimate_us(desc);
  }
  Status Launch(const Args& args, const Spec&, Workspace&, Stream) override {
    return functions_.launch(args);
  }

 private:
  Functions functions_;
};

}  // namespace tilewright
