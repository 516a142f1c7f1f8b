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

/// A layer that did not answer, and why.
struct LayerMiss {
  ArtifactLayer layer = ArtifactLayer::kMemory;
  MissReason reason = MissReason::kAbsent;
  std::string place;   ///< file or folder; "" for all of the layer
  std::string detail;  ///< "" where the reason says it all
  bool quarantined = false;
};

/// As text for an error: what each place said.
std::string DescribeMisses(const std::vector<LayerMiss>& misses);

struct LayerHit {
  ArtifactLayer layer = ArtifactLayer::kMemory;
  std::string place;
  std::unique_ptr<HeldArtifact> held;
  double load_us = 0;
};

/// Why an artifact cannot run on the device `needs` describes; nullopt when it can.
std::optional<BundleRefusal> DeviceRefusal(const ArtifactData& artifact, const BundleNeeds& needs);

/// What a bundle left out of an artifact: "ptx: left out", "source: left out"; "" where it is
/// whole.
std::string LeftOut(const ArtifactData& artifact);

/// The bundles of a store. Const after Open; any thread.
class BundleLayer {
 public:
  static Result<BundleLayer> Open(const ArtifactStoreOptions& options);

  /// The first bundle that serves `request`; what the others said is added to `misses`, one absent
  /// for the layer where none of them has it.
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
  /// Never fails: a folder that cannot be used is reported in `warnings` and left out, or only
  /// read.
  FolderLayers(const std::string& root, const ArtifactStoreOptions& options, Filesystem& files,
               const ProcessIdentity& process, Warnings& warnings);

  /// As BundleLayer::Find.
  std::optional<LayerHit> Find(const ArtifactKey& action, const BundleNeeds& needs,
                               std::vector<LayerMiss>& misses);

  /// Whether some folder can hold entries at all.
  bool any() const { return !folders_.empty(); }
  /// Null where it does not exist or was refused.
  StoreDir* user() const { return user_; }

  struct Folder {
    ArtifactLayer layer;
    std::unique_ptr<StoreDir> dir;
  };
  const std::vector<Folder>& all() const { return folders_; }

  /// Puts the entry into every folder that may be written (only the user's where `user_only`),
  /// replacing what is there where `replace`, or where only whole artifacts serve and it is not
  /// one. `count` is called with kNew or kLost for each. True if a
  /// folder has the entry of another process.
  bool Publish(const ArtifactKey& action, std::string_view bytes, bool user_only, bool replace,
               const std::function<void(StoreDir::Published)>& count);

  /// The locks of a key in all folders that are written, user's first, so that two processes never
  /// hold one each. Empty where none is needed or works.
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
  std::vector<Folder> folders_;  // in the order they are asked
  std::vector<StoreDir*> written_;
  StoreDir* user_ = nullptr;
};

}  // namespace tilewright
