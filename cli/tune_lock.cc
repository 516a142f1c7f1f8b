#include "tune_lock.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "console.h"
#include "html.h"
#include "problem_words.h"
#include "report.h"
#include "tilewright/kernel_lock.h"
#include "tilewright/whole_file.h"
#include "tune_html.h"
#include "tune_problems.h"

namespace tilewright::cli {
namespace {

/// What runs a problem now, and what the lock says about that.
struct Row {
  std::string op, problem;
  Pins::Pin now;  ///< empty if nothing can run it
  std::string provenance, why;
  std::string trouble;  ///< why there is no choice
  LockAnswer answer;

  bool agrees() const { return trouble.empty() && answer.verdict == LockVerdict::kAgrees; }
};

template <class Op>
Result<Choice<Op>> Decide(const Candidates<Op>& candidates, const Context& context) {
  Result<Choice<Op>> choice = Choose(candidates, context.tuned().of<Op>());
  // As in a dispatch, only products have records enough to insist on.
  if (!choice || !std::is_same_v<Op, GemmOp> || context.cache_mode() != CacheMode::kStrict ||
      choice->provenance() <= Provenance::kInterpolated)
    return choice;
  return Fail(ErrorCode::kNotFound,
              fmt::format("strict mode: no record answers for it (best guess {})",
                          choice->kernel().name()));
}

template <class Op>
Row Look(const typename Op::Desc& desc, const Context& context, const Pins* locked) {
  Row row;
  row.op = Op::kName, row.problem = KeyOf(desc);
  const Result<Checked<Op>> checked = Validate(desc);
  if (!checked) {
    row.trouble = checked.error().message;
    return row;
  }
  const Candidates<Op> candidates = Feasible(*checked, context.kernels().of<Op>(),
                                             context.device_spec(), context.feasible_options());
  const Result<Choice<Op>> choice = Decide<Op>(candidates, context);
  if (!choice) {
    row.trouble = choice.error().message;
    return row;
  }
  row.now = {std::string(choice->kernel().name()), SpecText(choice->spec())};
  row.provenance = ProvenanceName(choice->provenance()), row.why = choice->why();
  row.answer = CheckLock(locked, candidates, *choice);
  return row;
}

std::vector<Row> LookAtAll(const TuneProblems& problems, const Context& context,
                           const Pins* locked) {
  std::vector<Row> rows;
  ForEachOperation([&]<class Op>() {
    for (const TuneProblemOf<Op>& problem : problems.of<Op>().list())
      rows.push_back(Look<Op>(problem.desc, context, locked));
  });
  return rows;
}

std::string LaunchText(const Pins::Pin& pin) { return fmt::format("{}, {}", pin.kernel, pin.spec); }

/// How far a lock and the choices agree.
struct Comparison {
  std::string lock, device;
  std::vector<std::string> other_devices;  ///< that the lock has lines for
  bool has_device = false;
  std::vector<Row> rows;
  int agreeing = 0, drifted = 0, missing = 0, failed = 0;
  int not_named = 0;  ///< lines for this device of problems that were not asked for

