#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <tuple>
#include <utility>

#include "artifact/dir/store_dir_impl.h"
#include "core/text.h"

namespace tilewright {
void StoreDir::Impl::Walk(const std::string& folder, std::string_view suffix,
                          const Visit& visit) const {
  std::vector<std::string> shards;
  if (state.load() == State::kRefused || files.List(folder.c_str(), shards) != 0) return;
  std::sort(shards.begin(), shards.end());
  std::vector<std::string> names;
  for (const std::string& shard : shards) {
    const std::string shard_path = folder + "/" + shard;
    if (shard.size() != 2 || files.List(shard_path.c_str(), names) != 0) continue;
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (const auto key = KeyOfName(shard, name, suffix)) visit(*key, shard_path + "/" + name);
    }
  }
}

void StoreDir::Impl::AddTotals(std::int64_t entries, std::int64_t bytes) {
  counters.Change(CountersFile::kEntries,
                  [&](std::uint64_t word) { return kEntriesFormat.Changed(word, entries); });
  counters.Change(CountersFile::kEntryBytes,
                  [&](std::uint64_t word) { return kBytesFormat.Changed(word, bytes); });
}

void StoreDir::Impl::TakeOff(const Totals& before, std::uint64_t bytes) {
  counters.Change(CountersFile::kEntries, [&](std::uint64_t word) {
    if (!kEntriesFormat.SameSurvey(word, before.entries)) return word;
    return kEntriesFormat.Changed(word, -1);
  });
  counters.Change(CountersFile::kEntryBytes, [&](std::uint64_t word) {
    if (!kBytesFormat.SameSurvey(word, before.bytes)) return word;
    return kBytesFormat.Changed(word, -static_cast<std::int64_t>(bytes));
  });
}

void StoreDir::Impl::DoubtTotals() {
  AddTotals(0, 0);  // makes a survey in progress fail, so that it does not mark them as known
  counters.Set(CountersFile::kTotalsKnown, 0);
}

int StoreDir::Impl::RemoveCounted(const std::string& path, std::uint64_t bytes) {
  const Totals before = TotalsBefore();
  const int error = files.Unlink(path.c_str());
  Filesystem::Stat stat;
  if (error == 0) {
    TakeOff(before, bytes);
  } else if (files.StatPath(path.c_str(), stat) == -ENOENT) {
    DoubtTotals();  // gone nevertheless: removed by this call, or by a process that subtracts it
  }
  return error;
}

bool StoreDir::Impl::TotalsKnown() const {
  // Totals below zero come from a damaged file or from a folder that was filled by hand; they do
  // not mean that there is room.
  const Totals totals = TotalsBefore();
  return counters.Get(CountersFile::kTotalsKnown) != 0 &&
         kEntriesFormat.Value(totals.entries) >= 0 && kBytesFormat.Value(totals.bytes) >= 0;
}

bool StoreDir::Impl::Fits(std::int64_t more_entries, std::int64_t more_bytes) const {
  const auto within = [](std::int64_t total, std::int64_t more, std::uint64_t cap) {
    return cap == 0 || total + more <= static_cast<std::int64_t>(cap);
  };
  const Totals totals = TotalsBefore();
  return within(kEntriesFormat.Value(totals.entries), more_entries, options.max_entries) &&
         within(kBytesFormat.Value(totals.bytes), more_bytes, options.max_bytes);
}

bool StoreDir::Impl::AwaitTotals() {
  // A publication between the first and the last line of a survey makes it fail, and many processes
  // publish into a new folder at once. Each waits longer and longer, so that one survey comes
  // through: 0.2 s at most in all, little beside a compilation made again.
  constexpr int kAttempts = 16;
  constexpr std::chrono::microseconds kFirst{50}, kLongest{32'000};
  std::chrono::microseconds pause = kFirst;
  for (int attempt = 0; attempt < kAttempts && !TotalsKnown(); ++attempt) {
    if (attempt > 0) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongest);
    }
    (void)Survey();
  }
  return TotalsKnown();
}

