// Bundles from stores and back: what the command's bundle and cache verbs do.

#include <algorithm>
#include <map>

#include "core/atomic_file.h"
#include "core/text.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

/// An empty bundle can be made with the key, and a file beside the path.
Status CanWrite(const std::string& path, const BundleWriteOptions& options) {
  if (path.empty()) return Fail(ErrorCode::kInvalidArgument, "the bundle has no file name");
  Result<std::string> empty = EncodeBundle({}, options);
  if (!empty) return Fail(empty.error());
  Result<AtomicFile> file = AtomicFile::Create(path);
  if (!file) return Fail(file.error());
  return {};
}

Result<BundleReport> Write(const std::vector<ArtifactData>& artifacts, const std::string& path,
                           const BundleWriteOptions& options) {
  Result<std::string> bytes = EncodeBundle(artifacts, options);
  if (!bytes) return Fail(bytes.error());
  BundleReport report;
  report.kernels = artifacts.size();
  report.bytes = bytes->size();
  Result<std::string> digest = BundleDigest(*bytes);
  if (!digest) return Fail(digest.error());
  report.digest = std::move(*digest);
  Status written = WriteBundleFile(path, *bytes);
  if (!written) return Fail(written.error());
  return report;
}

}  // namespace

Result<BundleReport> WriteBundle(ArtifactStore& store, std::span<const KernelSpec> specs,
                                 const std::string& path, const BundleWriteOptions& options,
                                 const CompileControl& control) {
  // What would fail at the end fails before anything is compiled.
  if (Status ready = CanWrite(path, options); !ready) return Fail(ready.error());
  std::vector<KernelSpec> wanted(specs.begin(), specs.end());
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  const std::uint64_t before = store.process_counters().compiles;
  const std::vector<Result<KernelHandle>> handles = store.CompileAll(wanted, control);
  std::vector<ArtifactData> artifacts;
  const Error* first = nullptr;
  std::size_t failed = 0;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    if (handles[i]) {
      artifacts.push_back(**handles[i]);
    } else if (failed++ == 0) {
      first = &handles[i].error();
    }
  }
  if (first != nullptr) {
    if (first->code == ErrorCode::kCancelled) return Fail(*first);
    return Fail(first->code, Format("{} of {} kernels cannot be had; the first: {}", failed,
                                    handles.size(), first->message));
  }
  Result<BundleReport> report = Write(artifacts, path, options);
  if (report) report->compiled = store.process_counters().compiles - before;
  return report;
}

Result<BundleReport> ExportArtifacts(const ArtifactStore& store, const std::string& path,
                                     const BundleWriteOptions& options) {
  std::map<ArtifactKey, ArtifactStore::EntryInfo> newest;
  std::size_t left_out = 0;
  for (const ArtifactStore::EntryInfo& entry : store.List()) {
    if (entry.layer != ArtifactLayer::kUser || entry.negative || !entry.trouble.empty()) continue;
    const auto [place, is_new] = newest.try_emplace(entry.request, entry);
    if (is_new) continue;
    ++left_out;
    if (std::pair(entry.last_used_unix_s, entry.action) >
        std::pair(place->second.last_used_unix_s, place->second.action)) {
      place->second = entry;
    }
  }
  std::vector<std::string> files;
  std::vector<ArtifactData> artifacts;
  files.reserve(newest.size());  // the artifacts' views point into them
  for (const auto& [request, entry] : newest) {
    Result<std::string> bytes = store.ReadEntry(entry);
    if (!bytes) continue;  // trimmed, or set aside, meanwhile
    files.push_back(std::move(*bytes));
    Result<ArtifactData> artifact = DecodeArtifact(files.back());
    if (!artifact)
      return Fail(artifact.error().code, entry.place + ": " + artifact.error().message);
    artifacts.push_back(*artifact);
  }
  Result<BundleReport> report = Write(artifacts, path, options);
  if (report) report->left_out = left_out;
  return report;
}

Result<ArtifactImport> ImportArtifacts(ArtifactStore& store, const std::string& path,
                                       const Bundle::OpenOptions& options) {
  Result<std::string> bytes = ReadFile(path);
  if (!bytes) return Fail(bytes.error());
  const auto fail = [&](ErrorCode code, std::string_view why) {
    return Fail(code, Format("{}: {}", path, why));
  };
  ArtifactImport report;
  const auto take = [&](const Result<bool>& imported, const std::string& what) {
    if (!imported) {
      report.troubles.push_back(what + ": " + imported.error().message);
    } else {
      ++(*imported ? report.added : report.known);
    }
  };
  if (IsEntryFile(*bytes)) {
    Result<ArtifactData> artifact = DecodeArtifact(*bytes);
    if (!artifact) return fail(artifact.error().code, artifact.error().message);
    if (!options.trusted_keys.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "an entry file has no signature, and a trusted key is demanded");
    }
    take(store.Import(*bytes), SpecName(artifact->spec));
    return report;
  }
  if (!IsBundleFile(*bytes)) {
    if (path.ends_with(".twb")) {
      return fail(ErrorCode::kCorrupt, "a damaged bundle: it does not begin as one");
    }
    return fail(ErrorCode::kInvalidArgument, "neither a bundle nor an entry file");
  }
  Result<std::shared_ptr<const Bundle>> bundle = Bundle::FromBytes(*bytes, options);
  if (!bundle) {
    const Error& error = bundle.error();
    const bool damaged = error.code == ErrorCode::kCorrupt;
    return fail(error.code, (damaged ? "a damaged bundle: " : "") + error.message);
  }
  for (std::size_t i = 0; i < (*bundle)->size(); ++i) {
    Result<ArtifactData> artifact = (*bundle)->Load(i);
    if (!artifact) {
      report.troubles.push_back(artifact.error().message);
      continue;
    }
    Result<std::string> entry = EncodeArtifact(*artifact);
    take(entry ? store.Import(*entry) : Result<bool>(Fail(entry.error())),
         SpecName(artifact->spec));
  }
  return report;
}

}  // namespace tilewright
