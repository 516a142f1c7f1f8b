#include "graph/fake/async_kernels.h"

#include <utility>

#include "sequence/sequences.h"

namespace tilewright {
namespace {

template <class Op>
typename Op::Spec InnerSpec(const typename Op::Spec& spec, typename Op::KernelType& inner) {
  typename Op::Spec of_inner = spec;
  of_inner.kernel = &inner;
  return of_inner;
}

/// What a kernel bound, launched when the stream reaches it.
template <class Op>
class AsyncBound final : public BoundLaunch<Op> {
 public:
  AsyncBound(std::shared_ptr<const BoundLaunch<Op>> inner, FakeDevice& device)
      : inner_(std::move(inner)), device_(device) {}
  Status Launch(const typename Op::Args& args, Workspace& workspace, Stream stream) const override {
    device_.Submit(stream, [inner = inner_, args, workspace, stream]() mutable {
      return inner->Launch(args, workspace, Stream{stream.executor});
    });
    return {};
  }

 private:
  std::shared_ptr<const BoundLaunch<Op>> inner_;
  FakeDevice& device_;
};

/// Forwards to a kernel of the CPU; `Base` is the operation's kernel class.
template <class Op, class Base>
class AsyncKernel : public Base {
 public:
  using Desc = typename Op::Desc;
  using Spec = typename Op::Spec;
  using Inner = typename Op::KernelType;

  template <class... BaseArgs>
  AsyncKernel(Inner& inner, FakeDevice& device, BaseArgs&&... args)
      : Base(std::forward<BaseArgs>(args)...), inner_(inner), device_(device) {}

  std::optional<Rejection> IsFeasible(const Desc& desc) const override {
    return inner_.IsFeasible(desc);
  }
  std::vector<Spec> Specs(const Desc& desc, const DeviceSpec& spec,
                          const LaunchLimits& limits) const override {
    return inner_.Specs(desc, spec, limits);
  }
  double EstimateUs(const Desc& desc, const Spec& spec, const DeviceSpec& device) const override {
    return inner_.EstimateUs(desc, InnerSpec<Op>(spec, inner_), device);
  }
  WorkspaceSize WorkspaceFor(const Desc& desc, const Spec& spec,
                             const DeviceSpec& device) const override {
    return inner_.WorkspaceFor(desc, InnerSpec<Op>(spec, inner_), device);
  }
  std::span<const ConfigField> ConfigFields() const override { return inner_.ConfigFields(); }
  std::string ConfigText(const LaunchConfig& config) const override {
    return inner_.ConfigText(config);
  }
  std::optional<LaunchConfig> ParseConfig(std::string_view text) const override {
    return inner_.ParseConfig(text);
  }
  Result<std::shared_ptr<const BoundLaunch<Op>>> BindLaunch(const Desc& desc, const Spec& spec,
                                                            Device& device) const override {
    auto bound = inner_.BindLaunch(desc, InnerSpec<Op>(spec, inner_), device);
    if (!bound || *bound == nullptr) return bound;
    return std::make_shared<const AsyncBound<Op>>(*bound, device_);
  }
  Status Launch(const typename Op::Args& args, const Spec& spec, Workspace& workspace,
                Stream stream) override {
    device_.Submit(stream, [this, args, spec, workspace, stream]() mutable {
      return inner_.Launch(args, InnerSpec<Op>(spec, inner_), workspace, Stream{stream.executor});
    });
    return {};
  }

 protected:
  Inner& inner_;
  FakeDevice& device_;
};

class AsyncGemm final : public AsyncKernel<GemmOp, Kernel> {
 public:
  AsyncGemm(Kernel& inner, FakeDevice& device)
      : AsyncKernel(inner, device, inner.info(), inner.desc()) {}
  int GetMaxSwizzle(const GemmShape& shape) const override { return inner_.GetMaxSwizzle(shape); }
  int GetMaxSplits(const GemmShape& shape, int swizzle, std::size_t barriers_size,
                   std::size_t partials_size) const override {
    return inner_.GetMaxSplits(shape, swizzle, barriers_size, partials_size);
  }
  std::size_t PartialsBytes(const GemmDesc& problem, const LaunchSpec& spec,
                            const DeviceSpec& device) const override {
    return inner_.PartialsBytes(problem, InnerSpec<GemmOp>(spec, inner_), device);
  }
  std::size_t PackedBytes(const MatrixLayout& b) const override { return inner_.PackedBytes(b); }
  Status PackB(const void* plain, const MatrixLayout& b, void* packed,
               Stream stream) const override {
    return inner_.PackB(plain, b, packed, stream);
  }
};

/// Every operation but GEMM, whose kernels are OpKernels and nothing more.
template <class Op>
class AsyncOp final : public AsyncKernel<Op, OpKernel<Op>> {
 public:
  AsyncOp(OpKernel<Op>& inner, FakeDevice& device)
      : AsyncKernel<Op, OpKernel<Op>>(inner, device, inner.info()) {}
};

template <class Op>
std::unique_ptr<typename Op::KernelType> Wrap(typename Op::KernelType& inner, FakeDevice& device) {
  if constexpr (std::is_same_v<Op, GemmOp>) {
    return std::make_unique<AsyncGemm>(inner, device);
  } else {
    return std::make_unique<AsyncOp<Op>>(inner, device);
  }
}

}  // namespace

std::unique_ptr<Kernels> MakeAsyncKernels(const Kernels& inner, FakeDevice& device) {
  auto kernels = std::make_unique<Kernels>();
  ForEachOperation([&]<class Op>() {
    for (auto* kernel : inner.of<Op>().kernels()) {
      if (!IsSequence(kernel->info()))
        static_cast<void>(kernels->of<Op>().Add(Wrap<Op>(*kernel, device)));
    }
  });
  AddSequences(kernels->gemm(), kernels->of<copy::Op>(), kernels->of<elementwise::Op>());
  return kernels;
}

}  // namespace tilewright
