#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/text.h"
#include "engine/stage_templates.h"
#include "ops/gemm/base/gemm_op.h"

namespace tilewright {

std::string OpTraits<GemmOp>::QuarantineKey(const GemmDesc& desc) {
  GemmDesc any_batch = desc;
  SetBatch(any_batch, 1);
  any_batch.pack_b = kPackAny;
  return KeyOf(any_batch);
}

GemmDesc OpTraits<GemmOp>::Resolve(const GemmDesc& problem, const Kernel& kernel) {
  GemmDesc packed = problem;
  if (packed.pack_b == kPackAny) packed.pack_b = kernel.desc().pack_b;
  return packed;
}

std::vector<GemmDesc> OpTraits<GemmOp>::LookupKeys(const GemmCandidates& candidates) {
  if (candidates.problem().pack_b != kPackAny) return {candidates.problem()};
  std::vector<GemmDesc> keys;
  for (const GemmCandidate& candidate : candidates.all()) {
    if (!candidate.feasible()) continue;
    const GemmDesc key = Resolve(candidates.problem(), *candidate.kernel);
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  return keys;
}

std::vector<int> OpTraits<GemmOp>::GroupsOf(std::span<const LaunchSpec> specs) {
  ClusteringParam by_layout;
  by_layout.tile = by_layout.splits = false;
  const auto clusters = Cluster(specs, by_layout);
  std::vector<int> groups(specs.size(), 0);
  for (std::size_t g = 0; g < clusters.size(); ++g) {
    for (const LaunchSpec& spec : clusters[g]) {
      const auto at = std::find(specs.begin(), specs.end(), spec);
      groups[static_cast<std::size_t>(at - specs.begin())] = static_cast<int>(g);
    }
  }
  return groups;
}

namespace {

bool ScalingAllows(Scaling scaling, float alpha, float beta) {
  if (scaling == Scaling::kAny) return true;
  return alpha == 1.0f && beta == (scaling == Scaling::kOneZero ? 0.0f : 1.0f);
}

// What a plan requires of one matrix of a call.
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
         (p.quant_b.type == QuantType::kNone || args.v != nullptr) &&
         (p.prologue == Prologue::kNone || args.norm != nullptr);
}

bool PrologueFits(const GemmDesc& p, const GemmArgs& args) {
  return p.prologue == args.prologue && p.type_norm == args.type_norm;
}

// Offsets and indices of groups are only checked for presence.
bool GroupsFit(const GemmDesc& p, const GemmArgs& args) {
  if (args.a_layout.num != p.num) return false;
  if (p.striding_a == Striding::kIndexed && args.a_layout.idxs == nullptr) return false;
  if (p.striding_c == Striding::kIndexed && args.d_layout.idxs == nullptr) return false;
  return true;
}

// The cold functions are separate from Fits, so that the hot path builds no text.
[[gnu::cold, gnu::noinline]] Status Refuse(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

// The first reason why the layout does not fit.
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
  return Refuse("the plan has scales or a norm beside its operands, but u, v or norm is null");
}

}  // namespace

bool OpTraits<GemmOp>::Fits(const GemmPlan& plan, const GemmArgs& args,
                            const Workspace& workspace) {
  const GemmDesc& p = plan.problem();
  return PointersFit(p, args) && ExpectedA(p).Fits(args.a_layout) &&
         ExpectedB(p, args).Fits(args.b_layout) && ExpectedD(p).Fits(args.d_layout) &&
         (args.beta == 0.0f || ExpectedD(p).Fits(args.c_layout)) && GroupsFit(p, args) &&
         PrologueFits(p, args) && ScalingAllows(p.scaling, args.alpha, args.beta) &&
         workspace.partials_size >= plan.workspace().partials &&
         workspace.barriers_size >= plan.workspace().barriers;
}

[[gnu::cold, gnu::noinline]] Status OpTraits<GemmOp>::Mismatch(const GemmPlan& plan,
                                                               const GemmArgs& args,
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
  if (!PrologueFits(p, args)) {
    return Refuse(Format("the prologue is another one, or its weights are {}: the plan is for {}",
                         DataTypeName(args.type_norm), KeyOf(p)));
  }
  if (!GroupsFit(p, args))
    return Refuse("the plan is for indexed rows, but idxs is a null pointer");
  return Refuse(
      Format("alpha = {}, beta = {}: the plan is for {}", args.alpha, args.beta, KeyOf(p)));
}

TILEWRIGHT_INSTANTIATE_STAGES(GemmOp);

}  // namespace tilewright
