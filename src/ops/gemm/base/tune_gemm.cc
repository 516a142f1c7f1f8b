#include "tilewright/tune_gemm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/text.h"
#include "engine/stage_templates.h"
#include "ops/gemm/base/gemm_op.h"

namespace tilewright {
namespace {

using Known = std::map<std::string, std::vector<Record>, std::less<>>;  // by problem

// Everything about one problem's race but the race itself.
struct Race {
  GemmDesc desc;
  std::vector<LaunchSpec> specs;
  std::vector<Tuner::Candidate> candidates;  // beside `specs`
  bool needed = false;                       // a candidate the model would keep has no record
};

std::string NameOf(const LaunchSpec& spec) {
  return std::string(spec.kernel->name()) + " " + SpecText(spec);
}

bool IsRecorded(const Known& known, const GemmDesc& desc, const LaunchSpec& spec,
                const RecordScope& scope) {
  const auto rows = known.find(KeyOf(Packed(desc, *spec.kernel)));
  if (rows == known.end()) return false;
  const std::string text = SpecText(spec);
  return std::any_of(rows->second.begin(), rows->second.end(), [&](const Record& row) {
    return row.kernel == spec.kernel->name() && row.spec == text &&
           row.fingerprint == spec.kernel->info().fingerprint && row.scope == scope &&
           ((row.samples > 0 && row.finished) || row.verdict != Verdict::kOk);
  });
}

class Session {
 public:
  Session(std::span<const TuneProblem> problems, const Registry& registry, const DeviceSpec& device,
          Records& records, GemmMeasurer& measurer, const TuneOptions& options)
      : problems_(problems),
        registry_(registry),
        device_(device),
        records_(records),
        measurer_(measurer),
        options_(options) {}

  Result<TuneReport> Run() {
    for (const TuneProblem& problem : problems_) {
      const auto checked = Validate(problem.desc);
      if (!checked) {
        return Fail(ErrorCode::kInvalidArgument,
                    Format("{} in {}", checked.error().message, KeyOf(problem.desc)));
      }
    }
    report_.rows.resize(problems_.size());
    LoadKnown();
    const std::vector<std::size_t> order = Order();
    for (done_ = 0; done_ < order.size(); ++done_) {
      TuneRow& row = report_.rows[order[done_]];
      row.desc = problems_[order[done_]].desc;
      if (Cancelled() || OutOfBudget()) {
        ++report_.not_reached;
        continue;
      }
      TuneOne(row, order.size() - done_);
    }
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
    known_.clear();
    Records::Filter filter;
    filter.op = "gemm";
    filter.device = options_.scope.device;
    const std::vector<Record> rows = records_.Load(filter);
    cache_.emplace(BuildCache(rows, registry_, options_.scope));
    quarantine_ = BuildQuarantine(rows, options_.scope);
    for (const Record& row : rows) known_[row.problem].push_back(row);
  }

  // Heavy problems first: calls times the time the model expects. Equals stay in the caller's
  // order.
  std::vector<std::size_t> Order() const {
    std::vector<std::size_t> order(problems_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (options_.budget_seconds <= 0) return order;
    std::vector<double> load;
    for (const TuneProblem& problem : problems_) {
      const GemmCandidates candidates = CandidatesOf(problem.desc);
      const LaunchSpec* best = Stages<GemmOp>::Fastest(candidates, false);
      load.push_back(best != nullptr && std::isfinite(best->predicted_us)
                         ? problem.weight * best->predicted_us
                         : 0);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&load](std::size_t x, std::size_t y) { return load[x] > load[y]; });
    return order;
  }

  GemmCandidates CandidatesOf(const GemmDesc& desc) const {
    FeasibleOptions feasible = options_.feasible;
    feasible.quarantine = &quarantine_;
    return Feasible(*Validate(desc), registry_, device_, feasible);
  }

