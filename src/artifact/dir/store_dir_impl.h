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

inline constexpr std::int64_t kStampSeconds = 3600;       ///< resolution of recency stamps
inline constexpr std::int64_t kYoungSeconds = 600;        ///< not evicted if used within this time
inline constexpr std::int64_t kTrimSeconds = 60;          ///< minimum time between two trims
inline constexpr std::int64_t kSweepSeconds = 3600;       ///< between two sweeps by Publish
inline constexpr std::int64_t kTemporarySeconds = 86400;  ///< age of an abandoned temporary file
inline constexpr std::int64_t kQuarantineSeconds = 7 * 86400;
inline constexpr std::size_t kQuarantineFiles = 64;
inline constexpr std::size_t kNegativeFiles = 4096;

struct StoreDir::Impl {
  Impl(const std::string& root, Options wanted);

  // --- opening, state (store_dir_open.cc)
  void Open();
  /// Checks the root and creates it if allowed; false if it cannot be used.
  bool OpenRoot();
  bool CheckParent();
  /// Creates missing folders, including the root. 0, or the error; -EPERM after Refuse.
  int EnsureTree();
  /// Checks that one of our folders exists, is a folder and is trusted; creates it if `create`.
  int EnsureFolder(const std::string& path, bool create);
  int MakeDirs(const std::string& path);
  /// Gives a new folder the mode of a group's folder, which the umask may have restricted.
  void OpenToGroup(const std::string& path) const;
  /// Refuses the store if one of the shards is not a folder that this library created.
  void CheckShards(const std::string& folder);
  bool CheckFormat();
  int WriteSmallFile(const std::string& path, std::string_view text);
  bool writable() const { return state.load() == State::kReadWrite; }
  /// Whether files may be moved and removed: only if nobody else can put a link into their path.
  bool mends() const { return writable() && options.trusted == Trusted::kUser; }
  bool for_group() const { return options.trusted == Trusted::kGroup; }
  void Refuse(const std::string& why) { Leave(State::kRefused, why); }
  /// The text of the error. If it is a lasting one, makes the store read-only from now on.
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
  /// `use`: stamps an intact entry and moves a damaged one away.
  Lookup Find(const ArtifactKey& action, bool use);
  void Stamp(const FileReader& reader);
  Published Publish(const ArtifactKey& action, std::string_view bytes, std::string& why);
  Published Place(const ArtifactKey& action, std::string_view bytes, std::string& why);
  /// Writes the temporary file with these bytes; creates missing folders. 0, or an error that `why`
  /// describes.
  int WriteTemporary(TemporaryFile& temporary, std::string_view bytes, std::int64_t stamp_s,
                     std::string& why);
  Published PublishNegative(const ArtifactKey& action, const Negative& negative);
  std::optional<Negative> ReadNegative(const ArtifactKey& action, const std::string& path);
  void SyncFolder(const std::string& path);

  // --- set aside (quarantine.cc)
  /// Moves the file that `stat` describes to quarantine; false if another file is there now. The
  /// totals do not change.
  bool Quarantine(const std::string& path, const Filesystem::Stat& stat, bool make_folder = true);
  /// The same for a file that was not counted (a remembered failure); from now on it is.
  void QuarantineUncounted(const std::string& path, const Filesystem::Stat& stat);
  std::uint64_t SweepQuarantine(bool dry_run);
  /// A file that was set aside.
  struct SetAside {
    std::int64_t since_s = 0;
    std::string path;
    Filesystem::Stat stat;
    bool expired = false;  ///< too old, or beyond the newest kQuarantineFiles
  };
  std::vector<SetAside> ListQuarantine() const;
  bool RemoveSetAside(const SetAside& file);
  /// Removes an uncounted file; a folder in its place is removed only if empty.
  bool Discard(const std::string& path, const Filesystem::Stat& stat);
  /// Removes files that were set aside, oldest first, until there is room for this much more.
  void DropQuarantined(std::int64_t entries, std::int64_t bytes);

  // --- caps (maintenance.cc)
  bool capped() const { return options.max_bytes != 0 || options.max_entries != 0; }
  /// The totals may be larger than the real ones, never smaller, even if processes die or count
  /// meanwhile: a file is added before it is stored, and subtracted again if that fails.
  void AddTotals(std::int64_t entries, std::int64_t bytes);
  /// A file is subtracted after its removal, unless the totals were recounted in between.
  struct Totals {
    std::uint64_t entries = 0, bytes = 0;  ///< words (total.h)
  };
  Totals TotalsBefore() const {
    return {counters.Get(CountersFile::kEntries), counters.Get(CountersFile::kEntryBytes)};
  }
  void TakeOff(const Totals& before, std::uint64_t bytes);
  /// Makes the totals be recounted before the next entry is stored, because they may be too large
  /// by an unknown amount.
  void DoubtTotals();
  /// Whether `path` is the file that was to be renamed there, whatever the rename returned: replies
  /// get lost on network file systems. kUnknown if the system does not say.
  enum class Placed { kYes, kNo, kUnknown };
  Placed WasPlaced(const TemporaryFile& temporary, const std::string& path);
  /// Unlinks a file that was counted. 0 or the error.
  int RemoveCounted(const std::string& path, std::uint64_t bytes);
  /// Whether the totals were counted and are plausible.
  bool TotalsKnown() const;
  /// Counts until nobody else's change comes in between; false if they change all the time.
  bool AwaitTotals();
  /// Whether the totals with this much more stay within the caps.
  bool Fits(std::int64_t more_entries, std::int64_t more_bytes) const;
  /// Trims if there is no room for a file of that size; returns whether there is room now.
  bool MakeRoom(std::uint64_t bytes, std::string& why);
  struct TrimRequest {
    std::int64_t entries = 0, bytes = 0;  ///< room wanted
    bool force = false, dry_run = false;
  };
  ArtifactStore::GcReport Trim(const TrimRequest& request);
  ArtifactStore::GcReport TrimLocked(const TrimRequest& request);
  /// Counts every entry and, if nobody changed the totals meanwhile, corrects them.
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
  /// Visits every file with a name of ours below `folder`, in the order of keys.
  using Visit = std::function<void(const ArtifactKey& key, const std::string& path)>;
  void Walk(const std::string& folder, std::string_view suffix, const Visit& visit) const;

  const Options options;
  Filesystem& files;
  const DirLayout layout;
  Trust trust;                // const after OpenRoot
  bool root_checked = false;  // likewise: the root existed and is trusted
  mode_t file_mode = 0600, folder_mode = 0700;
  std::uint32_t group = 0;  // of the root
  std::atomic<State> state{State::kReadWrite};
  std::atomic<std::uint64_t> evictions{0};
  std::string reason;  // guarded by locks.mutex()
  KeyLocks locks;
  CountersFile counters;
};

}  // namespace tilewright
