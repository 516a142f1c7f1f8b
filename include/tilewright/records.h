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

/// Whether the operands came from memory or from the caches while a candidate was timed. Part of
/// every record's identity: the same kernel differs by a factor between the two.
enum class MeasurePolicy : std::uint8_t {
  kCold,  ///< weights rotate over more than the last-level cache, as between two layers of a model
  kWarm,  ///< the same operands again and again
};
std::string_view MeasurePolicyName(MeasurePolicy policy);

/// What became of a candidate. Everything but kOk is a quarantine: never tried again while kernel
/// and fingerprint are the same.
enum class Verdict : std::uint8_t {
  kOk,
  kWrong,  ///< differs from the oracle, or left part of the output unwritten
  kGuard,  ///< wrote outside its output
  kError,  ///< Launch returned an error for a problem that IsFeasible had accepted
  kCrash,  ///< ended the process that tried it
  kHang,   ///< did not return in time
};
std::string_view VerdictName(Verdict verdict);

/// Under what a measurement holds. Records of another scope are neither used nor lost.
struct RecordScope {
  std::string device;     ///< DeviceSpec::ClassId()
  std::string libraries;  ///< versions of the vendor libraries that kernels call, "" when none
  MeasurePolicy policy = MeasurePolicy::kCold;

  bool operator==(const RecordScope&) const = default;
};

/// One candidate of one problem, as one tuning session saw it. Times in microseconds.
struct Record {
  std::string op;       ///< "gemm"
  std::string problem;  ///< KeyOf(desc), with pack_b the layout this kernel reads
  RecordScope scope;
  std::string kernel, fingerprint;
  std::string spec;  ///< launch parameters, "swizzle=0 splits=2"
  Verdict verdict = Verdict::kOk;
  std::string evidence;      ///< of a verdict other than kOk: what was seen
  std::int64_t samples = 0;  ///< behind the median; 0 when it was never timed
  double median_us = 0;
  double low_us = 0, high_us = 0;  ///< 95 % interval of the median
  double predicted_us = 0;         ///< what the model had said
  bool chosen = false;             ///< the session decided for it
  bool finished = true;  ///< false: the session ended without evidence for a decision (stopped, out
                         ///< of budget, too much noise); the next one goes on
  /// Which decision about this problem the session came to: one more than the greatest that it knew
  /// of. Orders decisions; sessions of one generation did not know of each other. 0 = of a version
  /// that did not count.
  std::int64_t generation = 0;
  std::string session;       ///< equal in all rows of one session, and in no others
  std::int64_t unix_ms = 0;  ///< when, for people: it decides nothing. 0 in Append: a new row
  std::string id;     ///< digest of the content; set by Append. The same record twice is one record
  std::string extra;  ///< fields of a later version, as a JSON object; kept, never read
};

/// Kernels that must not run a family of problems (those that differ in the batch dimension only),
/// with the evidence.
class Quarantine {
 public:
  void Add(std::string_view kernel, std::string_view fingerprint, std::string_view family,
           std::string evidence);
  /// nullptr when the kernel may run. An entry of another fingerprint does not count.
  const std::string* Find(const KernelInfo& kernel, std::string_view family) const;
  std::size_t size() const { return entries_.size(); }

 private:
  std::map<std::string, std::string, std::less<>> entries_;
};

/// The tuning database: every measured candidate, append-only, in one SQLite file that many
/// processes may use at once.
///
/// Open never fails: where the file cannot be used (unwritable folder, newer schema, foreign or
/// damaged content) the object works in memory and says so once in warnings(). A damaged file is
/// moved aside, never deleted; a file of a newer schema is not touched. Damage inside a file shows
/// when the damaged part is read, at the latest before the first write.
///
/// All members may be called from many threads. fork() waits for calls in progress and closes the
/// connection; parent and child open their own when they next need one. A child made by clone()
/// without the C library's fork handlers keeps to its memory.
class Records {
 public:
  struct Options {
    bool read_only = false;       ///< write nothing to disk; what is appended lives in memory
    int busy_timeout_ms = 10000;  ///< how long to wait for another process' transaction
    std::int64_t max_pages =
        0;  ///< of 4 KiB; 0 = unlimited. A file at its limit behaves as on a full disk
  };

  /// `path` "" keeps everything in memory. Creates the folder when it is missing.
  static Records Open(const std::string& path, const Options& options);
  static Records Open(const std::string& path) { return Open(path, Options{}); }
  /// <cache folder>/records.sqlite.
  static Result<std::string> DefaultPath();

