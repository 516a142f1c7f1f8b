#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/text.h"
#include "engine/cache/build_cache_template.h"
#include "engine/machine_mode.h"
#include "engine/stage_templates.h"
#include "engine/tune/known_records.h"
#include "tilewright/tune.h"

namespace tilewright {

/// All launches that can race, as the tuner knows them; none is the incumbent.
template <class Op>
struct Contestants {
  std::vector<typename Op::Spec> specs;
  std::vector<Tuner::Candidate> candidates;  ///< beside `specs`
};

template <class Op>
Contestants<Op> ContestantsOf(const Candidates<Op>& candidates) {
  Contestants<Op> all;
  const auto* fallback = Stages<Op>::Fastest(candidates, false);
  const bool reference_only = fallback == nullptr;
  if (reference_only) fallback = Stages<Op>::Fastest(candidates, true);
  for (const Candidate<Op>& candidate : candidates.all()) {
    // The reference never competes: it is only for what nothing else can run, and slow enough to
    // hold everything up.
    if (!candidate.feasible() || candidate.kernel->info().reference != reference_only) continue;
    all.specs.insert(all.specs.end(), candidate.specs.begin(), candidate.specs.end());
  }
  const std::vector<int> groups = OpTraits<Op>::GroupsOf(all.specs);
  for (std::size_t i = 0; i < all.specs.size(); ++i) {
    const auto& spec = all.specs[i];
    all.candidates.push_back({.name = std::string(spec.kernel->name()) + " " + SpecText(spec),
                              .predicted_us = spec.predicted_us,
                              .group = groups[i],
                              .fallback = spec == *fallback});
  }
  return all;
}

/// Everything about one problem except the race itself.
template <class Op>
struct Race {
  typename Op::Desc desc;
  std::vector<typename Op::Spec> specs;
  std::vector<Tuner::Candidate> candidates;  ///< beside `specs`
  int offered = 0;                           ///< candidates there are, recorded or not
  bool needed = false;                       ///< one that the model would keep has no record
};

/// One call of Tune.
template <class Op>
class TuneSession {
 public:
  using Desc = typename Op::Desc;
  using Spec = typename Op::Spec;
  using Traits = OpTraits<Op>;

  TuneSession(std::span<const TuneProblemOf<Op>> problems, const OpRegistry<Op>& registry,
              const DeviceSpec& device, Records& records, Measurer<Op>& measurer,
              const TuneOptions& options)
      : problems_(problems),
        registry_(registry),
        device_(device),
        records_(records),
        measurer_(measurer),
        options_(options) {}

  Result<TuneReport> Run() {
    for (const auto& problem : problems_) {
      const auto checked = Validate(problem.desc);
      if (!checked) {
        return Fail(ErrorCode::kInvalidArgument,
                    Format("{} in {}", checked.error().message, KeyOf(problem.desc)));
      }
    }
    report_.rows.resize(problems_.size());
    report_.reference_us = options_.tuner.reference_us;
    LoadKnown();
    const std::vector<std::size_t> order = Order();
    for (done_ = 0; done_ < order.size(); ++done_) {
      TuneRow& row = report_.rows[order[done_]];
      const Desc& desc = problems_[order[done_]].desc;
      row.op = Op::kName, row.problem = KeyOf(desc);
      if (Cancelled() || OutOfBudget()) {
        ++report_.not_reached;
        continue;
      }
      TuneOne(desc, row, order.size() - done_);
    }
    TuneUndecided(order);
    report_.cancelled = Cancelled();
    report_.out_of_budget = OutOfBudget();
    return std::move(report_);
  }

 private:
  bool Cancelled() const {
    return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed);
  }
  bool OutOfBudget() const {
    return options_.budget_seconds > 0 && report_.device_seconds >= options_.budget_seconds;
  }

  void LoadKnown() {
    Records::Filter filter;
    filter.op = Op::kName;
    filter.device = options_.scope.device;
    const std::vector<Record> rows = records_.Load(filter);
    cache_.emplace(BuildCache<Op>(rows, registry_, options_.scope));
    quarantine_ = {};
    AddToQuarantine<Op>(quarantine_, rows, options_.scope);
    known_ = KnownRecords(rows, options_.scope);
  }

