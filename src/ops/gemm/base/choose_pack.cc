#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/text.h"
#include "ops/gemm/base/gemm_op.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct LayoutTime {
  double model_us = kNever;
  double recorded_us = kNever;  ///< measured at this very batch, or scaled from a near one
  bool measured = false;
  bool reference_only = true;
};

// The time of each layout's best kernel at one batch size.
std::map<Pack, LayoutTime> TimesAt(const GemmCandidates& candidates,
                                   const TunedSpecs<GemmOp>* records) {
  std::map<Pack, LayoutTime> times;
  for (const GemmCandidate& candidate : candidates.all()) {
    if (!candidate.feasible()) continue;
    LayoutTime& time = times[candidate.kernel->desc().pack_b];
    const bool reference = candidate.kernel->info().reference;
    if (reference && !time.reference_only) continue;
    if (!reference && time.reference_only) time.model_us = kNever, time.reference_only = false;
    for (const LaunchSpec& spec : candidate.specs)
      time.model_us = std::min<double>(time.model_us, spec.predicted_us);
  }
  if (records == nullptr) return times;
  for (auto& [pack, time] : times) {
    GemmDesc problem = candidates.problem();
    problem.pack_b = pack;
    const auto hit = records->LowerBoundHit(problem);
    // What an unfinished session saw of one layout may be a neighbour on the machine.
    if (!hit || hit->spec.measured_us <= 0 || hit->spec.provisional) continue;
    if (hit->batch == BatchOf(problem)) {
      time.recorded_us = hit->spec.measured_us;
      time.measured = true;
      continue;
    }
    if (hit->batch > kTunedBatchReach * BatchOf(problem)) continue;
    const GemmCandidate* candidate = candidates.Find(hit->spec.kernel->name());
    if (candidate == nullptr || !candidate->feasible() || hit->spec.predicted_us <= 0) continue;
    for (const LaunchSpec& spec : candidate->specs) {
      if (spec == hit->spec) {
        time.recorded_us =
            static_cast<double>(spec.predicted_us) * hit->spec.measured_us / hit->spec.predicted_us;
      }
    }
  }
  return times;
}

// How much slower than its model this machine is at this batch size, from the layouts that have
// records: an unmeasured layout must not win only because models are optimistic.
double ModelScale(const std::map<Pack, LayoutTime>& times) {
  double sum = 0;
  int count = 0;
  for (const auto& [pack, time] : times) {
    if (!std::isfinite(time.recorded_us) || !std::isfinite(time.model_us) || time.model_us <= 0)
      continue;
    sum += std::log(time.recorded_us / time.model_us);
    ++count;
  }
  return count == 0 ? 1.0 : std::exp(sum / count);
}

}  // namespace

Result<PackChoice> ChoosePack(const GemmDesc& weights, std::span<const BatchWeight> batches,
                              const Registry& registry, const DeviceSpec& device,
                              const FeasibleOptions& options, const TunedSpecs<GemmOp>* records) {
  if (batches.empty())
    return Fail(ErrorCode::kInvalidArgument, "no batch sizes to choose a layout for");
  GemmDesc problem = weights;
  problem.pack_b = kPackAny;
  struct Total {
    double us = 0;
    int served = 0, measured = 0;
  };
  std::map<Pack, Total> totals;
  std::string refused;
  for (const BatchWeight& batch : batches) {
    if (!(batch.weight > 0) || !std::isfinite(batch.weight)) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("weight of batch {} = {}: must be positive", batch.batch, batch.weight));
    }
    SetBatch(problem, batch.batch);
    const auto checked = Validate(problem);
    if (!checked) return Fail(checked.error());
    const GemmCandidates candidates = Feasible(*checked, registry, device, options);
    if (candidates.feasible_count() == 0) refused = candidates.RejectionText();
    const auto times = TimesAt(candidates, records);
    const double scale = ModelScale(times);
    for (const auto& [pack, time] : times) {
      const double us = std::isfinite(time.recorded_us) ? time.recorded_us : time.model_us * scale;
      if (!std::isfinite(us)) continue;
      Total& total = totals[pack];
      total.us += batch.weight * us;
      ++total.served;
      total.measured += time.measured ? 1 : 0;
    }
  }
  PackChoice choice;
  for (const auto& [pack, total] : totals) {
    if (total.served == static_cast<int>(batches.size()))
      choice.layouts.push_back({pack, total.us, total.measured});
  }
  if (choice.layouts.empty()) {
    return Fail(ErrorCode::kUnsupported,
                "no layout of the weights serves every batch size:\n" + refused);
  }
  // Of equal costs the lower number wins: plain weights need no copy.
  std::stable_sort(choice.layouts.begin(), choice.layouts.end(),
                   [](const auto& x, const auto& y) { return x.weighted_us < y.weighted_us; });
  const PackChoice::Row& best = choice.layouts.front();
  choice.pack = best.pack;
  choice.weighted_us = best.weighted_us;
  choice.provenance = best.measured == static_cast<int>(batches.size()) ? Provenance::kMeasured
                                                                        : Provenance::kModel;
  for (Kernel* kernel : registry.kernels()) {
    SetBatch(problem, batches.front().batch);
    problem.pack_b = best.pack;
    if (kernel->desc().pack_b != best.pack || kernel->IsFeasible(problem) ||
        kernel->CheckDevice(device))
      continue;
    choice.packer = kernel;
    break;
  }
  return choice;
}

}  // namespace tilewright
