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

// The path of an operation. Each arrow is one function, the only one that can make the type on its
// right:
//
//   Desc --Validate--> Checked --Feasible--> Candidates --Choose--> Choice --Bind--> Plan --Run
//
// Everything up to Choice is a pure function of values, including the device, so a decision for
// another machine can be made anywhere. Only Run is on the hot path: it allocates nothing, locks
// nothing and reads nothing but its arguments. The functions are templates over the operation
// (operation.h), instantiated for every operation of this library.

template <class Op>
struct Stages;  // the library's own: only it makes the types below

/// A valid problem: every field is in range and the fields are consistent with each other.
template <class Op>
class Checked {
 public:
  const typename Op::Desc& problem() const { return problem_; }

 private:
  friend struct Stages<Op>;
  explicit Checked(const typename Op::Desc& problem) : problem_(problem) {}
  typename Op::Desc problem_;
};

/// One kernel of the registry, considered for one problem.
template <class Op>
struct Candidate {
  typename Op::KernelType* kernel = nullptr;
  std::optional<Rejection> rejection;  ///< nullopt = feasible
  /// Launch parameters worth trying, in ascending order of splits, then of swizzle, with
  /// predicted_us filled in.
  std::vector<typename Op::Spec> specs;

  bool feasible() const { return !rejection.has_value(); }
};

/// All kernels of a registry, considered for one problem on one device, in the registry's order.
template <class Op>
class Candidates {
 public:
  const typename Op::Desc& problem() const { return problem_; }
  std::span<const Candidate<Op>> all() const& { return all_; }
  std::span<const Candidate<Op>> all() const&& = delete;  // the span would dangle
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
  /// One line "name: reason" for each rejected kernel.
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

/// The kernel that will run a problem, and how it was chosen.
template <class Op>
class Choice {
 public:
  const typename Op::Desc& problem() const { return problem_; }
  const typename Op::Spec& spec() const { return spec_; }
  typename Op::KernelType& kernel() const { return *spec_.kernel; }
  Provenance provenance() const { return provenance_; }
  /// If interpolated, the batch size that was measured; else 0.
  std::int32_t source_batch() const { return source_batch_; }
  /// Whether the policy asks for a measurement of this problem and no exact record exists.
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

/// Ready to run: the kernel, its parameters, what was loaded for it, and the problem that the
/// arguments must match. Cheap to copy; refers to the kernel and to the device that it was bound
/// to, which must outlive it.
template <class Op>
class Plan {
 public:
  /// The problem with open layouts replaced by those of the kernel.
  const typename Op::Desc& problem() const { return problem_; }
  const typename Op::Spec& spec() const { return spec_; }
  typename Op::KernelType& kernel() const { return *spec_.kernel; }
  Provenance provenance() const { return provenance_; }
  const std::string& why() const { return why_; }  ///< Choice::why
  /// The workspace that Run needs; see WorkspaceSize for what must be zeroed.
  const WorkspaceSize& workspace() const { return workspace_; }
  std::size_t partials_bytes() const { return workspace_.partials; }

  /// Launches without checking the arguments, which must match the plan's problem. If the executor
  /// has more workers than the device has cores, only that many are used, since the workspace is
  /// sized for them.
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

/// Tuning results, as Choose looks them up. Implementations may be called from any number of
/// threads and allocate nothing on a hit.
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
};

/// Kernels fixed by a lock file or an option, by operation and problem. If a pinned kernel cannot
/// run, that is an error; nothing else is tried.
struct Pins {
  struct Pin {
    std::string kernel;
    std::string spec;  ///< SpecText
  };
  using Key = std::pair<std::string, std::string>;  ///< Op::kName, KeyOf(desc)
  std::map<Key, Pin, std::less<>> by_problem;
};

/// The inverse of KeyOf(desc). kInvalidArgument names the fault.
template <class Op>
Result<typename Op::Desc> ParseProblem(std::string_view key);

/// Every kernel of the registry, with its launch specs or the reason why it is rejected.
template <class Op>
Candidates<Op> Feasible(const Checked<Op>& problem,
                        const std::type_identity_t<OpRegistry<Op>>& registry,
                        const DeviceSpec& device, const FeasibleOptions& options = {});

/// A tuned batch speaks for smaller ones down to this part of it: what is fastest for 512 rows would
/// not be taken for one.
constexpr std::int64_t kTunedBatchReach = 4;

/// Decides: pinned, else measured, else interpolated, else the model, else the reference kernel.
/// `records` and `pins` may be nullptr. Interpolated means the spec of the smallest tuned batch
/// above the request (LowerBound) within kTunedBatchReach that is not provisional, whatever the
/// model predicts; it must be feasible at the exact shape, and its splits and swizzle are limited
/// to those offered there.
/// source_batch() names it.
/// If a layout is still open, the nearest batch over all layouts is used; among equally near ones,
/// the faster. Ties in time are broken by name. If nothing is feasible, the error is kUnsupported
/// with every kernel's reason.
///
/// Policies: kDefault and kAppend as above; kReuse also uses the largest tuned batch (FloorBound)
/// if the request lies above all of them; kMeasure uses exact records only. kMeasure and kAppend
/// set wants_measurement().
template <class Op>
Result<Choice<Op>> Choose(const Candidates<Op>& candidates,
                          const std::type_identity_t<TunedSpecs<Op>>* records,
                          const Pins* pins = nullptr,
                          DispatchPolicy policy = DispatchPolicy::kDefault);

/// Resolves everything that a launch on `device` needs except its operands: the layout, the
/// workspace, and what the kernel prepares or loads in advance (OpKernel::BindLaunch). May
/// allocate, compile and load; fails with the kernel's error.
template <class Op>
Result<Plan<Op>> Bind(const Choice<Op>& choice, Device& device);
/// Binds to HostDevice().
template <class Op>
Result<Plan<Op>> Bind(const Choice<Op>& choice);

/// Launches. `args` must match the plan's problem: sizes, types, layouts, null pointers and
/// scalars, about forty integers, are compared; the contents of tensors are not. `workspace` must
/// be at least plan.workspace(). Two threads may run the same plan if each has its own workspace.
/// Allocates only to build an error message.
template <class Op>
Status Run(const Plan<Op>& plan, const std::type_identity_t<typename Op::Args>& args,
           Workspace& workspace, Stream stream);

/// A workspace allocated on a device, barriers zeroed. For callers that do not manage their own.
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
  std::string reason;  ///< of the rejection
  double predicted_us = 0;
  double measured_us = 0;  ///< 0 = never measured
  double low_us = 0, high_us = 0;
  std::int64_t samples = 0;
  /// kMeasured if measured_us is set; in the chosen row, the choice's.
  Provenance provenance = Provenance::kModel;
  int rank = 0;  ///< 1 = first; rejected kernels have 0
  bool chosen = false;
};
/// Every spec of every feasible kernel, ranked (the chosen one first, then by measured, then by
/// predicted time), then the rejected kernels. `records` may hold any records; only those of this
/// problem and `scope` are used.
template <class Op>
std::vector<CandidateReport> Explain(const Candidates<Op>& candidates,
                                     const std::type_identity_t<Choice<Op>>* choice,
                                     std::span<const Record> records, const RecordScope& scope);

}  // namespace tilewright
