#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "console.h"
#include "measuring.h"
#include "problem_words.h"
#include "tilewright/whole_file.h"
#include "tune_html.h"
#include "tune_lock.h"
#include "tune_problems.h"
#include "tune_report.h"
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
    if (error == std::errc() && unit == name && value >= 0 && std::isfinite(value * seconds))
      return value * seconds;
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
  return row.candidates > 0 && row.timed == 0 && row.quarantined == 0;
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
  Result<Measuring> measuring = Measuring::Start(context, {.seed = options.seed}, "tune");
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

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

int Tune(const TuneArguments& options) {
  if (options.empty()) {
    const char* what = options.check ? "check" : options.write_lock ? "lock" : "tune";
    return Usage(fmt::format("nothing to {}: give a MODEL, --gemm, --op or --shapes", what),
                 "tune");
  }
  if (Status words = CheckProblemWords(options); !words)
    return Usage(words.error().message, "tune");
  Result<double> budget = ParseSeconds(options.budget);
  if (!budget) return Usage(budget.error().message, "tune");
  if (!options.report.empty()) {
    if (Status able = CanWriteWholeFile(options.report); !able) return ExitFor(able.error());
  }
  if (options.check) return CheckAgainstLock(options);
  if (options.write_lock) return WriteLock(options);
  const Result<Asked> asked = Ask(options, Calibration::kMissing);
  if (!asked) return ExitFor(asked.error());
  Context& context = *asked->context;
  if (!context.records().persistent()) {
    Warn("what is measured now is not kept: the records cannot be written");
  }
  Result<TuneReport> result = Measure(options, context, asked->problems, *budget);
  if (!result) return ExitFor(result.error());
  for (const std::string& warning : context.records().warnings()) {
    const auto told = context.warnings();
    if (std::find(told.begin(), told.end(), warning) == told.end()) Warn(warning);
  }
  for (const TuneRow& row : result->rows) {
    if (!row.trouble.empty()) {
      Warn(fmt::format("{}: {}", ShortProblem(row.op, row.problem), FirstLine(row.trouble)));
    }
  }
  if (options.common.json) {
    PrintTuneJson(*result, options.seed);
  } else {
    PrintTuneTable(*result);
  }
  if (!options.report.empty()) {
    const std::string page = TuneHtml(*result, options, context);
    if (Status written = WriteWholeFile(options.report, page); !written)
      return Finish(ExitFor(written.error()));
  }
  const int flushed = Finish(kExitOk);
  if (result->cancelled) {
    Complain(fmt::format("interrupted; what was measured is kept ({} problems)", result->tuned));
    return ExitInterrupted();
  }
  return result->failed > 0 ? kExitFailed : flushed;
}

}  // namespace tilewright::cli
