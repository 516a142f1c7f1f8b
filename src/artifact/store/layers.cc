#include "artifact/store/layers.h"

#include <algorithm>
#include <chrono>

#include "core/text.h"

namespace tilewright {

namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Whether two paths, whose last components are not links, lead to the same folder.
bool SameFolder(Filesystem& files, const std::string& a, const std::string& b) {
  Filesystem::Stat one, other;
  return files.StatPath(a.c_str(), one) == 0 && files.StatPath(b.c_str(), other) == 0 &&
         one.dev == other.dev && one.ino == other.ino;
}

}  // namespace

std::string DescribeMisses(const std::vector<LayerMiss>& misses) {
  std::string text;
  for (const LayerMiss& miss : misses) {
    if (!text.empty()) text += "; ";
    text += ArtifactLayerName(miss.layer);
    if (!miss.place.empty()) text += " " + miss.place;
    text += ": ";
    text += miss.detail.empty() ? std::string(MissReasonName(miss.reason)) : miss.detail;
  }
  return text.empty() ? "no layer to search" : text;
}

std::optional<BundleRefusal> DeviceRefusal(const ArtifactData& artifact, const BundleNeeds& needs) {
  // The launch ABI is part of every key, so an artifact found by key has the right one.
  return Bundle::Check(artifact,
                       {.compute_capability = needs.compute_capability, .driver = needs.driver});
}

std::string LeftOut(const ArtifactData& artifact) {
  if (artifact.ptx.empty()) return "ptx: omitted";
  return artifact.source.empty() ? "source: omitted" : "";
}

Result<BundleLayer> BundleLayer::Open(const ArtifactStoreOptions& options) {
  BundleLayer layer;
  layer.whole_ = options.whole_artifacts;
  for (const std::string& path : options.bundles) {
    auto bundle = Bundle::Open(path, options.bundle_options);
    if (!bundle) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("bundle {} cannot be used: {}", path, bundle.error().message));
    }
    layer.bundles_.push_back(std::move(*bundle));
  }
  return layer;
}

std::optional<LayerHit> BundleLayer::Find(const ArtifactKey& request, const BundleNeeds& needs,
                                          std::vector<LayerMiss>& misses) const {
  bool absent = true;
  for (const auto& bundle : bundles_) {
    const auto start = Clock::now();
    const std::optional<std::size_t> index = bundle->Find(request);
    if (!index) continue;
    absent = false;
    const auto refuse = [&](MissReason reason, std::string detail) {
      misses.push_back({ArtifactLayer::kBundle, reason, bundle->path(), std::move(detail), false});
    };
    if (const auto refusal = bundle->Check(*index, needs)) {
      const bool damaged = refusal->field == "payload_digest";
      refuse(damaged ? MissReason::kCorrupt : MissReason::kIncompatible, refusal->ToString());
      continue;
    }
    auto data = bundle->Load(*index);
    if (!data) {
      refuse(MissReason::kCorrupt, data.error().message);
      continue;
    }
    if (std::string left_out = LeftOut(*data); whole_ && !left_out.empty()) {
      refuse(MissReason::kIncompatible, std::move(left_out));
      continue;
    }
    LayerHit hit{ArtifactLayer::kBundle, bundle->path(), std::make_unique<HeldArtifact>(), 0};
    hit.held->data = std::move(*data);
    hit.load_us = MicrosecondsSince(start);
    return hit;
  }
  if (absent && !bundles_.empty()) {
    misses.push_back({ArtifactLayer::kBundle, MissReason::kAbsent, "", "", false});
  }
  return std::nullopt;
}

FolderLayers::FolderLayers(const std::string& root, const ArtifactStoreOptions& options,
                           Filesystem& files, const ProcessIdentity& process, Warnings& warnings)
    : warnings_(warnings), whole_(options.whole_artifacts) {
  StoreDir::Options common;
  common.negative_ttl_s = options.negative_ttl_s;
  common.files = &files;
  common.process = process;
  const bool readonly = options.mode == CacheMode::kReadonly;
  const bool strict = options.mode == CacheMode::kStrict;
  if (!root.empty()) {
    StoreDir::Options user = common;
    // Strict mode publishes nothing, but updates counters and recency stamps.
    user.access = readonly ? StoreDir::Access::kReadOnly : StoreDir::Access::kReadWrite;
    user.max_bytes = options.max_bytes;
    user.max_entries = options.max_entries;
    Add(ArtifactLayer::kUser, root, std::move(user), !readonly && !strict);
  }
  for (const std::string& site : options.site_dirs) {
    StoreDir::Options other = common;
    other.access = StoreDir::Access::kReadOnly;
    other.trusted = StoreDir::Trusted::kOwner;
    other.by_group = options.site_by_group;
    Add(ArtifactLayer::kSite, site, std::move(other), false);
  }
  if (!options.shared_dir.empty() && options.mode != CacheMode::kOffline) {
    StoreDir::Options shared = common;
    const bool written = !readonly && !strict;
    shared.access = written ? StoreDir::Access::kReadWrite : StoreDir::Access::kReadOnly;
    shared.durable = true;
    if (options.shared_by_group) shared.trusted = StoreDir::Trusted::kGroup;
    // If opened twice, each would wait for the other's lock of every kernel.
    if (user_ != nullptr && SameFolder(files, user_->root(), options.shared_dir)) {
      warnings_.Report("shared is user's",
                       Format("shared folder {} is the user's folder and is used only once",
                              options.shared_dir));
    } else {
      Add(ArtifactLayer::kShared, options.shared_dir, std::move(shared), written);
    }
  }
}

