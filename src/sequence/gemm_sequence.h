#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/fingerprint.h"
#include "core/sha256.h"
#include "ops/gemm/base/gemm_op.h"
#include "sequence/step.h"
#include "tilewright/gemm_stages.h"

namespace tilewright::sequence {

/// A kernel whose launches consist of other kernels.
class HasParts {
 public:
  virtual std::vector<const KernelBase*> Parts(const LaunchConfig& config) const = 0;

 protected:
  ~HasParts() = default;
};

/// A product and one more operation, one after the other, in place of one kernel that does both: a
/// GEMM kernel like any other, whose launch names the kernels of its steps. The intermediate matrix
/// and what the steps need are in the workspace's partials; the steps are launched on one stream,
/// without a wait between them.
///
/// `Sequence` derives from it and has, all static:
///   GemmDesc GemmProblem(const GemmDesc&)                  // of the product within
///   typename Helper::Desc HelperProblem(const GemmDesc&)   // of the other operation
///   std::size_t IntermediateBytes(std::int64_t m, n, k)
///   Status RunSteps(const GemmArgs&, void* intermediate, gemm, helper)
///     // calls helper(const Helper::Args&) and gemm(const GemmArgs&) in their order
///   constexpr bool kHelperFirst
template <class Sequence, class HelperOp>
class GemmSequence : public Kernel, public HasParts {
 public:
  using HelperSpec = typename HelperOp::Spec;

  GemmSequence(KernelInfo info, const KernelDesc& desc, Step<GemmOp> gemm, Step<HelperOp> helper)
      : Kernel(std::move(info), desc), gemm_(std::move(gemm)), helper_(std::move(helper)) {}

  std::optional<Rejection> IsFeasible(const GemmDesc& p) const override {
    if (auto no = Kernel::IsFeasible(p)) return no;
    if (p.num != 1 || p.type_u != DataType::kNone || p.type_v != DataType::kNone)
      return Rejection{Reason::kQuant, "groups, or scales beside the operands", "neither"};
    const GemmDesc resolved = Resolve(p);
    if (auto no = gemm_.IsFeasible(Sequence::GemmProblem(resolved))) return no;
    return helper_.IsFeasible(Sequence::HelperProblem(resolved));
  }

  /// The model's choice of the other operation's kernel, with every launch of the product.
  std::vector<LaunchSpec> Specs(const GemmDesc& p, const DeviceSpec& device,
                                const LaunchLimits& limits) const override {
    std::vector<LaunchSpec> specs;
    const auto helper = helper_.Choose(Sequence::HelperProblem(p), device, limits.quarantine);
    const auto products = gemm_.Feasible(Sequence::GemmProblem(p), device, limits.quarantine);
    if (!helper || !products) return specs;
    for (const Candidate<GemmOp>& candidate : products->all()) {
      for (const LaunchSpec& inner : candidate.specs) {
        if (inner.splits <= std::max(1, limits.max_splits) && Step<GemmOp>::Fits(inner.config))
          specs.push_back(Compose(inner, *helper));
      }
    }
    std::stable_sort(specs.begin(), specs.end(), [](const LaunchSpec& x, const LaunchSpec& y) {
      return std::pair(x.splits, x.swizzle) < std::pair(y.splits, y.swizzle);
    });
    return specs;
  }

  double EstimateUs(const GemmDesc& p, const LaunchSpec& spec,
                    const DeviceSpec& device) const override {
    const auto steps = Decompose(spec);
    if (!steps) return -1;
    return steps->gemm.kernel->EstimateUs(Sequence::GemmProblem(p), steps->gemm, device) +
           steps->helper.kernel->EstimateUs(Sequence::HelperProblem(p), steps->helper, device);
  }

  /// The intermediate matrix, then what either step needs: they share it, since the first is done
  /// when the second begins.
  WorkspaceSize WorkspaceFor(const GemmDesc& p, const LaunchSpec& spec,
                             const DeviceSpec& device) const override {
    const auto steps = Decompose(spec);
    if (!steps) return {};
    const WorkspaceSize a =
        steps->gemm.kernel->WorkspaceFor(Sequence::GemmProblem(p), steps->gemm, device);
    const WorkspaceSize b =
        steps->helper.kernel->WorkspaceFor(Sequence::HelperProblem(p), steps->helper, device);
    return {.barriers = std::max(a.barriers, b.barriers),
            .partials = Intermediate(p.m, p.n, p.k) + std::max(a.partials, b.partials),
            .tensormaps = std::max(a.tensormaps, b.tensormaps),
            .flags = std::max(a.flags, b.flags)};
  }
  std::size_t PartialsBytes(const GemmDesc& p, const LaunchSpec& spec,
                            const DeviceSpec& device) const override {
    return WorkspaceFor(p, spec, device).partials;
  }

