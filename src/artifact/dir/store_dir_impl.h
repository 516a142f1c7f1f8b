#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/dir/counters_file.h"
#include "artifact/dir/dir_files.h"
#include "artifact/dir/dir_layout.h"
#include "artifact/dir/key_locks.h"
#include "artifact/dir/store_dir.h"
#include "artifact/dir/total.h"
#include "artifact/entry_format.h"

namespace tilewright {

inline constexpr std::int64_t kStampSeconds = 3600;       ///< how exact recency is
inline constexpr std::int64_t kYoungSeconds = 600;        ///< not evicted when used since
inline constexpr std::int64_t kTrimSeconds = 60;          ///< between two looks at all entries
inline constexpr std::int64_t kSweepSeconds = 3600;       ///< between two sweeps by Publish
inline constexpr std::int64_t kTemporarySeconds = 86400;  ///< then nobody writes it any more
inline constexpr std::int64_t kQuarantineSeconds = 7 * 86400;
inline constexpr std::size_t kQuarantineFiles = 64;
inline constexpr std::size_t kNegativeFiles = 4096;

struct StoreDir::Impl {
  Impl(const std::string& root, Options wanted);

  // --- opening, state (store_dir_open.cc)
  void Open();
  /// Looks at the root and makes it where it may; false where it cannot be used.
  bool OpenRoot();
  bool CheckParent();
  /// Makes the folders that are missing, the root included. 0, or the error; -EPERM after Refuse.
  int EnsureTree();
  /// One folder of ours: there, a folder, trusted; made where `create`.
  int EnsureFolder(const std::string& path, bool create);
  int MakeDirs(const std::string& path);
  /// Gives a folder that was just made the modes of a group's, which the umask may have withheld.
  void OpenToGroup(const std::string& path) const;
  /// Whether the shards are what we made. Refuses the store where one is not.
  void CheckShards(const std::string& folder);
  bool CheckFormat();
  int WriteSmallFile(const std::string& path, std::string_view text);
  bool writable() const { return state.load() == State::kReadWrite; }
  /// Whether files may be moved and removed: only where nobody else may put a link in their path.
  bool mends() const { return writable() && options.trusted == Trusted::kUser; }
  bool for_group() const { return options.trusted == Trusted::kGroup; }
  void Refuse(const std::string& why) { Leave(State::kRefused, why); }
  /// Read only from now on, if the error is a lasting one. The text of it.
  std::string Failed(std::string_view step, const std::string& path, int error);
  void Leave(State next, const std::string& why);
  std::string Reason() const;
  std::int64_t Now() const { return files.NowUnixSeconds(); }
  ProcessIdentity Process() const;

  // --- entries (store_dir.cc)
  struct Judged {
    enum class Verdict { kSound, kAbsent, kDamaged, kNewer, kFailed };
    Verdict verdict = Verdict::kAbsent;
    FileReader reader;
    ArtifactData data;
    std::string detail;
  };
  Judged Judge(const ArtifactKey& action, const std::string& path);
  /// `use`: stamps a sound entry and moves a damaged one away.
  Lookup Find(const ArtifactKey& action, bool use);
  void Stamp(const FileReader& reader);
  Published Publish(const ArtifactKey& action, std::string_view bytes, std::string& why);
  Published Place(const ArtifactKey& action, std::string_view bytes, std::string& why);
  /// The temporary file with these bytes; makes the folders where they are gone. 0 or an error, of
  /// which `why` tells.
  int WriteTemporary(TemporaryFile& temporary, std::string_view bytes, std::int64_t stamp_s,
                     std::string& why);
  Published PublishNegative(const ArtifactKey& action, const Negative& negative);
  std::optional<Negative> ReadNegative(const ArtifactKey& action, const std::string& path);
  void SyncFolder(const std::string& path);