  // Heavy problems first: calls times the time the model expects. Equals stay in the caller's
  // order.
  std::vector<std::size_t> Order() const {
    std::vector<std::size_t> order(problems_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (options_.budget_seconds <= 0) return order;
    std::vector<double> load;
    for (const auto& problem : problems_) {
      const Candidates<Op> candidates = CandidatesOf(problem.desc);
      const Spec* best = Stages<Op>::Fastest(candidates, false);
      load.push_back(best != nullptr && std::isfinite(best->predicted_us)
                         ? problem.weight * best->predicted_us
                         : 0);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&load](std::size_t x, std::size_t y) { return load[x] > load[y]; });
    return order;
  }

  Candidates<Op> CandidatesOf(const Desc& desc) const {
    FeasibleOptions feasible = options_.feasible;
    feasible.quarantine = &quarantine_;
    return Feasible(*Validate(desc), registry_, device_, feasible);
  }

  // What a busy machine left undecided gets another turn after all others: such moments pass.
  void TuneUndecided(const std::vector<std::size_t>& order) {
    if (options_.tuner.budget_us > 0) return;  // each problem has had what the caller gives it
    for (int turn = 1; turn < options_.turns; ++turn) {
      std::vector<std::size_t> undecided;  // places in `order`
      for (std::size_t at = 0; at < order.size(); ++at) {
        if (report_.rows[order[at]].undecided()) undecided.push_back(at);
      }
      if (undecided.empty()) return;
      LoadKnown();
      for (std::size_t i = 0; i < undecided.size(); ++i) {
        if (Cancelled() || OutOfBudget()) return;
        done_ = undecided[i];
        TuneRow& row = report_.rows[order[done_]];
        const Desc& desc = problems_[order[done_]].desc;
        const TuneRow before = std::exchange(row, TuneRow());
        row.op = Op::kName, row.problem = KeyOf(desc);
        --report_.tuned;
        TuneOne(desc, row, undecided.size() - i);
        if (row.timed > 0 || row.quarantined > 0) continue;
        // The budget ended before anything was timed: the turn before stands.
        row = before;
        --report_.failed, ++report_.tuned;
      }
    }
  }

  // The specs that race: those without a record of this scope (all with `remeasure`), the incumbent
  // and the model's first choice.
  Race<Op> MakeRace(const Candidates<Op>& candidates) const {
    Race<Op> race;
    race.desc = candidates.problem();
    Contestants<Op> all = ContestantsOf(candidates);
    race.offered = static_cast<int>(all.specs.size());
    if (all.specs.empty()) return race;
    const auto incumbent = Choose(candidates, &*cache_);
    const bool stands = incumbent && incumbent->provenance() == Provenance::kMeasured;
    for (std::size_t i = 0; stands && i < all.specs.size(); ++i)
      all.candidates[i].incumbent = all.specs[i] == incumbent->spec();
    // Which of them the model would keep is the tuner's rule; asking it what it would check first
    // needs no measurement.
    Tuner dry(all.candidates, options_.tuner);
    const std::vector<int> checked = FirstChecked(dry);
    const std::set<int> kept(checked.begin(), checked.end());
    for (std::size_t i = 0; i < all.specs.size(); ++i) {
      const bool wanted = kept.contains(static_cast<int>(i)) &&
                          (options_.remeasure || !IsRecorded(race, all.specs[i]));
      race.needed = race.needed || wanted;
      if (!wanted && !all.candidates[i].incumbent) continue;
      race.specs.push_back(all.specs[i]);
      race.candidates.push_back(all.candidates[i]);
    }
    return race;
  }

  bool IsRecorded(const Race<Op>& race, const Spec& spec) const {
    return known_.Has(KeyOf(Traits::Resolve(race.desc, *spec.kernel)), spec.kernel->info(),
                      SpecText(spec));
  }

