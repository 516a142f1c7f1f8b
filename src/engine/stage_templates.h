#pragma once

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/argument_binder.h"
#include "engine/explain_template.h"
#include "engine/op_traits.h"
#include "tilewright/stages.h"

namespace tilewright {

/// The stages, once for every operation; what differs between operations is in OpTraits
/// (op_traits.h). The public functions of tilewright/stages.h, Validate apart, are instantiated in
/// the operation's room with TILEWRIGHT_INSTANTIATE_STAGES.
template <class Op>
struct Stages {
  using Desc = typename Op::Desc;
  using Spec = typename Op::Spec;
  using KernelType = typename Op::KernelType;
  using Traits = OpTraits<Op>;

  /// To be called only after `problem` has been validated.
  static Checked<Op> MarkValidated(const Desc& problem) { return Checked<Op>(problem); }

  static Candidates<Op> Feasible(const Checked<Op>& checked, std::span<KernelType* const> kernels,
                                 const DeviceSpec& device, const FeasibleOptions& options) {
    Candidates<Op> result;
    result.problem_ = checked.problem();
    const std::string quarantine_key =
        options.quarantine != nullptr ? Traits::QuarantineKey(checked.problem()) : std::string();
    result.all_.reserve(kernels.size());
    for (KernelType* kernel : kernels) {
      Candidate<Op> candidate;
      candidate.kernel = kernel;
      candidate.rejection = Reject(*kernel, checked.problem(), device, options, quarantine_key);
      if (!candidate.rejection) FillSpecs(candidate, checked.problem(), device, options);
      result.all_.push_back(std::move(candidate));
    }
    return result;
  }

  /// Every kernel's reason, a line for each reason; one line in all where there is one.
  static std::string WhyNone(const Candidates<Op>& candidates) {
    struct Group {
      std::string reason;
      std::string_view kernel;
      int others = 0;
    };
    std::vector<Group> groups;
    for (const Candidate<Op>& candidate : candidates.all()) {
      std::string reason = candidate.rejection->ToString();
      const auto same = std::find_if(groups.begin(), groups.end(),
                                     [&](const Group& group) { return group.reason == reason; });
      if (same != groups.end()) {
        ++same->others;
      } else {
        groups.push_back({std::move(reason), candidate.kernel->name()});
      }
    }
    if (groups.size() == 1 && groups[0].others > 0) {
      return "none of " + std::to_string(groups[0].others + 1) +
             " kernels can run this problem: " + groups[0].reason;
    }
    std::string text = "no kernel can run this problem:";
    for (const Group& group : groups) {
      text.append("\n  ").append(group.kernel);
      if (group.others > 0) text += " and " + std::to_string(group.others) + " more";
      text.append(": ").append(group.reason);
    }
    return text;
  }

  static Result<Choice<Op>> Choose(const Candidates<Op>& candidates, const TunedSpecs<Op>* records,
                                   const Pins* pins, DispatchPolicy policy) {
    if (candidates.feasible_count() == 0) {
      return Fail(ErrorCode::kUnsupported, WhyNone(candidates));
    }
    auto pinned = Pinned(candidates, pins);
    if (!pinned) return Fail(std::move(pinned.error()));
    if (*pinned) return Make(candidates, **pinned, Provenance::kPinned, 0, false);
    if (const auto exact = Exact(candidates, records)) {
      // An entry without a time was put into the cache by hand: that is a pin, not a measurement.
      const Provenance by = exact->measured_us > 0 ? Provenance::kMeasured : Provenance::kPinned;
      return Make(candidates, *exact, by, 0, false);
    }
    const bool wants = policy == DispatchPolicy::kMeasure || policy == DispatchPolicy::kAppend;
    if (const auto near = Interpolated(candidates, records, policy)) {
      return Make(candidates, near->spec, Provenance::kInterpolated, near->batch, wants);
    }
    if (const Spec* best = Fastest(candidates, false))
      return Make(candidates, *best, Provenance::kModel, 0, wants);
    return Make(candidates, *Fastest(candidates, true), Provenance::kDefault, 0, wants);
  }

  static Result<Plan<Op>> Bind(const Choice<Op>& choice, Device& device) {
    Result<Plan<Op>> plan = BindSpec(choice.problem(), choice.spec(), device);
    if (!plan) return plan;
    plan->provenance_ = choice.provenance();
    plan->why_ = choice.why();
    return plan;
  }

