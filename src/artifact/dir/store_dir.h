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

/// Identifies a process by more than its id, since ids repeat across the containers and hosts that
/// share a folder.
struct ProcessIdentity {
  std::string host;  ///< short digest of the machine id and host name: hexadecimal digits
  /// Short digest of the boot id and the pid namespace: hexadecimal digits. kUnknown if the system
  /// does not report them; then no process is considered dead.
  std::string boot;
  std::int64_t pid = 0;
  static constexpr std::string_view kUnknown = "000000000000";
  static ProcessIdentity Current();
};

/// The bytes of a file, copied to memory: a mapping would fault if the file is truncated, and could
/// change after it was checked. Movable; views stay valid.
class FileBytes {
 public:
  FileBytes() = default;
  FileBytes(FileBytes&&) noexcept = default;
  FileBytes& operator=(FileBytes&&) noexcept = default;
  std::string_view view() const { return {data_.get(), bytes_}; }

 private:
  friend class FileReader;
  std::unique_ptr<char[]> data_;
  std::size_t bytes_ = 0;
};

/// One folder of artifacts (docs/artifact_store.md): a user's, a site's or a shared one. Knows
/// files, not compilers. Safe for any number of threads and processes, even on several hosts; if a
/// process is killed, every file is still either complete or absent. A full, read-only or forbidden
/// file system makes the folder read-only for the rest of the process (state(), reason()); a
/// temporary failure (no descriptor left, an interrupted disk) affects only the call that hit it.
/// Keeps working in the child of a fork, which does not hold the parent's locks.
class StoreDir {
 public:
  enum class Access { kReadWrite, kReadOnly };
  /// Whose files are trusted.
  enum class Trusted {
    kUser,  ///< this user's, if nobody else can write them; any other folder is refused
    /// Those of everyone who can write the folder: its owner and its group; never a world-writable
    /// folder. It must exist. Entries and locks are added, with the modes of the folder; nothing is
    /// ever moved or removed, since the path might lead elsewhere by then. No totals, no caps, no
    /// remembered failures.
    kGroup,
    /// Those of the folder's owner, whoever that is, and of root (a site's folder, read only).
    /// Files that others can write, or the group unless `by_group`, are not trusted, nor is a
    /// folder that others could replace (trusted_path.h).
    kOwner
  };
  struct Options {
    Access access = Access::kReadWrite;
    Trusted trusted = Trusted::kUser;
    bool by_group = false;  ///< kOwner: trusted even if its group can write it
    bool durable = false;   ///< fsync before publishing (shared folders)
    /// 0: no cap. Processes of one host that share the folder never exceed the caps: an entry for
    /// which there is no room, because everything was used in the last ten minutes, is not stored.
    std::uint64_t max_bytes = 0, max_entries = 0;
    std::int64_t negative_ttl_s = 24 * 3600;
    Filesystem* files = nullptr;  ///< null: SystemFilesystem()
    ProcessIdentity process;      ///< default (an empty host): Current()
  };

  /// Creates what is missing (kReadWrite). Always returns an object; state() says what it can do.
  /// Does not read entries: takes about 0.3 ms for a store of any size.
  static std::unique_ptr<StoreDir> Open(const std::string& root, Options options);
  ~StoreDir();

  enum class State { kReadWrite, kReadOnly, kRefused };
  State state() const;
  /// Why it is not kReadWrite: "/x: owner is uid 1000, not 0"; "" if it is, or if kReadOnly was
  /// requested and the folder exists.
  std::string reason() const;
  const std::string& root() const;

  /// The verified entry of an action key. The bytes passed DecodeArtifact and the key matches.
  /// Damaged or foreign files are moved to quarantine/ (the very inode that was read). Refreshes
  /// the entry's recency stamp, at most once an hour.
  struct Found {
    FileBytes bytes;
    ArtifactData data;
  };
  struct Lookup {
    std::optional<Found> found;
    MissReason miss = MissReason::kAbsent;  ///< kAbsent, kCorrupt, kIncompatible (a newer format)
    std::string detail;                     ///< "" if the file does not exist
    bool quarantined = false;
  };
  Lookup Find(const ArtifactKey& action);
  /// The same without side effects: no time stamp changes, nothing is moved to quarantine.
  Lookup Look(const ArtifactKey& action);
  /// The path of an entry, whether or not it exists.
  std::string EntryPath(const ArtifactKey& action) const;
  std::string NegativePath(const ArtifactKey& action) const;