  void Report(const TuneRow& row, const Tuner* tuner, const Race<Op>& race, bool finished) {
    if (!options_.progress) return;
    TuneProgress progress;
    progress.problem = static_cast<int>(done_);
    progress.problems = static_cast<int>(problems_.size());
    progress.op = row.op, progress.key = row.problem;
    const double part = finished || tuner == nullptr ? 1.0 : tuner->progress();
    fraction_ = std::max(
        fraction_, (static_cast<double>(done_) + part) / static_cast<double>(problems_.size()));
    progress.fraction = fraction_;
    progress.device_seconds =
        report_.device_seconds + (finished || tuner == nullptr ? 0 : tuner->spent_us() * 1e-6);
    progress.finished = finished;
    if (const auto best = tuner != nullptr ? tuner->Best() : std::nullopt) {
      progress.best = std::string(race.specs[static_cast<std::size_t>(*best)].kernel->name());
      progress.best_us = finished ? row.us : 0;
    }
    options_.progress(progress);
  }

  double BudgetUs(std::size_t problems_left) const {
    if (options_.tuner.budget_us > 0 || options_.budget_seconds <= 0)
      return options_.tuner.budget_us;
    // A problem may take twice its even share, since easy ones take less, and as much as decides
    // it where that is too little: some heavy ones decided are better than none.
    constexpr double kLeastShare = 2;
    const double left = options_.budget_seconds - report_.device_seconds;
    const double share = std::max(kLeastShare, 2 * left / static_cast<double>(problems_left));
    return std::max(1.0, std::min(left, share) * 1e6);
  }

  void TuneOne(const Desc& desc, TuneRow& row, std::size_t problems_left) {
    const Candidates<Op> candidates = CandidatesOf(desc);
    if (candidates.feasible_count() == 0) {
      row.trouble = "no kernel can run it:\n" + candidates.RejectionText();
      ++report_.failed;
      return;
    }
    const Race<Op> race = MakeRace(candidates);
    DescribeBefore(row, candidates);
    row.only = race.offered == 1 && !Traits::kTimesOnlyCandidate;
    if (row.only || !race.needed) {
      row.skipped = !row.only;
      row.conclusive = true;
      ++(row.only ? report_.only : report_.skipped);
      Report(row, nullptr, race, true);
      return;
    }
    if (const auto prepared = measurer_.Prepare(desc); !prepared) {
      row.trouble = prepared.error().message;
      ++report_.failed;
      return;
    }
    Tuner::Options options = options_.tuner;
    options.budget_us = BudgetUs(problems_left);
    options.reference_us = report_.reference_us;
    Tuner tuner(race.candidates, options);
    while (const auto ask = tuner.Next()) {
      const Spec& spec = race.specs[static_cast<std::size_t>(ask->candidate)];
      tuner.Notify(ask->action == Tuner::Action::kCheck ? measurer_.Check(spec)
                                                        : measurer_.Time(spec, ask->reps));
      Report(row, &tuner, race, false);
      if (Cancelled()) tuner.Stop();
    }
    report_.device_seconds += tuner.spent_us() * 1e-6;
    report_.reference_us =
        tuner.in_slow_spell() ? BelieveSlower(tuner.reference_us()) : tuner.reference_us();
    Store(row, race, tuner);
    Report(row, &tuner, race, true);
  }

  void DescribeBefore(TuneRow& row, const Candidates<Op>& candidates) const {
    const auto before = Choose(candidates, &*cache_);
    if (!before) return;
    row.before = std::string(before->kernel().name());
    row.before_us = before->spec().measured_us;
    if (before->provenance() != Provenance::kMeasured) return;
    row.kernel = row.before;
    row.spec = SpecText(before->spec());
    row.us = before->spec().measured_us;
  }

  // Marks the best of every layout, so that the decision holds for whichever layout the weights
  // will have. A session that decides nothing marks what stays alone: times of its other layouts
  // are of too few samples to be compared.
  std::set<int> Winners(const Race<Op>& race, const Tuner& tuner) const {
    const auto best = tuner.Best();
    if (!best) return {};
    std::set<int> winners = {*best};
    if (!tuner.conclusive()) return winners;
    const int winning = Traits::LayoutOf(*race.specs[static_cast<std::size_t>(*best)].kernel);
    std::map<int, int> by_layout{{winning, *best}};
    for (std::size_t i = 0; i < race.specs.size(); ++i) {
      const Tuner::Result& result = tuner.result(static_cast<int>(i));
      if (result.verdict != Verdict::kOk || result.samples == 0) continue;
      const int layout = Traits::LayoutOf(*race.specs[i].kernel);
      if (layout == winning) continue;
      // A layout with records of its own keeps its decision: only part of its kernels raced now.
      if (cache_->Find(Traits::Resolve(race.desc, *race.specs[i].kernel))) continue;
      const auto [at, first] = by_layout.try_emplace(layout, static_cast<int>(i));
      if (!first && result.median_us < tuner.result(at->second).median_us)
        at->second = static_cast<int>(i);
    }
    for (const auto& [layout, index] : by_layout) winners.insert(index);
    return winners;
  }