  // --- set aside (quarantine.cc)
  /// Moves what `stat` was read of away; false where something else is there by now. What was
  /// counted before is counted after.
  bool Quarantine(const std::string& path, const Filesystem::Stat& stat, bool make_folder = true);
  /// The same of a file that was not counted, a refusal: from now on it is.
  void QuarantineUncounted(const std::string& path, const Filesystem::Stat& stat);
  std::uint64_t SweepQuarantine(bool dry_run);
  /// What was set aside, oldest first.
  struct SetAside {
    std::int64_t since_s = 0;
    std::string path;
    Filesystem::Stat stat;
    bool expired = false;  ///< too old, or beyond the newest kQuarantineFiles
  };
  std::vector<SetAside> ListQuarantine() const;
  bool RemoveSetAside(const SetAside& file);
  /// Removes what was not counted; a folder that was put in the place of a file only when empty.
  bool Discard(const std::string& path, const Filesystem::Stat& stat);
  /// Removes what was set aside, oldest first, until there is room for so much more.
  void DropQuarantined(std::int64_t entries, std::int64_t bytes);

  // --- caps (maintenance.cc)
  bool capped() const { return options.max_bytes != 0 || options.max_entries != 0; }
  /// The totals may be larger than what is there, never smaller, whoever dies or counts meanwhile:
  /// what comes is added before, and taken off again where it did not come.
  void AddTotals(std::int64_t entries, std::int64_t bytes);
  /// What goes is taken off after, if the totals were not counted anew since before.
  struct Totals {
    std::uint64_t entries = 0, bytes = 0;  ///< words (total.h)
  };
  Totals TotalsBefore() const {
    return {counters.Get(CountersFile::kEntries), counters.Get(CountersFile::kEntryBytes)};
  }
  void TakeOff(const Totals& before, std::uint64_t bytes);
  /// Has the totals counted anew before the next entry is stored: what they say may be too large
  /// by now, and nobody knows by how much.
  void DoubtTotals();
  /// Whether `path` is the file that was to be renamed there, whatever the rename answered: replies
  /// get lost on network file systems. kUnknown where the system does not tell.
  enum class Placed { kYes, kNo, kUnknown };
  Placed WasPlaced(const TemporaryFile& temporary, const std::string& path);
  /// Unlinks a file that was counted. 0 or the error.
  int RemoveCounted(const std::string& path, std::uint64_t bytes);
  /// Whether the totals were counted, and are such as counting gives.
  bool TotalsKnown() const;
  /// Whether the totals, with so much more, stay within the caps.
  bool Fits(std::int64_t more_entries, std::int64_t more_bytes) const;
  /// Trims where there is no room for a file of that size; whether there is.
  bool MakeRoom(std::uint64_t bytes, std::string& why);
  struct TrimRequest {
    std::int64_t entries = 0, bytes = 0;  ///< room wanted
    bool force = false, dry_run = false;
  };
  ArtifactStore::GcReport Trim(const TrimRequest& request);
  ArtifactStore::GcReport TrimLocked(const TrimRequest& request);
  /// Looks at every entry and, where nobody changed the totals meanwhile, sets them right.
  struct Counted {
    std::string path;
    Filesystem::Stat stat;
    std::int64_t stamp_s = 0;  ///< last use, never in the future
  };
  std::vector<Counted> Survey();
  void Restamp(const Counted& entry, std::int64_t now);
  bool Evict(const Counted& entry);
  bool OldFile(const Filesystem::Stat& stat, std::int64_t seconds, std::int64_t now) const;
  std::uint64_t SweepTemporaries(bool dry_run);
  std::uint64_t SweepNegatives(bool dry_run);
  ArtifactStore::GcReport Sweep(bool dry_run);
  void SweepIfDue();
  /// Every file of our naming below `folder`, in the order of keys.
  using Visit = std::function<void(const ArtifactKey& key, const std::string& path)>;
  void Walk(const std::string& folder, std::string_view suffix, const Visit& visit) const;

  const Options options;
  Filesystem& files;
  const DirLayout layout;
  Trust trust;                // const after OpenRoot
  bool root_checked = false;  // likewise: the root was there, and is trusted
  mode_t file_mode = 0600, folder_mode = 0700;
  std::uint32_t group = 0;  // of the root
  std::atomic<State> state{State::kReadWrite};
  std::atomic<std::uint64_t> evictions{0};
  std::string reason;  // guarded by locks.mutex()
  KeyLocks locks;
  CountersFile counters;
};

}  // namespace tilewright