  /// The plan of a launch that was decided elsewhere, for a problem that has been validated: a step
  /// of a sequence.
  static Result<Plan<Op>> BindSpec(const Desc& problem, const Spec& spec, Device& device) {
    const KernelType& kernel = *spec.kernel;
    Plan<Op> plan;
    plan.problem_ = Traits::Resolve(problem, kernel);
    plan.spec_ = spec;
    if (auto no = kernel.IsFeasible(plan.problem_)) {
      return Fail(ErrorCode::kInternal, "chosen kernel " + std::string(kernel.name()) +
                                            " refuses the problem: " + no->ToString());
    }
    plan.workspace_ = kernel.WorkspaceFor(plan.problem_, plan.spec_, device.spec());
    if (device.host_accessible()) plan.most_workers_ = std::max(1, device.spec().cores);
    auto bound = kernel.BindLaunch(plan.problem_, plan.spec_, device);
    if (!bound) {
      return Fail(bound.error().code, std::string(kernel.name()) + ": " + bound.error().message);
    }
    plan.bound_ = std::move(*bound);
    return plan;
  }

  /// The launch of these arguments, which match the plan's problem; nullptr where the plan's kernel
  /// prepares nothing for them.
  static Result<std::unique_ptr<ReadyLaunch>> Ready(const Plan<Op>& plan,
                                                    const typename Op::Args& args,
                                                    Workspace& workspace) {
    const auto* binder = dynamic_cast<const ArgumentBinder<Op>*>(plan.bound_.get());
    if (binder == nullptr) return std::unique_ptr<ReadyLaunch>();
    return binder->Ready(args, workspace);
  }

  /// The spec with the least predicted time; ties go to the first name, then to the first spec.
  /// nullptr if there is no such kernel.
  static const Spec* Fastest(const Candidates<Op>& candidates, bool reference) {
    const Spec* best = nullptr;
    for (const Candidate<Op>& candidate : candidates.all()) {
      if (!candidate.feasible() || candidate.kernel->info().reference != reference) continue;
      for (const Spec& spec : candidate.specs) {
        if (best == nullptr || spec.predicted_us < best->predicted_us ||
            (spec.predicted_us == best->predicted_us &&
             spec.kernel->name() < best->kernel->name())) {
          best = &spec;
        }
      }
    }
    return best;
  }

  /// The spec of a feasible kernel that equals `spec`; nullptr when none is offered.
  static const Spec* Offered(const Candidates<Op>& candidates, const Spec& spec) {
    for (const Candidate<Op>& candidate : candidates.all()) {
      if (candidate.kernel != spec.kernel || !candidate.feasible()) continue;
      for (const Spec& offered : candidate.specs) {
        if (offered == spec) return &offered;
      }
    }
    return nullptr;
  }

 private:
  using Hit = typename TunedSpecs<Op>::Hit;

  static std::optional<Rejection> Reject(const KernelType& kernel, const Desc& problem,
                                         const DeviceSpec& device, const FeasibleOptions& options,
                                         std::string_view quarantine_key) {
    const KernelInfo& info = kernel.info();
    if ((options.providers & Bit(info.provider)) == 0) {
      return Rejection{Reason::kProvider,
                       "provider " + std::string(ProviderName(info.provider)) + " is excluded", ""};
    }
    if (auto no = kernel.CheckDevice(device)) return no;
    if (options.quarantine != nullptr) {
      if (const std::string* evidence = options.quarantine->Find(info, quarantine_key)) {
        return Rejection{Reason::kQuarantined, *evidence,
                         "a changed kernel, or the record removed"};
      }
    }
    if constexpr (requires { problem.guarantee; }) {
      if (auto no = kernel.CheckGuarantee(problem.guarantee)) return no;
    }
    return kernel.IsFeasible(problem);
  }

  /// Asks the kernel for its launch specs and keeps those whose workspace the caller can give.
  static void FillSpecs(Candidate<Op>& candidate, const Desc& problem, const DeviceSpec& device,
                        const FeasibleOptions& options) {
    const Desc resolved = Traits::Resolve(problem, *candidate.kernel);
    WorkspaceSize needed;
    std::vector<Spec> specs = candidate.kernel->Specs(resolved, device, options);
    if (specs.empty()) {
      candidate.rejection = Rejection{Reason::kDevice, "no launch spec",
                                      "kernels for its steps that run here and have not failed"};
      return;
    }
    for (Spec& spec : specs) {
      spec.kernel = candidate.kernel;
      needed = candidate.kernel->WorkspaceFor(resolved, spec, device);
      if (needed.partials > options.partials_bytes || needed.barriers > options.barriers_bytes)
        continue;
      const double us = candidate.kernel->EstimateUs(resolved, spec, device);
      // A model that fails must not win: NaN and negative times are sorted last.
      spec.predicted_us = us >= 0 ? static_cast<float>(us) : std::numeric_limits<float>::infinity();
      candidate.specs.push_back(spec);
    }
    if (!candidate.specs.empty()) return;
    candidate.rejection =
        Rejection{Reason::kWorkspace,
                  "partials of " + std::to_string(options.partials_bytes) +
                      " bytes and barriers of " + std::to_string(options.barriers_bytes),
                  std::to_string(needed.partials) + " and " + std::to_string(needed.barriers)};
  }

