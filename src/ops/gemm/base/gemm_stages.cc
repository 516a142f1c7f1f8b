#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/text.h"
#include "ops/gemm/base/gemm_op.h"
#include "tilewright/stages.h"

namespace tilewright {

GemmDesc Packed(const GemmDesc& problem, const Kernel& kernel) {
  GemmDesc packed = problem;
  if (packed.pack_b == kPackAny) packed.pack_b = kernel.desc().pack_b;
  return packed;
}

std::string FamilyKeyOf(const GemmDesc& desc) {
  GemmDesc family = desc;
  SetBatch(family, 1);
  family.pack_b = kPackAny;
  return KeyOf(family);
}

std::string OpTraits<GemmOp>::FamilyKey(const GemmDesc& problem) { return FamilyKeyOf(problem); }

std::optional<Rejection> OpTraits<GemmOp>::IsFeasible(const Kernel& kernel,
                                                      const GemmDesc& problem) {
  return kernel.IsFeasible(problem);
}

double OpTraits<GemmOp>::EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                                    const DeviceSpec& device) {
  return spec.kernel->EstimateUs(Packed(problem, *spec.kernel), spec, device);
}

std::vector<LaunchSpec> OpTraits<GemmOp>::Specs(Kernel& kernel, const GemmDesc& problem,
                                                const FeasibleOptions& options,
                                                std::optional<Rejection>& rejection) {
  // Split counts between the powers of two matter when tiles do not divide among the workers;
  // beyond these few the times of neighbours cannot be told apart.
  constexpr int kSplitLadder[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
  const GemmDesc packed = Packed(problem, kernel);
  const GemmShape shape{packed.m, packed.n, packed.k, packed.num};
  const int max_swizzle = std::max(0, kernel.GetMaxSwizzle(shape));
  const int max_splits =
      std::clamp(kernel.GetMaxSplits(shape, 0, options.barriers_bytes, options.partials_bytes), 1,
                 std::max(1, options.max_splits));
  std::vector<LaunchSpec> specs;
  std::size_t needed = 0;
  for (const int splits : kSplitLadder) {
    if (splits > max_splits) break;
    for (int swizzle = 0; swizzle <= max_swizzle; ++swizzle) {
      LaunchSpec spec;
      spec.kernel = &kernel;
      spec.swizzle = swizzle;
      spec.splits = splits;
      if (splits > 1 && splits > kernel.GetMaxSplits(shape, swizzle, options.barriers_bytes,
                                                     options.partials_bytes)) {
        continue;
      }
      needed = kernel.PartialsBytes(packed, spec);
      if (needed <= options.partials_bytes) specs.push_back(spec);
    }
  }
  if (specs.empty()) {
    rejection =
        Rejection{Reason::kWorkspace, Format("partials of {} bytes", options.partials_bytes),
                  Format("{}", needed)};
  }
  return specs;
}

namespace {

using S = Stages<GemmOp>;

// A recorded spec may ask for more splits or swizzle than this shape has; the nearest one offered
// stands for it.
std::optional<LaunchSpec> Nearest(const GemmCandidate& candidate, const LaunchSpec& wanted) {
  const LaunchSpec* best = nullptr;
  for (const LaunchSpec& offered : candidate.specs) {
    if (offered.splits > wanted.splits || offered.swizzle > wanted.swizzle) continue;
    if (best == nullptr || offered.splits > best->splits ||
        (offered.splits == best->splits && offered.swizzle > best->swizzle)) {
      best = &offered;
    }
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

// Answers of pins and records for GEMM; the order in which they are asked is Stages::Choose's.
class GemmSource {
 public:
  GemmSource(const DispatchCache* records, const Pins* pins, DispatchPolicy policy)
      : records_(records), pins_(pins), policy_(policy) {}

  Result<std::optional<LaunchSpec>> Pinned(const GemmCandidates& candidates) const {
    if (pins_ == nullptr || pins_->by_problem.empty()) return std::optional<LaunchSpec>();
    const std::string key = KeyOf(candidates.problem());
    const auto found = pins_->by_problem.find(key);
    if (found == pins_->by_problem.end()) return std::optional<LaunchSpec>();
    const Pins::Pin& pin = found->second;
    const GemmCandidate* candidate = candidates.Find(pin.kernel);
    if (candidate == nullptr) {
      return Fail(ErrorCode::kNotFound,
                  Format("pinned kernel {} is not in the registry ({})", pin.kernel, key));
    }
    if (!candidate->feasible()) {
      return Fail(ErrorCode::kUnsupported, Format("pinned kernel {} cannot run {}: {}", pin.kernel,
                                                  key, candidate->rejection->ToString()));
    }
    for (const LaunchSpec& spec : candidate->specs) {
      if (spec.swizzle == pin.swizzle && spec.splits == pin.splits)
        return std::optional<LaunchSpec>(spec);
    }
    return Fail(ErrorCode::kUnsupported,
                Format("pinned kernel {} has no spec swizzle={} splits={} for {}", pin.kernel,
                       pin.swizzle, pin.splits, key));
  }

  std::optional<RecordedSpec<GemmOp>> Exact(const GemmCandidates& candidates) const {
    if (records_ == nullptr) return std::nullopt;
    std::optional<RecordedSpec<GemmOp>> best;
    for (const Pack pack : Packs(candidates)) {
      GemmDesc problem = candidates.problem();
      problem.pack_b = pack;
      const auto found = records_->Find(problem);
      if (!found || !S::Offers(candidates, *found)) continue;
      if (!best || found->measured_us < best->spec.measured_us)
        best = RecordedSpec<GemmOp>{Predicted(candidates, *found), 0};
    }
    return best;
  }

  std::optional<RecordedSpec<GemmOp>> Interpolated(const GemmCandidates& candidates) const {
    if (records_ == nullptr || policy_ == DispatchPolicy::kMeasure) return std::nullopt;
    std::optional<RecordedSpec<GemmOp>> best;
    for (const Pack pack : Packs(candidates)) {
      GemmDesc problem = candidates.problem();
      problem.pack_b = pack;
      const auto answer = Between(candidates, problem);
      if (!answer) continue;
      const float us = answer->spec.predicted_us;
      if (!best || (us > 0 && us < best->spec.predicted_us)) best = answer;
    }
    return best;
  }

  bool WantsMeasurement() const {
    return policy_ == DispatchPolicy::kMeasure || policy_ == DispatchPolicy::kAppend;
  }

 private:
  // The layouts a lookup has to ask for: the problem's own, or all that feasible kernels read.
  static std::vector<Pack> Packs(const GemmCandidates& candidates) {
    if (candidates.problem().pack_b != kPackAny) return {candidates.problem().pack_b};
    std::vector<Pack> packs;
    for (const GemmCandidate& candidate : candidates.all()) {
      const Pack pack = candidate.kernel->desc().pack_b;
      if (candidate.feasible() && std::find(packs.begin(), packs.end(), pack) == packs.end())
        packs.push_back(pack);
    }
    return packs;
  }

  static LaunchSpec Predicted(const GemmCandidates& candidates, const LaunchSpec& spec) {
    LaunchSpec result = spec;
    for (const LaunchSpec& offered : candidates.Find(spec.kernel->name())->specs) {
      if (offered == spec) result.predicted_us = offered.predicted_us;
    }
    return result;
  }

  // The hit's spec as offered at this shape, its prediction scaled to what was measured at the
  // hit's own batch size: the model gives the shape of t(m), the record its level (research on
  // transfer: a fifth of the regret of rounding up alone).
  static std::optional<RecordedSpec<GemmOp>> Transfer(
      const GemmCandidates& candidates, const std::optional<DispatchCache::Hit>& hit) {
    if (!hit || hit->batch < 1) return std::nullopt;
    const GemmCandidate* candidate = candidates.Find(hit->spec.kernel->name());
    if (candidate == nullptr || candidate->kernel != hit->spec.kernel || !candidate->feasible())
      return std::nullopt;
    auto spec = Nearest(*candidate, hit->spec);
    if (!spec) return std::nullopt;
    spec->measured_us = 0;
    const bool scalable = hit->spec.measured_us > 0 && hit->spec.predicted_us > 0;
    spec->predicted_us =
        scalable ? spec->predicted_us * hit->spec.measured_us / hit->spec.predicted_us : 0.0f;
    return RecordedSpec<GemmOp>{*spec, hit->batch};
  }

  std::optional<RecordedSpec<GemmOp>> Between(const GemmCandidates& candidates,
                                              const GemmDesc& problem) const {
    // A tile chosen for fewer rows costs whole passes over the weights when the guess is wrong, one
    // chosen for more rows only its idle lanes: the smaller neighbour must promise clearly more.
    constexpr float kFloorMustWinBy = 0.95f;
    const auto above = Transfer(candidates, records_->LowerBoundHit(problem));
    const auto floor_hit = records_->FloorBoundHit(problem);
    if (above) {
      const auto below = Transfer(candidates, floor_hit);
      const bool below_wins = below && below->spec.predicted_us > 0 &&
                              below->spec.predicted_us < kFloorMustWinBy * above->spec.predicted_us;
      return below_wins ? below : above;
    }
    if (policy_ == DispatchPolicy::kReuse) return Transfer(candidates, floor_hit);
    return std::nullopt;
  }

  const DispatchCache* records_;
  const Pins* pins_;
  DispatchPolicy policy_;
};

}  // namespace

GemmCandidates Feasible(const CheckedGemm& problem, const Registry& registry,
                        const DeviceSpec& device, const FeasibleOptions& options) {
  return S::Feasible(problem, registry.kernels(), device, options);
}

Result<GemmChoice> Choose(const GemmCandidates& candidates, const DispatchCache* records,
                          const Pins* pins, DispatchPolicy policy) {
  return S::Choose(candidates, GemmSource(records, pins, policy));
}

Result<GemmPlan> Bind(const GemmChoice& choice) {
  GemmPlan plan;
  plan.problem_ = Packed(choice.problem(), choice.kernel());
  plan.spec_ = choice.spec();
  plan.provenance_ = choice.provenance();
  if (auto no = choice.kernel().IsFeasible(plan.problem_)) {
    return Fail(ErrorCode::kInternal, Format("chosen kernel {} refuses the problem: {}",
                                             choice.kernel().name(), no->ToString()));
  }
  plan.partials_bytes_ = choice.kernel().PartialsBytes(plan.problem_, plan.spec_);
  return plan;
}

namespace {

// Apart from Run, so that the hot path holds no text building.
[[gnu::cold, gnu::noinline]] Status Mismatch(const GemmPlan& plan, const GemmArgs& args,
                                             const Workspace& workspace) {
  const GemmDesc& p = plan.problem();
  if (workspace.partials_size < plan.partials_bytes()) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("workspace.partials_size = {}: the plan needs {}", workspace.partials_size,
                       plan.partials_bytes()));
  }
  if (args.b_layout.pack != p.pack_b) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("B is packed as {}: the plan is for {}", PackName(args.b_layout.pack),
                       PackName(p.pack_b)));
  }
  return Fail(
      ErrorCode::kInvalidArgument,
      Format("the call has m={} n={} k={} alpha={} beta={}: the plan is for {}", args.a_layout.rows,
             args.b_layout.cols, args.a_layout.cols, args.alpha, args.beta, KeyOf(p)));
}

