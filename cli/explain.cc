#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <set>
#include <sstream>

#include "console.h"
#include "gemm_words.h"
#include "report.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

/// Everything `explain` looked at.
struct Explained {
  GemmDesc problem;
  DeviceSpec device;
  RecordScope scope;
  std::optional<GemmChoice> choice;
  std::string no_choice;  ///< why there is none
  std::vector<CandidateReport> rows;
  bool here = true;  ///< the device is this machine
};

Result<Explained> Look(const ExplainOptions& options, Context& context) {
  Explained look;
  look.device = context.device_spec();
  look.scope = context.scope();
  if (!options.device_spec.empty()) {
    Result<DeviceSpec> device = ReadDeviceSpec(options.device_spec);
    if (!device) return Fail(device.error());
    look.device = std::move(*device);
    look.scope.device = look.device.ClassId();
    look.here = false;
  }
  const int threads = options.common.threads > 0 ? options.common.threads : look.device.cores;
  Result<GemmDesc> desc = MakeGemm(options.gemm, threads);
  if (!desc) return Fail(desc.error());
  look.problem = *desc;
  Result<CheckedGemm> checked = Validate(*desc);
  if (!checked) return Fail(checked.error());

  const Registry& registry = context.kernels().gemm();
  // Records of another machine, as --device names it, are looked for in the same file.
  std::optional<DispatchCache> elsewhere;
  if (!look.here) elsewhere = DispatchCache::Over(context.records(), registry, look.scope);
  const DispatchCache& cache = look.here ? context.cache() : *elsewhere;
  FeasibleOptions feasible = context.feasible_options();
  if (!look.here) feasible.quarantine = &elsewhere->quarantine();
  const GemmCandidates candidates = Feasible(*checked, registry, look.device, feasible);
  Result<GemmChoice> choice =
      Choose(candidates, context.cache_mode() == CacheMode::kRefresh ? nullptr : &cache);
  if (choice) {
    look.choice = *choice;
  } else if (choice.error().code == ErrorCode::kUnsupported) {
    look.no_choice = fmt::format("no kernel can run {}", ShortGemm(*desc));
  } else {
    return Fail(choice.error());
  }
  std::vector<Record> records;
  std::set<Pack> packs;  // every kernel has records of its own layout
  for (const GemmCandidate& candidate : candidates.all()) {
    GemmDesc packed = look.problem;
    if (packed.pack_b == kPackAny) packed.pack_b = candidate.kernel->desc().pack_b;
    if (context.cache_mode() == CacheMode::kRefresh) break;
    if (!packs.insert(packed.pack_b).second) continue;
    std::vector<Record> rows = cache.RecordsOf(packed);
    records.insert(records.end(), std::make_move_iterator(rows.begin()),
                   std::make_move_iterator(rows.end()));
  }
  look.rows = Explain(candidates, look.choice ? &*look.choice : nullptr, records, look.scope);
  return look;
}

std::string Us(double us) { return us > 0 ? fmt::format("{:.2f}", us) : "-"; }

/// The fields that differ from a plain f32 problem, as tune --gemm takes them.
std::string TuneCommand(const GemmDesc& desc) {
  GemmWords plain;
  plain.m = plain.n = plain.k = "1";
  plain.type_b = "none";
  const Result<GemmDesc> usual = MakeGemm(plain, desc.threads);
  std::vector<std::string> usual_fields;
  std::stringstream usual_key(usual ? KeyOf(*usual) : "");
  for (std::string field; usual_key >> field;) usual_fields.push_back(field);
  std::string text;
  std::stringstream key(KeyOf(desc));
  std::size_t at = 0;
  for (std::string field; key >> field; ++at) {
    if (at >= 3 && at < usual_fields.size() && usual_fields[at] == field) continue;
    text += (text.empty() ? "" : ",") + field;
  }
  return fmt::format("tilewright tune --gemm \"{}\"", text);
}

/// What would lead to another choice.
std::vector<std::string> WhatWouldChange(const Explained& look) {
  std::vector<std::string> lines;
  if (!look.choice) {
    lines.push_back("a kernel of your own in the registry, or another type or layout");
    return lines;
  }
  if (look.choice->provenance() != Provenance::kMeasured) {
    lines.push_back(look.here ? fmt::format("measuring it: {}", TuneCommand(look.problem))
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
  report.Set("problem", KeyOf(look.problem)).Set("device", look.scope.device);
  if (look.choice) {
    report.Set("chosen", look.choice->kernel().name())
        .Set("chosen_spec", SpecText(look.choice->spec()))
        .Set("provenance", ProvenanceName(look.choice->provenance()))
        .Set("why", look.choice->why())
        .Set("source_batch", look.choice->source_batch());
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
  Out(fmt::format("problem  {}\ndevice   {}\n", KeyOf(look.problem), look.scope.device));
  if (look.choice) {
    Out(fmt::format("chosen   {}, {} ({})\n\n", look.choice->kernel().name(),
                    SpecText(look.choice->spec()), look.choice->why()));
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

int ExplainGemm(const ExplainOptions& options) {
  if (Result<GemmDesc> desc = MakeGemm(options.gemm, 1); !desc) {
    return Usage(desc.error().message, "explain gemm");
  }
  Result<std::unique_ptr<Context>> context = MakeContext(options.common);
  if (!context) return ExitFor(context.error());
  Result<Explained> look = Look(options, **context);
  if (!look) return ExitFor(look.error());
  if (options.common.json) {
    PrintJson(*look);
  } else {
    PrintTable(*look, options.all);
  }
  return Finish(look->choice ? kExitOk : kExitFailed);
}

}  // namespace tilewright::cli
