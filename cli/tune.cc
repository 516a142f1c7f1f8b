#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "console.h"
#include "measuring.h"
#include "problem_words.h"
#include "report.h"
#include "tune_problems.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

/// "500ms", "60s", "2m", "1h", or seconds.
Result<double> ParseSeconds(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},   {"s", 1},    {"ms", 1e-3},
                                                            {"m", 60}, {"min", 60}, {"h", 3600}};
  for (const auto& [name, seconds] : kUnits) {
    if (error == std::errc() && unit == name && value >= 0) return value * seconds;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--budget '{}': must be a time such as 500ms, 60s or 2m", text));
}

/// The budget goes to what one sequence needs first (batch 1 and the largest), then to the rest.
constexpr double kFirstShare = 0.6;

/// Of that, the share of operations other than products, which come first and need little.
constexpr double kOtherShare = 0.15;

/// The problems of one operation in two groups, those that one sequence needs first.
template <class Op>
using Groups = std::array<std::vector<TuneProblemOf<Op>>, 2>;
template <class Op>
Groups<Op> Split(const TuneProblems& problems, std::int64_t largest) {
  Groups<Op> groups;
  for (const TuneProblemOf<Op>& problem : problems.of<Op>().list()) {
    const std::int64_t rows = RowsOf(problem.desc);
    groups[rows == 1 || rows == largest ? 0 : 1].push_back(problem);
  }
  return groups;
}

std::int64_t LargestBatch(const TuneProblems& problems) {
  std::int64_t largest = 1;
  ForEachOperation([&]<class Op>() {
    for (const auto& problem : problems.of<Op>().list())
      largest = std::max(largest, RowsOf(problem.desc));
  });
  return largest;
}

/// Tunes groups of problems one after the other, with one progress bar.
class Session {
 public:
  Session(const TuneArguments& options, Context& context, const Measuring& measuring, int total)
      : context_(context), measuring_(measuring), total_(total), bar_("tuning") {
    tune_.feasible = context.feasible_options();
    tune_.scope = context.scope();
    tune_.tuner.seed = options.seed;
    tune_.remeasure = options.remeasure || context.cache_mode() == CacheMode::kVerify ||
                      context.cache_mode() == CacheMode::kRefresh;
    tune_.cancel = &Interrupted();
    tune_.progress = [this](const TuneProgress& at) { Show(at); };
  }

  /// `seconds` of device time, all where there is no limit; what is not reached is counted.
  template <class Op>
  Status Run(const std::vector<TuneProblemOf<Op>>& problems, std::optional<double> seconds) {
    if (problems.empty()) return {};
    if (Interrupted() || (seconds && *seconds <= 0)) {
      result_.not_reached += static_cast<int>(problems.size());
      return {};
    }
    tune_.budget_seconds = seconds.value_or(0);
    const auto measurer = measuring_.Make<Op>();
    Result<TuneReport> part =
        tilewright::Tune<Op>(problems, context_.kernels().of<Op>(), context_.device_spec(),
                             context_.records(), *measurer, tune_);
    if (!part) return Fail(part.error());
    done_ += static_cast<int>(problems.size());
    for (TuneRow& row : part->rows) result_.rows.push_back(std::move(row));
    result_.tuned += part->tuned, result_.skipped += part->skipped;
    result_.only += part->only, result_.failed += part->failed;
    result_.not_reached += part->not_reached;
    result_.out_of_budget = result_.out_of_budget || part->out_of_budget;
    result_.device_seconds += part->device_seconds;
    tune_.tuner.reference_us = part->reference_us;
    return {};
  }
  TuneReport& result() { return result_; }

 private:
  void Show(const TuneProgress& at) {
    const double in_group = at.problems > 0 ? at.fraction * at.problems : 0;
    bar_.Show((done_ + in_group) / total_,
              fmt::format("{}/{}  {}  {}", done_ + at.problem + 1, total_,
                          ShortProblem(at.op, std::string(at.key)), at.best));
  }

  Context& context_;
  const Measuring& measuring_;
  int total_;
  int done_ = 0;
  Progress bar_;
  TuneOptions tune_;
  TuneReport result_;
};

/// A problem for which the budget ended before anything was timed, which is not a failure.
bool IsUnfinished(const TuneRow& row) {
  return row.kernel.empty() && row.candidates > 0 && row.timed == 0 && row.quarantined == 0;
}