void FolderLayers::Add(ArtifactLayer layer, const std::string& root, StoreDir::Options options,
                       bool written) {
  const bool wants_to_write = options.access == StoreDir::Access::kReadWrite;
  auto dir = StoreDir::Open(root, std::move(options));
  const std::string name(ArtifactLayerName(layer));
  if (dir->state() == StoreDir::State::kRefused) {
    warnings_.Report(
        "refused " + root,
        Format("{} folder {} is not used: {}{}", name, root, dir->reason(),
               layer == ArtifactLayer::kUser ? "; compiled kernels are kept in memory only" : ""));
    return;
  }
  if (wants_to_write && dir->state() == StoreDir::State::kReadOnly) {
    warnings_.Report("not writable " + root,
                     Format("{} folder {} is used read-only: {}", name, root, dir->reason()));
  }
  // A user's folder that does not exist yet need not be reported; any other folder was named.
  if (!wants_to_write && layer != ArtifactLayer::kUser && !dir->reason().empty()) {
    warnings_.Report("absent " + root,
                     Format("{} folder {} has no kernels: {}", name, root, dir->reason()));
  }
  if (layer == ArtifactLayer::kUser) user_ = dir.get();
  if (written && dir->state() == StoreDir::State::kReadWrite) written_.push_back(dir.get());
  folders_.push_back({layer, std::move(dir)});
}

std::optional<LayerHit> FolderLayers::Find(const ArtifactKey& action, const BundleNeeds& needs,
                                           std::vector<LayerMiss>& misses) {
  for (const Folder& folder : folders_) {
    const auto start = Clock::now();
    StoreDir::Lookup lookup = folder.dir->Find(action);
    if (!lookup.found) {
      misses.push_back(
          {folder.layer, lookup.miss, folder.dir->root(), lookup.detail, lookup.quarantined});
      continue;
    }
    if (const auto refusal = DeviceRefusal(lookup.found->data, needs)) {
      misses.push_back({folder.layer, MissReason::kIncompatible, folder.dir->root(),
                        refusal->ToString(), false});
      continue;
    }
    if (std::string left_out = LeftOut(lookup.found->data); whole_ && !left_out.empty()) {
      misses.push_back({folder.layer, MissReason::kIncompatible, folder.dir->root(),
                        std::move(left_out), false});
      continue;
    }
    LayerHit hit{folder.layer, folder.dir->root(), std::make_unique<HeldArtifact>(), 0};
    hit.held->file = std::move(lookup.found->bytes);
    hit.held->data = std::move(lookup.found->data);
    hit.load_us = MicrosecondsSince(start);
    return hit;
  }
  return std::nullopt;
}

StoreDir::Published FolderLayers::Put(StoreDir& dir, const ArtifactKey& action,
                                      std::string_view bytes, std::string& why) const {
  const StoreDir::Published published = dir.Publish(action, bytes, &why);
  if (published != StoreDir::Published::kLost || !whole_) return published;
  const StoreDir::Lookup theirs = dir.Look(action);
  if (theirs.found && LeftOut(theirs.found->data).empty()) return published;
  (void)dir.Remove(action);
  return dir.Publish(action, bytes, &why);
}

bool FolderLayers::Publish(const ArtifactKey& action, std::string_view bytes, bool user_only,
                           bool replace, const std::function<void(StoreDir::Published)>& count) {
  bool lost = false;
  for (StoreDir* const dir : written_) {
    if (user_only && dir != user_) continue;
    if (replace) {
      // If the old entry cannot be removed, Publish finds it and reports that.
      (void)dir->Remove(action);
    }
    std::string why;
    const StoreDir::Published published = Put(*dir, action, bytes, why);
    if (published == StoreDir::Published::kNot) {
      warnings_.Report("publish " + dir->root(),
                       Format("{}: a compiled kernel could not be stored: {}", dir->root(), why));
      continue;
    }
    lost = lost || published == StoreDir::Published::kLost;
    count(published);
  }
  return lost;
}

bool FolderLayers::TryLock(const ArtifactKey& action, Locks& locks) {
  locks.held.clear();
  for (StoreDir* const dir : written_) {
    StoreDir::KeyLock lock;
    switch (dir->TryLock(action, lock)) {
      case StoreDir::LockResult::kHeld:
        locks.held.push_back(std::move(lock));
        break;
      case StoreDir::LockResult::kUnusable:
        break;
      case StoreDir::LockResult::kBusy:
        locks.held.clear();
        return false;
    }
  }
  return true;
}

}  // namespace tilewright
