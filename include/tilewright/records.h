#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/kernel.h"
#include "tilewright/result.h"

namespace tilewright {

/// Whether operands came from memory or from the caches while a candidate was timed. Part of every
/// record's identity, since the times can differ several-fold between the two.
enum class MeasurePolicy : std::uint8_t {
  kCold,  ///< weights rotate through more than the last-level cache, as across a model's layers
  kWarm,  ///< weights stay in the last-level cache; on a CPU they rotate through more than what is in front of it
};
std::string_view MeasurePolicyName(MeasurePolicy policy);

/// The outcome for a candidate. Any verdict but kOk quarantines it: it is not tried again until the
/// kernel's fingerprint changes.
enum class Verdict : std::uint8_t {
  kOk,
  kWrong,  ///< differs from the oracle, or left part of the output unwritten
  kGuard,  ///< wrote outside its output
  kError,  ///< Launch returned an error for a problem that IsFeasible accepted
  kCrash,  ///< crashed the process that tried it
  kHang,   ///< did not return in time
};
std::string_view VerdictName(Verdict verdict);

/// The conditions under which a measurement is valid. Records of other scopes are kept but not
/// used.
struct RecordScope {
  std::string device;     ///< DeviceSpec::ClassId()
  std::string libraries;  ///< versions of the vendor libraries that kernels call; "" if none
  MeasurePolicy policy = MeasurePolicy::kCold;

  bool operator==(const RecordScope&) const = default;
};

/// One candidate for one problem, as measured in one tuning session. Times in microseconds.
struct Record {
  std::string op;       ///< "gemm"
  std::string problem;  ///< KeyOf(desc), where pack_b is the layout that this kernel reads
  RecordScope scope;
  std::string kernel, fingerprint;
  std::string spec;  ///< launch parameters, "swizzle=0 splits=2"
  Verdict verdict = Verdict::kOk;
  std::string evidence;      ///< for a verdict other than kOk: what was observed
  std::int64_t samples = 0;  ///< number of samples of the median; 0 if it was never timed
  double median_us = 0;
  double low_us = 0, high_us = 0;  ///< 95 % interval of the median
  double predicted_us = 0;         ///< the model's prediction
  bool chosen = false;             ///< the session chose this candidate
  /// False if the session ended without evidence for a decision (stopped, out of budget, too much
  /// noise); the next session continues it.
  bool finished = true;
  /// Number of the session's decision about this problem: one more than the greatest that it knew
  /// of. Orders decisions; sessions of the same generation did not know of each other. 0 = written
  /// by a version without generations.
  std::int64_t generation = 0;
  std::string session;       ///< the same in all rows of a session, and in no others
  std::int64_t unix_ms = 0;  ///< time of writing; informational only. 0 in Append: a new row
  std::string id;     ///< digest of the content, set by Append; equal records are stored once
  std::string extra;  ///< fields of a later version, as a JSON object; kept, never read
};

/// Kernels that must not run certain problems, with the evidence. `problems` is the key of the
/// problem with those fields at their defaults that do not matter: the batch, and for a product the
/// layout of the weights.
class Quarantine {
 public:
  void Add(std::string_view kernel, std::string_view fingerprint, std::string_view problems,
           std::string evidence);
  /// The evidence, or nullptr if the kernel may run. Entries of another fingerprint do not count.
  const std::string* Find(const KernelInfo& kernel, std::string_view problems) const;
  std::size_t size() const { return entries_.size(); }

 private:
  std::map<std::string, std::string, std::less<>> entries_;
};

/// The tuning database: every measured candidate, append-only, in one SQLite file that many
/// processes may use at once.
///
/// Open never fails: if the file cannot be used (unwritable folder, newer schema, foreign or
/// damaged content), the object works in memory and reports that once in warnings(). A damaged file
/// is moved aside, never deleted; a file of a newer schema is not touched. Damage inside a file is
/// detected when the damaged part is read, at the latest before the first write.
///
/// All members may be called from many threads. fork() waits for calls in progress and closes the
/// connection; parent and child open their own when they next need one. A child created by clone(),
/// which bypasses the C library's fork handlers, works in memory only.
class Records {
 public:
  struct Options {
    bool read_only = false;       ///< write nothing to disk; appended records stay in memory
    int busy_timeout_ms = 10000;  ///< how long to wait for another process's transaction
    /// Limit of the file in pages of 4 KiB; 0 = unlimited. At the limit, writes fail as on a full
    /// disk.
    std::int64_t max_pages = 0;
  };

  /// `path` "" keeps everything in memory. Creates the folder if it is missing.
  static Records Open(const std::string& path, const Options& options);
  static Records Open(const std::string& path) { return Open(path, Options{}); }
  /// <cache folder>/records.sqlite.
  static Result<std::string> DefaultPath();

  Records(Records&&) noexcept;
  Records& operator=(Records&&) noexcept;
  ~Records();

