#include "explain_report.h"

#include <fmt/format.h>

#include <set>

#include "console.h"
#include "report.h"

namespace tilewright::cli {
namespace {

std::string Us(double us) { return us > 0 ? fmt::format("{:.2f}", us) : "-"; }

/// What would lead to another choice.
std::vector<std::string> WhatWouldChange(const Explained& look) {
  std::vector<std::string> lines;
  if (!look.choice) {
    lines.push_back("a kernel of your own in the registry, or another type or layout");
    return lines;
  }
  if (!look.other_policy.empty())
    lines.push_back(fmt::format("--policy {}, under which it was measured", look.other_policy));
  if (look.choice->provenance != Provenance::kMeasured) {
    lines.push_back(look.here ? look.measuring.empty()
                                    ? "records of it: tilewright cache import FILE"
                                    : fmt::format("measuring it: {}", look.measuring)
                              : "records of that device: tilewright cache import FILE");
  } else {
    lines.push_back(
        "a later tuning in which another candidate is faster beyond the noise (intervals apart, "
        "and more than 1 %)");
    lines.push_back("a change of the chosen kernel's source, which makes its records stale");
  }
  bool precision = false;
  for (const CandidateReport& row : look.rows) {
    precision = precision || row.reason.starts_with("precision");
  }
  if (precision) lines.push_back("--precision: some kernels round the activations further");
  return lines;
}

void PrintJson(const Explained& look) {
  Report report;
  report.Set("problem", look.problem).Set("device", look.scope.device);
  if (look.choice) {
    report.Set("chosen", look.choice->kernel)
        .Set("chosen_spec", look.choice->spec)
        .Set("provenance", ProvenanceName(look.choice->provenance))
        .Set("why", look.choice->why)
        .Set("source_batch", look.choice->source_batch);
  } else {
    report.SetNull("chosen").Set("why", look.no_choice);
  }
  report.Array("candidates");
  for (const CandidateReport& row : look.rows) {
    Report line;
    line.Set("kernel", row.kernel).Set("spec", row.spec).Set("feasible", row.feasible);
    line.Set("reason", row.reason);
    const auto number = [&line](const char* key, double value) {
      if (value > 0) {
        line.Set(key, value);
      } else {
        line.SetNull(key);
      }
    };
    number("predicted_us", row.predicted_us);
    number("measured_us", row.measured_us);
    if (row.measured_us > 0) {
      const double interval[] = {row.low_us, row.high_us};
      line.Set("interval_us", std::span<const double>(interval));
    } else {
      line.SetNull("interval_us");
    }
    line.Set("samples", row.samples);
    if (row.feasible) {
      line.Set("provenance", ProvenanceName(row.provenance));
    } else {
      line.SetNull("provenance");
    }
    line.Set("rank", row.rank).Set("chosen", row.chosen);
    report.Append("candidates", std::move(line));
  }
  for (const std::string& line : WhatWouldChange(look)) report.Append("would_change", line);
  Out(report.Text() + "\n");
}

void PrintTable(const Explained& look, bool all) {
  Out(fmt::format("problem  {}\ndevice   {}\n", look.problem, look.scope.device));
  if (look.choice) {
    Out(fmt::format("chosen   {}, {} ({})\n\n", look.choice->kernel, look.choice->spec,
                    look.choice->why));
  } else {
    Out(fmt::format("chosen   none: {}\n\n", look.no_choice));
  }
  Table table({"", "kernel", "launch", "predicted us", "measured us", "95 % interval", "by"},
              {false, true, true, false, false, false, true});
  std::set<std::string> seen;
  std::size_t more = 0, rejected = 0;
  for (const CandidateReport& row : look.rows) {
    if (!row.feasible) {
      ++rejected;
      continue;
    }
    // The best spec of a kernel stands for it.
    if (!seen.insert(row.kernel).second && !all) {
      ++more;
      continue;
    }
    table.Row({row.chosen ? fmt::format("* {}", row.rank) : fmt::format("{}", row.rank), row.kernel,
               row.spec, Us(row.predicted_us), Us(row.measured_us),
               row.measured_us > 0 ? fmt::format("{:.2f} .. {:.2f}", row.low_us, row.high_us) : "-",
               std::string(ProvenanceName(row.provenance))});
  }
  if (!seen.empty()) Out(table.Text());
  if (more > 0) Out(fmt::format("and {} more launch parameters of these kernels (--all)\n", more));
  if (rejected > 0) {
    Out(fmt::format("\n{} kernels cannot:\n", rejected));
    Table reasons({"kernel", "why not"}, {true, true});
    for (const CandidateReport& row : look.rows) {
      if (!row.feasible) reasons.Row({row.kernel, row.reason});
    }
    Out(reasons.Text());
  }
  Out("\nwhat would change the choice:\n");
  for (const std::string& line : WhatWouldChange(look)) Out("  " + line + "\n");
}

}  // namespace

int PrintExplained(const Explained& look, const ExplainOptions& options) {
  if (options.common.json) {
    PrintJson(look);
  } else {
    PrintTable(look, options.all);
  }
  return Finish(look.choice ? kExitOk : kExitFailed);
}

}  // namespace tilewright::cli
