#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewright/dispatch_cache.h"
#include "tilewright/gemm.h"
#include "tilewright/records.h"

namespace tilewright {

// The path of an operation, one function for each arrow; the type on the right of an arrow can only
// be made there:
//
//   GemmDesc --Validate--> CheckedGemm --Feasible--> GemmCandidates --Choose--> GemmChoice
//   --Bind--> GemmPlan --Run--> numbers
//
// Everything up to GemmPlan is a pure function of values, the device among them: a decision for a
// machine that is not here can be made anywhere. Run is the only hot one: it allocates nothing,
// locks nothing and reads nothing but its arguments.

template <class Op>
struct Stages;  // src/engine/stage_templates.h: the functions behind every operation's stages

/// A problem that some kernel might take: every field is in range and the fields agree with each
/// other.
template <class Op>
class Checked {
 public:
  const typename Op::Problem& problem() const { return problem_; }

 private:
  friend struct Stages<Op>;
  explicit Checked(const typename Op::Problem& problem) : problem_(problem) {}
  typename Op::Problem problem_;
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
  const typename Op::Problem& problem() const { return problem_; }
  std::span<const Candidate<Op>> all() const { return all_; }
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
  typename Op::Problem problem_;
  std::vector<Candidate<Op>> all_;
};

/// The kernel that will run a problem, and who said so.
template <class Op>
class Choice {
 public:
  const typename Op::Problem& problem() const { return problem_; }
  const typename Op::Spec& spec() const { return spec_; }
  typename Op::KernelType& kernel() const { return *spec_.kernel; }
  Provenance provenance() const { return provenance_; }
  /// Interpolated: the batch size that was measured; else 0.
  std::int32_t source_batch() const { return source_batch_; }
  /// The policy wants this problem measured and no exact record exists.
  bool wants_measurement() const { return wants_measurement_; }
  /// "measured", "interpolated from m = 16", ...
  const std::string& why() const { return why_; }

 private:
  friend struct Stages<Op>;
  Choice() = default;
  typename Op::Problem problem_;
  typename Op::Spec spec_;
  Provenance provenance_ = Provenance::kDefault;
  std::int32_t source_batch_ = 0;
  bool wants_measurement_ = false;
  std::string why_;
};

struct FeasibleOptions {
  std::uint32_t providers = Bit(Provider::kOwn) | Bit(Provider::kVendor) | Bit(Provider::kUser);
  std::size_t barriers_bytes = std::size_t{1} << 20;  ///< of the workspace that will be there
  std::size_t partials_bytes = std::size_t{32} << 20;
  int max_splits = 16;  ///< split counts tried: 1, 2, 3, 4, 6, 8, 12, 16 up to this
  const Quarantine* quarantine = nullptr;
};

// GEMM

struct GemmOp {
  using Problem = GemmDesc;
  using KernelType = Kernel;
  using Spec = LaunchSpec;
};
using CheckedGemm = Checked<GemmOp>;
using GemmCandidate = Candidate<GemmOp>;
using GemmCandidates = Candidates<GemmOp>;
using GemmChoice = Choice<GemmOp>;

/// Refuses what no kernel could take: sizes below 1, k that does not divide into blocks or groups,
/// fields that contradict each other, operands beyond 2^40 elements. The message names value and
/// limit.
Result<CheckedGemm> Validate(const GemmDesc& desc);

struct ValidateOptions {
  int threads = 1;  ///< workers of the executor it will run on
  bool promise_alignment =
      false;  ///< put the alignment that the pointers happen to have into the key
};
/// The problem of a call: as above, and the pointers, leading dimensions, offsets and indices of
/// `args` are looked at (the offsets are read; the operands are not).
Result<CheckedGemm> Validate(const Operation& operation, const GemmArgs& args,
                             const ValidateOptions& options = {});

/// Every kernel of the registry, with its launch specs or its reason for no.
GemmCandidates Feasible(const CheckedGemm& problem, const Registry& registry,
                        const DeviceSpec& device, const FeasibleOptions& options = {});

/// Kernels fixed by a lock file or an option, by problem. A pinned kernel that cannot run is an
/// error, not a fallback.
struct Pins {
  struct Pin {
    std::string kernel;
    std::int32_t swizzle = 0, splits = 1;
  };
  std::map<std::string, Pin, std::less<>> by_problem;  ///< KeyOf(desc)
};

/// Decides: pinned, else measured, else interpolated, else the model, else the reference kernel.
/// `records` and `pins` may be nullptr. Interpolated means the spec of the smallest tuned batch
/// above the request (LowerBound), whatever the model says, feasible at the exact shape and cut to
/// the splits and swizzle offered there; source_batch() names it. Where the weights may be packed
/// as the kernel likes, the nearest batch of all layouts counts, of equal ones the faster. Equal
/// times fall to the first name. Nothing feasible is ErrorCode::kUnsupported with every kernel's
/// reason.
///
/// Policies: kDefault and kAppend as above; kReuse also takes the largest tuned batch (FloorBound)
/// when the request lies above all of them; kMeasure takes exact records only. kMeasure and kAppend
/// set wants_measurement().
Result<GemmChoice> Choose(const GemmCandidates& candidates, const DispatchCache* records,
                          const Pins* pins = nullptr,
                          DispatchPolicy policy = DispatchPolicy::kDefault);

/// Ready to run: the kernel, its parameters and what the arguments must look like. A small value,
/// copied freely; refers to the kernel, which must outlive it.
class GemmPlan {
 public:
  const GemmDesc& problem() const { return problem_; }  ///< pack_b is now the kernel's own layout
  const LaunchSpec& spec() const { return spec_; }
  std::size_t partials_bytes() const { return partials_bytes_; }
  Provenance provenance() const { return provenance_; }

