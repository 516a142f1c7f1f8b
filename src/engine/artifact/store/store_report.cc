// What a store holds, whether it is sound, what may go, and why something is missing.

#include <algorithm>
#include <limits>
#include <utility>

#include "core/sha256.h"
#include "core/text.h"
#include "engine/artifact/store/messages.h"
#include "engine/artifact/store/store_impl.h"

namespace tilewright {

namespace {

struct EntryFile {
  ArtifactKey action;
  std::string path;
  Filesystem::Stat stat;
};
std::vector<EntryFile> EntryFiles(StoreDir& dir) {
  std::vector<EntryFile> files;
  dir.ForEach(
      [&](const ArtifactKey& action, const std::string& path, const Filesystem::Stat& stat) {
        files.push_back({action, path, stat});
      });
  return files;
}

void Describe(const ArtifactData& data, ArtifactStore::EntryInfo& info) {
  info.request = data.request;
  info.action = data.action;
  info.spec = SpecName(data.spec);
  info.compiler = data.compiler.ToString();
  info.compile_ms = data.compile_ms;
  info.resources = data.resources;
}

}  // namespace

std::vector<ArtifactStore::EntryInfo> ArtifactStore::List() const {
  std::vector<EntryInfo> entries;
  for (const auto& bundle : impl_->bundles.all()) {
    for (std::size_t i = 0; i < bundle->size(); ++i) {
      const Bundle::Entry entry = bundle->entry(i);
      EntryInfo info;
      info.layer = ArtifactLayer::kBundle;
      info.place = bundle->path();
      info.request = entry.request;
      info.bytes = entry.size;
      if (const auto data = bundle->Load(i)) {
        Describe(*data, info);
      } else {
        info.trouble = data.error().message;
      }
      entries.push_back(std::move(info));
    }
  }
  for (const auto& folder : impl_->folders.all()) {
    for (const EntryFile& file : EntryFiles(*folder.dir)) {
      EntryInfo info;
      info.layer = folder.layer;
      info.place = file.path;
      info.action = file.action;
      info.bytes = file.stat.size;
      info.last_used_unix_s = file.stat.mtime_s;
      const StoreDir::Lookup lookup = folder.dir->Look(file.action);
      if (lookup.found) {
        Describe(lookup.found->data, info);
      } else if (lookup.detail.empty()) {
        continue;  // somebody removed it since
      } else {
        info.trouble = lookup.detail;
      }
      entries.push_back(std::move(info));
    }
    folder.dir->ForEachNegative([&](const ArtifactKey& action, const StoreDir::Negative& negative) {
      EntryInfo info;
      info.layer = folder.layer;
      info.place = folder.dir->root();
      info.action = action;
      info.last_used_unix_s = negative.unix_s;
      info.negative = true;
      info.trouble = TellingLine(negative.log);
      if (const auto spec = SpecOfRequestRecord(negative.request_record)) {
        info.spec = SpecName(*spec);
      }
      if (const auto key = Sha256(negative.request_record)) info.request = ArtifactKey{*key};
      entries.push_back(std::move(info));
    });
  }
  return entries;
}

Result<std::string> ArtifactStore::ReadEntry(const EntryInfo& entry) const {
  const auto fail = [&](ErrorCode code, std::string_view why) {
    return Fail(code, Format("{}: {}: {}", entry.place, entry.spec, why));
  };
  if (entry.negative) {
    return fail(ErrorCode::kInvalidArgument, "a refusal of the compiler has no bytes");
  }
  for (const auto& bundle : impl_->bundles.all()) {
    if (entry.layer != ArtifactLayer::kBundle || bundle->path() != entry.place) continue;
    const auto index = bundle->Find(entry.request);
    if (!index) continue;
    const auto data = bundle->Load(*index);
    if (!data) return fail(data.error().code, data.error().message);
    return EncodeArtifact(*data);
  }
  for (const auto& folder : impl_->folders.all()) {
    if (entry.layer != folder.layer || folder.dir->EntryPath(entry.action) != entry.place) continue;
    const StoreDir::Lookup lookup = folder.dir->Look(entry.action);
    if (lookup.found) return std::string(lookup.found->bytes.view());
    if (lookup.detail.empty()) return fail(ErrorCode::kNotFound, "it is gone");
    if (lookup.miss == MissReason::kAbsent) return fail(ErrorCode::kIo, lookup.detail);
    return fail(
        lookup.miss == MissReason::kIncompatible ? ErrorCode::kUnsupported : ErrorCode::kCorrupt,
        lookup.detail);
  }
  return fail(ErrorCode::kInvalidArgument, "no entry of this store");
}

ArtifactStore::VerifyReport ArtifactStore::Verify(bool recompile, const CompileControl& control) {
  const Impl::Active active(impl_->runtime());
  VerifyReport report;
  // False where it was cancelled.
  const auto compile_again = [&](const ArtifactData& data, const std::string& place) {
    auto request = impl_->Resolve(data.spec);
    // What another library version or another compiler made is sound as it is, and is not what
    // would be made here.
    if (!request || request->record.key != data.request) {
      ++report.not_ours;
      return true;
    }
    impl_->ResolveActionNow(*request);
    if (request->action && request->action->key != data.action) {
      ++report.not_ours;
      return true;
    }
    const auto difference = impl_->CompareWithRecompiled(*request, data, control.cancelled);
    if (!difference) {
      if (difference.error().code == ErrorCode::kCancelled) return false;
      ++report.not_recompiled;
      if (report.why_not.empty()) report.why_not = OneLine(difference.error().message);
      return true;
    }
    ++report.recompiled;
    if (difference->empty()) return true;
    ++report.differ;
    impl_->Count(CounterIndex(&ArtifactCounters::verify_mismatches));
    report.troubles.push_back(Format("{}: {}: {}", place, SpecName(data.spec), *difference));
    return true;
  };
  std::vector<EntryFile> files;
  StoreDir* const dir = impl_->user();
  if (dir != nullptr) files = EntryFiles(*dir);
  CompileProgress progress;
  progress.total = files.size();
  for (const auto& bundle : impl_->bundles.all()) progress.total += bundle->size();
  const auto step = [&](const KernelSpec& spec) {
    ++progress.done;
    progress.compiled = report.recompiled;
    progress.last = spec;
    if (control.progress) control.progress(progress);
    return !(control.cancelled && control.cancelled());
  };
  const auto stopped = [&] {
    report.cancelled = true;
    return report;
  };
  for (const EntryFile& file : files) {
    StoreDir::Lookup lookup = dir->Look(file.action);
    // Find looks again, and moves what is damaged out of the way.
    if (!lookup.found) lookup = dir->Find(file.action);
    if (lookup.quarantined) impl_->Count(CounterIndex(&ArtifactCounters::quarantined));
    if (lookup.found) {
      ++report.good;
      if (recompile && !compile_again(lookup.found->data, file.path)) return stopped();
    } else {
      report.troubles.push_back(
          Format("{}: {}", file.path, lookup.detail.empty() ? "it is gone" : lookup.detail));
    }
    if (!step(lookup.found ? lookup.found->data.spec : KernelSpec{})) return stopped();
  }
  for (const auto& bundle : impl_->bundles.all()) {
    Bundle::VerifyResult whole = bundle->Verify();
    report.good += whole.good;
    for (const std::string& trouble : whole.troubles) {
      report.troubles.push_back(bundle->path() + ": " + trouble);
    }
    for (std::size_t i = 0; i < bundle->size(); ++i) {
      const auto data = bundle->Load(i);
      if (data && recompile && !compile_again(*data, bundle->path())) return stopped();
      if (!step(data ? data->spec : KernelSpec{})) return stopped();
    }
  }
  return report;
}

ArtifactStore::GcReport ArtifactStore::Gc(bool dry_run, bool unreachable) {
  GcReport report;
  StoreDir* const dir = impl_->user();
  if (dir == nullptr) return report;
  const auto add = [&](const GcReport& part) {
    report.removed_entries += part.removed_entries;
    report.removed_bytes += part.removed_bytes;
    report.removed_temporaries += part.removed_temporaries;
    report.removed_negative += part.removed_negative;
    report.removed_quarantined += part.removed_quarantined;
  };
  add(dir->Sweep(dry_run));
  if (unreachable) {
    const auto compiler = impl_->Compiler();
    if (!compiler) {
      report.note =
          "only sources were compared, not compilers: " + OneLine(compiler.error().message);
    }
    for (const EntryFile& file : EntryFiles(*dir)) {
      const StoreDir::Lookup lookup = dir->Look(file.action);
      if (!lookup.found) continue;  // Verify's affair
      const ArtifactData& data = lookup.found->data;
      const auto request = impl_->Resolve(data.spec);
      const bool current = request && request->record.key == data.request &&
                           (!compiler || (*compiler)->identity() == data.compiler);
      if (current) continue;
      if (!dry_run && !dir->Remove(file.action)) continue;
      ++report.removed_entries;
      report.removed_bytes += file.stat.size;
    }
  }
  add(dir->Trim(true, dry_run));
  impl_->CountEvictions();
  return report;
}

namespace {

using Explanation = ArtifactStore::MissExplanation;

/// The stored entry that differs in the fewest fields; one of the same family before any other.
class Nearest {
 public:
  Nearest(const KernelRequest& request, Explanation& explanation)
      : request_(request), explanation_(explanation) {}