/// One group: first the operations other than products, which divide their share of the time evenly
/// and pass on what they leave; then products.
Status MeasureGroup(Session& session, const TuneProblems& problems, std::size_t group,
                    std::optional<double> seconds) {
  const std::int64_t largest = LargestBatch(problems);
  const double begin = session.result().device_seconds;
  const auto products = Split<GemmOp>(problems, largest)[group];
  const auto left = [&](double share) -> std::optional<double> {
    if (!seconds) return std::nullopt;
    return share * *seconds - (session.result().device_seconds - begin);
  };
  int others = 0;
  ForEachOperation([&]<class Op>() {
    if constexpr (!std::is_same_v<Op, GemmOp>)
      others += Split<Op>(problems, largest)[group].empty() ? 0 : 1;
  });
  Status status;
  ForEachOperation([&]<class Op>() {
    if constexpr (!std::is_same_v<Op, GemmOp>) {
      const auto mine = Split<Op>(problems, largest)[group];
      if (!status || mine.empty()) return;
      const auto all_others = left(products.empty() ? 1 : kOtherShare);
      status =
          session.Run<Op>(mine, all_others ? std::optional(*all_others / others--) : all_others);
    }
  });
  return status ? session.Run<GemmOp>(products, left(1)) : status;
}

Result<TuneReport> Measure(const TuneArguments& options, Context& context,
                           const TuneProblems& problems, double budget_seconds) {
  const std::int64_t largest = LargestBatch(problems);
  bool two_groups = false;
  ForEachOperation(
      [&]<class Op>() { two_groups = two_groups || !Split<Op>(problems, largest)[1].empty(); });
  MeasurerOptions measure;
  measure.policy = context.scope().policy;
  measure.trial.seed = options.seed;
  Result<Measuring> measuring = Measuring::Start(context, measure, "tune");
  if (!measuring) return Fail(measuring.error());
  Session session(options, context, *measuring, problems.size());
  std::optional<double> seconds;
  if (budget_seconds > 0) seconds = two_groups ? kFirstShare * budget_seconds : budget_seconds;
  Status status = MeasureGroup(session, problems, 0, seconds);
  if (status && seconds) seconds = budget_seconds - session.result().device_seconds;
  if (status) status = MeasureGroup(session, problems, 1, seconds);
  if (!status) return Fail(status.error());
  TuneReport& result = session.result();
  result.cancelled = Interrupted();
  for (TuneRow& row : result.rows) {
    if (!IsUnfinished(row)) continue;
    row.trouble.clear();
    --result.failed;
    ++result.not_reached;
  }
  return std::move(result);
}

/// What tuning gained over the launches that would have run without it, of the problems that were decided.
struct Gains {
  int decided = 0, faster = 0;
  double mean = 1, most = 1;  ///< geometric mean of those that are faster, and the greatest
};
Gains GainsOf(const TuneReport& result) {
  Gains gains;
  double logarithms = 0;
  for (const TuneRow& row : result.rows) {
    if (row.skipped || row.only || !row.conclusive) continue;
    ++gains.decided;
    if (row.gain.ratio <= 1) continue;
    ++gains.faster;
    logarithms += std::log(row.gain.ratio);
    gains.most = std::max(gains.most, row.gain.ratio);
  }
  if (gains.faster > 0) gains.mean = std::exp(logarithms / gains.faster);
  return gains;
}

void PrintJson(const TuneReport& result, std::uint64_t seed) {
  Report report;
  report.Array("rows");
  for (const TuneRow& row : result.rows) {
    Report line;
    line.Set("op", row.op)
        .Set("problem", row.problem)
        .Set("kernel", row.kernel)
        .Set("spec", row.spec)
        .Set("us", row.us)
        .Set("before", row.before)
        .Set("before_us", row.before_us)
        .Set("skipped", row.skipped)
        .Set("only", row.only)
        .Set("conclusive", row.conclusive)
        .Set("inconclusive", row.inconclusive)
        .Set("candidates", row.candidates)
        .Set("timed", row.timed)
        .Set("quarantined", row.quarantined)
        .Set("trouble", row.trouble);
    if (row.gain.ratio > 0) {
      const double interval[] = {row.gain.low, row.gain.high};
      line.Set("gain", row.gain.ratio).Set("gain_interval", std::span<const double>(interval));
    } else {
      line.SetNull("gain").SetNull("gain_interval");
    }
    report.Append("rows", std::move(line));
  }
  const Gains gains = GainsOf(result);
  report.Set("tuned", result.tuned)
      .Set("decided", gains.decided)
      .Set("faster", gains.faster)
      .Set("gain_mean", gains.mean)
      .Set("gain_most", gains.most)
      .Set("skipped", result.skipped)
      .Set("only", result.only)
      .Set("failed", result.failed)
      .Set("not_reached", result.not_reached)
      .Set("cancelled", result.cancelled)
      .Set("out_of_budget", result.out_of_budget)
      .Set("device_seconds", result.device_seconds)
      .Set("seed", static_cast<std::int64_t>(seed));
  Out(report.Text() + "\n");
}