  enum class Published { kNew, kLost, kNot };
  /// Puts the bytes of an entry in place atomically. kLost: another process was first, and its
  /// entry is intact (a damaged one is quarantined and replaced). kNot: the folder is not writable,
  /// there is no room under the caps, or the bytes are not an entry of this key; `why` says which.
  Published Publish(const ArtifactKey& action, std::string_view bytes, std::string* why = nullptr);
  /// Removes an entry, for refresh mode before Publish; Ok if there is none. kIo; kUnavailable if
  /// the folder is not writable.
  Status Remove(const ArtifactKey& action);

  /// A remembered failure: the compiler rejected the kernel.
  struct Negative {
    std::string log;
    std::int64_t unix_s = 0;
    std::string action_record, request_record;
  };
  /// nullopt if it is older than negative_ttl_s, or from the future.
  std::optional<Negative> FindNegative(const ArtifactKey& action);
  /// Replaces an older one. A log above 64 KiB is truncated.
  Published PublishNegative(const ArtifactKey& action, const Negative& negative);

  /// If above the caps, trims to 80 % of them: first what was set aside, then entries, least
  /// recently used first, but none used in the last 10 minutes unless `force`. Does nothing if
  /// another process is trimming, or trimmed less than 60 s ago, unless `force`. Publish calls it
  /// if there is no room.
  ArtifactStore::GcReport Trim(bool force, bool dry_run);
  /// Removes temporary files that are older than 24 h or whose process is provably dead, remembered
  /// failures that are expired or beyond the newest 4,096, and quarantined files older than 7 days
  /// or beyond the newest 64. Publish and PublishNegative call it once an hour.
  ArtifactStore::GcReport Sweep(bool dry_run);

  /// Entries that this object removed to stay within the caps, by Trim or Publish.
  std::uint64_t evictions() const;

  /// Every entry file, in the order of keys; contents are not read.
  struct EntryFile {
    ArtifactKey action;
    std::string path;
    Filesystem::Stat stat;
  };
  std::vector<EntryFile> Entries() const;
  void ForEachNegative(
      const std::function<void(const ArtifactKey& action, const Negative& negative)>& visit);
  ArtifactStore::Totals GetTotals();

  /// Adds to a persistent counter (a shared mapping of the file `counters`, so the sum survives a
  /// kill -9 of this process). Counts in memory if that fails, or if the folder is read-only.
  /// `counter` < kCounters; others are ignored. Under 1 us.
  static constexpr std::size_t kCounters = 496;
  void Count(std::size_t counter, std::uint64_t amount);
  std::vector<std::uint64_t> Counters() const;  ///< kCounters of them

  /// A lock on an action key between processes; only an optimisation, never needed for correctness.
  /// Released by the destructor, or by the kernel when the process ends. Must not outlive its
  /// StoreDir. Holds nothing in the child of a fork.
  class KeyLock {
   public:
    KeyLock() = default;
    KeyLock(KeyLock&&) noexcept;
    KeyLock& operator=(KeyLock&&) noexcept;
    ~KeyLock();
    bool held() const { return dir_ != nullptr; }

   private:
    friend class StoreDir;
    void Release();
    StoreDir* dir_ = nullptr;
    int stripe_ = 0;
    std::uint64_t start_ = 0;
    std::uint64_t fork_generation_ = 0;
  };
  /// kBusy: held by another process, thread or StoreDir. kUnusable: locks do not work here, or
  /// nothing could be published, so waiting is pointless. Never blocks.
  enum class LockResult { kHeld, kBusy, kUnusable };
  LockResult TryLock(const ArtifactKey& action, KeyLock& lock);

 private:
  struct Impl;
  explicit StoreDir(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