  /// Stores all of the records or none, in one transaction, which is on the disk when this returns.
  /// Rows whose `unix_ms` is 0 are new: they get the current time, a common new session, and where
  /// `generation` is 0, one more than the greatest of their problem and scope. On an error (full
  /// disk, lock held too long) the earlier content is intact, and these records are visible to this
  /// object only.
  Status Append(std::span<const Record> records);

  struct Filter {
    std::string op;       ///< "" = every operation
    std::string problem;  ///< "" = every problem
    std::string device;   ///< "" = every device class
  };
  /// Everything stored on disk or held in memory by this object, ordered by id, so that equal
  /// content has one order. Rows that fail their checksum are skipped and counted.
  std::vector<Record> Load(const Filter& filter) const;
  std::vector<Record> Load() const { return Load(Filter{}); }

  /// Locates the rows of one scope by groups of problems, so that a few out of very many can be
  /// read. Rows appended later are not in it. A value; holds no connection.
  class Index;
  /// Which group a problem of an operation belongs to. Called once per row.
  using GroupOf = std::function<std::uint64_t(std::string_view op, std::string_view problem)>;
  /// One pass that reads no measurement and no checksum; takes less than a microsecond per row.
  /// `op` "" = every operation.
  Index MakeIndex(std::string_view op, const RecordScope& scope, GroupOf group) const;
  /// The rows of one group with verdict kOk, as Load returns them: ordered by id, checksums
  /// verified. With `problem`, only the rows of that one.
  std::vector<Record> LoadGroup(const Index& index, std::uint64_t group,
                                std::string_view problem = {}) const;
  /// The rows with any other verdict, whatever their policy.
  std::vector<Record> LoadFailures(const Index& index) const;

  /// Writes JSON Lines (docs/records.md); returns the number of records.
  int Export(std::ostream& out) const;
  /// Export to a file, atomically: on an error the file is what it was. A symbolic link is
  /// followed; a device, a named pipe or /dev/stdout is written directly. The error names the path
  /// and the system's reason.
  Result<int> ExportFile(const std::string& path) const;
  struct ImportResult {
    int added = 0, known = 0, corrupt = 0;
    std::string first_trouble;
  };
  /// Reads JSON Lines. Adds every record whose checksum is valid, of whatever device, unless it is
  /// known already.
  Result<ImportResult> Import(std::istream& in);

  /// Removes the records whose ids are in `drop`; returns how many were removed.
  Result<int> Remove(std::span<const std::string> drop);

  struct Stat {
    std::int64_t problems = 0, measurements = 0, quarantined = 0, corrupt = 0;
    bool persistent = false;  ///< see persistent()
    std::string path;
  };
  Stat GetStat() const;

  /// Whether appended records reach the disk.
  bool persistent() const;

  /// One line per kind of trouble since Open.
  std::vector<std::string> warnings() const;

 private:
  struct Impl;
  explicit Records(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Records::Index {
 public:
  Index();
  Index(Index&&) noexcept;
  Index& operator=(Index&&) noexcept;
  ~Index();
  /// Whether there was a row of this operation, of whatever verdict and policy.
  bool Has(std::string_view op) const;

 private:
  friend class Records;
  struct Rows;
  std::unique_ptr<Rows> rows_;
};

/// The measurements of one candidate, combined over all sessions by a random-effects model of the
/// logarithms of the times (DerSimonian and Laird, Controlled Clinical Trials 7, 1986). Sessions
/// differ from each other by more than the noise within one (clock, neighbours, memory layout), so
/// their medians are weighted by 1 / (own variance + variance between sessions). From two sessions
/// on, the interval is the one in which the next session's median is expected (Higgins, Thompson
/// and
/// Spiegelhalter, JRSS A 172, 2009): it does not shrink below the spread between sessions, however
/// many there are.
struct CombinedRecord {
  std::string kernel, fingerprint, spec;
  int sessions = 0;  ///< number of sessions combined
  std::int64_t samples = 0;
  double median_us = 0, low_us = 0, high_us = 0;
  /// From sessions that finished; unfinished ones are used only if there is no finished one.
  bool finished = false;
};
/// Combines records of one problem and scope; those with a verdict other than kOk are skipped.
/// Sorted by kernel and spec. Pure; the order of `records` does not matter.
std::vector<CombinedRecord> Combine(std::span<const Record> records);

/// The candidate that the records of one problem and scope decide for; nullopt for none.
///
/// It is the candidate of the latest decision, by generation; among several of one generation
/// (sessions that did not know of each other), the one with the lowest median, ties broken by name.
/// That decision holds unless another finished session of the same or a later generation measured a
/// candidate that is clearly faster: the intervals do not overlap and the gain exceeds 1 %.
/// Decisions of unfinished sessions count only if there is no other; without any decision, the
/// lowest median of finished sessions wins. Neither wall-clock time nor the order of the records matters.
std::optional<CombinedRecord> Decide(std::span<const Record> records);

/// The generation of a new session that knows `records`, which are of one problem and scope.
std::int64_t NextGeneration(std::span<const Record> records);

}  // namespace tilewright
