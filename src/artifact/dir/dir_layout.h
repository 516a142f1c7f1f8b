#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "artifact/dir/store_dir.h"
#include "core/filesystem.h"
#include "tilewright/artifact_key.h"

namespace tilewright {

inline constexpr std::string_view kEntrySuffix = ".twk";
inline constexpr std::string_view kNegativeSuffix = ".twn";

/// Names inside a store (docs/artifact_store.md).
struct DirLayout {
  explicit DirLayout(const std::string& root_folder);

  std::string root;
  std::string base;  ///< root/v1
  std::string entries, negatives, temporaries, locks, quarantine, counters;

  /// entries/ab/<62 hex>.twk and its folder; the same below negatives.
  std::string EntryPath(const ArtifactKey& action) const;
  std::string NegativePath(const ArtifactKey& action) const;
  std::string LockPath(int stripe) const;
};

/// The folder of a path.
std::string ParentOf(const std::string& path);

/// The key of a file "<62 hex><suffix>" in the shard "ab"; nullopt for any other name.
std::optional<ArtifactKey> KeyOfName(std::string_view shard, std::string_view name,
                                     std::string_view suffix);

/// "<host>.<boot>.<pid>.<32 random digits>".
std::string TemporaryName(const ProcessIdentity& process);

/// Whether the process that made a temporary file is known to be dead: it had this host, boot and
/// pid namespace, and no process has its id now. Nothing is known of any other process.
bool OwnerIsDead(std::string_view temporary_name, const ProcessIdentity& self);

/// What makes a file or folder trusted, which depends on who can write it.
struct Trust {
  StoreDir::Trusted trusted = StoreDir::Trusted::kUser;
  std::uint32_t uid = 0;
  bool by_group = false;     ///< kOwner: what the group can write is trusted too
  std::uint32_t owner = 0;   ///< kOwner: owner of the root
  std::uint32_t system = 0;  ///< owner of "/", who can replace everything

  /// Why a file or folder is not trusted; "" if it is.
  std::string Complaint(const Filesystem::Stat& stat) const;
  /// This user, root, or the owner of "/".
  bool IsOurs(std::uint32_t who) const { return who == uid || who == 0 || who == system; }
  bool Believes(std::uint32_t who) const { return IsOurs(who) || who == owner; }
  /// How a caller can accept what is refused because of the group.
  std::string_view Remedy() const {
    return trusted == StoreDir::Trusted::kOwner ? " (accepted with site_by_group)" : "";
  }
};

/// "cannot rename /x: No space left on device"; `error` is negative, as Filesystem gives it.
std::string Trouble(std::string_view step, const std::string& path, int error);

/// Whether later writes will fail too: no space, no permission, read-only.
bool IsLasting(int error);

}  // namespace tilewright
