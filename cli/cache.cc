#include "cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "console.h"

namespace tilewright::cli {
namespace {

struct Action {
  const char* name;
  int (*records)(const CacheOptions&, Context&, CacheOutput&);
  int (*kernels)(const CacheOptions&, CacheOutput&);
};
constexpr Action kActions[] = {
    {"ls", ListRecords, ListArtifacts},           {"show", ShowRecords, ShowArtifacts},
    {"stat", RecordStat, ArtifactStat},           {"verify", VerifyRecords, VerifyArtifacts},
    {"explain", ExplainRecords, ExplainArtifact}, {"gc", CollectStaleRecords, CollectArtifacts},
};

/// Whether the argument of `cache explain` is or is meant as a compiled kernel: no problem contains
/// the text.
bool MeansKernel(const CacheOptions& options) {
  return ParseSpecName(options.filter).has_value() ||
         options.filter.find(".sm_") != std::string::npos;
}

int Look(const Action& action, CacheOptions options) {
  CacheOutput out;
  int code = kExitOk;
  if (options.action == "explain" && options.only.empty()) {
    options.only = MeansKernel(options) ? "artifacts" : "records";
  }
  if (options.only != "artifacts") {
    Result<std::unique_ptr<Context>> context = MakeContext(options.common);
    if (!context) return ExitFor(context.error());
    code = action.records(options, **context, out);
  }
  if (options.only != "records") {
    const int kernels = action.kernels(options, out);
    code = std::max(code, kernels);
  }
  Out(options.common.json ? out.report.Text() + "\n" : out.text);
  return code;
}

/// export, import and merge: the file's name or its first bytes say which of the two it is for.
int Move(const CacheOptions& options) {
  const bool exports = options.action == "export";
  const bool kernels = options.only == "artifacts" ||
                       (options.only.empty() && (options.file.ends_with(".twb") ||
                                                 (!exports && IsArtifactFile(options.file))));
  if (kernels) return exports ? ExportToBundle(options) : ImportFromFile(options);
  if (!options.keys.empty()) {
    return Usage(options.file + ": records have no signature; --key is for bundles",
                 "cache import");
  }
  Result<std::unique_ptr<Context>> context = MakeContext(options.common);
  if (!context) return ExitFor(context.error());
  return exports ? ExportRecords(options, **context) : ImportRecords(options, **context);
}

}  // namespace

int Cache(const CacheOptions& options) {
  for (const Action& action : kActions) {
    if (options.action != action.name) continue;
    if (!options.dump.empty() && (options.common.json || options.only == "records")) {
      return Usage(
          "--dump prints a part of one compiled kernel; it excludes --json and --only records",
          "cache show");
    }
    return Finish(options.dump.empty() ? Look(action, options) : DumpArtifact(options));
  }
  return Finish(Move(options));
}

}  // namespace tilewright::cli