  static Result<std::optional<Spec>> Pinned(const Candidates<Op>& candidates, const Pins* pins) {
    if (pins == nullptr || pins->by_problem.empty()) return std::optional<Spec>();
    const std::string key = KeyOf(candidates.problem());
    const auto found = pins->by_problem.find(Pins::Key(Op::kName, key));
    if (found == pins->by_problem.end()) return std::optional<Spec>();
    const Pins::Pin& pin = found->second;
    const Candidate<Op>* candidate = candidates.Find(pin.kernel);
    if (candidate == nullptr) {
      return Fail(ErrorCode::kNotFound,
                  "pinned kernel " + pin.kernel + " is not in the registry (" + key + ")");
    }
    if (!candidate->feasible()) {
      return Fail(ErrorCode::kUnsupported, "pinned kernel " + pin.kernel + " cannot run " + key +
                                               ": " + candidate->rejection->ToString());
    }
    for (const Spec& spec : candidate->specs) {
      if (SpecText(spec) == pin.spec) return std::optional<Spec>(spec);
    }
    return Fail(ErrorCode::kUnsupported,
                "pinned kernel " + pin.kernel + " has no spec " + pin.spec + " for " + key);
  }

  /// What was tuned for this very problem, over all layouts that are still open.
  static std::optional<Spec> Exact(const Candidates<Op>& candidates,
                                   const TunedSpecs<Op>* records) {
    if (records == nullptr) return std::nullopt;
    std::optional<Spec> best;
    for (const Desc& problem : Traits::LookupKeys(candidates)) {
      std::optional<Spec> found = records->Find(problem);
      if (!found) continue;
      const Spec* offered = Offered(candidates, *found);
      if (offered == nullptr) continue;
      found->predicted_us = offered->predicted_us;
      if (!best || found->measured_us < best->measured_us) best = found;
    }
    return best;
  }

  /// The smallest batch from that of `problem` on that a finished session decided, within reach. What an unfinished one
  /// leaves is mostly what ran before: nothing that is known of its batch, less so of others. (8 rows times a head of
  /// q6_k on 16 threads of a Xeon ran by tiles of AMX, which the model picks for 16 rows: 1,964 us, by VNNI 1,321.)
  static std::optional<Hit> DecidedAbove(const TunedSpecs<Op>& records, Desc problem) {
    const std::int64_t reach = kTunedBatchReach * BatchOf(problem);
    std::optional<Hit> hit = records.LowerBoundHit(problem);
    while (hit && hit->spec.provisional && hit->batch < reach) {
      SetBatch(problem, hit->batch + 1);
      hit = records.LowerBoundHit(problem);
    }
    return hit && !hit->spec.provisional && hit->batch <= reach ? hit : std::nullopt;
  }

  /// The smallest tuned batch above within reach, over all layouts. (One row would else run by what
  /// is fastest for 512, where only those were tuned: tiles of AMX decode at 17.7 tokens a second where
  /// the model's pick makes 21.2.) Taking the largest below where the scaled
  /// model promises more was tried: less regret on average, but the choice could not be predicted
  /// from the cache.
  static std::optional<Hit> Interpolated(const Candidates<Op>& candidates,
                                         const TunedSpecs<Op>* records, DispatchPolicy policy) {
    if (records == nullptr || policy == DispatchPolicy::kMeasure) return std::nullopt;
    std::optional<Hit> best;
    const std::vector<Desc> keys = Traits::LookupKeys(candidates);
    bool above_all = true;
    for (const Desc& problem : keys) {
      above_all = above_all && !records->LowerBoundHit(problem);
      Consider(best, Transfer(candidates, DecidedAbove(*records, problem)), BatchOf(problem));
    }
    if (!above_all || policy != DispatchPolicy::kReuse) return best;
    for (const Desc& problem : keys) {
      Consider(best, Transfer(candidates, records->FloorBoundHit(problem)), BatchOf(problem));
    }
    return best;
  }

  /// The hit's spec as offered at this shape, its prediction scaled to what was measured at the
  /// hit's own batch size: the model gives the shape of t(m), the record its level.
  static std::optional<Hit> Transfer(const Candidates<Op>& candidates,
                                     const std::optional<Hit>& hit) {
    if (!hit || hit->batch < 1) return std::nullopt;
    const Candidate<Op>* candidate = candidates.Find(hit->spec.kernel->name());
    if (candidate == nullptr || candidate->kernel != hit->spec.kernel || !candidate->feasible())
      return std::nullopt;
    const Spec* nearest = Nearest(*candidate, hit->spec);
    if (nearest == nullptr) return std::nullopt;
    Spec spec = *nearest;
    spec.measured_us = 0;
    const bool scalable = hit->spec.measured_us > 0 && hit->spec.predicted_us > 0;
    spec.predicted_us =
        scalable ? spec.predicted_us * hit->spec.measured_us / hit->spec.predicted_us : 0.0f;
    return Hit{spec, hit->batch};
  }