 private:
  friend Result<GemmPlan> Bind(const GemmChoice&);
  GemmPlan() = default;
  GemmDesc problem_;
  LaunchSpec spec_;
  std::size_t partials_bytes_ = 0;
  Provenance provenance_ = Provenance::kDefault;
};
Result<GemmPlan> Bind(const GemmChoice& choice);

/// Launches. `args` must be of the plan's problem: sizes, types, orders, packs, leading dimensions,
/// null pointers, alpha and beta are compared, some forty integers; offsets and overlaps are
/// Validate's business. `workspace.partials` must hold partials_bytes(). Two threads may run one
/// plan with two workspaces. Allocates only to word an error.
Status Run(const GemmPlan& plan, const GemmArgs& args, Workspace& workspace, Stream stream);

/// Which packed layout weights should get at load.
struct BatchWeight {
  std::int32_t batch = 1;
  double weight = 1;  ///< calls of this batch size, relative to each other
};
struct PackChoice {
  Pack pack = kPackPlain;
  Kernel* packer = nullptr;  ///< a kernel of this layout: PackedBytes and PackB are its
  double weighted_us = 0;    ///< what the weights cost in this layout
  Provenance provenance = Provenance::kModel;  ///< kMeasured only if every batch size was
  struct Row {
    Pack pack;
    double weighted_us;
    int measured;  ///< batch sizes whose time was measured
  };
  std::vector<Row> layouts;  ///< all that can serve every batch size, best first
};
/// Picks the layout whose best kernels take the least time over `batches`. `weights` is a problem
/// with pack_b == kPackAny; its batch is ignored. Times come from records where there are any, else
/// from the model scaled to the records of that batch size. A layout that cannot serve all batch
/// sizes is not considered; the plain layout counts as one.
Result<PackChoice> ChoosePack(const GemmDesc& weights, std::span<const BatchWeight> batches,
                              const Registry& registry, const DeviceSpec& device,
                              const FeasibleOptions& options, const DispatchCache* records);

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
std::vector<CandidateReport> Explain(const GemmCandidates& candidates, const GemmChoice* choice,
                                     std::span<const Record> records, const RecordScope& scope);

/// "swizzle=1 splits=2", and back.
std::string SpecText(const LaunchSpec& spec);
std::optional<LaunchSpec> ParseSpec(std::string_view text, Kernel* kernel);

/// The winners of all records of this scope whose kernel is live and unchanged: the session that
/// decided last stands unless another candidate is faster beyond doubt (intervals apart, and more
/// than 1 %). Pure: the same set of records gives the same cache.
struct BuildReport {
  int problems = 0;      ///< entries made
  int measurements = 0;  ///< records used
  int stale = 0;         ///< of a kernel whose fingerprint changed
  int foreign = 0;       ///< of another device class, library version or policy
  int unknown_kernel = 0;
  int unreadable = 0;  ///< problem or spec that this version does not understand
  int quarantined = 0;
};
DispatchCache BuildCache(std::span<const Record> records, const Registry& registry,
                         const RecordScope& scope, BuildReport* report = nullptr);
/// The kernels that failed here before. Device and libraries must agree; the policy does not
/// matter.
Quarantine BuildQuarantine(std::span<const Record> records, const RecordScope& scope);
/// KeyOf with the batch dimension set to 1 and pack_b to `any`: what a quarantine covers.
std::string FamilyKeyOf(const GemmDesc& desc);

}  // namespace tilewright