bool StoreDir::Impl::MakeRoom(std::uint64_t bytes, std::string& why) {
  if (!capped()) return true;
  if (!AwaitTotals()) {
    why = Format("{}: the entries change faster than they can be counted", layout.root);
    return false;
  }
  const auto size = static_cast<std::int64_t>(bytes);
  if (Fits(1, size)) return true;
  DropQuarantined(1, size);
  if (Fits(1, size)) return true;
  (void)Trim({1, size, false, false});
  if (Fits(1, size)) return true;
  const auto used = [](std::int64_t total, std::string_view unit, std::uint64_t cap) {
    return Format("{} {}", total, unit) + (cap == 0 ? "" : Format(" of at most {}", cap));
  };
  const Totals totals = TotalsBefore();
  why = Format(
      "{}: no room for {} bytes in addition to {} and {}: every entry was used less than 10 "
      "minutes "
      "ago, or the folder was trimmed less than a minute ago",
      layout.root, bytes,
      used(kEntriesFormat.Value(totals.entries), "entries", options.max_entries),
      used(kBytesFormat.Value(totals.bytes), "bytes", options.max_bytes));
  return false;
}

std::vector<StoreDir::Impl::Counted> StoreDir::Impl::Survey() {
  // A publisher counts its entry while it is in tmp/, before it is renamed. So if nobody changed
  // the totals between the first and the last line, every counted file is seen in tmp/ now or in
  // entries/ later.
  const Totals before = TotalsBefore();
  std::int64_t entries = 0, bytes = 0;
  std::vector<std::string> names;
  Filesystem::Stat stat;
  const std::int64_t now = Now();
  if (files.List(layout.temporaries.c_str(), names) == 0) {
    const ProcessIdentity self = Process();
    for (const std::string& name : names) {
      if (files.StatPath((layout.temporaries + "/" + name).c_str(), stat) != 0) continue;
      if (OwnerIsDead(name, self) || OldFile(stat, kTemporarySeconds, now)) continue;
      ++entries;
      bytes += static_cast<std::int64_t>(stat.size);
    }
  }
  std::vector<Counted> found;
  Walk(layout.entries, kEntrySuffix, [&](const ArtifactKey&, const std::string& path) {
    if (files.StatPath(path.c_str(), stat) != 0 || !stat.IsRegular()) return;
    ++entries;
    bytes += static_cast<std::int64_t>(stat.size);
    found.push_back({path, stat, std::min(stat.mtime_s, now)});
  });
  // A file that was set aside between the two listings was counted already.
  const std::vector<SetAside> set_aside = ListQuarantine();
  std::vector<std::uint64_t> counted;
  if (!set_aside.empty()) {
    for (const Counted& entry : found) counted.push_back(entry.stat.ino);
    std::sort(counted.begin(), counted.end());
  }
  for (const SetAside& file : set_aside) {
    const bool twice = std::binary_search(counted.begin(), counted.end(), file.stat.ino);
    if (!file.stat.IsRegular() || twice) continue;
    ++entries;
    bytes += static_cast<std::int64_t>(file.stat.size);
  }
  if (counters.Replace(CountersFile::kEntries, before.entries,
                       kEntriesFormat.Surveyed(before.entries, entries)) &&
      counters.Replace(CountersFile::kEntryBytes, before.bytes,
                       kBytesFormat.Surveyed(before.bytes, bytes))) {
    counters.Set(CountersFile::kTotalsKnown, 1);
  }
  return found;
}

/// A stamp in the future would protect the entry until then.
void StoreDir::Impl::Restamp(const Counted& entry, std::int64_t now) {
  const OpenFile file(files, files.Open(entry.path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0));
  if (file.fd() >= 0) (void)files.SetTime(file.fd(), now);
}

bool StoreDir::Impl::Evict(const Counted& entry) {
  // Used, or replaced, since the survey?
  Filesystem::Stat stat;
  if (files.StatPath(entry.path.c_str(), stat) != 0 || stat.ino != entry.stat.ino ||
      stat.mtime_s > std::max(entry.stat.mtime_s, entry.stamp_s)) {
    return false;
  }
  const int error = RemoveCounted(entry.path, stat.size);
  if (error == 0) evictions.fetch_add(1);
  if (error != 0 && error != -ENOENT) (void)Failed("remove", entry.path, error);
  return error == 0;
}

