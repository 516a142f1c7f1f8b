#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tilewright/operation.h"
#include "tilewright/records.h"

namespace tilewright {

// The path of an operation, one function for each arrow; the type on the right of an arrow can only
// be made there:
//
//   Desc --Validate--> Checked --Feasible--> Candidates --Choose--> Choice --Bind--> Plan --Run
//
// Everything up to Choice is a pure function of values, the device among them: a decision for a
// machine that is not here can be made anywhere. Run is the only hot one: it allocates nothing,
// locks nothing and reads nothing but its arguments. The functions are templates over the operation
// (operation.h), instantiated for every operation of this library.

template <class Op>
struct Stages;  // src/engine/stage_templates.h: the functions behind every operation's stages

/// A problem that some kernel might take: every field is in range and the fields agree with each
/// other.
template <class Op>
class Checked {
 public:
  const typename Op::Desc& problem() const { return problem_; }

 private:
  friend struct Stages<Op>;
  explicit Checked(const typename Op::Desc& problem) : problem_(problem) {}
  typename Op::Desc problem_;
};

/// One kernel of the registry, looked at for one problem.
template <class Op>
struct Candidate {
  typename Op::KernelType* kernel = nullptr;
  std::optional<Rejection> rejection;    ///< why not; nullopt = feasible
  std::vector<typename Op::Spec> specs;  ///< launch parameters worth trying, by rising splits, then
                                         ///< swizzle; predicted_us filled in

  bool feasible() const { return !rejection.has_value(); }
};

/// All kernels of a registry for one problem on one device, in the registry's order.
template <class Op>
class Candidates {
 public:
  const typename Op::Desc& problem() const { return problem_; }
  std::span<const Candidate<Op>> all() const& { return all_; }
  std::span<const Candidate<Op>> all() const&& = delete;  // would outlive what it looks into
  const Candidate<Op>* Find(std::string_view kernel) const {
    for (const Candidate<Op>& candidate : all_) {
      if (candidate.kernel->name() == kernel) return &candidate;
    }
    return nullptr;
  }
  int feasible_count() const {
    int count = 0;
    for (const Candidate<Op>& candidate : all_) count += candidate.feasible() ? 1 : 0;
    return count;
  }
  /// One line for each kernel that cannot, "name: reason".
  std::string RejectionText() const {
    std::string text;
    for (const Candidate<Op>& candidate : all_) {
      if (candidate.feasible()) continue;
      if (!text.empty()) text += '\n';
      text.append("  ")
          .append(candidate.kernel->name())
          .append(": ")
          .append(candidate.rejection->ToString());
    }
    return text;
  }

 private:
  friend struct Stages<Op>;
  Candidates() = default;
  typename Op::Desc problem_;
  std::vector<Candidate<Op>> all_;
};

/// The kernel that will run a problem, and who said so.
template <class Op>
class Choice {
 public:
  const typename Op::Desc& problem() const { return problem_; }
  const typename Op::Spec& spec() const { return spec_; }
  typename Op::KernelType& kernel() const { return *spec_.kernel; }
  Provenance provenance() const { return provenance_; }
  /// Interpolated: the batch size that was measured; else 0.
  std::int32_t source_batch() const { return source_batch_; }
  /// The policy wants this problem measured and no exact record exists.
  bool wants_measurement() const { return wants_measurement_; }
  /// "measured", "interpolated from batch 16", ...
  const std::string& why() const { return why_; }

 private:
  friend struct Stages<Op>;
  Choice() = default;
  typename Op::Desc problem_;
  typename Op::Spec spec_;
  Provenance provenance_ = Provenance::kDefault;
  std::int32_t source_batch_ = 0;
  bool wants_measurement_ = false;
  std::string why_;
};

/// Ready to run: the kernel, its parameters, what was loaded for it and what the arguments must
/// look like. Copied freely; refers to the kernel and to the device it was bound to, which must
/// outlive it.
template <class Op>
class Plan {
 public:
  const typename Op::Desc& problem() const {
    return problem_;
  }  ///< layouts are the kernel's own now
  const typename Op::Spec& spec() const { return spec_; }
  typename Op::KernelType& kernel() const { return *spec_.kernel; }
  Provenance provenance() const { return provenance_; }
  const std::string& why() const { return why_; }  ///< Choice::why
  /// What Run needs: see WorkspaceSize for who zeroes what.
  const WorkspaceSize& workspace() const { return workspace_; }
  std::size_t partials_bytes() const { return workspace_.partials; }

  /// Launches without looking at the arguments: they are known to be of the plan's problem. An
  /// executor with more workers than the device has cores lends as many as it has: the workspace is
  /// for these.
  Status Launch(const typename Op::Args& args, Workspace& workspace, Stream stream) const {
    if (stream.executor != nullptr && stream.executor->workers() > most_workers_) [[unlikely]] {
      LimitedExecutor limited(*stream.executor, most_workers_);
      return LaunchAll(args, workspace, {&limited, stream.native});
    }
    return LaunchAll(args, workspace, stream);
  }

 private:
  friend struct Stages<Op>;
  Plan() = default;
  Status LaunchAll(const typename Op::Args& args, Workspace& workspace, Stream stream) const {
    if (bound_ != nullptr) return bound_->Launch(args, workspace, stream);
    return spec_.kernel->Launch(args, spec_, workspace, stream);
  }