  Record RecordOf(const Race<Op>& race, const Spec& spec, const Tuner::Result& result) const {
    Record record;
    record.op = Op::kName;
    record.problem = KeyOf(Traits::Resolve(race.desc, *spec.kernel));
    record.scope = options_.scope;
    record.kernel = spec.kernel->info().name, record.fingerprint = spec.kernel->info().fingerprint;
    record.spec = SpecText(spec);
    record.verdict = result.verdict, record.evidence = result.evidence;
    record.samples = result.verdict == Verdict::kOk ? result.samples : 0;
    record.median_us = result.median_us, record.low_us = result.low_us,
    record.high_us = result.high_us;
    record.predicted_us = spec.predicted_us;
    record.generation = NextGeneration(known_.Of(record.problem));
    return record;
  }

  void Store(TuneRow& row, const Race<Op>& race, Tuner& tuner) {
    tuner.Stop();  // settles the estimates where it was stopped early
    const std::set<int> winners = Winners(race, tuner);
    std::vector<Record> rows;
    for (std::size_t i = 0; i < race.specs.size(); ++i) {
      const Tuner::Result& result = tuner.result(static_cast<int>(i));
      ++row.candidates;
      if (result.verdict != Verdict::kOk) ++row.quarantined;
      if (result.samples > 0) ++row.timed;
      if (race.candidates[i].fallback && row.before_us == 0) row.before_us = result.median_us;
      if (result.verdict == Verdict::kOk && result.samples == 0) continue;
      rows.push_back(RecordOf(race, race.specs[i], result));
      rows.back().chosen = winners.contains(static_cast<int>(i));
      rows.back().finished = tuner.conclusive();
    }
    const auto stored = records_.Append(rows);
    if (!stored) row.trouble = stored.error().message;
    row.conclusive = tuner.conclusive();
    row.inconclusive = tuner.inconclusive();
    row.gain = tuner.gain();
    if (const auto best = tuner.Best()) {
      const Spec& spec = race.specs[static_cast<std::size_t>(*best)];
      row.kernel = std::string(spec.kernel->name());
      row.spec = SpecText(spec);
      row.us = tuner.result(*best).median_us;
      ++report_.tuned;
    } else {
      if (row.trouble.empty())
        row.trouble =
            Cancelled() ? "stopped before anything was timed" : "no candidate passed and was timed";
      ++report_.failed;
    }
    // A kernel that failed here is out for every batch size of the problem at once.
    if (row.quarantined > 0) LoadKnown();
  }

  std::span<const TuneProblemOf<Op>> problems_;
  const OpRegistry<Op>& registry_;
  const DeviceSpec& device_;
  Records& records_;
  Measurer<Op>& measurer_;
  const TuneOptions& options_;
  KnownRecords known_;
  std::optional<DispatchCacheOf<Op>> cache_;
  Quarantine quarantine_;
  TuneReport report_;
  std::size_t done_ = 0;
  double fraction_ = 0;
};

template <class Op>
Result<TuneReport> Tune(std::type_identity_t<std::span<const TuneProblemOf<Op>>> problems,
                        const OpRegistry<Op>& registry, const DeviceSpec& device, Records& records,
                        std::type_identity_t<Measurer<Op>>& measurer, const TuneOptions& options) {
  return TuneSession<Op>(problems, registry, device, records, measurer, options).Run();
}

/// In one .cc file of the operation's room.
#define TILEWRIGHT_INSTANTIATE_TUNE(OP)                                                           \
  template Result<TuneReport> Tune<OP>(std::span<const TuneProblemOf<OP>>, const OpRegistry<OP>&, \
                                       const DeviceSpec&, Records&, Measurer<OP>&,                \
                                       const TuneOptions&)

}  // namespace tilewright
