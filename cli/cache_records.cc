#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>

#include "cache.h"
#include "console.h"
#include "problem_words.h"

namespace tilewright::cli {
namespace {

/// Whether the records of a kernel are used on this machine, as text.
std::string StateOf(const Record& record, const Context& context) {
  if (record.scope.device != context.scope().device) return "other machine";
  if (record.scope.libraries != context.scope().libraries) return "other libraries";
  if (record.scope.policy != context.scope().policy) return "other policy";
  const KernelBase* kernel = nullptr;
  ForEachOperation([&]<class Op>() {
    if (Op::kName == record.op) kernel = context.kernels().of<Op>().Find(record.kernel);
  });
  if (kernel == nullptr) return "unknown kernel";
  if (kernel->info().fingerprint != record.fingerprint) return "stale";
  return "used";
}

/// A product's records name the layout of its weights.
std::string ProblemOf(const Record& record) {
  std::string text = ShortProblem(record.op, record.problem);
  if (const auto desc = ParseKey(record.problem); desc && record.op == GemmOp::kName)
    text += fmt::format(" [{}]", PackName(desc->pack_b));
  return text;
}

std::vector<Record> Wanted(const CacheOptions& options, const Context& context,
                           const Records& records) {
  std::vector<Record> all = records.Load();
  const auto unwanted = [&](const Record& record) {
    if (options.quarantine && record.verdict == Verdict::kOk) return true;
    if (options.filter.empty()) return false;
    for (const std::string& text : {record.problem, record.kernel, ProblemOf(record),
                                    StateOf(record, context), record.scope.device}) {
      if (text.find(options.filter) != std::string::npos) return false;
    }
    return true;
  };
  all.erase(std::remove_if(all.begin(), all.end(), unwanted), all.end());
  return all;
}

Report Describe(const Record& record, const std::string& state) {
  Report row;
  row.Set("id", record.id)
      .Set("op", record.op)
      .Set("problem", record.problem)
      .Set("device", record.scope.device)
      .Set("policy", MeasurePolicyName(record.scope.policy))
      .Set("kernel", record.kernel)
      .Set("fingerprint", record.fingerprint)
      .Set("spec", record.spec)
      .Set("verdict", VerdictName(record.verdict))
      .Set("evidence", record.evidence)
      .Set("samples", record.samples)
      .Set("median_us", record.median_us)
      .Set("low_us", record.low_us)
      .Set("high_us", record.high_us)
      .Set("chosen", record.chosen)
      .Set("finished", record.finished)
      .Set("generation", record.generation)
      .Set("unix_ms", record.unix_ms)
      .Set("state", state);
  return row;
}

}  // namespace

int ShowRecords(const CacheOptions& options, Context& context, CacheOutput& out) {
  Report& report = out.report;
  report.Array("records");
  Table table({"problem", "kernel", "launch", "us", "95 % interval", "samples", "chosen", "verdict",
               "state"},
              {true, true, true, false, false, false, true, true, true});
  const std::vector<Record> wanted = Wanted(options, context, context.records());
  for (const Record& record : wanted) {
    const std::string state = StateOf(record, context);
    report.Append("records", Describe(record, state));
    const bool timed = record.samples > 0;
    table.Row({ProblemOf(record), record.kernel, record.spec,
               timed ? fmt::format("{:.2f}", record.median_us) : "-",
               timed ? fmt::format("{:.2f} .. {:.2f}", record.low_us, record.high_us) : "-",
               fmt::format("{}", record.samples), record.chosen ? "yes" : "",
               record.evidence.empty()
                   ? std::string(VerdictName(record.verdict))
                   : fmt::format("{}: {}", VerdictName(record.verdict), record.evidence),
               state});
  }
  if (!wanted.empty()) out.text += table.Text();
  out.text += fmt::format("{} measurements\n", wanted.size());
  return kExitOk;
}

int ListRecords(const CacheOptions& options, Context& context, CacheOutput& out) {
  using Key = std::tuple<std::string, std::string, std::string>;  // device, problem, policy
  std::map<Key, std::vector<Record>> groups;
  for (Record& record : Wanted(options, context, context.records())) {
    groups[{record.scope.device, record.problem,
            std::string(MeasurePolicyName(record.scope.policy))}]
        .push_back(std::move(record));
  }
  Report& report = out.report;
  report.Array("problems");
  Table table({"problem", "chosen kernel", "launch", "us", "measured", "state"},
              {true, true, true, false, false, true});
  for (const auto& [key, records] : groups) {
    const Record* chosen = nullptr;
    for (const Record& record : records) {
      if (record.chosen &&
          (chosen == nullptr || std::pair(record.finished, record.generation) >
                                    std::pair(chosen->finished, chosen->generation))) {
        chosen = &record;
      }
    }
    const std::string state = StateOf(chosen != nullptr ? *chosen : records.front(), context);
    Report row;
    row.Set("op", records.front().op)
        .Set("problem", std::get<1>(key))
        .Set("device", std::get<0>(key))
        .Set("policy", std::get<2>(key))
        .Set("kernel", chosen != nullptr ? chosen->kernel : "")
        .Set("spec", chosen != nullptr ? chosen->spec : "")
        .Set("us", chosen != nullptr ? chosen->median_us : 0)
        .Set("measurements", static_cast<std::int64_t>(records.size()))
        .Set("state", state);
    report.Append("problems", std::move(row));
    table.Row({ProblemOf(records.front()), chosen != nullptr ? chosen->kernel : "-",
               chosen != nullptr ? chosen->spec : "-",
               chosen != nullptr ? fmt::format("{:.2f}", chosen->median_us) : "-",
               fmt::format("{}", records.size()), state});
  }
  if (!groups.empty()) out.text += table.Text();
  out.text += fmt::format("{} problems\n", groups.size());
  return kExitOk;
}

int RecordStat(const CacheOptions&, Context& context, CacheOutput& out) {
  const Records::Stat stat = context.records().GetStat();
  Report records;
  records.Set("problems", stat.problems)
      .Set("measurements", stat.measurements)
      .Set("quarantined", stat.quarantined)
      .Set("corrupt", stat.corrupt)
      .Set("persistent", stat.persistent)
      .Set("path", stat.path);
  out.report.Set("records", std::move(records));
  out.text += fmt::format(
      "records    {}\n           {} problems, {} measurements, {} quarantined, {} damaged\n",
      stat.persistent ? stat.path : "in memory only", stat.problems, stat.measurements,
      stat.quarantined, stat.corrupt);
  return kExitOk;
}

int VerifyRecords(const CacheOptions&, Context& context, CacheOutput& out) {
  const std::size_t good = context.records().Load().size();
  const Records::Stat stat = context.records().GetStat();
  const std::vector<std::string> troubles = context.records().warnings();
  out.report.Set("good", static_cast<std::int64_t>(good)).Set("corrupt", stat.corrupt);
  out.report.Array("troubles");
  for (const std::string& trouble : troubles) out.report.Append("troubles", trouble);
  out.text += fmt::format("{} records are intact, {} are damaged\n", good, stat.corrupt);
  return stat.corrupt > 0 || !troubles.empty() ? kExitFailed : kExitOk;
}

int ExplainRecords(const CacheOptions& options, Context& context, CacheOutput& out) {
  std::map<std::string, std::int64_t> counts;
  for (const Record& record : Wanted(options, context, context.records())) {
    ++counts[record.verdict == Verdict::kOk ? StateOf(record, context) : "quarantined"];
  }
  out.report.Set("device", context.scope().device)
      .Set("libraries", context.scope().libraries)
      .Set("policy", MeasurePolicyName(context.scope().policy));
  Report by_state;
  for (const auto& [state, count] : counts) by_state.Set(state, count);
  out.report.Set("measurements", std::move(by_state));
  out.text += fmt::format("this machine  {}\npolicy        {}\n\n", context.scope().device,
                          MeasurePolicyName(context.scope().policy));
  const std::pair<const char*, const char*> words[] = {
      {"used", "used on this machine"},
      {"stale", "measured with an older version of the kernel; 'cache gc' removes them"},
      {"unknown kernel", "for a kernel that this version does not have"},
      {"other machine", "measured on another device class"},
      {"other libraries", "measured with other versions of vendor libraries"},
      {"other policy", "timed under another cache policy"},
      {"quarantined", "the kernel failed and is not tried again for that problem"}};
  Table table({"measurements", "state", "meaning"}, {false, true, true});
  for (const auto& [state, meaning] : words) {
    const auto at = counts.find(state);
    if (at != counts.end()) table.Row({fmt::format("{}", at->second), state, meaning});
  }
  out.text += table.Text();
  return kExitOk;
}

int ExportRecords(const CacheOptions& options, Context& context) {
  if (options.file.empty() || options.file == "-") {
    std::ostringstream text;
    context.records().Export(text);
    Out(text.str());
    return kExitOk;
  }
  Result<int> count = context.records().ExportFile(options.file);
  if (!count) return ExitFor(count.error());
  if (options.common.json) {
    Report report;
    report.Set("path", options.file).Set("records", *count);
    Out(report.Text() + "\n");
  } else {
    Note(fmt::format("{} records written to {}", *count, options.file));
  }
  return kExitOk;
}

int ImportRecords(const CacheOptions& options, Context& context) {
  Result<std::string> text = ReadFile(options.file);
  if (!text) return ExitFor(text.error());
  if (text->starts_with("SQLite format 3")) {
    if (options.action == "import") {
      return ExitFor({ErrorCode::kInvalidArgument,
                      fmt::format("{} is a database; use 'tilewright cache merge'", options.file)});
    }
    Records::Options read_only;
    read_only.read_only = true;
    const Records other = Records::Open(options.file, read_only);
    for (const std::string& warning : other.warnings()) Warn(warning);
    std::ostringstream lines;
    other.Export(lines);
    *text = lines.str();
  }
  if (!context.records().persistent()) {
    return ExitFor({ErrorCode::kIo, "the user's records cannot be written"});
  }
  std::istringstream stream(*text);
  Result<Records::ImportResult> result = context.records().Import(stream);
  if (!result) return ExitFor(result.error());
  if (result->corrupt > 0) {
    Warn(fmt::format("{} lines are damaged and were skipped; the first: {}", result->corrupt,
                     result->first_trouble));
  }
  if (options.common.json) {
    Report report;
    report.Set("added", result->added).Set("known", result->known).Set("corrupt", result->corrupt);
    Out(report.Text() + "\n");
  } else {
    Out(fmt::format("{} records added, {} already present\n", result->added, result->known));
  }
  return result->corrupt > 0 && result->added + result->known == 0 ? kExitFailed : kExitOk;
}

int CollectStaleRecords(const CacheOptions& options, Context& context, CacheOutput& out) {
  std::vector<std::string> drop;
  for (const Record& record : context.records().Load()) {
    if (StateOf(record, context) == "stale") drop.push_back(record.id);
  }
  int removed = 0;
  if (!options.dry_run && !drop.empty()) {
    Result<int> count = context.records().Remove(drop);
    if (!count) return ExitFor(count.error());
    removed = *count;
  }
  out.report.Set("stale", static_cast<std::int64_t>(drop.size())).Set("removed", removed);
  out.text += fmt::format("{} measurements of kernels that have changed{}\n", drop.size(),
                          options.dry_run ? "" : fmt::format(", {} removed", removed));
  return kExitOk;
}

}  // namespace tilewright::cli