  // The specs that race: those without a record of this scope (all with `remeasure`), the incumbent
  // and the model's first choice.
  Race MakeRace(const GemmCandidates& candidates) const {
    Race race;
    race.desc = candidates.problem();
    std::vector<LaunchSpec> all;
    const LaunchSpec* fallback = Stages<GemmOp>::Fastest(candidates, false);
    const bool reference_only = fallback == nullptr;
    if (reference_only) fallback = Stages<GemmOp>::Fastest(candidates, true);
    for (const GemmCandidate& candidate : candidates.all()) {
      // The reference never competes: it is there for what nothing else can do, and slow enough to
      // hold everything up.
      if (!candidate.feasible() || candidate.kernel->info().reference != reference_only) continue;
      all.insert(all.end(), candidate.specs.begin(), candidate.specs.end());
    }
    if (fallback == nullptr) return race;
    const auto incumbent = Choose(candidates, &*cache_);
    const bool stands = incumbent && incumbent->provenance() == Provenance::kMeasured;
    ClusteringParam by_layout;
    by_layout.tile = by_layout.splits = false;
    const auto groups = Cluster(all, by_layout);

    std::vector<Tuner::Candidate> list;
    for (const LaunchSpec& spec : all) {
      Tuner::Candidate entry;
      entry.name = NameOf(spec);
      entry.predicted_us = spec.predicted_us;
      entry.incumbent = stands && spec == incumbent->spec();
      entry.fallback = spec == *fallback;
      for (std::size_t g = 0; g < groups.size(); ++g) {
        if (std::find(groups[g].begin(), groups[g].end(), spec) != groups[g].end())
          entry.group = static_cast<int>(g);
      }
      list.push_back(std::move(entry));
    }
    // Which of them the model would keep is the tuner's rule; asking it what it would check first
    // needs no measurement.
    const std::set<int> kept = KeptBy(list);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool recorded = IsRecorded(known_, race.desc, all[i], options_.scope);
      const bool wanted = kept.contains(static_cast<int>(i)) && (options_.remeasure || !recorded);
      race.needed = race.needed || wanted;
      if (!wanted && !list[i].incumbent) continue;
      race.specs.push_back(all[i]);
      race.candidates.push_back(list[i]);
    }
    return race;
  }

  std::set<int> KeptBy(const std::vector<Tuner::Candidate>& list) const {
    Tuner dry(list, options_.tuner);
    std::set<int> kept;
    while (const auto ask = dry.Next()) {
      if (ask->action != Tuner::Action::kCheck) break;
      kept.insert(ask->candidate);
      dry.Notify({});
    }
    return kept;
  }

  void Report(const TuneRow& row, const Tuner* tuner, const Race& race, bool finished) const {
    if (!options_.progress) return;
    TuneProgress progress;
    progress.problem = static_cast<int>(done_);
    progress.problems = static_cast<int>(problems_.size());
    progress.desc = &row.desc;
    const double part = finished || tuner == nullptr ? 1.0 : tuner->progress();
    progress.fraction = (static_cast<double>(done_) + part) / static_cast<double>(problems_.size());
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
    // A problem may take twice its even share: the easy ones leave some over.
    const double left = options_.budget_seconds - report_.device_seconds;
    return std::max(1.0, std::min(left, 2 * left / static_cast<double>(problems_left)) * 1e6);
  }

  void TuneOne(TuneRow& row, std::size_t problems_left) {
    const GemmCandidates candidates = CandidatesOf(row.desc);
    if (candidates.feasible_count() == 0) {
      row.trouble = "no kernel can run it:\n" + candidates.RejectionText();
      ++report_.failed;
      return;
    }
    const Race race = MakeRace(candidates);
    DescribeBefore(row, candidates);
    if (!race.needed) {
      row.skipped = true;
      row.conclusive = true;
      ++report_.skipped;
      Report(row, nullptr, race, true);
      return;
    }
    if (const auto prepared = measurer_.Prepare(row.desc); !prepared) {
      row.trouble = prepared.error().message;
      ++report_.failed;
      return;
    }
    Tuner::Options options = options_.tuner;
    options.budget_us = BudgetUs(problems_left);
    Tuner tuner(race.candidates, options);
    while (const auto ask = tuner.Next()) {
      const LaunchSpec& spec = race.specs[static_cast<std::size_t>(ask->candidate)];
      tuner.Notify(ask->action == Tuner::Action::kCheck ? measurer_.Check(spec)
                                                        : measurer_.Time(spec, ask->reps));
      Report(row, &tuner, race, false);
      if (Cancelled()) tuner.Stop();
    }
    report_.device_seconds += tuner.spent_us() * 1e-6;
    Store(row, race, tuner);
    Report(row, &tuner, race, true);
  }

