#include "api/kernel_survey.h"

#include "sequence/sequences.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

DispatchOptions PosedWith(Precision activations) {
  DispatchOptions options;
  options.activations = activations;
  return options;
}

}  // namespace

KernelSurvey::KernelSurvey(const Kernels& kernels, Device& device, Precision activations,
                           SurveyFindings& findings)
    : kernels_(kernels),
      device_(device),
      poses_(kernels, device, PosedWith(activations)),
      findings_(findings) {
  options_.providers = Bit(Provider::kOwn);
  options_.partials_bytes = PartialsLimit(device.spec());
}

template <class Op>
bool KernelSurvey::Serve(const typename Op::Desc& problem) const {
  const Result<Checked<Op>> checked = Validate(problem);
  if (!checked) return false;
  const Candidates<Op> candidates = Feasible(*checked, kernels_.of<Op>(), device_.spec(), options_);
  const Result<Choice<Op>> choice = Choose(candidates, nullptr);
  if (!choice) return false;
  const double limit = kSurveyedOverFastest * choice->spec().predicted_us;
  for (const Candidate<Op>& candidate : candidates.all()) {
    if (!candidate.feasible()) continue;
    for (const typename Op::Spec& spec : candidate.specs) {
      if (spec.predicted_us > limit) continue;
      for (const KernelBase* part : PartsOf(*candidate.kernel, spec.config))
        findings_.kernels.emplace(part->name());
    }
  }
  return true;
}

void KernelSurvey::Pose(const top_k::Desc& problem) const {
  if (!Serve<top_k::Op>(problem)) findings_.lacking.try_emplace("top_k", "top_k " + KeyOf(problem));
}

std::string KernelSurvey::Look(const Graph& graph, const TensorNode& node,
                               std::string& label) const {
  std::string lacking;
  ForEachOperation([&]<class Op>() {
    const auto problem = poses_.ProblemOf<Op>(graph, node);
    if (!problem) return;
    const std::string key = KeyOf(*problem);
    const auto [place, is_new] = known_.try_emplace(std::string(Op::kName) + " " + key, false);
    if (is_new) place->second = Serve<Op>(*problem);
    if (place->second) return;
    label = Op::kName;
    if constexpr (std::is_same_v<Op, GemmOp>)
      label += " " + std::string(DataTypeName(problem->type_b));
    lacking = place->first;
  });
  return lacking;
}

std::optional<Rejection> KernelSurvey::Supports(const Graph& graph, const TensorNode& node) const {
  std::string label;
  if (!Computes(node.op)) return std::nullopt;
  const std::string lacking = Look(graph, node, label);
  if (lacking.empty()) return std::nullopt;
  return Rejection{Reason::kType, lacking, "a kernel for it"};
}

Status KernelSurvey::Prepare(const Graph& graph) {
  for (const TensorNode& node : graph.nodes()) {
    std::string label;
    if (!Computes(node.op)) continue;
    const std::string lacking = Look(graph, node, label);
    if (!lacking.empty()) findings_.lacking.try_emplace(label, lacking);
  }
  return {};
}

}  // namespace tilewright
