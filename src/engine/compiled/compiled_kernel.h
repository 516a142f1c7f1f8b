#pragma once

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/argument_binder.h"
#include "engine/compiled/loaded_kernel.h"
#include "tilewright/operation.h"

namespace tilewright {

/// What the kernels of one family have in common as candidates of `Op`: pure functions of a spec.
template <class Op>
struct CompiledFamily {
  /// Checks what a GEMM's KernelDesc (types, orders and so on) does not: nullopt if `launch`
  /// accepts any arguments of this problem.
  std::optional<Rejection> (*feasible)(const KernelSpec&, const typename Op::Desc&);
  double (*estimate_us)(const KernelSpec&, const typename Op::Desc&, const DeviceSpec&);
  /// Queues the launch, or the launches, of the arguments.
  Status (*launch)(const KernelSpec&, const typename Op::Args&, const LoadedKernel&, Stream);
  /// For kernels that need scratch memory: how much, and the launch with it instead of `launch`.
  WorkspaceSize (*workspace)(const KernelSpec&, const typename Op::Desc&,
                             const DeviceSpec&) = nullptr;
  Status (*launch_within)(const KernelSpec&, const typename Op::Args&, const LoadedKernel&,
                          const Workspace&, Stream) = nullptr;
  /// Which kernels KernelInfo::batch_invariant is true of; null: none.
  bool (*batch_invariant)(const KernelSpec&) = nullptr;
};

/// For families whose kernels all are.
inline bool AlwaysBatchInvariant(const KernelSpec&) { return true; }

/// The kernel of one spec as a candidate. Its name is the spec's and its fingerprint the request
/// key: changed sources are another kernel. It is compiled, or found in the store, when it is
/// bound. `store` must outlive it. Immutable; any thread.
template <class Op>
class CompiledKernel final : public Op::KernelType {
 public:
  using Base = typename Op::KernelType;
  using Desc = typename Op::Desc;
  using Args = typename Op::Args;
  using Spec = typename Op::Spec;

  /// `base`: what Op::KernelType is made of beside KernelInfo.
  template <class... BaseArgs>
  CompiledKernel(const KernelSpec& spec, const ArtifactKey& request,
                 const CompiledFamily<Op>& family, ArtifactStore& store, BaseArgs&&... base)
      : Base(InfoOf(spec, request, family, store), std::forward<BaseArgs>(base)...),
        spec_(spec),
        family_(family),
        store_(store) {}

  std::optional<Rejection> CheckDevice(const DeviceSpec& device) const override {
    if (auto no = Base::CheckDevice(device)) return no;
    if (spec_.arch.RunsOn(device.compute_capability)) return std::nullopt;
    return Rejection{Reason::kDevice,
                     "compute capability " + std::to_string(device.compute_capability / 10) + "." +
                         std::to_string(device.compute_capability % 10),
                     "one that runs code for " + spec_.arch.ToString()};
  }
  std::optional<Rejection> IsFeasible(const Desc& desc) const override {
    if constexpr (!std::is_same_v<Base, OpKernel<Op>>) {
      if (auto no = Base::IsFeasible(desc)) return no;
    }
    return family_.feasible(spec_, desc);
  }
  double EstimateUs(const Desc& desc, const Spec&, const DeviceSpec& device) const override {
    return family_.estimate_us(spec_, desc, device);
  }
  WorkspaceSize WorkspaceFor(const Desc& desc, const Spec&,
                             const DeviceSpec& device) const override {
    return family_.workspace != nullptr ? family_.workspace(spec_, desc, device) : WorkspaceSize{};
  }

  Result<std::shared_ptr<const BoundLaunch<Op>>> BindLaunch(const Desc& desc, const Spec&,
                                                            Device& device) const override {
    Result<LoadedKernel> loaded = LoadedKernel::Load(store_, spec_, device);
    if (!loaded) return Fail(loaded.error());
    return std::shared_ptr<const BoundLaunch<Op>>(
        std::make_shared<Bound>(*this, desc, std::move(*loaded)));
  }
  Status Launch(const Args&, const Spec&, Workspace&, Stream) override {
    return Fail(ErrorCode::kInternal,
                std::string(this->name()) + ": only Bind loads what it launches");
  }

