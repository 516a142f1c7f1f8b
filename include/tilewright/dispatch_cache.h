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
  /// Entries of a live kernel that are in the cache now, were there already, or are as good as the
  /// one that is.
  int resolved = 0;
  int unknown_kernel = 0;  ///< kept aside: neither served nor counted, but exported again
  /// The kernel is live but has changed (fingerprint), or now rejects the problem or the launch
  /// parameters: kept aside too.
  int stale = 0;
  /// Of another operation, measured on another device class or under another policy, or written by
  /// a later version: kept aside too.
  int foreign = 0;
  int corrupt = 0;  ///< lines that do not parse or fail their checksum: skipped
  /// Slower than an entry that was there already or came in the same import, or never measured
  /// while that one was.
  int worse = 0;
  /// One line for each kind of trouble, with the number of the first such line.
  std::vector<std::string> messages;
};

/// The winners of one operation: problem -> launch spec. Problems that differ only in the batch
/// dimension form a group; within a group, entries are sorted by batch.
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
  /// are not served. Empty: not stated, matches only files exported without one. `policy` is the
  /// one they were measured under; entries of the other policy are not served.
  explicit DispatchCacheOf(std::vector<KernelType*> kernels, std::string device = {},
                           MeasurePolicy policy = MeasurePolicy::kCold);
  ~DispatchCacheOf() override;
  DispatchCacheOf(DispatchCacheOf&&) noexcept;
  DispatchCacheOf& operator=(DispatchCacheOf&&) noexcept;

  std::optional<Spec> Find(const Desc& desc) const override;  ///< exact
  /// The smallest tuned batch >= the requested one.
  std::optional<Spec> LowerBound(const Desc& desc) const;
  /// The largest tuned batch <= the requested one.
  std::optional<Spec> FloorBound(const Desc& desc) const;

  /// As LowerBound and FloorBound, with the batch size that was measured.
  std::optional<Hit> LowerBoundHit(const Desc& desc) const override;
  std::optional<Hit> FloorBoundHit(const Desc& desc) const override;

  /// Returns false if there is an entry with better evidence (a measured, faster one), if the
  /// kernel does not belong to this cache, and for whatever Import would reject: a problem that
  /// Validate or the kernel rejects, launch parameters that the kernel's text (SpecText) cannot
  /// express, or a measured time that is negative or not finite. An invalid predicted time counts
  /// as none. A spec without a measured time replaces nothing; if there is no entry, it is taken as
  /// the caller's own decision (provenance pinned, never measured).
  bool Insert(const Desc& desc, const Spec& spec);

  /// Removes an entry, whatever its evidence; false if there is none.
  bool Erase(const Desc& desc);

  /// Writes JSON Lines (docs/dispatch_cache.md). Returns the number of live entries written (those
  /// kept aside are written too, but not counted), or -1 if the stream failed. The same content
  /// gives the same bytes.
  int Export(std::ostream& out) const;
  /// Keeps the entry with the least measured time for each problem. Among equal times, and among
  /// entries never measured, the first kernel name wins, then the first launch parameters as
  /// numbers, so the order of lines and files does not matter. Returns the number of entries
  /// resolved to a live kernel; last_import() details the rest. Never throws, whatever the input.
  int Import(std::istream& in);
  const ImportReport& last_import() const;

  /// A cache over the records of `scope` that reads the rows of a group of problems when it is
  /// first asked for one of them: one pass over the file here, less than a microsecond per row, and
  /// later only what is needed, each row checked. The entries are those that BuildCache makes of
  /// all records; records appended later are not seen. `records` and `registry` must outlive it.
  ///
  /// Find and the bounds take a lock, and the first lookup in a group reads the file. size,
  /// ForEach, Export and Erase cover only what has been read so far.
  static DispatchCacheOf Over(const Records& records, const OpRegistry<Op>& registry,
                              const RecordScope& scope);
  /// The same with an index of `records` that several caches share, made with GroupOf for the
  /// problems of this operation; `failures` is what LoadFailures returned for it.
  static DispatchCacheOf Over(const Records& records, std::shared_ptr<const Records::Index> index,
                              std::span<const Record> failures, const OpRegistry<Op>& registry,
                              const RecordScope& scope);
  /// A number for the group of a problem (its KeyOf): equal within a group, almost certainly
  /// different between groups. Valid in this process only; never stored.
  static std::uint64_t GroupOf(std::string_view problem);

  /// The kernels that failed according to the records given to Over; empty for other caches.
  const Quarantine& quarantine() const;
  /// The records behind the entries of a problem's group; empty for caches not made by Over.
  std::vector<Record> RecordsOf(const Desc& desc) const;
  /// The same for every layout that the candidates read.
  std::vector<Record> RecordsOf(const Candidates<Op>& candidates) const;

  /// Entries served.
  std::size_t size() const;
  /// Calls `visit` for every entry served, ordered by group, then batch.
  void ForEach(const std::function<void(const Desc&, const Spec&)>& visit) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// How many records were used, and why others were not.
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

/// The winners among all records of this scope whose kernel is live, unchanged and not quarantined.
/// The last session's decision is kept unless another candidate is faster beyond doubt (disjoint
/// intervals and more than 1 %). Pure: the same set of records gives the same cache. Records of
/// other operations are ignored. `registry` must outlive it.
template <class Op>
DispatchCacheOf<Op> BuildCache(std::span<const Record> records, const OpRegistry<Op>& registry,
                               const RecordScope& scope, BuildReport* report = nullptr);

/// Adds the kernels that failed here before to `quarantine`. Device and libraries must agree; the
/// policy does not matter.
template <class Op>
void AddToQuarantine(Quarantine& quarantine, std::span<const Record> records,
                     const RecordScope& scope);

}  // namespace tilewright
