#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
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

  // The smallest tuned batch above, over all layouts. Taking the largest below where the scaled
  // model promises more was tried: less regret on average, but a choice that nobody can foresee
  // from the cache.
  std::optional<RecordedSpec<GemmOp>> Interpolated(const GemmCandidates& candidates) const {
    if (records_ == nullptr || policy_ == DispatchPolicy::kMeasure) return std::nullopt;
    std::optional<RecordedSpec<GemmOp>> best;
    const std::vector<Pack> packs = Packs(candidates);
    GemmDesc problem = candidates.problem();
    bool above_all = true;
    for (const Pack pack : packs) {
      problem.pack_b = pack;
      const auto hit = records_->LowerBoundHit(problem);
      above_all = above_all && !hit;
      Consider(best, Transfer(candidates, hit), BatchOf(problem));
    }
    if (!above_all || policy_ != DispatchPolicy::kReuse) return best;
    for (const Pack pack : packs) {
      problem.pack_b = pack;
      Consider(best, Transfer(candidates, records_->FloorBoundHit(problem)), BatchOf(problem));
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
  // hit's own batch size: the model gives the shape of t(m), the record its level.
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

  // Keeps the answer whose source is nearer to `batch`; of equally near ones, the one that promises
  // less time.
  static void Consider(std::optional<RecordedSpec<GemmOp>>& best,
                       const std::optional<RecordedSpec<GemmOp>>& answer, std::int32_t batch) {
    if (!answer) return;
    const auto distance = [batch](const RecordedSpec<GemmOp>& recorded) {
      return std::abs(static_cast<std::int64_t>(recorded.source_batch) - batch);
    };
    if (best && distance(*answer) > distance(*best)) return;
    if (best && distance(*answer) == distance(*best)) {
      const float us = answer->spec.predicted_us, standing = best->spec.predicted_us;
      if (us <= 0 || (standing > 0 && us >= standing)) return;
    }
    best = answer;
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

bool ScalingAllows(Scaling scaling, float alpha, float beta) {
  if (scaling == Scaling::kAny) return true;
  return alpha == 1.0f && beta == (scaling == Scaling::kOneZero ? 0.0f : 1.0f);
}

// What a plan says of one matrix of its calls.
struct Expected {
  DataType type;
  Order order;
  std::int32_t rows, cols;
  Pack pack = kPackPlain;
  bool any_ld = false;

  bool packed() const { return pack != kPackPlain; }  // has neither order nor leading dimension
  std::int32_t line() const { return order == Order::kRowMajor ? cols : rows; }
  bool FitsLine(const MatrixLayout& layout) const {
    return packed() || (layout.order == order && (any_ld || layout.ld >= line()));
  }
  bool Fits(const MatrixLayout& layout) const {
    return layout.type == type && layout.rows == rows && layout.cols == cols &&
           layout.pack == pack && FitsLine(layout);
  }
};

Expected ExpectedA(const GemmDesc& p) { return {p.type_a, p.order_a, p.m, p.k, p.pack_a}; }
// Grouped weights with ld == 0 are an array of StridedPtr, each with its own.
Expected ExpectedB(const GemmDesc& p, const GemmArgs& args) {
  return {p.type_b, p.order_b, p.k, p.n, p.pack_b, p.num > 1 && args.b_layout.ld == 0};
}
Expected ExpectedD(const GemmDesc& p) {
  return {p.type_c, p.order_c, p.m, p.epilogue == Epilogue::kGatedSilu ? p.n / 2 : p.n};
}

bool PointersFit(const GemmDesc& p, const GemmArgs& args) {
  return args.a != nullptr && args.b != nullptr && args.d != nullptr &&
         (args.beta == 0.0f || args.c != nullptr) &&
         (p.quant_a.type == QuantType::kNone || args.u != nullptr) &&
         (p.quant_b.type == QuantType::kNone || args.v != nullptr);
}

// Rows of groups and their indices are only looked at for being there.
bool GroupsFit(const GemmDesc& p, const GemmArgs& args) {
  if (args.a_layout.num != p.num) return false;
  if (p.striding_a == Striding::kIndexed && args.a_layout.idxs == nullptr) return false;
  if (p.striding_c == Striding::kIndexed && args.d_layout.idxs == nullptr) return false;
  return true;
}

// The functions from here to Run are apart from it, so that the hot path holds no text building.
[[gnu::cold, gnu::noinline]] Status Refuse(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

// The layout does not fit: the first reason.
[[gnu::cold, gnu::noinline]] Status WrongLayout(char name, const MatrixLayout& layout,
                                                const Expected& want) {
  if (layout.pack != want.pack) {
    return Refuse(Format("{} is packed as {}: the plan is for {}", name, PackName(layout.pack),
                         PackName(want.pack)));
  }
  if (layout.type != want.type) {
    return Refuse(Format("{} is {}: the plan is for {}", name, DataTypeName(layout.type),
                         DataTypeName(want.type)));
  }
  if (layout.rows != want.rows || layout.cols != want.cols) {
    return Refuse(Format("{} is {} x {}: the plan is for {} x {}", name, layout.rows, layout.cols,
                         want.rows, want.cols));
  }
  if (layout.order != want.order) {
    const auto word = [](Order order) {
      return order == Order::kRowMajor ? "row-major" : "column-major";
    };
    return Refuse(
        Format("{} is {}: the plan is for {}", name, word(layout.order), word(want.order)));
  }
  return Refuse(Format("ld of {} = {}: must be at least {}", name, layout.ld, want.line()));
}

[[gnu::cold, gnu::noinline]] Status NullPointer(const GemmArgs& args) {
  if (args.a == nullptr) return Refuse("a is a null pointer");
  if (args.b == nullptr) return Refuse("b is a null pointer");
  if (args.d == nullptr) return Refuse("d is a null pointer");
  if (args.beta != 0.0f && args.c == nullptr)
    return Refuse(Format("c is a null pointer, but beta = {}", args.beta));
  return Refuse("the plan has scales beside its operands, but u or v is a null pointer");
}

[[gnu::cold, gnu::noinline]] Status Mismatch(const GemmPlan& plan, const GemmArgs& args,
                                             const Workspace& workspace) {
  const GemmDesc& p = plan.problem();
  if (workspace.partials_size < plan.partials_bytes()) {
    return Refuse(Format("workspace.partials_size = {}: the plan needs {}", workspace.partials_size,
                         plan.partials_bytes()));
  }
  if (!PointersFit(p, args)) return NullPointer(args);
  if (!ExpectedA(p).Fits(args.a_layout)) return WrongLayout('A', args.a_layout, ExpectedA(p));
  const Expected b = ExpectedB(p, args);
  if (!b.Fits(args.b_layout)) return WrongLayout('B', args.b_layout, b);
  if (!ExpectedD(p).Fits(args.d_layout)) return WrongLayout('D', args.d_layout, ExpectedD(p));
  if (args.beta != 0.0f && !ExpectedD(p).Fits(args.c_layout))
    return WrongLayout('C', args.c_layout, ExpectedD(p));
  if (args.a_layout.num != p.num)
    return Refuse(Format("A has {} groups: the plan is for {}", args.a_layout.num, p.num));
  if (!GroupsFit(p, args))
    return Refuse("the plan is for indexed rows, but idxs is a null pointer");
  return Refuse(
      Format("alpha = {}, beta = {}: the plan is for {}", args.alpha, args.beta, KeyOf(p)));
}

}  // namespace

Status Run(const GemmPlan& plan, const GemmArgs& args, Workspace& workspace, Stream stream) {
  const GemmDesc& p = plan.problem();
  const bool fits = PointersFit(p, args) && ExpectedA(p).Fits(args.a_layout) &&
                    ExpectedB(p, args).Fits(args.b_layout) && ExpectedD(p).Fits(args.d_layout) &&
                    (args.beta == 0.0f || ExpectedD(p).Fits(args.c_layout)) && GroupsFit(p, args) &&
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