  typename Op::Desc problem_;
  typename Op::Spec spec_;
  WorkspaceSize workspace_;
  int most_workers_ = std::numeric_limits<int>::max();
  std::shared_ptr<const BoundLaunch<Op>> bound_;
  Provenance provenance_ = Provenance::kDefault;
  std::string why_;
};

/// What was tuned, as Choose asks for it. Implementations answer from any number of threads and
/// allocate nothing on a hit.
template <class Op>
class TunedSpecs {
 public:
  virtual ~TunedSpecs() = default;
  /// A launch spec and the batch size it was measured at.
  struct Hit {
    typename Op::Spec spec;
    std::int32_t batch = 0;
  };
  virtual std::optional<typename Op::Spec> Find(const typename Op::Desc& desc) const = 0;
  /// The smallest tuned batch >= the requested one, feasible at the exact shape.
  virtual std::optional<Hit> LowerBoundHit(const typename Op::Desc& desc) const = 0;
  /// The largest tuned batch <= the requested one.
  virtual std::optional<Hit> FloorBoundHit(const typename Op::Desc& desc) const = 0;
};

struct FeasibleOptions : LaunchLimits {
  std::uint32_t providers = Bit(Provider::kOwn) | Bit(Provider::kVendor) | Bit(Provider::kUser);
  const Quarantine* quarantine = nullptr;
};

/// Kernels fixed by a lock file or an option, by operation and problem. A pinned kernel that cannot
/// run is an error, not a fallback.
struct Pins {
  struct Pin {
    std::string kernel;
    std::string spec;  ///< SpecText
  };
  using Key = std::pair<std::string, std::string>;  ///< Op::kName, KeyOf(desc)
  std::map<Key, Pin, std::less<>> by_problem;
};

/// The inverse of KeyOf(desc). kInvalidArgument names what is wrong.
template <class Op>
Result<typename Op::Desc> ParseProblem(std::string_view key);

/// Every kernel of the registry, with its launch specs or its reason for no.
template <class Op>
Candidates<Op> Feasible(const Checked<Op>& problem,
                        const std::type_identity_t<OpRegistry<Op>>& registry,
                        const DeviceSpec& device, const FeasibleOptions& options = {});

/// Decides: pinned, else measured, else interpolated, else the model, else the reference kernel.
/// `records` and `pins` may be nullptr. Interpolated means the spec of the smallest tuned batch
/// above the request (LowerBound), whatever the model says, feasible at the exact shape and cut to
/// the splits and swizzle offered there; source_batch() names it. Where a layout is still open, the
/// nearest batch of all layouts counts, of equal ones the faster. Equal times fall to the first
/// name. Nothing feasible is ErrorCode::kUnsupported with every kernel's reason.
///
/// Policies: kDefault and kAppend as above; kReuse also takes the largest tuned batch (FloorBound)
/// when the request lies above all of them; kMeasure takes exact records only. kMeasure and kAppend
/// set wants_measurement().
template <class Op>
Result<Choice<Op>> Choose(const Candidates<Op>& candidates,
                          const std::type_identity_t<TunedSpecs<Op>>* records,
                          const Pins* pins = nullptr,
                          DispatchPolicy policy = DispatchPolicy::kDefault);

/// Resolves everything a launch on `device` needs but its operands: the layout, the workspace, and
/// what the kernel makes or loads beforehand (OpKernel::BindLaunch). May allocate, compile and
/// load; whatever the kernel fails with is the error.
template <class Op>
Result<Plan<Op>> Bind(const Choice<Op>& choice, Device& device);
/// On HostDevice().
template <class Op>
Result<Plan<Op>> Bind(const Choice<Op>& choice);

/// Launches. `args` must be of the plan's problem: sizes, types, layouts, null pointers and scalars
/// are compared, some forty integers; contents are the kernel's business. `workspace` must hold
/// plan.workspace(). Two threads may run one plan with two workspaces. Allocates only to word an
/// error.
template <class Op>
Status Run(const Plan<Op>& plan, const std::type_identity_t<typename Op::Args>& args,
           Workspace& workspace, Stream stream);

/// The workspace of a plan in the memory of a device, barriers zeroed. For callers who keep none of
/// their own.
class OwnedWorkspace {
 public:
  static Result<OwnedWorkspace> Make(const WorkspaceSize& size, Device& device);
  Workspace& get() { return workspace_; }

 private:
  OwnedWorkspace() = default;
  DeviceMemory barriers_, partials_;
  Workspace workspace_;
};

/// One row of `explain`.
struct CandidateReport {
  std::string kernel;
  std::string spec;  ///< "swizzle=0 splits=1"; "" for a rejected kernel
  bool feasible = false;
  std::string reason;  ///< of a rejection
  double predicted_us = 0;
  double measured_us = 0;  ///< 0 = never measured
  double low_us = 0, high_us = 0;
  std::int64_t samples = 0;
  Provenance provenance =
      Provenance::kModel;  ///< kMeasured where measured_us is; of the choice in the chosen row
  int rank = 0;            ///< 1 = first; rejected kernels have 0
  bool chosen = false;
};
/// Every spec of every feasible kernel, ranked (the chosen one first, then by measured, then by
/// predicted time), then the rejected kernels. `records` may hold records of anything; those of
/// this problem and `scope` count.
template <class Op>
std::vector<CandidateReport> Explain(const Candidates<Op>& candidates,
                                     const std::type_identity_t<Choice<Op>>* choice,
                                     std::span<const Record> records, const RecordScope& scope);

}  // namespace tilewright
