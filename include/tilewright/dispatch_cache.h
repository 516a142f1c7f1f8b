#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "tilewright/records.h"
#include "tilewright/stages.h"

namespace tilewright {

/// What the last Import did, entry by entry.
struct ImportReport {
  int resolved = 0;  ///< entries that name a live kernel and now stand, stood already, or are as
                     ///< good as what stands
  int unknown_kernel = 0;  ///< kept aside: neither served nor counted, exported again
  int stale = 0;    ///< kernel is live but changed (fingerprint), or refuses the problem or the
                    ///< launch parameters now: kept aside too
  int foreign = 0;  ///< of another operation, measured on another device class or under another
                    ///< policy, or written by a later version: kept aside too
  int corrupt = 0;  ///< lines that do not parse or fail their checksum: skipped
  int worse = 0;  ///< slower than what stood already or came in the same import, or never measured
                  ///< where that was
  std::vector<std::string>
      messages;  ///< one line for each kind of trouble, with the first line number
};

/// The winners of one operation: problem -> launch spec, sorted by batch within each family of
/// problems that differ only in the batch dimension.
///
/// LowerBound returns the smallest tuned batch >= the requested one, as the source of TurboMind's
/// cache does (its page says "less than or equal", which is FloorBound here). Every hit whose batch
/// differs is re-checked for feasibility at the exact shape. Only measurements belong in it; no
/// policy inserts a guess.
///
/// Find, LowerBound and FloorBound allocate nothing and lock nothing (a bounded hit that turns out
/// infeasible costs the words of its rejection); they may run from any number of threads as long as
/// none calls Insert or Import. A lookup is one hash of the problem, one probe and a binary search
/// over the batch sizes.
template <class Op>
class DispatchCacheOf final : public TunedSpecs<Op> {
 public:
  using Desc = typename Op::Desc;
  using Spec = typename Op::Spec;
  using KernelType = typename Op::KernelType;
  using typename TunedSpecs<Op>::Hit;

  /// `device` is the class the times belong to (DeviceSpec::ClassId()); entries of another class
  /// are not served. Empty: not stated, matches only files exported without one. `policy` is what
  /// they were measured under; entries of the other are not served.
  explicit DispatchCacheOf(std::vector<KernelType*> kernels, std::string device = {},
                           MeasurePolicy policy = MeasurePolicy::kCold);
  ~DispatchCacheOf() override;
  DispatchCacheOf(DispatchCacheOf&&) noexcept;
  DispatchCacheOf& operator=(DispatchCacheOf&&) noexcept;

  std::optional<Spec> Find(const Desc& desc) const override;  ///< exact
  std::optional<Spec> LowerBound(
      const Desc& desc) const;  ///< smallest tuned batch >= the requested one
  std::optional<Spec> FloorBound(
      const Desc& desc) const;  ///< largest tuned batch <= the requested one

  /// As LowerBound and FloorBound, and tells the batch size that was measured.
  std::optional<Hit> LowerBoundHit(const Desc& desc) const override;
  std::optional<Hit> FloorBoundHit(const Desc& desc) const override;

  /// False where an entry with better evidence (a measured, faster one) stands, where the kernel is
  /// not one of this cache's, and for whatever Import would refuse: a problem that Validate or the
  /// kernel refuses, launch parameters that the kernel's text (SpecText) does not carry, a measured
  /// time that is negative or not finite. An invalid predicted time counts as none. A spec without
  /// a measured time replaces nothing; where nothing stands it is taken as the caller's own
  /// decision (provenance pinned, never measured).
  bool Insert(const Desc& desc, const Spec& spec);

  /// Takes an entry out, whatever its evidence; false when there is none.
  bool Erase(const Desc& desc);

  /// JSON Lines, docs/dispatch_cache.md; returns the live entries written (those kept aside are
  /// written too, and not counted), or -1 when the stream failed. The same content gives the same
  /// bytes.
  int Export(std::ostream& out) const;
  /// Takes of each problem the least measured time; equal times, and entries never measured, fall
  /// to the first kernel name, then the first launch parameters as numbers: the order of lines and
  /// files does not matter. Returns the entries resolved to a live kernel; last_import() details
  /// the rest. Never throws on any input.
  int Import(std::istream& in);
  const ImportReport& last_import() const;

  /// A cache over `records` of `scope` that reads what concerns a family of problems when it is
  /// first asked for one of them: one pass over the file here, below a microsecond a row, and then
  /// only what is needed, each row checked. The entries are those that BuildCache makes of all
  /// records; of what was appended later it knows nothing. `records` and `registry` must outlive
  /// it.
  ///
  /// Find and the bounds take a lock, and the first of a family reads a file. size, ForEach, Export
  /// and Erase are about what was read so far.
  static DispatchCacheOf Over(const Records& records, const OpRegistry<Op>& registry,
                              const RecordScope& scope);
  /// The same with an index of `records` that several caches share, made with GroupOf for the
  /// problems of this operation; `failures` are LoadFailures of it.
  static DispatchCacheOf Over(const Records& records, std::shared_ptr<const Records::Index> index,
                              std::span<const Record> failures, const OpRegistry<Op>& registry,
                              const RecordScope& scope);
  /// The same number for problems (KeyOf) of one family, and hardly ever for others; of this
  /// process, written to no file.
  static std::uint64_t GroupOf(std::string_view problem);

  /// The kernels that failed, by `Over`'s records; empty for other caches.
  const Quarantine& quarantine() const;
  /// The records behind the entries of a problem's family; empty for other caches.
  std::vector<Record> RecordsOf(const Desc& desc) const;
  /// The same for every layout that the candidates read.
  std::vector<Record> RecordsOf(const Candidates<Op>& candidates) const;

  /// Entries served.
  std::size_t size() const;
  /// Calls `visit` for every entry served, ordered by family, then batch.
  void ForEach(const std::function<void(const Desc&, const Spec&)>& visit) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// How many records decide here, and why others do not.
struct BuildReport {
  int problems = 0;      ///< entries made
  int measurements = 0;  ///< records used
  int stale = 0;         ///< of a kernel whose fingerprint changed
  int foreign = 0;       ///< of another device class, library version or policy
  int unknown_kernel = 0;
  int unreadable = 0;  ///< problem or spec that this version does not understand
  int quarantined = 0;

  BuildReport& operator+=(const BuildReport& other);
};

/// The winners of all records of this scope whose kernel is live, unchanged and not quarantined:
/// the session that decided last stands unless another candidate is faster beyond doubt (intervals
/// apart, and more than 1 %). Pure: the same set of records gives the same cache. Records of other
/// operations do not count. `registry` must outlive it.
template <class Op>
DispatchCacheOf<Op> BuildCache(std::span<const Record> records, const OpRegistry<Op>& registry,
                               const RecordScope& scope, BuildReport* report = nullptr);

/// Adds the kernels that failed here before to `quarantine`. Device and libraries must agree; the
/// policy does not matter.
template <class Op>
void AddToQuarantine(Quarantine& quarantine, std::span<const Record> records,
                     const RecordScope& scope);

}  // namespace tilewright