ArtifactStore::GcReport StoreDir::Impl::Trim(const TrimRequest& request) {
  if (!capped() || !(mends() || request.dry_run)) return {};
  if (!request.force) {
    if (TotalsKnown() && Fits(request.entries, request.bytes)) return {};
    const auto last = static_cast<std::int64_t>(counters.Get(CountersFile::kTrimUnixS));
    const std::int64_t now = Now();
    if (last <= now && now - last < kTrimSeconds) return {};
  }
  // Two processes that trim at once would each remove entries down to 80 %. Where locks do not
  // work, the time of the last trim mostly prevents that.
  const std::uint64_t generation = KeyLocks::ForkGeneration();
  const int locked = writable() ? locks.TryLock(KeyLocks::kTrimming, file_mode) : -EROFS;
  if (locked == -EAGAIN && !request.force) return {};
  ArtifactStore::GcReport report = TrimLocked(request);
  if (locked == 0) locks.Unlock(KeyLocks::kTrimming, generation);
  return report;
}

ArtifactStore::GcReport StoreDir::Impl::TrimLocked(const TrimRequest& request) {
  ArtifactStore::GcReport report;
  const std::int64_t now = Now();
  std::vector<Counted> found = Survey();
  std::int64_t entries = 0, bytes = 0;
  for (const Counted& entry : found) {
    ++entries;
    bytes += static_cast<std::int64_t>(entry.stat.size);
    if (entry.stat.mtime_s > now && !request.dry_run) Restamp(entry, now);
  }
  const std::vector<SetAside> set_aside = ListQuarantine();
  for (const SetAside& file : set_aside) {
    if (!file.stat.IsRegular()) continue;
    ++entries;
    bytes += static_cast<std::int64_t>(file.stat.size);
  }
  if (!request.dry_run) counters.Set(CountersFile::kTrimUnixS, static_cast<std::uint64_t>(now));
  const auto goal = [](std::uint64_t cap, std::int64_t total, std::int64_t room) {
    const auto limit = static_cast<std::int64_t>(cap);
    if (cap == 0 || total + room <= limit) return total;
    return std::min(std::max<std::int64_t>(limit / 5 * 4 + limit % 5 * 4 / 5, 1), limit - room);
  };
  const std::int64_t entries_goal = goal(options.max_entries, entries, request.entries);
  const std::int64_t bytes_goal = goal(options.max_bytes, bytes, request.bytes);
  // First what is of no use to anyone, oldest first.
  for (const SetAside& file : set_aside) {
    if (entries <= entries_goal && bytes <= bytes_goal) break;
    if (!file.stat.IsRegular() || (!request.dry_run && !RemoveSetAside(file))) continue;
    --entries;
    bytes -= static_cast<std::int64_t>(file.stat.size);
    // In a dry run the sweep has already counted the expired ones.
    if (!request.dry_run || !file.expired) ++report.removed_quarantined;
  }
  std::sort(found.begin(), found.end(), [](const Counted& a, const Counted& b) {
    return std::tie(a.stamp_s, a.stat.mtime_s, a.stat.mtime_ns, a.path) <
           std::tie(b.stamp_s, b.stat.mtime_s, b.stat.mtime_ns, b.path);
  });
  for (const Counted& entry : found) {
    if (entries <= entries_goal && bytes <= bytes_goal) break;
    if (!request.force && now - entry.stamp_s < kYoungSeconds) break;  // and so are all the others
    if (!request.dry_run && !Evict(entry)) continue;
    --entries;
    bytes -= static_cast<std::int64_t>(entry.stat.size);
    ++report.removed_entries;
    report.removed_bytes += entry.stat.size;
  }
  return report;
}

/// Whether a file's stamp is so far from now, past or future, that nobody can still be writing it.
bool StoreDir::Impl::OldFile(const Filesystem::Stat& stat, std::int64_t seconds,
                             std::int64_t now) const {
  return stat.mtime_s < now - seconds || stat.mtime_s > now + seconds;
}

