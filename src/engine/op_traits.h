#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/hash.h"
#include "engine/cache/problem_group.h"
#include "engine/problem_key.h"
#include "tilewright/stages.h"

namespace tilewright {

/// The number of rows of a problem: the dimension that varies from call to call.
template <class Desc>
requires requires(const Desc& desc) { desc.rows; }
std::int32_t BatchOf(const Desc& desc) { return static_cast<std::int32_t>(desc.rows); }
template <class Desc>
requires requires(const Desc& desc) { desc.rows; }
void SetBatch(Desc& desc, std::int32_t batch) { desc.rows = batch; }

/// What the stages need to know of an operation beyond its types. The primary template serves every
/// operation whose layouts are fixed by its problem; its room declares, beside Desc and Args,
/// ForEachField, KeyOf and `Result<Desc> DescOf(const Args&, const CallTerms&)`. GEMM specialises
/// it.
template <class Op>
struct OpTraits {
  using Desc = typename Op::Desc;

  /// Key of the quarantine: equal for all problems that differ only in the batch.
  static std::string QuarantineKey(const Desc& problem) {
    Desc any_batch = problem;
    SetBatch(any_batch, 1);
    return KeyOf(any_batch);
  }
  static Result<Desc> ParseKey(std::string_view key) { return ParseFields<Desc>(key, Op::kName); }

  /// A number for the group of a problem (those that differ only in the batch): equal within a
  /// group, almost certainly different between groups. A key in another order of fields, or without
  /// some, is brought to the usual form first.
  static std::uint64_t GroupOfKey(std::string_view key) {
    static const auto* const kNames = new std::vector<std::string>(FieldNamesOf(KeyOf(Desc{})));
    if (const auto group = GroupOfCanonicalKey(key, *kNames, "rows=")) return *group;
    const Result<Desc> desc = ParseKey(key);
    const auto group = desc ? GroupOfCanonicalKey(KeyOf(*desc), *kNames, "rows=") : std::nullopt;
    return group ? *group : Hash64(key);
  }

  /// A number for each layout that kernels may ask for: the winner of each is worth recording.
  static int LayoutOf(const typename Op::KernelType&) { return 0; }
  /// One group for each of `specs`: the model cannot compare candidates of different groups.
  static std::vector<int> GroupsOf(std::span<const typename Op::Spec> specs) {
    return std::vector<int>(specs.size(), 0);
  }
  /// A problem's only candidate is not timed, since there is nothing to decide.
  static constexpr bool kTimesOnlyCandidate = false;

  /// `problem` with every open layout set to the one that `kernel` wants.
  static Desc Resolve(const Desc& problem, const typename Op::KernelType&) { return problem; }

  /// The problems under which records may answer for the candidates: one for each open layout.
  static std::vector<Desc> LookupKeys(const Candidates<Op>& candidates) {
    return {candidates.problem()};
  }

  /// Whether `args` and `workspace` are what the plan was made for. Mismatch describes the
  /// difference.
  static bool Fits(const Plan<Op>& plan, const typename Op::Args& args,
                   const Workspace& workspace) {
    const Result<Desc> desc = DescOf(args, TermsOf(plan.problem()));
    return desc && *desc == plan.problem() &&
           workspace.partials_size >= plan.workspace().partials &&
           workspace.barriers_size >= plan.workspace().barriers;
  }
  [[gnu::cold]] static Status Mismatch(const Plan<Op>& plan, const typename Op::Args& args,
                                       const Workspace& workspace) {
    const Result<Desc> desc = DescOf(args, TermsOf(plan.problem()));
    if (!desc) return Fail(desc.error());
    if (*desc != plan.problem()) {
      return Fail(ErrorCode::kInvalidArgument, "the arguments are of " + KeyOf(*desc) +
                                                   ", the plan is for " + KeyOf(plan.problem()));
    }
    return Fail(ErrorCode::kInvalidArgument,
                "workspace of " + std::to_string(workspace.partials_size) + " bytes of partials: " +
                    "the plan needs " + std::to_string(plan.workspace().partials));
  }

 private:
  /// Fields that the arguments do not determine cannot differ.
  static CallTerms TermsOf(const Desc& desc) {
    CallTerms terms;
    if constexpr (requires { desc.precision; }) terms.activations = desc.precision;
    if constexpr (requires { desc.guarantee; }) terms.guarantee = desc.guarantee;
    return terms;
  }
};

/// What most operations need before their arguments are complete: nothing.
template <class Op>
struct NothingToPrepare {
  Status Prepare(typename Op::Args&, Device&, Stream, std::int64_t) { return {}; }
};

/// Op::Prepared where the operation declares one (rope: tables of rotations).
template <class Op>
struct PreparedType {
  using type = NothingToPrepare<Op>;
};
template <class Op>
requires requires { typename Op::Prepared; }
struct PreparedType<Op> {
  using type = typename Op::Prepared;
};
template <class Op>
using PreparedOf = typename PreparedType<Op>::type;

}  // namespace tilewright