std::string Gain(const TuneRow& row) {
  if (row.skipped) return "known";
  if (!row.conclusive) return "inconclusive";
  if (row.gain.ratio <= 0) return row.before.empty() ? "-" : "same";
  return fmt::format("{:.2f}x ({:.2f} .. {:.2f})", row.gain.ratio, row.gain.low, row.gain.high);
}

/// Why problems ended without a decision, each reason once with how many it met.
std::string WhyInconclusive(const TuneReport& result) {
  std::map<std::string, int> reasons;
  for (const TuneRow& row : result.rows) {
    if (!row.skipped && !row.conclusive && row.timed > 0) ++reasons[row.inconclusive];
  }
  std::string text;
  for (const auto& [reason, count] : reasons) {
    text += fmt::format("{} inconclusive: {}; the next tune goes on with {}\n", count, reason,
                        count == 1 ? "it" : "them");
  }
  return text;
}

std::string GainLine(const TuneReport& result) {
  const Gains gains = GainsOf(result);
  if (gains.decided == 0) return "";
  const std::string decided =
      fmt::format("{} {} decided, ", gains.decided, gains.decided == 1 ? "problem" : "problems");
  if (gains.faster == 0) return decided + "none faster by another launch than before\n";
  return decided + fmt::format(
                       "{} faster by another launch than before: {:.2f}x in the "
                       "geometric mean, up to {:.2f}x\n",
                       gains.faster, gains.mean, gains.most);
}

void PrintTable(const TuneReport& result) {
  Table table({"problem", "kernel", "launch", "us", "default us", "gain (95 %)"},
              {true, true, true, false, false, false});
  for (const TuneRow& row : result.rows) {
    if (row.kernel.empty() || row.only) continue;
    table.Row({ShortProblem(row.op, row.problem), row.kernel, row.spec,
               fmt::format("{:.2f}", row.us),
               row.before_us > 0 ? fmt::format("{:.2f}", row.before_us) : "-", Gain(row)});
  }
  Out(table.Text());
  std::string line = fmt::format("{} problems tuned in {:.1f} s of device time", result.tuned,
                                 result.device_seconds);
  if (result.skipped > 0) line += fmt::format(", {} known already", result.skipped);
  if (result.only > 0) line += fmt::format(", {} have one candidate", result.only);
  if (result.failed > 0) line += fmt::format(", {} failed", result.failed);
  if (result.not_reached > 0)
    line += fmt::format(", {} not reached (more --budget)", result.not_reached);
  Out(line + "\n" + GainLine(result) + WhyInconclusive(result));
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

int Tune(const TuneArguments& options) {
  if (options.check) {
    Complain("'tune --check' is not built yet in this version");
    return kExitUsage;
  }
  if (!options.report.empty()) {
    Complain("'tune --report' is not built yet in this version");
    return kExitUsage;
  }
  if (options.model.path.empty() && options.gemms.empty() && options.shapes.empty() &&
      options.problems.empty()) {
    return Usage("nothing to tune: give a MODEL, --gemm, --op or --shapes", "tune");
  }
  if (Status words = CheckProblemWords(options); !words)
    return Usage(words.error().message, "tune");
  Result<double> budget = ParseSeconds(options.budget);
  if (!budget) return Usage(budget.error().message, "tune");
  Result<std::unique_ptr<Context>> context = MakeContext(options.common, Calibration::kMissing);
  if (!context) return ExitFor(context.error());
  Result<TuneProblems> problems = CollectProblems(options, **context);
  if (!problems) return ExitFor(problems.error());
  if (!(*context)->records().persistent()) {
    Warn("what is measured now is not kept: the records cannot be written");
  }
  Result<TuneReport> result = Measure(options, **context, *problems, *budget);
  if (!result) return ExitFor(result.error());
  for (const std::string& warning : (*context)->records().warnings()) {
    const auto told = (*context)->warnings();
    if (std::find(told.begin(), told.end(), warning) == told.end()) Warn(warning);
  }
  for (const TuneRow& row : result->rows) {
    if (!row.trouble.empty()) {
      Warn(fmt::format("{}: {}", ShortProblem(row.op, row.problem), FirstLine(row.trouble)));
    }
  }
  if (options.common.json) {
    PrintJson(*result, options.seed);
  } else {
    PrintTable(*result);
  }
  const int flushed = Finish(kExitOk);
  if (result->cancelled) {
    Complain(fmt::format("interrupted; what was measured is kept ({} problems)", result->tuned));
    return ExitInterrupted();
  }
  return result->failed > 0 ? kExitFailed : flushed;
}

}  // namespace tilewright::cli
