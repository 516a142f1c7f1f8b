// What a store holds, and what can be removed from it.

#include <utility>

#include "artifact/key_record.h"
#include "artifact/store/messages.h"
#include "artifact/store/store_impl.h"
#include "core/sha256.h"
#include "core/text.h"

namespace tilewright {

namespace {

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
    for (const StoreDir::EntryFile& file : folder.dir->Entries()) {
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
        continue;  // removed meanwhile
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
      if (const auto asked = DecodeActionFields(negative.action_record)) {
        info.compiler = asked->compiler.ToString();
      }
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
    return fail(ErrorCode::kInvalidArgument, "a remembered failure has no bytes");
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
    if (lookup.detail.empty()) return fail(ErrorCode::kNotFound, "it no longer exists");
    if (lookup.miss == MissReason::kAbsent) return fail(ErrorCode::kIo, lookup.detail);
    return fail(
        lookup.miss == MissReason::kIncompatible ? ErrorCode::kUnsupported : ErrorCode::kCorrupt,
        lookup.detail);
  }
  return fail(ErrorCode::kInvalidArgument, "not an entry of this store");
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
    for (const StoreDir::EntryFile& file : dir->Entries()) {
      const StoreDir::Lookup lookup = dir->Look(file.action);
      if (!lookup.found) continue;  // left to Verify
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

}  // namespace tilewright