 private:
  class Bound final : public BoundLaunch<Op>, public ArgumentBinder<Op> {
   public:
    Bound(const CompiledKernel& kernel, const Desc& desc, LoadedKernel loaded)
        : kernel_(kernel), desc_(desc), loaded_(std::move(loaded)) {}
    Status Launch(const Args& args, Workspace& workspace, Stream stream) const override {
      Status launched = LaunchOn(loaded_, args, workspace, stream);
      if (launched) [[likely]]
        return launched;
      return Fail(kernel_.Explained(desc_, launched.error()));
    }
    Result<std::unique_ptr<ReadyLaunch>> Ready(const Args& args,
                                               Workspace& workspace) const override {
      std::vector<cuda::CudaLaunch> launches;
      Status made = LaunchOn(loaded_.Recording(launches), args, workspace, Stream{});
      if (!made) return tl::unexpected(kernel_.Explained(desc_, made.error()));
      std::vector<std::unique_ptr<ReadyLaunch>> ready;
      for (const cuda::CudaLaunch& launch : launches) {
        Result<std::unique_ptr<ReadyLaunch>> one =
            loaded_.Ready(launch, [&kernel = kernel_, desc = desc_](const Error& error) {
              return kernel.Explained(desc, error);
            });
        if (!one) return one;
        ready.push_back(std::move(*one));
      }
      if (ready.size() == 1) return std::move(ready.front());
      return std::unique_ptr<ReadyLaunch>(std::make_unique<ReadyLaunches>(std::move(ready)));
    }

   private:
    Status LaunchOn(const LoadedKernel& loaded, const Args& args, const Workspace& workspace,
                    Stream stream) const {
      const CompiledFamily<Op>& family = kernel_.family_;
      if (family.launch_within != nullptr)
        return family.launch_within(kernel_.spec_, args, loaded, workspace, stream);
      return family.launch(kernel_.spec_, args, loaded, stream);
    }

    const CompiledKernel& kernel_;
    Desc desc_;
    LoadedKernel loaded_;
  };

  /// An error of a launch, with kernel and problem.
  Error Explained(const Desc& desc, const Error& error) const {
    return {error.code, std::string(this->name()) + " for " + KeyOf(desc) + ": " + error.message};
  }

  static KernelInfo InfoOf(const KernelSpec& spec, const ArtifactKey& request,
                           const CompiledFamily<Op>& common, const ArtifactStore& store) {
    KernelInfo info;
    info.name = SpecName(spec);
    info.fingerprint = request.Hex();
    info.device = DeviceKind::kCuda;
    info.batch_invariant = common.batch_invariant != nullptr && common.batch_invariant(spec);
    if (const KernelFamily* family = store.families().Find(spec.family)) {
      info.smem_bytes = family->launch(spec).dynamic_smem_bytes;
    }
    return info;
  }

  KernelSpec spec_;
  CompiledFamily<Op> family_;
  ArtifactStore& store_;
};

/// Adds what `make(spec, request)` makes of the specs of a family's catalog for `arch`.
/// kInvalidArgument where the store does not have the family; else as MakeRequestRecord.
template <class Op, class Make>
Status AddCompiled(OpRegistry<Op>& registry, const ArtifactStore& store, const FamilyName& name,
                   CudaArch arch, Make&& make) {
  const KernelFamily* family = store.families().Find(name);
  if (family == nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                "the artifact store was opened without the family " + std::string(name.view()));
  }
  KernelFamilies alone;
  if (Status added = alone.Add(*family); !added) return added;
  const Result<KernelSources> sources = KernelSources::Make(alone);
  if (!sources) return Fail(sources.error());
  for (const KernelSpec& spec : family->catalog(arch)) {
    const Result<KeyRecord> request = MakeRequestRecord(spec, *family, *sources);
    if (!request) return Fail(request.error());
    if (Status added = registry.Add(make(spec, request->key)); !added) return added;
  }
  return {};
}

/// Adds a CompiledKernel of `common` for each spec of the catalog; errors as AddCompiled.
template <class Op>
Status AddCompiledFamily(OpRegistry<Op>& registry, ArtifactStore& store, const FamilyName& name,
                         CudaArch arch, const CompiledFamily<Op>& common) {
  return AddCompiled(registry, store, name, arch,
                     [&](const KernelSpec& spec, const ArtifactKey& request) {
                       return std::make_unique<CompiledKernel<Op>>(spec, request, common, store);
                     });
}

}  // namespace tilewright
