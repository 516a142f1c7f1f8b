#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/filesystem.h"
#include "tilewright/artifact.h"
#include "tilewright/artifact_store.h"

namespace tilewright {

/// Who this process is, beyond its number: process ids repeat across containers and hosts that
/// share a folder.
struct ProcessIdentity {
  std::string host;  ///< short digest of the machine id and host name
  std::string boot;  ///< short digest of the boot id (and pid namespace)
  std::int64_t pid = 0;
  static ProcessIdentity Current();
};

/// A read file: owned bytes or a mapping. Movable.
class FileBytes {
 public:
  FileBytes() = default;
  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  ~FileBytes();
  std::string_view view() const { return view_; }

 private:
  friend class StoreDir;
  std::string_view view_;
  void* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  Filesystem* files_ = nullptr;
};

/// One folder of artifacts (docs/artifact_store.md): a user's, a site's or a shared one. Knows
/// files, not compilers. Safe for any number of threads and processes, also of several hosts; every
/// file is whole or absent whenever a process is killed. Failing writes make the folder read only
/// for the rest of the process, told once.
class StoreDir {
 public:
  enum class Access { kReadWrite, kReadOnly };
  struct Options {
    Access access = Access::kReadWrite;
    bool require_owner = true;  ///< refuse a folder of another user or with lax modes (site: false)
    bool durable = false;       ///< fsync before publishing (shared folders)
    std::uint64_t max_bytes = 0, max_entries = 0;  ///< 0: no cap
    std::int64_t negative_ttl_s = 24 * 3600;
    Filesystem* files = nullptr;  ///< null: SystemFilesystem()
    ProcessIdentity process;      ///< default: Current()
  };

  /// Creates what is missing (kReadWrite). Always returns an object: state() says what it can do.
  static std::unique_ptr<StoreDir> Open(const std::string& root, Options options);
  ~StoreDir();

  enum class State { kReadWrite, kReadOnly, kRefused };
  State state() const;
  std::string reason() const;  ///< why not kReadWrite: "owner is uid 1000, not 0"
  const std::string& root() const;

  /// The verified entry of an action key. The bytes passed DecodeArtifact and the key matches.
  /// Damaged or foreign files are moved to quarantine/ (the very inode that was read) and counted.
  struct Found {
    FileBytes bytes;
    ArtifactData data;
  };
  struct Lookup {
    std::optional<Found> found;
    MissReason miss = MissReason::kAbsent;
    std::string detail;
  };
  Lookup Find(const ArtifactKey& action);
  /// Refreshes the entry's recency stamp (at most once an hour on disk). Find does it itself.

  enum class Published { kNew, kLost, kNot };
  /// Puts the bytes of an entry in place atomically. kLost: another process was first, and its
  /// entry is sound. kNot: the folder is not writable, or the file is larger than the cap; `why`
  /// says.
  Published Publish(const ArtifactKey& action, std::string_view bytes, std::string* why = nullptr);
  /// Removes an entry, for refresh mode before Publish.
  Status Remove(const ArtifactKey& action);

  /// A remembered refusal of the compiler.
  struct Negative {
    std::string log;
    std::int64_t unix_s = 0;
    std::string action_record, request_record;
  };
  std::optional<Negative> FindNegative(const ArtifactKey& action);
  Published PublishNegative(const ArtifactKey& action, const Negative& negative);

  /// Trims to 80 % of the caps when above them, least recently used first, never an entry younger
  /// than 10 minutes unless `force`. Skipped where another process trims, or one did less than 60 s
  /// ago, unless `force`.
  ArtifactStore::GcReport Trim(bool force, bool dry_run);
  /// Removes temporary files of processes that are provably dead or older than 24 h, expired
  /// refusals, and quarantined files older than 7 days.
  ArtifactStore::GcReport Sweep(bool dry_run);

  /// Calls `visit` for every entry file, in the order of keys.
  void ForEach(const std::function<void(const ArtifactKey& action, const std::string& path,
                                        const Filesystem::Stat& stat)>& visit);
  void ForEachNegative(
      const std::function<void(const ArtifactKey& action, const Negative& negative)>& visit);
  ArtifactStore::Totals GetTotals();

  /// Adds to the persistent counters (a shared mapping; lock free). In memory where that fails.
  void Count(std::size_t counter, std::uint64_t amount);
  std::vector<std::uint64_t> Counters() const;

  /// A lock on an action key among processes; only ever an optimisation. Empty optional: held by
  /// somebody else. `usable` false where locks do not work here (then nobody waits).
  class KeyLock {
   public:
    KeyLock() = default;
    KeyLock(KeyLock&&) noexcept;
    KeyLock& operator=(KeyLock&&) noexcept;
    ~KeyLock();
    bool held() const { return dir_ != nullptr; }

   private:
    friend class StoreDir;
    StoreDir* dir_ = nullptr;
    int stripe_ = 0;
    std::uint64_t start_ = 0;
  };
  enum class LockResult { kHeld, kBusy, kUnusable };
  LockResult TryLock(const ArtifactKey& action, KeyLock& lock);

 private:
  struct Impl;
  explicit StoreDir(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