std::uint64_t StoreDir::Impl::SweepTemporaries(bool dry_run) {
  std::vector<std::string> names;
  if (files.List(layout.temporaries.c_str(), names) != 0) return 0;
  const ProcessIdentity self = Process();
  const std::int64_t now = Now();
  std::uint64_t removed = 0;
  for (const std::string& name : names) {
    const std::string path = layout.temporaries + "/" + name;
    Filesystem::Stat stat;
    if (files.StatPath(path.c_str(), stat) != 0) continue;
    if (!OwnerIsDead(name, self) && !OldFile(stat, kTemporarySeconds, now)) continue;
    if (dry_run || Discard(path, stat)) ++removed;
  }
  return removed;
}

std::uint64_t StoreDir::Impl::SweepNegatives(bool dry_run) {
  const std::int64_t now = Now();
  struct Refusal {
    std::int64_t stamp_s;
    std::string path;
    bool old;
  };
  std::vector<Refusal> refusals;
  Walk(layout.negatives, kNegativeSuffix, [&](const ArtifactKey&, const std::string& path) {
    Filesystem::Stat stat;
    if (files.StatPath(path.c_str(), stat) != 0 || !stat.IsRegular()) return;
    refusals.push_back({stat.mtime_s, path,
                        OldFile(stat, std::max<std::int64_t>(options.negative_ttl_s, 1), now)});
  });
  std::sort(refusals.begin(), refusals.end(), [](const Refusal& a, const Refusal& b) {
    return std::tie(a.old, b.stamp_s, a.path) < std::tie(b.old, a.stamp_s, b.path);
  });
  std::uint64_t removed = 0;
  for (std::size_t i = 0; i < refusals.size(); ++i) {
    if (!refusals[i].old && i < kNegativeFiles) continue;
    if (dry_run || files.Unlink(refusals[i].path.c_str()) == 0) ++removed;
  }
  return removed;
}

ArtifactStore::GcReport StoreDir::Impl::Sweep(bool dry_run) {
  ArtifactStore::GcReport report;
  if (state.load() == State::kRefused || !(mends() || dry_run)) return report;
  if (!dry_run) counters.Set(CountersFile::kSweepUnixS, static_cast<std::uint64_t>(Now()));
  report.removed_temporaries = SweepTemporaries(dry_run);
  report.removed_negative = SweepNegatives(dry_run);
  report.removed_quarantined = SweepQuarantine(dry_run);
  return report;
}

void StoreDir::Impl::SweepIfDue() {
  if (!mends()) return;
  const auto last = static_cast<std::int64_t>(counters.Get(CountersFile::kSweepUnixS));
  const std::int64_t now = Now();
  if (last <= now && now - last < kSweepSeconds) return;
  (void)Sweep(false);
  // Totals drift if files are removed by hand, or processes die at the wrong moment.
  if (capped()) (void)Survey();
}

ArtifactStore::GcReport StoreDir::Trim(bool force, bool dry_run) {
  return impl_->Trim({0, 0, force, dry_run});
}

ArtifactStore::GcReport StoreDir::Sweep(bool dry_run) { return impl_->Sweep(dry_run); }

std::vector<StoreDir::EntryFile> StoreDir::Entries() const {
  std::vector<EntryFile> entries;
  impl_->Walk(impl_->layout.entries, kEntrySuffix,
              [&](const ArtifactKey& key, const std::string& path) {
                Filesystem::Stat stat;
                if (impl_->files.StatPath(path.c_str(), stat) == 0) {
                  entries.push_back({key, path, stat});
                }
              });
  return entries;
}

void StoreDir::ForEachNegative(
    const std::function<void(const ArtifactKey& action, const Negative& negative)>& visit) {
  impl_->Walk(impl_->layout.negatives, kNegativeSuffix,
              [&](const ArtifactKey& key, const std::string& path) {
                if (const auto negative = impl_->ReadNegative(key, path)) visit(key, *negative);
              });
}

ArtifactStore::Totals StoreDir::GetTotals() {
  ArtifactStore::Totals totals;
  for (const EntryFile& file : Entries()) {
    ++totals.entries;
    totals.bytes += file.stat.size;
  }
  impl_->Walk(impl_->layout.negatives, kNegativeSuffix,
              [&](const ArtifactKey&, const std::string&) { ++totals.negative; });
  std::vector<std::string> names;
  if (state() != State::kRefused &&
      impl_->files.List(impl_->layout.quarantine.c_str(), names) == 0) {
    totals.quarantined = names.size();
  }
  return totals;
}

}  // namespace tilewright