  bool agrees() const { return agreeing == static_cast<int>(rows.size()); }
};

Comparison Compare(const TuneArguments& options, const KernelLock& lock,
                   const TuneProblems& problems, const Context& context) {
  Comparison found;
  found.lock = options.lock, found.device = context.scope().device;
  for (const auto& [device, pins] : lock.by_device)
    if (device != found.device) found.other_devices.push_back(device);
  const Pins* locked = lock.Find(found.device);
  found.has_device = locked != nullptr;
  found.rows = LookAtAll(problems, context, locked);
  if (locked != nullptr) found.not_named = static_cast<int>(locked->by_problem.size());
  for (const Row& row : found.rows) {
    const bool missing = row.answer.verdict == LockVerdict::kMissing;
    ++(row.agrees()           ? found.agreeing
       : !row.trouble.empty() ? found.failed
       : missing              ? found.missing
                              : found.drifted);
    if (locked != nullptr && locked->by_problem.contains({row.op, row.problem})) --found.not_named;
  }
  return found;
}

/// What is wrong with a row, on one line.
std::string Line(const Row& row) {
  const std::string problem = ShortProblem(row.op, row.problem);
  if (!row.trouble.empty())
    return fmt::format("{}: {}", problem, row.trouble.substr(0, row.trouble.find('\n')));
  const std::string now = fmt::format("now {} ({})", LaunchText(row.now), row.why);
  if (row.answer.verdict == LockVerdict::kMissing)
    return fmt::format("{}: not in the lock; {}", problem, now);
  return fmt::format("{}: locked {}; {}{}{}", problem, LaunchText(row.answer.locked), now,
                     row.answer.hindrance.empty() ? "" : "; ", row.answer.hindrance);
}

std::string SummaryLine(const Comparison& found) {
  std::string line = fmt::format("{} of {} agree with {}", found.agreeing,
                                 Counted(found.rows.size(), "problem"), found.lock);
  if (found.drifted > 0) line += fmt::format(", {} drifted", found.drifted);
  if (found.missing > 0) line += fmt::format(", {} not in it", found.missing);
  if (found.failed > 0) line += fmt::format(", {} not decided", found.failed);
  if (found.not_named > 0)
    line += fmt::format("; it has {} of problems that were not named",
                        Counted(static_cast<std::uint64_t>(found.not_named), "line"));
  return line;
}

/// Where the lock has nothing for this device; "" where it has.
std::string NoLines(const Comparison& found) {
  if (found.has_device) return "";
  return fmt::format("{} has no line for {}, {}; to add them: the same command with --write-lock",
                     found.lock, found.device,
                     found.other_devices.empty()
                         ? "nor for any other device"
                         : fmt::format("only for {}", fmt::join(found.other_devices, ", ")));
}

void PrintText(const Comparison& found) {
  if (const std::string none = NoLines(found); !none.empty()) {
    Out(none + "\n");
    return;
  }
  for (const Row& row : found.rows)
    if (!row.agrees()) Out(Line(row) + "\n");
  Out(SummaryLine(found) + "\n");
}

void SetOrNull(Report& report, std::string_view key, const std::string& value) {
  if (value.empty()) {
    report.SetNull(key);
  } else {
    report.Set(key, value);
  }
}

void PrintJson(const Comparison& found) {
  Report report;
  report.Set("agrees", found.agrees())
      .Set("lock", found.lock)
      .Set("device", found.device)
      .Set("agreeing", found.agreeing)
      .Set("drifted", found.drifted)
      .Set("missing", found.missing)
      .Set("failed", found.failed)
      .Set("not_named", found.not_named)
      .Array("other_devices");
  for (const std::string& device : found.other_devices) report.Append("other_devices", device);
  report.Array("rows");
  for (const Row& row : found.rows) {
    Report line;
    line.Set("op", row.op).Set("problem", row.problem);
    line.Set("verdict", row.trouble.empty() ? LockVerdictName(row.answer.verdict) : "not decided");
    SetOrNull(line, "locked_kernel", row.answer.locked.kernel);
    SetOrNull(line, "locked_spec", row.answer.locked.spec);
    SetOrNull(line, "kernel", row.now.kernel);
    SetOrNull(line, "spec", row.now.spec);
    SetOrNull(line, "provenance", row.provenance);
    line.Set("why", row.why)
        .Set("trouble", row.trouble.empty() ? row.answer.hindrance : row.trouble);
    report.Append("rows", std::move(line));
  }
  Out(report.Text() + "\n");
}

std::string Html(const Comparison& found, const TuneArguments& options, const Context& context) {
  HtmlPage page("Tilewright: choices against a lock");
  auto facts = PageFacts(options, context);
  facts.emplace_back("lock", found.lock);
  page.Facts(facts);
  page.Paragraph(SummaryLine(found));
  if (const std::string none = NoLines(found); !none.empty()) page.Paragraph(none);
  std::vector<std::vector<std::string>> rows;
  for (const bool agreeing : {false, true}) {  // what differs comes first
    for (const Row& row : found.rows) {
      if (row.agrees() != agreeing) continue;
      rows.push_back(
          {ProblemCell(row.op, row.problem),
           std::string(row.trouble.empty() ? LockVerdictName(row.answer.verdict) : "not decided"),
           CodeCell(row.answer.locked.kernel), CodeCell(row.answer.locked.spec),
           CodeCell(row.now.kernel), CodeCell(row.now.spec), EscapeHtml(row.why),
           EscapeHtml(row.trouble.empty() ? row.answer.hindrance : row.trouble)});
    }
  }
  page.Table({{"problem"},
              {"verdict"},
              {"locked kernel"},
              {"locked launch"},
              {"kernel now"},
              {"launch now"},
              {"by"},
              {"trouble"}},
             rows);
  return page.Text();
}

}  // namespace

int CheckAgainstLock(const TuneArguments& options) {
  const Result<KernelLock> lock = KernelLock::Read(options.lock);
  if (!lock && lock.error().code == ErrorCode::kNotFound) {
    Complain(fmt::format("{}; to write it: the same command with --write-lock in place of --check",
                         lock.error().message));
    return kExitFailed;
  }
  if (!lock) return ExitFor(lock.error());
  const Result<Asked> asked = Ask(options);
  if (!asked) return ExitFor(asked.error());
  const Comparison found = Compare(options, *lock, asked->problems, *asked->context);
  if (options.common.json) {
    PrintJson(found);
  } else {
    PrintText(found);
  }
  if (!options.report.empty()) {
    const std::string page = Html(found, options, *asked->context);
    if (Status written = WriteWholeFile(options.report, page); !written)
      return Finish(ExitFor(written.error()));
  }
  return Finish(found.agrees() ? kExitOk : kExitFailed);
}

int WriteLock(const TuneArguments& options) {
  if (Status able = CanWriteWholeFile(options.lock); !able) return ExitFor(able.error());
  Result<KernelLock> lock = KernelLock::Read(options.lock);
  if (!lock && lock.error().code == ErrorCode::kNotFound) lock = KernelLock();
  if (!lock) return ExitFor(lock.error());
  const Result<Asked> asked = Ask(options);
  if (!asked) return ExitFor(asked.error());
  const std::string& device = asked->context->scope().device;
  const std::vector<Row> rows = LookAtAll(asked->problems, *asked->context, nullptr);
  std::map<std::string, int> by;
  for (const Row& row : rows) {
    if (!row.trouble.empty()) {
      Complain(fmt::format("{}; {} is not written", Line(row), options.lock));
      return kExitFailed;
    }
    lock->by_device[device].by_problem[{row.op, row.problem}] = row.now;
    ++by[row.provenance];
  }
  if (Status written = lock->Write(options.lock); !written) return ExitFor(written.error());
  const auto count = static_cast<std::int64_t>(rows.size());
  if (options.common.json) {
    Report report;
    report.Set("lock", options.lock).Set("device", device).Set("problems", count);
    Report counts;
    for (const auto& [provenance, problems] : by) counts.Set(provenance, problems);
    report.Set("by", std::move(counts));
    Out(report.Text() + "\n");
  } else {
    std::vector<std::string> parts;
    for (const auto& [provenance, problems] : by)
      parts.push_back(fmt::format("{} {}", problems, provenance));
    Out(fmt::format("{} locked in {} for {}: {}\n", Counted(rows.size(), "problem"), options.lock,
                    device, fmt::join(parts, ", ")));
  }
  return Finish(kExitOk);
}

}  // namespace tilewright::cli