bool ScalingAllows(Scaling scaling, float alpha, float beta) {
  if (scaling == Scaling::kAny) return true;
  return alpha == 1.0f && beta == (scaling == Scaling::kOneZero ? 0.0f : 1.0f);
}

}  // namespace

Status Run(const GemmPlan& plan, const GemmArgs& args, Workspace& workspace, Stream stream) {
  const GemmDesc& p = plan.problem();
  const bool fits = args.a_layout.rows == p.m && args.a_layout.cols == p.k &&
                    args.b_layout.cols == p.n && args.b_layout.pack == p.pack_b &&
                    ScalingAllows(p.scaling, args.alpha, args.beta) &&
                    workspace.partials_size >= plan.partials_bytes();
  if (!fits) return Mismatch(plan, args, workspace);
  return plan.spec().kernel->Launch(args, plan.spec(), workspace, stream);
}

std::string SpecText(const LaunchSpec& spec) {
  return Format("swizzle={} splits={}", spec.swizzle, spec.splits);
}

std::optional<LaunchSpec> ParseSpec(std::string_view text, Kernel* kernel) {
  LaunchSpec spec;
  spec.kernel = kernel;
  const auto read = [&text](std::string_view name, std::int32_t& value) {
    if (!text.starts_with(name)) return false;
    text.remove_prefix(name.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return error == std::errc();
  };
  if (!read("swizzle=", spec.swizzle) || !read(" splits=", spec.splits) || !text.empty())
    return std::nullopt;
  if (spec.swizzle < 0 || spec.swizzle > 30 || spec.splits < 1 || spec.splits > 4096)
    return std::nullopt;
  return spec;
}

}  // namespace tilewright