  /// A recorded spec may have more splits or swizzle than this shape allows; the nearest one
  /// offered replaces it, with the same configuration if possible.
  static const Spec* Nearest(const Candidate<Op>& candidate, const Spec& wanted) {
    const Spec* best = nullptr;
    const auto rank = [&wanted](const Spec& spec) {
      return std::tuple(spec.config == wanted.config, spec.splits, spec.swizzle);
    };
    for (const Spec& offered : candidate.specs) {
      if (offered.splits > wanted.splits || offered.swizzle > wanted.swizzle) continue;
      if (best == nullptr || rank(offered) > rank(*best)) best = &offered;
    }
    return best;
  }

  /// Keeps the answer whose source is nearer to `batch`; of equally near ones, the one that
  /// promises less time.
  static void Consider(std::optional<Hit>& best, const std::optional<Hit>& answer,
                       std::int64_t batch) {
    if (!answer) return;
    const auto distance = [batch](const Hit& hit) { return std::abs(hit.batch - batch); };
    if (best && distance(*answer) > distance(*best)) return;
    if (best && distance(*answer) == distance(*best)) {
      const float us = answer->spec.predicted_us, standing = best->spec.predicted_us;
      if (us <= 0 || (standing > 0 && us >= standing)) return;
    }
    best = answer;
  }

  static Choice<Op> Make(const Candidates<Op>& candidates, const Spec& spec, Provenance provenance,
                         std::int32_t source_batch, bool wants_measurement) {
    Choice<Op> choice;
    choice.problem_ = candidates.problem();
    choice.spec_ = spec;
    choice.provenance_ = provenance;
    choice.source_batch_ = source_batch;
    choice.wants_measurement_ = wants_measurement;
    choice.why_ = ProvenanceName(provenance);
    if (provenance == Provenance::kInterpolated)
      choice.why_ += " from batch " + std::to_string(source_batch);
    return choice;
  }
};

template <class Op>
Result<typename Op::Desc> ParseProblem(std::string_view key) {
  return OpTraits<Op>::ParseKey(key);
}

template <class Op>
Candidates<Op> Feasible(const Checked<Op>& problem,
                        const std::type_identity_t<OpRegistry<Op>>& registry,
                        const DeviceSpec& device, const FeasibleOptions& options) {
  return Stages<Op>::Feasible(problem, registry.kernels(), device, options);
}

template <class Op>
Result<Choice<Op>> Choose(const Candidates<Op>& candidates,
                          const std::type_identity_t<TunedSpecs<Op>>* records, const Pins* pins,
                          DispatchPolicy policy) {
  return Stages<Op>::Choose(candidates, records, pins, policy);
}

template <class Op>
Result<Plan<Op>> Bind(const Choice<Op>& choice, Device& device) {
  return Stages<Op>::Bind(choice, device);
}

template <class Op>
Result<Plan<Op>> Bind(const Choice<Op>& choice) {
  return Stages<Op>::Bind(choice, HostDevice());
}

template <class Op>
Status Run(const Plan<Op>& plan, const std::type_identity_t<typename Op::Args>& args,
           Workspace& workspace, Stream stream) {
  if (!OpTraits<Op>::Fits(plan, args, workspace)) [[unlikely]]
    return OpTraits<Op>::Mismatch(plan, args, workspace);
  return plan.Launch(args, workspace, stream);
}

/// In one .cc file of the operation's room.
#define TILEWRIGHT_INSTANTIATE_STAGES(OP)                                                     \
  template Result<OP::Desc> ParseProblem<OP>(std::string_view);                               \
  template Candidates<OP> Feasible<OP>(const Checked<OP>&, const OpRegistry<OP>&,             \
                                       const DeviceSpec&, const FeasibleOptions&);            \
  template Result<Choice<OP>> Choose<OP>(const Candidates<OP>&, const TunedSpecs<OP>*,        \
                                         const Pins*, DispatchPolicy);                        \
  template Result<Plan<OP>> Bind<OP>(const Choice<OP>&, Device&);                             \
  template Result<Plan<OP>> Bind<OP>(const Choice<OP>&);                                      \
  template Status Run<OP>(const Plan<OP>&, const OP::Args&, Workspace&, Stream);              \
  template std::vector<CandidateReport> Explain<OP>(const Candidates<OP>&, const Choice<OP>*, \
                                                    std::span<const Record>, const RecordScope&)

}  // namespace tilewright
