#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tilewright/stages.h"

namespace tilewright {

/// What the stages need to know of an operation; specialised in the operation's room (GEMM) or for
/// all of engine/op.h at once.
///
///   static std::string FamilyKey(const Problem&);   // of the quarantine: all problems that differ
///   only in the batch static std::optional<Rejection> IsFeasible(const KernelType&, const
///   Problem&);
///   /// Launch parameters worth trying; empty = does not fit the workspace, and `rejection` says
///   why. static std::vector<Spec> Specs(KernelType&, const Problem&, const FeasibleOptions&,
///   std::optional<Rejection>& rejection); static double EstimateUs(const Problem&, const Spec&,
///   const DeviceSpec&);
template <class Op>
struct OpTraits;

/// An answer of the records: a spec, and the batch size it was measured at (0 = this very one).
template <class Op>
struct RecordedSpec {
  typename Op::Spec spec;
  std::int32_t source_batch = 0;
};

/// The stages, once for every operation. A `Source` answers from pins and records:
///
///   Result<std::optional<Spec>> Pinned(const Candidates<Op>&) const;         // an error: pinned,
///   but it cannot run std::optional<RecordedSpec<Op>> Exact(const Candidates<Op>&) const;      //
///   spec.measured_us == 0: put in by hand std::optional<RecordedSpec<Op>> Interpolated(const
///   Candidates<Op>&) const; bool WantsMeasurement() const; // when Exact had no answer
///
/// Its answers are checked against the candidates here: nothing that is not feasible passes.
template <class Op>
struct Stages {
  using Problem = typename Op::Problem;
  using Spec = typename Op::Spec;
  using KernelType = typename Op::KernelType;
  using Traits = OpTraits<Op>;

  /// To be called where `problem` has been validated, and nowhere else.
  static Checked<Op> Pass(const Problem& problem) { return Checked<Op>(problem); }

  static Candidates<Op> Feasible(const Checked<Op>& checked, std::span<KernelType* const> kernels,
                                 const DeviceSpec& device, const FeasibleOptions& options) {
    Candidates<Op> result;
    result.problem_ = checked.problem();
    const std::string family =
        options.quarantine != nullptr ? Traits::FamilyKey(checked.problem()) : std::string();
    result.all_.reserve(kernels.size());
    for (KernelType* kernel : kernels) {
      Candidate<Op> candidate;
      candidate.kernel = kernel;
      candidate.rejection = Reject(*kernel, checked.problem(), device, options, family);
      if (!candidate.rejection)
        candidate.specs = Traits::Specs(*kernel, checked.problem(), options, candidate.rejection);
      for (Spec& spec : candidate.specs) {
        const double us = Traits::EstimateUs(checked.problem(), spec, device);
        // A model that fails must not win: NaN and negative times sort behind every other.
        spec.predicted_us =
            us >= 0 ? static_cast<float>(us) : std::numeric_limits<float>::infinity();
      }
      result.all_.push_back(std::move(candidate));
    }
    return result;
  }

  template <class Source>
  static Result<Choice<Op>> Choose(const Candidates<Op>& candidates, const Source& source) {
    if (candidates.feasible_count() == 0) {
      return Fail(ErrorCode::kUnsupported,
                  "no kernel can run this problem:\n" + candidates.RejectionText());
    }
    auto pinned = source.Pinned(candidates);
    if (!pinned) return Fail(std::move(pinned.error()));
    if (*pinned) return Make(candidates, **pinned, Provenance::kPinned, 0, false);
    if (const auto exact = source.Exact(candidates); exact && Offers(candidates, exact->spec)) {
      // An entry without a time was put into the cache by hand: that is a pin, not a measurement.
      const Provenance by =
          exact->spec.measured_us > 0 ? Provenance::kMeasured : Provenance::kPinned;
      return Make(candidates, exact->spec, by, 0, false);
    }
    const bool wants = source.WantsMeasurement();
    if (const auto near = source.Interpolated(candidates); near && Offers(candidates, near->spec)) {
      return Make(candidates, near->spec, Provenance::kInterpolated, near->source_batch, wants);
    }
    if (const Spec* best = Fastest(candidates, false))
      return Make(candidates, *best, Provenance::kModel, 0, wants);
    return Make(candidates, *Fastest(candidates, true), Provenance::kDefault, 0, wants);
  }

  /// Least predicted time; equal times fall to the first name, then to the first spec. nullptr when
  /// there is none of the kind.
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

  /// `spec` is one of the specs of a feasible kernel.
  static bool Offers(const Candidates<Op>& candidates, const Spec& spec) {
    for (const Candidate<Op>& candidate : candidates.all()) {
      if (candidate.kernel != spec.kernel) continue;
      if (!candidate.feasible()) return false;
      for (const Spec& offered : candidate.specs) {
        if (offered == spec) return true;
      }
    }
    return false;
  }

 private:
  static std::optional<Rejection> Reject(const KernelType& kernel, const Problem& problem,
                                         const DeviceSpec& device, const FeasibleOptions& options,
                                         std::string_view family) {
    const KernelInfo& info = kernel.info();
    if ((options.providers & Bit(info.provider)) == 0) {
      return Rejection{Reason::kProvider,
                       "provider " + std::string(ProviderName(info.provider)) + " is excluded", ""};
    }
    if (auto no = kernel.CheckDevice(device)) return no;
    if (options.quarantine != nullptr) {
      if (const std::string* evidence = options.quarantine->Find(info, family)) {
        return Rejection{Reason::kQuarantined, *evidence,
                         "a changed kernel, or the record removed"};
      }
    }
    return Traits::IsFeasible(kernel, problem);
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

}  // namespace tilewright
