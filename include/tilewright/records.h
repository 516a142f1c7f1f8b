#pragma once

#include <cstdint>
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
  std::int64_t unix_ms = 0;        ///< when; set by Append where 0
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
/// moved aside, never deleted; a file of a newer schema is not touched. All members may be called
/// from many threads; after a fork each process opens the file anew by itself.
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

  /// Stores all or none of them in the file, in one transaction, and fills in `unix_ms` and `id`
  /// where empty. On an error (full disk, lock held too long) the earlier content is intact and
  /// these records stay visible to this object only.
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

  /// One line for each trouble since Open, each kind once.
  std::vector<std::string> warnings() const;

 private:
  struct Impl;
  explicit Records(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// All sessions' measurements of one candidate taken together: medians averaged in the logarithm,
/// weighted by samples. A pure function of the set: the order does not matter.
struct CombinedRecord {
  std::string kernel, fingerprint, spec;
  std::int64_t samples = 0;
  double median_us = 0, low_us = 0, high_us = 0;
  std::int64_t chosen_unix_ms = 0;  ///< of the last session that decided for it; 0 = none
  std::string chosen_id;            ///< breaks ties between sessions of one millisecond
  std::int64_t last_unix_ms = 0;    ///< of the last session that measured it
};
/// `records` are of one problem and one scope; those with a verdict other than kOk are left out.
/// Sorted by kernel and spec.
std::vector<CombinedRecord> Combine(std::span<const Record> records);

}  // namespace tilewright