  /// "unpack=copy.avx512 gemm=gemm.f32_f32_f32.xx.avx512.12x32.plain"
  std::string ConfigText(const LaunchConfig& config) const override {
    const auto steps = Decompose(LaunchSpec{.config = config});
    if (!steps) return "none";
    const std::string gemm = gemm_.Text(*steps->gemm.kernel, steps->gemm.config);
    const std::string helper = helper_.Text(*steps->helper.kernel, steps->helper.config);
    return Sequence::kHelperFirst ? helper + " " + gemm : gemm + " " + helper;
  }
  std::optional<LaunchConfig> ParseConfig(std::string_view text) const override {
    decltype(gemm_.Take(text)) gemm;
    decltype(helper_.Take(text)) helper;
    if (Sequence::kHelperFirst) helper = helper_.Take(text);
    gemm = gemm_.Take(text);
    if (!Sequence::kHelperFirst) helper = helper_.Take(text);
    if (!gemm || !helper || !text.empty()) return std::nullopt;
    LaunchSpec of_gemm;
    HelperSpec of_helper;
    of_gemm.kernel = gemm->first, of_gemm.config = gemm->second;
    of_helper.kernel = helper->first, of_helper.config = helper->second;
    return Compose(of_gemm, of_helper).config;
  }

  std::vector<const KernelBase*> Parts(const LaunchConfig& config) const final {
    const auto steps = Decompose(LaunchSpec{.config = config});
    if (!steps) return {};
    if (Sequence::kHelperFirst) return {steps->helper.kernel, steps->gemm.kernel};
    return {steps->gemm.kernel, steps->helper.kernel};
  }

  Result<std::shared_ptr<const BoundLaunch<GemmOp>>> BindLaunch(const GemmDesc& p,
                                                                const LaunchSpec& spec,
                                                                Device& device) const override {
    const auto steps = Decompose(spec);
    if (!steps) return Fail(ErrorCode::kInvalidArgument, "no such steps");
    auto gemm = Stages<GemmOp>::BindSpec(Sequence::GemmProblem(p), steps->gemm, device);
    if (!gemm) return Fail(gemm.error());
    auto helper = Stages<HelperOp>::BindSpec(Sequence::HelperProblem(p), steps->helper, device);
    if (!helper) return Fail(helper.error());
    return std::make_shared<const Bound>(std::move(*gemm), std::move(*helper));
  }

  Status Launch(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                Stream stream) override {
    auto steps = Decompose(spec);
    if (!steps) return Fail(ErrorCode::kInvalidArgument, std::string(name()) + ": no such steps");
    return LaunchSteps(
        args, workspace,
        [&](const GemmArgs& inner, Workspace& scratch) {
          return steps->gemm.kernel->Launch(inner, steps->gemm, scratch, stream);
        },
        [&](const typename HelperOp::Args& inner, Workspace& scratch) {
          return steps->helper.kernel->Launch(inner, steps->helper, scratch, stream);
        });
  }

  std::size_t PackedBytes(const MatrixLayout& b) const override {
    return desc_.pack_b == kPackPlain ? 0 : Packer(b).PackedBytes(b);
  }
  Status PackB(const void* plain, const MatrixLayout& b, void* packed,
               Stream stream) const override {
    if (desc_.pack_b == kPackPlain) return Kernel::PackB(plain, b, packed, stream);
    return Packer(b).PackB(plain, b, packed, stream);
  }

 private:
  /// Kernels of one layout pack alike, but perhaps each only the types that it takes.
  const Kernel& Packer(const MatrixLayout& b) const {
    const auto kernels = gemm_.kernels();
    const auto takes = [&](const Kernel* k) { return (k->desc().type_b & Bit(b.type)) != 0; };
    const auto found = std::find_if(kernels.begin(), kernels.end(), takes);
    return found != kernels.end() ? **found : *kernels.front();
  }

  struct Steps {
    LaunchSpec gemm;
    HelperSpec helper;
  };

  /// The plans of both steps.
  class Bound final : public BoundLaunch<GemmOp>, public ArgumentBinder<GemmOp> {
   public:
    Bound(Plan<GemmOp> gemm, Plan<HelperOp> helper)
        : gemm_(std::move(gemm)), helper_(std::move(helper)) {}
    Status Launch(const GemmArgs& args, Workspace& workspace, Stream stream) const override {
      return LaunchSteps(
          args, workspace,
          [&](const GemmArgs& inner, Workspace& scratch) {
            return gemm_.Launch(inner, scratch, stream);
          },
          [&](const typename HelperOp::Args& inner, Workspace& scratch) {
            return helper_.Launch(inner, scratch, stream);
          });
    }