  void DescribeBefore(TuneRow& row, const GemmCandidates& candidates) const {
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
  // will have.
  std::set<int> Winners(const Race& race, const Tuner& tuner) const {
    std::set<int> winners;
    const auto best = tuner.Best();
    if (!best) return winners;
    winners.insert(*best);
    std::map<Pack, int> by_pack{
        {race.specs[static_cast<std::size_t>(*best)].kernel->desc().pack_b, *best}};
    for (std::size_t i = 0; i < race.specs.size(); ++i) {
      const Tuner::Result& result = tuner.result(static_cast<int>(i));
      if (result.verdict != Verdict::kOk || result.samples == 0) continue;
      const Pack pack = race.specs[i].kernel->desc().pack_b;
      if (pack == race.specs[static_cast<std::size_t>(*best)].kernel->desc().pack_b) continue;
      // A layout with records of its own keeps its decision: only part of its kernels raced now.
      GemmDesc packed = race.desc;
      packed.pack_b = pack;
      if (cache_->Find(packed)) continue;
      const auto [at, first] = by_pack.try_emplace(pack, static_cast<int>(i));
      if (!first && result.median_us < tuner.result(at->second).median_us)
        at->second = static_cast<int>(i);
    }
    for (const auto& [pack, index] : by_pack) winners.insert(index);
    return winners;
  }

  // Of this scope; what was known when the session began.
  std::vector<Record> KnownOf(const std::string& problem) const {
    std::vector<Record> rows;
    const auto at = known_.find(problem);
    if (at == known_.end()) return rows;
    std::copy_if(at->second.begin(), at->second.end(), std::back_inserter(rows),
                 [this](const Record& row) { return row.scope == options_.scope; });
    return rows;
  }

  void Store(TuneRow& row, const Race& race, Tuner& tuner) {
    tuner.Stop();  // settles the estimates where it was stopped early
    const std::set<int> winners = Winners(race, tuner);
    std::vector<Record> rows;
    for (std::size_t i = 0; i < race.specs.size(); ++i) {
      const Tuner::Result& result = tuner.result(static_cast<int>(i));
      const LaunchSpec& spec = race.specs[i];
      ++row.candidates;
      if (result.verdict != Verdict::kOk) ++row.quarantined;
      if (result.samples > 0) ++row.timed;
      if (race.candidates[i].fallback && row.before_us == 0) row.before_us = result.median_us;
      if (result.verdict == Verdict::kOk && result.samples == 0) continue;
      Record record;
      record.op = "gemm";
      record.problem = KeyOf(Packed(race.desc, *spec.kernel));
      record.scope = options_.scope;
      record.kernel = spec.kernel->info().name,
      record.fingerprint = spec.kernel->info().fingerprint;
      record.spec = SpecText(spec);
      record.verdict = result.verdict, record.evidence = result.evidence;
      record.samples = result.verdict == Verdict::kOk ? result.samples : 0;
      record.median_us = result.median_us, record.low_us = result.low_us,
      record.high_us = result.high_us;
      record.predicted_us = spec.predicted_us;
      record.chosen = winners.contains(static_cast<int>(i));
      record.finished = tuner.conclusive();
      record.generation = NextGeneration(KnownOf(record.problem));
      rows.push_back(std::move(record));
    }
    const auto stored = records_.Append(rows);
    if (!stored) row.trouble = stored.error().message;
    row.conclusive = tuner.conclusive();
    row.inconclusive = tuner.inconclusive();
    row.gain = tuner.gain();
    if (const auto best = tuner.Best()) {
      const LaunchSpec& spec = race.specs[static_cast<std::size_t>(*best)];
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
    // A kernel that failed here is out for the problem's whole family at once.
    if (row.quarantined > 0) LoadKnown();
  }

  std::span<const TuneProblem> problems_;
  const Registry& registry_;
  const DeviceSpec& device_;
  Records& records_;
  GemmMeasurer& measurer_;
  const TuneOptions& options_;
  Known known_;
  std::optional<DispatchCache> cache_;
  Quarantine quarantine_;
  TuneReport report_;
  std::size_t done_ = 0;
};

}  // namespace

Result<TuneReport> TuneGemm(std::span<const TuneProblem> problems, const Registry& registry,
                            const DeviceSpec& device, Records& records, GemmMeasurer& measurer,
                            const TuneOptions& options) {
  return Session(problems, registry, device, records, measurer, options).Run();
}

}  // namespace tilewright
