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
  std::string host;  ///< short digest of the machine id and host name: hexadecimal digits
  /// Short digest of the boot id and the pid namespace: hexadecimal digits. kUnknown where the
  /// system does not tell: then no process is known to be gone.
  std::string boot;
  std::int64_t pid = 0;
  static constexpr std::string_view kUnknown = "000000000000";
  static ProcessIdentity Current();
};

/// The bytes of a file that was read, in memory of their own: a mapping would fault when somebody
/// truncates the file, and change after it was checked. The view outlives moves. Movable.
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
/// files, not compilers. Safe for any number of threads and processes, also of several hosts; every
/// file is whole or absent whenever a process is killed. A full, read-only or forbidden file system
/// makes the folder read only for the rest of the process (state(), reason()); a passing trouble
/// (no descriptor left, an interrupted disk) costs only the call that met it. Keeps working in the
/// child of a fork, where the locks of the parent are not held.
class StoreDir {
 public:
  enum class Access { kReadWrite, kReadOnly };
  /// Whose files are believed.
  enum class Trusted {
    kUser,  ///< this user's, which nobody else may write; another folder is refused
    /// Those of whoever may write the folder: its owner and its group, but never everybody. It must
    /// be there. Entries and locks are added, with the modes of the folder; nothing is ever moved
    /// or removed, for the path might lead elsewhere by then; no totals, no caps, no refusals.
    kGroup,
    /// Those of the owner of the folder, whoever this is (a site's, read only), and of root; what
    /// others may write, or its group unless `by_group`, is not believed, nor is a folder that
    /// somebody else could replace (trusted_path.h).
    kOwner
  };
  struct Options {
    Access access = Access::kReadWrite;
    Trusted trusted = Trusted::kUser;
    bool by_group = false;  ///< kOwner: although its group may write it
    bool durable = false;   ///< fsync before publishing (shared folders)
    /// 0: no cap. Never exceeded by processes of one host that count in the same folder: what finds
    /// no room, because everything was used in the last ten minutes, is not stored.
    std::uint64_t max_bytes = 0, max_entries = 0;
    std::int64_t negative_ttl_s = 24 * 3600;
    Filesystem* files = nullptr;  ///< null: SystemFilesystem()
    ProcessIdentity process;      ///< default (an empty host): Current()
  };

  /// Creates what is missing (kReadWrite). Always returns an object: state() says what it can do.
  /// Does not look at entries: about 0.3 ms for a store of any size.
  static std::unique_ptr<StoreDir> Open(const std::string& root, Options options);
  ~StoreDir();

  enum class State { kReadWrite, kReadOnly, kRefused };
  State state() const;
  /// Why not kReadWrite: "/x: owner is uid 1000, not 0"; "" where it is, or where kReadOnly was
  /// asked for and the folder is there.
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
    std::string detail;                     ///< "" where the file does not exist
    bool quarantined = false;
  };
  Lookup Find(const ArtifactKey& action);
  /// The same without a trace: nothing is stamped, nothing is moved to quarantine.
  Lookup Look(const ArtifactKey& action);
  /// The file of an entry, whether or not it is there.
  std::string EntryPath(const ArtifactKey& action) const;
  std::string NegativePath(const ArtifactKey& action) const;

  enum class Published { kNew, kLost, kNot };
  /// Puts the bytes of an entry in place atomically. kLost: another process was first, and its
  /// entry is sound (a damaged one is quarantined and replaced). kNot: the folder is not writable,
  /// there is no room under the caps, or the bytes are no entry of this key; `why` says.
  Published Publish(const ArtifactKey& action, std::string_view bytes, std::string* why = nullptr);
  /// Removes an entry, for refresh mode before Publish; Ok where there is none. kIo, kUnavailable
  /// where the folder is not writable.
  Status Remove(const ArtifactKey& action);

  /// A remembered refusal of the compiler.
  struct Negative {
    std::string log;
    std::int64_t unix_s = 0;
    std::string action_record, request_record;
  };
  /// Nothing where it is older than negative_ttl_s, or from the future.
  std::optional<Negative> FindNegative(const ArtifactKey& action);
  /// Replaces an older one. A log above 64 KiB is cut.
  Published PublishNegative(const ArtifactKey& action, const Negative& negative);

  /// Trims to 80 % of the caps when above them, least recently used first, never an entry used in
  /// the last 10 minutes unless `force`; before any entry, what was set aside goes. Skipped where
  /// another process trims, or one did less than 60 s ago, unless `force`. Publish calls it where
  /// there is no room.
  ArtifactStore::GcReport Trim(bool force, bool dry_run);
  /// Removes temporary files of processes that are provably dead or older than 24 h, refusals that
  /// are expired or beyond the newest 4,096, and quarantined files older than 7 days or beyond the
  /// newest 64. Publish and PublishNegative call it once an hour.
  ArtifactStore::GcReport Sweep(bool dry_run);

  /// Entries that this object removed to stay within the caps, by Trim or Publish.
  std::uint64_t evictions() const;

  /// Every entry file, in the order of keys; its content is not looked at.
  struct EntryFile {
    ArtifactKey action;
    std::string path;
    Filesystem::Stat stat;
  };
  std::vector<EntryFile> Entries() const;
  void ForEachNegative(
      const std::function<void(const ArtifactKey& action, const Negative& negative)>& visit);
  ArtifactStore::Totals GetTotals();

  /// Adds to a persistent counter (a shared mapping of the file `counters`: what was added survives
  /// a kill -9 of this process). In memory where that fails, and where the folder is read only.
  /// `counter` < kCounters; others are ignored. Under 1 us.
  static constexpr std::size_t kCounters = 496;
  void Count(std::size_t counter, std::uint64_t amount);
  std::vector<std::uint64_t> Counters() const;  ///< kCounters of them

  /// A lock on an action key among processes; only ever an optimisation. Released by the
  /// destructor, or by the kernel when the process ends. Must not outlive its StoreDir. In the
  /// child of a fork it holds nothing.
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
  /// nothing could be published: nobody should wait. Never blocks.
  enum class LockResult { kHeld, kBusy, kUnusable };
  LockResult TryLock(const ArtifactKey& action, KeyLock& lock);

 private:
  struct Impl;
  explicit StoreDir(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