    /// nullptr unless both steps can be prepared.
    Result<std::unique_ptr<ReadyLaunch>> Ready(const GemmArgs& args,
                                               Workspace& workspace) const override {
      std::vector<std::unique_ptr<ReadyLaunch>> both;
      bool complete = true;
      const auto take = [&](Result<std::unique_ptr<ReadyLaunch>> step) -> Status {
        if (!step) return Fail(step.error());
        complete = complete && *step != nullptr;
        both.push_back(std::move(*step));
        return {};
      };
      Status made = LaunchSteps(
          args, workspace,
          [&](const GemmArgs& inner, Workspace& scratch) {
            return take(Stages<GemmOp>::Ready(gemm_, inner, scratch));
          },
          [&](const typename HelperOp::Args& inner, Workspace& scratch) {
            return take(Stages<HelperOp>::Ready(helper_, inner, scratch));
          });
      if (!made) return Fail(made.error());
      if (!complete) return std::unique_ptr<ReadyLaunch>();
      return std::unique_ptr<ReadyLaunch>(std::make_unique<ReadyLaunches>(std::move(both)));
    }

   private:
    Plan<GemmOp> gemm_;
    Plan<HelperOp> helper_;
  };

  static std::size_t Intermediate(std::int64_t m, std::int64_t n, std::int64_t k) {
    return (Sequence::IntermediateBytes(m, n, k) + 63) / 64 * 64;
  }

  template <class LaunchGemm, class LaunchHelper>
  static Status LaunchSteps(const GemmArgs& args, const Workspace& workspace,
                            const LaunchGemm& gemm, const LaunchHelper& helper) {
    const std::size_t taken =
        Intermediate(args.a_layout.rows, args.b_layout.cols, args.a_layout.cols);
    if (workspace.partials_size < taken) {
      return Fail(ErrorCode::kInvalidArgument,
                  "partials of " + std::to_string(workspace.partials_size) +
                      " bytes: the intermediate matrix alone needs " + std::to_string(taken));
    }
    Workspace rest = workspace;
    rest.partials = static_cast<std::byte*>(workspace.partials) + taken;
    rest.partials_size -= taken;
    return Sequence::RunSteps(
        args, workspace.partials, [&](const GemmArgs& inner) { return gemm(inner, rest); },
        [&](const typename HelperOp::Args& inner) { return helper(inner, rest); });
  }

  GemmDesc Resolve(GemmDesc p) const {
    if (p.pack_b == kPackAny) p.pack_b = desc_.pack_b;
    return p;
  }

  // The configuration: the kernels of product and helper by their places in the lists, then the
  // words of their own configurations. Swizzle and splits are the product's.
  static constexpr std::size_t kGemmWords = 2, kHelperWords = 2 + Step<GemmOp>::kConfigWords;
  static_assert(kHelperWords + Step<HelperOp>::kConfigWords == LaunchConfig::kWords);

  LaunchSpec Compose(const LaunchSpec& gemm, const HelperSpec& helper) const {
    LaunchSpec spec;
    spec.swizzle = gemm.swizzle, spec.splits = gemm.splits;
    spec.config.words[0] = gemm_.IndexOf(gemm.kernel);
    spec.config.words[1] = helper_.IndexOf(helper.kernel);
    for (std::size_t i = 0; i < Step<GemmOp>::kConfigWords; ++i) {
      spec.config.words[kGemmWords + i] = gemm.config.words[i];
      spec.config.words[kHelperWords + i] = helper.config.words[i];
    }
    return spec;
  }
  std::optional<Steps> Decompose(const LaunchSpec& spec) const {
    Steps steps;
    steps.gemm.kernel = gemm_.At(spec.config.words[0]);
    steps.helper.kernel = helper_.At(spec.config.words[1]);
    if (steps.gemm.kernel == nullptr || steps.helper.kernel == nullptr) return std::nullopt;
    steps.gemm.swizzle = spec.swizzle, steps.gemm.splits = spec.splits;
    for (std::size_t i = 0; i < Step<GemmOp>::kConfigWords; ++i) {
      steps.gemm.config.words[i] = spec.config.words[kGemmWords + i];
      steps.helper.config.words[i] = spec.config.words[kHelperWords + i];
    }
    return steps;
  }

  Step<GemmOp> gemm_;
  Step<HelperOp> helper_;
};

/// The description of a sequence. Its fingerprint covers its own file and all kernels that may be
/// its steps, so a change of any of them is a change of the sequence.
template <class HelperOp>
KernelInfo InfoOf(std::string name, std::string_view tu, std::span<Kernel* const> gemm,
                  std::span<typename HelperOp::KernelType* const> helper) {
  KernelInfo info;
  info.name = std::move(name);
  std::string parts(TuFingerprint(tu));
  std::uint32_t gemm_features = ~0u, helper_features = ~0u;
  const auto add = [&](const KernelInfo& step, std::uint32_t& features) {
    parts.append(" ").append(step.name).append(" ").append(step.fingerprint);
    info.deterministic = info.deterministic && step.deterministic;
    features &= step.features;
  };
  for (const Kernel* kernel : gemm) add(kernel->info(), gemm_features);
  for (const auto* kernel : helper) add(kernel->info(), helper_features);
  info.fingerprint = Sha256Hex(parts).value_or(parts).substr(0, 32);
  info.features = gemm_features | helper_features;  // the least that some pair of steps needs
  info.device = gemm.front()->info().device;
  return info;
}

}  // namespace tilewright::sequence