  Records(Records&&) noexcept;
  Records& operator=(Records&&) noexcept;
  ~Records();

  /// Stores all or none of them in the file, in one transaction, on the disk when it returns. Rows
  /// whose `unix_ms` is 0 are new: they get the time, one session of their own, and where
  /// `generation` is 0 one more than the greatest of their problem and scope. On an error (full
  /// disk, lock held too long) the earlier content is intact and these records stay visible to this
  /// object only.
  Status Append(std::span<const Record> records);

  struct Filter {
    std::string op;       ///< "" = every operation
    std::string problem;  ///< "" = every problem
    std::string device;   ///< "" = every device class
  };
  /// Everything stored, and what this object holds in memory, ordered by id: one content, one
  /// order. Rows that fail their checksum are left out and counted.
  std::vector<Record> Load(const Filter& filter) const;
  std::vector<Record> Load() const { return Load(Filter{}); }

  /// Where the rows of one scope are, by groups of problems: a few of very many can then be read.
  /// Rows appended later are not in it. A value; holds no connection.
  class Index;
  /// Which group a problem of an operation belongs to. Called once for each row.
  using GroupOf = std::function<std::uint64_t(std::string_view op, std::string_view problem)>;
  /// One pass that reads no measurement and no checksum, below a microsecond a row. `op` "" = every
  /// operation.
  Index MakeIndex(std::string_view op, const RecordScope& scope, GroupOf group) const;
  /// The rows of one group with verdict kOk, as Load gives them: ordered by id, checksums verified.
  std::vector<Record> LoadGroup(const Index& index, std::uint64_t group) const;
  /// The rows of every other verdict, of any policy.
  std::vector<Record> LoadFailures(const Index& index) const;

  /// Writes / reads JSON Lines, docs/records.md; return the number of records. Import takes every
  /// record whose checksum holds, whatever device it is of, once.
  int Export(std::ostream& out) const;
  /// Export to a file, which afterwards is the whole new one, or on an error what it was. A
  /// symbolic link is followed; a device, a named pipe or /dev/stdout is written as it is. The
  /// error names the path and the system's reason.
  Result<int> ExportFile(const std::string& path) const;
  struct ImportResult {
    int added = 0, known = 0, corrupt = 0;
    std::string first_trouble;
  };
  Result<ImportResult> Import(std::istream& in);

  /// Removes records that `drop` lists by id; returns how many there were.
  Result<int> Remove(std::span<const std::string> drop);

  struct Stat {
    std::int64_t problems = 0, measurements = 0, quarantined = 0, corrupt = 0;
    bool persistent = false;  ///< what is appended reaches the disk
    std::string path;
  };
  Stat GetStat() const;

  /// What is appended reaches the disk.
  bool persistent() const;

  /// One line for each trouble since Open, each kind once.
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

/// All sessions' measurements of one candidate taken together, as a random-effects model of the
/// times' logarithms does (DerSimonian and Laird, Controlled Clinical Trials 7, 1986): sessions
/// differ among each other by more than the noise inside one (another clock, neighbour, memory
/// layout), so their medians are weighted by 1 / (own variance + variance between sessions). From
/// two sessions on the interval is the one in which the next session's median is expected (Higgins,
/// Thompson and Spiegelhalter, JRSS A 172, 2009): it does not shrink below what sessions differ by,
/// however many there are. A pure function of the set: the order does not matter.
struct CombinedRecord {
  std::string kernel, fingerprint, spec;
  int sessions = 0;  ///< behind the numbers
  std::int64_t samples = 0;
  double median_us = 0, low_us = 0, high_us = 0;
  bool finished = false;  ///< by a session that came to its end; unfinished ones count only where
                          ///< there is none such
};
/// `records` are of one problem and one scope; those with a verdict other than kOk are left out.
/// Sorted by kernel and spec.
std::vector<CombinedRecord> Combine(std::span<const Record> records);

/// What the records of one problem and scope decide for; nullopt when nothing in them was timed.
///
/// The candidate of the latest decision, by generation; of several of one generation (sessions that
/// did not know of each other) the one with the least median, equals by name. It stands unless
/// another session of its generation or a later one, finished, measured a candidate that is faster
/// beyond doubt: intervals apart and more than 1 %. Decisions of unfinished sessions count where
/// there is no other, and where there is none at all the least median wins. Wall-clock time takes
/// no part; the order of the records does not matter.
std::optional<CombinedRecord> Decide(std::span<const Record> records);

/// The generation of a session that knows `records`, which are of one problem and scope.
std::int64_t NextGeneration(std::span<const Record> records);

}  // namespace tilewright