  void Offer(const ArtifactData& data, const std::string& place) {
    auto differences = DiffKeyRecords(request_.record.bytes, data.request_record);
    if (!differences) return;
    if (request_.action) {
      const auto action = DiffKeyRecords(request_.action->bytes, data.action_record);
      if (!action) return;
      for (const KeyDifference& one : *action) {
        if (one.field == "request") continue;  // said field by field
        differences->push_back({"compiler " + one.field, one.wanted, one.stored});
      }
    }
    const std::size_t distance =
        differences->size() + (data.spec.family == request_.spec.family ? 0 : 1000);
    if (distance >= best_) return;
    best_ = distance;
    explanation_.nearest = Format("{} in {}", SpecName(data.spec), place);
    explanation_.differences = std::move(*differences);
  }

 private:
  const KernelRequest& request_;
  Explanation& explanation_;
  std::size_t best_ = std::numeric_limits<std::size_t>::max();
};

/// How a store looks, beside what it looks for.
struct Look {
  bool ignored = false;  ///< it does not
  bool whole = false;    ///< for whole artifacts
};

void ExplainBundles(const BundleLayer& bundles, const KernelRequest& request, Look look,
                    Explanation& explanation) {
  for (const auto& bundle : bundles.all()) {
    Explanation::Layer layer;
    layer.layer = ArtifactLayer::kBundle;
    layer.place = bundle->path();
    if (const auto index = bundle->Find(request.record.key)) {
      const auto data = bundle->Load(*index);
      if (look.ignored) {
        layer.reason = MissReason::kIgnored;
      } else if (const auto refusal = bundle->Check(*index, request.needs)) {
        layer.reason =
            refusal->field == "payload_digest" ? MissReason::kCorrupt : MissReason::kIncompatible;
        layer.detail = refusal->ToString();
      } else if (data && look.whole && !LeftOut(*data).empty()) {
        layer.reason = MissReason::kIncompatible;
        layer.detail = LeftOut(*data);
      } else {
        layer.hit = true;
      }
    } else if (look.ignored) {
      layer.reason = MissReason::kIgnored;
    }
    explanation.layers.push_back(std::move(layer));
  }
}

void ExplainFolder(const FolderLayers::Folder& folder, const KernelRequest& request, Look look,
                   Explanation& explanation) {
  Explanation::Layer layer;
  layer.layer = folder.layer;
  layer.place = folder.dir->root();
  if (!request.action) {
    layer.detail = request.no_compiler ? "not asked: entries are named by compiler, and " +
                                             request.no_compiler->message
                                       : "not asked";
  } else if (look.ignored) {
    layer.reason = MissReason::kIgnored;
  } else {
    const StoreDir::Lookup lookup = folder.dir->Look(request.action->key);
    if (!lookup.found) {
      layer.reason = lookup.miss;
      layer.detail = lookup.detail;
    } else if (const auto refusal = DeviceRefusal(lookup.found->data, request.needs)) {
      layer.reason = MissReason::kIncompatible;
      layer.detail = refusal->ToString();
    } else if (look.whole && !LeftOut(lookup.found->data).empty()) {
      layer.reason = MissReason::kIncompatible;
      layer.detail = LeftOut(lookup.found->data);
    } else {
      layer.hit = true;
      layer.place = folder.dir->EntryPath(request.action->key);
    }
    if (!layer.hit && layer.reason == MissReason::kAbsent && folder.layer == ArtifactLayer::kUser) {
      if (const auto negative = folder.dir->FindNegative(request.action->key)) {
        layer.reason = MissReason::kNegative;
        layer.detail = TellingLine(negative->log);
      }
    }
  }
  explanation.layers.push_back(std::move(layer));
}

}  // namespace

Result<ArtifactStore::MissExplanation> ArtifactStore::Explain(const KernelSpec& spec) const {
  auto request = impl_->Resolve(spec);
  if (!request) return Fail(std::move(request.error()));
  impl_->ResolveAction(*request);
  MissExplanation explanation;
  explanation.request = request->record.key;
  if (request->action) explanation.action = request->action->key;
  const Look look{impl_->options.mode == CacheMode::kRefresh, impl_->options.whole_artifacts};

  MissExplanation::Layer& memory = explanation.layers.emplace_back();
  memory.layer = ArtifactLayer::kMemory;
  memory.hit = impl_->table.Find(spec) != nullptr;
  ExplainBundles(impl_->bundles, *request, look, explanation);
  for (const auto& folder : impl_->folders.all()) {
    ExplainFolder(folder, *request, look, explanation);
  }
  if (std::any_of(explanation.layers.begin(), explanation.layers.end(),
                  [](const MissExplanation::Layer& layer) { return layer.hit; })) {
    return explanation;
  }
  Nearest nearest(*request, explanation);
  for (const auto& bundle : impl_->bundles.all()) {
    for (std::size_t i = 0; i < bundle->size(); ++i) {
      if (const auto data = bundle->Load(i)) nearest.Offer(*data, bundle->path());
    }
  }
  for (const auto& folder : impl_->folders.all()) {
    for (const EntryFile& file : EntryFiles(*folder.dir)) {
      const StoreDir::Lookup lookup = folder.dir->Look(file.action);
      if (lookup.found) nearest.Offer(lookup.found->data, file.path);
    }
  }
  return explanation;
}

}  // namespace tilewright
