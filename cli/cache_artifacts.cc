// The actions of `cache` on compiled kernels.

#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "artifacts.h"
#include "cache.h"
#include "console.h"

namespace tilewright::cli {
namespace {

constexpr CacheMode kLook = CacheMode::kReadonly;

Result<std::unique_ptr<ArtifactStore>> OpenToLook(const CacheOptions& options) {
  return OpenArtifacts(options.common, options.artifacts, &kLook);
}

std::string Day(std::int64_t unix_s) {
  if (unix_s == 0) return "-";
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

std::string StateOf(const ArtifactStore::EntryInfo& entry) {
  if (entry.negative) return "refused: " + entry.trouble;
  return entry.trouble.empty() ? "whole" : "damaged: " + entry.trouble;
}

std::string CountText(std::size_t kernels, std::size_t refused) {
  return fmt::format("{}{}\n", Counted(kernels, "compiled kernel"),
                     refused > 0 ? fmt::format(", {} rejected by the compiler", refused) : "");
}

bool Matches(const ArtifactStore::EntryInfo& entry, const std::string& filter) {
  if (filter.empty()) return true;
  for (const std::string& text :
       {entry.spec, entry.request.Hex(), entry.action.Hex(), entry.place, entry.compiler}) {
    if (text.find(filter) != std::string::npos) return true;
  }
  return false;
}

Report Row(const ArtifactStore::EntryInfo& entry) {
  Report row;
  row.Set("layer", ArtifactLayerName(entry.layer))
      .Set("place", entry.place)
      .Set("spec", entry.spec)
      .Set("request", entry.request.Hex())
      .Set("action", entry.action.Hex())
      .Set("compiler", entry.compiler)
      .Set("bytes", static_cast<std::int64_t>(entry.bytes))
      .Set("compile_ms", entry.compile_ms)
      .Set("last_used_unix_s", entry.last_used_unix_s)
      .Set("registers", static_cast<std::int64_t>(entry.resources.registers))
      .Set("static_smem_bytes", static_cast<std::int64_t>(entry.resources.static_smem_bytes))
      .Set("stack_bytes", static_cast<std::int64_t>(entry.resources.stack_bytes));
  SetSpills(entry.resources, row);
  row.Set("negative", entry.negative).Set("state", StateOf(entry));
  return row;
}

Report CountersReport(const ArtifactCounters& counters) {
  Report hits, misses;
  for (std::size_t layer = 0; layer < std::size(counters.hits); ++layer) {
    hits.Set(ArtifactLayerName(static_cast<ArtifactLayer>(layer)),
             static_cast<std::int64_t>(counters.hits[layer]));
  }
  for (std::size_t layer = 0; layer < std::size(counters.misses); ++layer) {
    Report reasons;
    std::uint64_t sum = 0;
    for (std::size_t reason = 0; reason < std::size(counters.misses[layer]); ++reason) {
      const std::uint64_t count = counters.misses[layer][reason];
      sum += count;
      if (count > 0) {
        reasons.Set(MissReasonName(static_cast<MissReason>(reason)),
                    static_cast<std::int64_t>(count));
      }
    }
    if (sum > 0) {
      misses.Set(ArtifactLayerName(static_cast<ArtifactLayer>(layer)), std::move(reasons));
    }
  }
  const auto count = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  Report report;
  report.Set("hits_by_layer", std::move(hits))
      .Set("misses_by_layer", std::move(misses))
      .Set("compile_failures", count(counters.compile_failures))
      .Set("compile_ms", static_cast<double>(counters.compile_us) / 1e3)
      .Set("saved_ms", static_cast<double>(counters.saved_us) / 1e3)
      .Set("lock_waits", count(counters.lock_waits))
      .Set("lock_wait_ms", static_cast<double>(counters.lock_wait_us) / 1e3)
      .Set("lock_timeouts", count(counters.lock_timeouts))
      .Set("publishes", count(counters.publishes))
      .Set("publishes_lost", count(counters.publishes_lost))
      .Set("evictions", count(counters.evictions))
      .Set("verify_mismatches", count(counters.verify_mismatches));
  return report;
}

std::string CountersText(const ArtifactCounters& counters) {
  std::string text;
  for (std::size_t layer = 0; layer < std::size(counters.misses); ++layer) {
    std::string reasons;
    for (std::size_t reason = 0; reason < std::size(counters.misses[layer]); ++reason) {
      const std::uint64_t count = counters.misses[layer][reason];
      if (count == 0) continue;
      reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", count,
                             MissReasonName(static_cast<MissReason>(reason)));
    }
    const std::uint64_t hits =
        layer < std::size(counters.hits) ? counters.hits[layer] : std::uint64_t{0};
    if (hits == 0 && reasons.empty()) continue;
    text += fmt::format("           {:<9}{} hits{}\n",
                        ArtifactLayerName(static_cast<ArtifactLayer>(layer)), hits,
                        reasons.empty() ? "" : "; misses: " + reasons);
  }
  return text;
}

}  // namespace

int ListArtifacts(const CacheOptions& options, CacheOutput& out) {
  Result<std::unique_ptr<ArtifactStore>> store = OpenToLook(options);
  if (!store) return ExitFor(store.error());
  out.report.Array("artifacts");
  Table table({"kernel", "layer", "size", "compiled in", "last used", "state"},
              {true, true, false, false, false, true});
  std::size_t count = 0, refused = 0;
  for (const ArtifactStore::EntryInfo& entry : (*store)->List()) {
    if (!Matches(entry, options.filter)) continue;
    ++(entry.negative ? refused : count);
    out.report.Append("artifacts", Row(entry));
    table.Row({entry.spec, std::string(ArtifactLayerName(entry.layer)),
               HumanBytes(static_cast<double>(entry.bytes)),
               entry.compile_ms > 0 ? fmt::format("{:.0f} ms", entry.compile_ms) : "-",
               Day(entry.last_used_unix_s), StateOf(entry)});
  }
  if (count + refused > 0) out.text += table.Text();
  out.text += CountText(count, refused);
  return kExitOk;
}

int ShowArtifacts(const CacheOptions& options, CacheOutput& out) {
  Result<std::unique_ptr<ArtifactStore>> store = OpenToLook(options);
  if (!store) return ExitFor(store.error());
  out.report.Array("artifacts");
  std::size_t count = 0, refused = 0;
  for (const ArtifactStore::EntryInfo& entry : (*store)->List()) {
    if (options.quarantine || !Matches(entry, options.filter)) continue;
    ++(entry.negative ? refused : count);
    out.report.Append("artifacts", Row(entry));
    const std::string size =
        entry.negative ? "" : fmt::format(" ({})", HumanBytes(static_cast<double>(entry.bytes)));
    const std::string when =
        entry.negative ? "on " + Day(entry.last_used_unix_s)
                       : Describe(entry.resources) + "; last used " + Day(entry.last_used_unix_s);
    out.text += fmt::format("{}\n  {} {}{}, {}\n  request {}\n  action  {}\n  {}; {}\n", entry.spec,
                            ArtifactLayerName(entry.layer), entry.place, size, StateOf(entry),
                            entry.request.Hex(), entry.action.Hex(), entry.compiler, when);
  }
  out.text += CountText(count, refused);
  return kExitOk;
}

int DumpArtifact(const CacheOptions& options) {
  Result<std::unique_ptr<ArtifactStore>> store = OpenToLook(options);
  if (!store) return ExitFor(store.error());
  std::vector<ArtifactStore::EntryInfo> found;
  for (ArtifactStore::EntryInfo& entry : (*store)->List()) {
    const bool known = !found.empty() && found.front().action == entry.action;  // in several layers
    if (!known && !entry.negative && entry.trouble.empty() && Matches(entry, options.filter)) {
      found.push_back(std::move(entry));
    }
  }
  if (found.size() != 1) {
    return ExitFor(
        {ErrorCode::kNotFound, fmt::format("{} kernels match '{}'; --dump needs exactly one",
                                           found.size(), options.filter)});
  }
  Result<std::string> bytes = (*store)->ReadEntry(found.front());
  if (!bytes) return ExitFor(bytes.error());
  Result<ArtifactData> artifact = DecodeArtifact(*bytes);
  if (!artifact) return ExitFor(artifact.error());
  Out(options.dump == "ptx"      ? artifact->ptx
      : options.dump == "source" ? artifact->source
      : options.dump == "log"    ? artifact->log
                                 : artifact->cubin);
  return kExitOk;
}

int ArtifactStat(const CacheOptions& options, CacheOutput& out) {
  Result<std::unique_ptr<ArtifactStore>> store = OpenToLook(options);
  if (!store) return ExitFor(store.error());
  const ArtifactStore::Totals totals = (*store)->GetTotals();
  const ArtifactCounters counters = (*store)->counters();
  std::uint64_t hits = 0;
  for (const std::uint64_t layer : counters.hits) hits += layer;
  const auto count = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  Report artifacts = CountersReport(counters);
  artifacts.Set("entries", count(totals.entries))
      .Set("bytes", count(totals.bytes))
      .Set("compiles", count(counters.compiles))
      .Set("hits", count(hits))
      .Set("misses", count(counters.requests_missed))
      .Set("negative", count(totals.negative))
      .Set("quarantined", count(totals.quarantined))
      .Set("path", (*store)->root());
  out.report.Set("artifacts", std::move(artifacts));
  out.text += fmt::format(
      "artifacts  {}\n           {} kernels, {}; {} rejected by the compiler, {} quarantined\n"
      "           {} hits, {} misses, {} compiled in {:.0f} ms; {:.0f} ms saved\n",
      (*store)->root(), totals.entries, HumanBytes(static_cast<double>(totals.bytes)),
      totals.negative, totals.quarantined, hits, counters.requests_missed, counters.compiles,
      static_cast<double>(counters.compile_us) / 1e3, static_cast<double>(counters.saved_us) / 1e3);
  out.text += CountersText(counters);
  return kExitOk;
}

int VerifyArtifacts(const CacheOptions& options, CacheOutput& out) {
  Result<std::unique_ptr<ArtifactStore>> store = OpenArtifacts(options.common, options.artifacts);
  if (!store) return ExitFor(store.error());
  const ArtifactStore::VerifyReport verified = [&] {
    CompileBar bar("compiling again");
    return (*store)->Verify(options.recompile, bar.control());
  }();
  Report artifacts;
  artifacts.Set("good", static_cast<std::int64_t>(verified.good))
      .Set("not_ours", static_cast<std::int64_t>(verified.not_ours))
      .Set("recompiled", static_cast<std::int64_t>(verified.recompiled))
      .Set("differ", static_cast<std::int64_t>(verified.differ))
      .Set("not_recompiled", static_cast<std::int64_t>(verified.not_recompiled))
      .Set("why_not", verified.why_not)
      .Set("cancelled", verified.cancelled);
  artifacts.Array("troubles");
  for (const std::string& trouble : verified.troubles) {
    artifacts.Append("troubles", trouble);
    if (!options.common.json) Complain(trouble);
  }
  out.report.Set("artifacts", std::move(artifacts));
  out.text += fmt::format("{} compiled kernels are intact, {} are damaged", verified.good,
                          verified.troubles.size());
  if (options.recompile) {
    out.text += fmt::format("; {} compiled again, {} differ; {} from other sources or compilers",
                            verified.recompiled, verified.differ, verified.not_ours);
  }
  out.text += "\n";
  if (verified.cancelled) {
    Complain("interrupted: the numbers cover only what was checked before");
    return ExitInterrupted();
  }
  if (verified.not_recompiled > 0) {
    out.text +=
        fmt::format("{} not compiled again: {}\n", verified.not_recompiled, verified.why_not);
  }
  const bool right =
      verified.troubles.empty() && verified.differ == 0 && verified.not_recompiled == 0;
  return right ? kExitOk : kExitFailed;
}

int ExplainArtifact(const CacheOptions& options, CacheOutput& out) {
  if (options.filter.empty()) {
    return Usage("name the compiled kernel by its spec, as 'cache ls' prints it", "cache explain");
  }
  Result<KernelSpec> spec = ParseSpecName(options.filter);
  if (!spec) return ExitFor(spec.error());
  // Explained for the requested mode, but without creating even an empty folder.
  const CacheMode* const mode = options.common.cache_mode == "refresh" ? nullptr : &kLook;
  Result<std::unique_ptr<ArtifactStore>> store =
      OpenArtifacts(options.common, options.artifacts, mode);
  if (!store) return ExitFor(store.error());
  Result<ArtifactStore::MissExplanation> why = (*store)->Explain(*spec);
  if (!why) return ExitFor(why.error());
  const std::string action = why->action == ArtifactKey() ? "" : why->action.Hex();
  Report report;
  report.Set("spec", options.filter)
      .Set("request", why->request.Hex())
      .Set("action", action)
      .Set("nearest", why->nearest);
  report.Array("layers").Array("differences");
  out.text += fmt::format("request  {}\naction   {}\n", why->request.Hex(),
                          action.empty() ? "none: there is no compiler" : action);
  Table layers({"layer", "place", "answer"}, {true, true, true});
  for (const auto& layer : why->layers) {
    Report row;
    row.Set("layer", ArtifactLayerName(layer.layer))
        .Set("place", layer.place)
        .Set("hit", layer.hit)
        .Set("reason", layer.hit ? "" : MissReasonName(layer.reason))
        .Set("detail", layer.detail);
    report.Append("layers", std::move(row));
    std::string answer = layer.hit ? "hit" : std::string(MissReasonName(layer.reason));
    if (!layer.detail.empty()) answer += ": " + layer.detail;
    layers.Row({std::string(ArtifactLayerName(layer.layer)), layer.place, answer});
  }
  out.text += layers.Text();
  if (!why->nearest.empty()) {
    out.text += fmt::format("nearest  {}\n", why->nearest);
    Table differences({"field", "wanted", "stored"}, {true, true, true});
    for (const KeyDifference& difference : why->differences) {
      Report row;
      row.Set("field", difference.field)
          .Set("wanted", difference.wanted)
          .Set("stored", difference.stored);
      report.Append("differences", std::move(row));
      differences.Row({difference.field, difference.wanted, difference.stored});
    }
    out.text += differences.Text();
  }
  out.report.Set("artifact", std::move(report));
  return kExitOk;
}

int CollectArtifacts(const CacheOptions& options, CacheOutput& out) {
  Result<std::unique_ptr<ArtifactStore>> store = OpenArtifacts(options.common, options.artifacts);
  if (!store) return ExitFor(store.error());
  const ArtifactStore::GcReport gone = (*store)->Gc(options.dry_run, options.unreachable);
  Report artifacts;
  artifacts.Set("removed_entries", static_cast<std::int64_t>(gone.removed_entries))
      .Set("removed_bytes", static_cast<std::int64_t>(gone.removed_bytes))
      .Set("removed_temporaries", static_cast<std::int64_t>(gone.removed_temporaries))
      .Set("removed_negative", static_cast<std::int64_t>(gone.removed_negative))
      .Set("removed_quarantined", static_cast<std::int64_t>(gone.removed_quarantined))
      .Set("note", gone.note);
  out.report.Set("artifacts", std::move(artifacts));
  out.text += fmt::format(
      "{} compiled kernels ({}), {} remembered failures, {} temporary and {} quarantined files{}\n",
      gone.removed_entries, HumanBytes(static_cast<double>(gone.removed_bytes)),
      gone.removed_negative, gone.removed_temporaries, gone.removed_quarantined,
      options.dry_run ? " would be removed" : " removed");
  if (!gone.note.empty()) Warn(gone.note);
  return kExitOk;
}

int ExportToBundle(const CacheOptions& options) {
  if (options.file.empty() || options.file == "-") {
    return Usage("name the bundle file to write: FILE.twb", "cache export");
  }
  Result<std::unique_ptr<ArtifactStore>> store = OpenToLook(options);
  if (!store) return ExitFor(store.error());
  Result<BundleReport> written = ExportArtifacts(**store, options.file, BundleWriteOptions());
  if (!written) return ExitFor(written.error());
  if (options.common.json) {
    Report report;
    report.Set("path", options.file)
        .Set("kernels", static_cast<std::int64_t>(written->kernels))
        .Set("left_out", static_cast<std::int64_t>(written->left_out))
        .Set("bytes", static_cast<std::int64_t>(written->bytes))
        .Set("digest", written->digest);
    Out(report.Text() + "\n");
    return kExitOk;
  }
  Note(fmt::format(
      "{} written to {}{}", Counted(written->kernels, "kernel"), options.file,
      written->left_out > 0
          ? fmt::format("; {} older versions of the same kernels omitted", written->left_out)
          : ""));
  return kExitOk;
}

int ImportFromFile(const CacheOptions& options) {
  Result<std::unique_ptr<ArtifactStore>> store = OpenArtifacts(options.common, options.artifacts);
  if (!store) return ExitFor(store.error());
  Bundle::OpenOptions trust;
  trust.trusted_keys = options.keys;
  Result<ArtifactImport> read =
      ImportArtifacts(**store, options.file == "-" ? "/dev/stdin" : options.file, trust);
  if (!read) return ExitFor(read.error());
  for (const std::string& trouble : read->troubles) Warn(trouble);
  if (options.common.json) {
    Report report;
    report.Set("added", static_cast<std::int64_t>(read->added))
        .Set("known", static_cast<std::int64_t>(read->known))
        .Set("corrupt", static_cast<std::int64_t>(read->troubles.size()));
    Out(report.Text() + "\n");
  } else {
    Out(fmt::format("{} added, {} already present\n", Counted(read->added, "kernel"), read->known));
  }
  return read->troubles.empty() ? kExitOk : kExitFailed;
}

bool IsArtifactFile(const std::string& path) {
  // Reading from a pipe would consume its data.
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  char first[8] = {};
  file.read(first, sizeof first);
  const std::string_view bytes(first, static_cast<std::size_t>(file.gcount()));
  return IsEntryFile(bytes) || IsBundleFile(bytes);
}

}  // namespace tilewright::cli
