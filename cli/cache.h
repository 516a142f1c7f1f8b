#pragma once

#include <string>

#include "report.h"
#include "tilewright/tilewright.h"
#include "verbs.h"

namespace tilewright::cli {

/// The output of an action of `cache` for the tuning records and the compiled kernels: one JSON
/// object, or text.
struct CacheOutput {
  Report report;
  std::string text;
};

// The actions, each for the tuning records ...
int ListRecords(const CacheOptions& options, Context& context, CacheOutput& out);
int ShowRecords(const CacheOptions& options, Context& context, CacheOutput& out);
int RecordStat(const CacheOptions& options, Context& context, CacheOutput& out);
int VerifyRecords(const CacheOptions& options, Context& context, CacheOutput& out);
int ExplainRecords(const CacheOptions& options, Context& context, CacheOutput& out);
int CollectStaleRecords(const CacheOptions& options, Context& context, CacheOutput& out);
int ExportRecords(const CacheOptions& options, Context& context);
int ImportRecords(const CacheOptions& options, Context& context);

// ... and for the compiled kernels.
int ListArtifacts(const CacheOptions& options, CacheOutput& out);
int ShowArtifacts(const CacheOptions& options, CacheOutput& out);
int ArtifactStat(const CacheOptions& options, CacheOutput& out);
int VerifyArtifacts(const CacheOptions& options, CacheOutput& out);
int ExplainArtifact(const CacheOptions& options, CacheOutput& out);
int CollectArtifacts(const CacheOptions& options, CacheOutput& out);
int ExportToBundle(const CacheOptions& options);
int ImportFromFile(const CacheOptions& options);
/// Prints source, PTX, log or cubin of the one kernel that the filter names.
int DumpArtifact(const CacheOptions& options);

/// Whether `path` is a bundle or an entry, by its first bytes.
bool IsArtifactFile(const std::string& path);

}  // namespace tilewright::cli
