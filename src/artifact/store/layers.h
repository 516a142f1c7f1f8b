#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "artifact/dir/store_dir.h"
#include "artifact/store/handle_table.h"
#include "artifact/store/warnings.h"
#include "tilewright/artifact_store.h"

namespace tilewright {

/// Why a layer had no usable artifact.
struct LayerMiss {
  ArtifactLayer layer = ArtifactLayer::kMemory;
  MissReason reason = MissReason::kAbsent;
  std::string place;   ///< file or folder; "" for the whole layer
  std::string detail;  ///< "" if the reason says it all
  bool quarantined = false;
};

/// As text for an error message: the reason for each place.
std::string DescribeMisses(const std::vector<LayerMiss>& misses);

struct LayerHit {
  ArtifactLayer layer = ArtifactLayer::kMemory;
  std::string place;
  std::unique_ptr<HeldArtifact> held;
  double load_us = 0;
};

/// Why an artifact cannot run on the device that `needs` describes; nullopt if it can.
std::optional<BundleRefusal> DeviceRefusal(const ArtifactData& artifact, const BundleNeeds& needs);

/// What a bundle omitted from an artifact: "ptx: omitted", "source: omitted"; "" if it is complete.
std::string LeftOut(const ArtifactData& artifact);

/// The bundles of a store. Const after Open; any thread.
class BundleLayer {
 public:
  static Result<BundleLayer> Open(const ArtifactStoreOptions& options);

  /// The artifact from the first bundle that can serve `request`. The reasons of the others are
  /// added to `misses`; if none of them has it, one kAbsent for the layer.
  std::optional<LayerHit> Find(const ArtifactKey& request, const BundleNeeds& needs,
                               std::vector<LayerMiss>& misses) const;
  const std::vector<std::shared_ptr<const Bundle>>& all() const { return bundles_; }

 private:
  std::vector<std::shared_ptr<const Bundle>> bundles_;  // newest first
  bool whole_ = false;
};

/// The folders of a store, by action key: the user's, the site's, the shared one. Any thread.
class FolderLayers {
 public:
  /// Never fails: a folder that cannot be used is reported in `warnings` and skipped, or used
  /// read-only.
  FolderLayers(const std::string& root, const ArtifactStoreOptions& options, Filesystem& files,
               const ProcessIdentity& process, Warnings& warnings);

  /// As BundleLayer::Find.
  std::optional<LayerHit> Find(const ArtifactKey& action, const BundleNeeds& needs,
                               std::vector<LayerMiss>& misses);

  /// Whether some folder can hold entries at all.
  bool any() const { return !folders_.empty(); }
  /// nullptr if it does not exist or was refused.
  StoreDir* user() const { return user_; }

  struct Folder {
    ArtifactLayer layer;
    std::unique_ptr<StoreDir> dir;
  };
  const std::vector<Folder>& all() const { return folders_; }

  /// Puts the entry into every writable folder (only the user's if `user_only`). Replaces an
  /// existing entry if `replace`, or if complete artifacts are required and it is not one. Calls
  /// `count` with kNew or kLost for each folder. True if a folder has the entry of another process.
  bool Publish(const ArtifactKey& action, std::string_view bytes, bool user_only, bool replace,
               const std::function<void(StoreDir::Published)>& count);

  /// The locks of a key in all writable folders, the user's first, so that two processes never hold
  /// one each. Empty if none is needed or works.
  struct Locks {
    std::vector<StoreDir::KeyLock> held;
  };
  /// False: another process has one of them.
  bool TryLock(const ArtifactKey& action, Locks& locks);

 private:
  void Add(ArtifactLayer layer, const std::string& root, StoreDir::Options options, bool written);
  /// Publishes in one folder.
  StoreDir::Published Put(StoreDir& dir, const ArtifactKey& action, std::string_view bytes,
                          std::string& why) const;

  Warnings& warnings_;
  const bool whole_;
  std::vector<Folder> folders_;  // in the order they are searched
  std::vector<StoreDir*> written_;
  StoreDir* user_ = nullptr;
};

}  // namespace tilewright
