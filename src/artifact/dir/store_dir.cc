#include "artifact/dir/store_dir.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "artifact/dir/negative_file.h"
#include "artifact/dir/store_dir_impl.h"
#include "artifact/dir/total.h"
#include "core/text.h"

namespace tilewright {

StoreDir::Impl::Judged StoreDir::Impl::Judge(const ArtifactKey& action, const std::string& path) {
  Judged judged;
  switch (judged.reader.Read(files, path, trust, kMaxEntryBytes)) {
    case FileReader::Outcome::kAbsent:
      return judged;
    case FileReader::Outcome::kFailed:
      judged.verdict = Judged::Verdict::kFailed;
      judged.detail = judged.reader.detail;
      return judged;
    case FileReader::Outcome::kForeign:
      judged.verdict = Judged::Verdict::kDamaged;
      judged.detail = judged.reader.detail;
      return judged;
    case FileReader::Outcome::kRead:
      break;
  }
  Result<ArtifactData> data = DecodeArtifact(judged.reader.bytes.view());
  if (!data) {
    judged.verdict = data.error().code == ErrorCode::kUnsupported ? Judged::Verdict::kNewer
                                                                  : Judged::Verdict::kDamaged;
    judged.detail = data.error().message;
  } else if (data->action != action) {
    judged.verdict = Judged::Verdict::kDamaged;
    judged.detail = Format("the entry of another key, {}", data->action.Hex());
  } else {
    judged.verdict = Judged::Verdict::kSound;
    judged.data = std::move(*data);
  }
  return judged;
}

StoreDir::Lookup StoreDir::Impl::Find(const ArtifactKey& action, bool use) {
  Lookup lookup;
  const std::string path = layout.EntryPath(action);
  if (state.load() != State::kRefused) {
    const int error = EnsureFolder(ParentOf(path), false);
    if (error == -ENOENT) return lookup;
  }
  if (state.load() == State::kRefused) {
    lookup.detail = Reason();
    return lookup;
  }
  // A site's or a group's folder that appeared after Open: its owner was never checked.
  if (!root_checked && options.trusted != Trusted::kUser) {
    lookup.detail = Reason();
    return lookup;
  }
  Judged judged = Judge(action, path);
  lookup.detail = judged.detail;
  switch (judged.verdict) {
    case Judged::Verdict::kSound:
      if (use) Stamp(judged.reader);
      lookup.found = Found{std::move(judged.reader.bytes), std::move(judged.data)};
      break;
    case Judged::Verdict::kAbsent:
    case Judged::Verdict::kFailed:
      break;
    case Judged::Verdict::kNewer:
      lookup.miss = MissReason::kIncompatible;
      break;
    case Judged::Verdict::kDamaged:
      lookup.miss = MissReason::kCorrupt;
      lookup.quarantined = use && Quarantine(path, judged.reader.stat);
      break;
  }
  return lookup;
}

void StoreDir::Impl::Stamp(const FileReader& reader) {
  if (!writable()) return;
  const std::int64_t now = Now();
  const std::int64_t stamp = reader.stat.mtime_s;
  // Recency is only a hint; nothing depends on this write.
  if (stamp > now || now - stamp >= kStampSeconds) (void)files.SetTime(reader.file.fd(), now);
}

void StoreDir::Impl::SyncFolder(const std::string& path) {
  // If this fails, the file is still complete, but may be absent after a power failure.
  const OpenFile folder(files, files.Open(path.c_str(), O_RDONLY | O_DIRECTORY, 0));
  if (folder.fd() >= 0) (void)files.Sync(folder.fd());
}

int StoreDir::Impl::WriteTemporary(TemporaryFile& temporary, std::string_view bytes,
                                   std::int64_t stamp_s, std::string& why) {
  if (temporary.exists()) return 0;
  const std::string path = layout.temporaries + "/" + TemporaryName(Process());
  for (int attempt = 0;; ++attempt) {
    const char* step = "";
    const int error = temporary.Write(path, {bytes, stamp_s, file_mode, options.durable}, step);
    if (error == 0) return 0;
    // Somebody removed the folders.
    if (error == -ENOENT && attempt == 0 && EnsureTree() == 0) continue;
    why = Failed(step, path, error);
    return error;
  }
}

StoreDir::Published StoreDir::Impl::Publish(const ArtifactKey& action, std::string_view bytes,
                                            std::string& why) {
  if (!writable()) {
    why = Reason();
    if (why.empty()) why = Format("{}: opened read-only", layout.root);
    return Published::kNot;
  }
  const Result<ArtifactData> data = DecodeArtifact(bytes);
  if (!data || data->action != action) {
    why = Format("not an entry of {}: {}", action.Hex(),
                 data ? "its key is " + data->action.Hex() : data.error().message);
    return Published::kNot;
  }
  if (bytes.size() > kMaxEntryBytes ||
      (options.max_bytes != 0 && bytes.size() > options.max_bytes)) {
    why = Format("{} bytes: more than the cap of {}", bytes.size(),
                 options.max_bytes != 0 ? options.max_bytes : kMaxEntryBytes);
    return Published::kNot;
  }
  if (!MakeRoom(bytes.size(), why)) return Published::kNot;
  const Totals before = TotalsBefore();
  const Published published = Place(action, bytes, why);
  // A survey that ended meanwhile may have counted the temporary file before this call did.
  if (!kEntriesFormat.SameSurvey(before.entries, TotalsBefore().entries)) {
    DoubtTotals();
    (void)Survey();
  }
  if (published == Published::kNew) SweepIfDue();
  return published;
}

StoreDir::Impl::Placed StoreDir::Impl::WasPlaced(const TemporaryFile& temporary,
                                                 const std::string& path) {
  Filesystem::Stat there;
  const int error = files.StatPath(path.c_str(), there);
  if (error == -ENOENT || error == -ENOTDIR) return Placed::kNo;
  if (error != 0 || !temporary.identity()) return Placed::kUnknown;
  const bool same =
      there.dev == temporary.identity()->dev && there.ino == temporary.identity()->ino;
  return same ? Placed::kYes : Placed::kNo;
}

StoreDir::Published StoreDir::Impl::Place(const ArtifactKey& action, std::string_view bytes,
                                          std::string& why) {
  const std::string path = layout.EntryPath(action);
  const std::string shard = ParentOf(path);
  const auto size = static_cast<std::int64_t>(bytes.size());
  TemporaryFile temporary(files);
  constexpr int kAttempts = 4;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (WriteTemporary(temporary, bytes, Now(), why) != 0) return Published::kNot;
    int error = EnsureFolder(shard, true);
    if (error == -ENOENT && EnsureTree() == 0) error = EnsureFolder(shard, true);
    if (error != 0) {
      why = Failed("create", shard, error);
      return Published::kNot;
    }
    // Counted while only the temporary file exists: a concurrent survey sees one of the two, and a
    // process that dies here leaves the totals too large, never too small.
    AddTotals(1, size);
    if (!Fits(0, 0)) {
      AddTotals(-1, -size);
      why = Format("{}: other processes filled the folder to its caps", layout.root);
      return Published::kNot;
    }
    error = files.RenameNoReplace(temporary.path().c_str(), path.c_str());
    const Placed placed = error == 0 ? Placed::kYes : WasPlaced(temporary, path);
    if (placed == Placed::kYes) {
      if (error == 0) {
        temporary.Renamed();
      } else {
        temporary.Remove();  // its first name may still be there
      }
      if (options.durable) SyncFolder(shard);
      return Published::kNew;
    }
    if (placed == Placed::kNo) {
      AddTotals(-1, -size);
    } else {
      DoubtTotals();
    }
    if (error == -ENOENT || error == -ENOTDIR || error == -ESTALE) {
      temporary.Remove();  // it or the folder was removed meanwhile: start again
      continue;
    }
    if (error != -EEXIST) {
      why = Failed("rename into place", path, error);
      return Published::kNot;
    }
    const Judged theirs = Judge(action, path);
    if (theirs.verdict == Judged::Verdict::kSound) return Published::kLost;
    if (theirs.verdict == Judged::Verdict::kAbsent) continue;
    why = Format("{}: {}", path, theirs.detail);
    if (theirs.verdict == Judged::Verdict::kNewer) return Published::kNot;
    // An entry that could not be read this time (no descriptor left, an interrupted disk) may be
    // fine. A damaged or inaccessible one is of no use to anyone who trusts this folder.
    const bool useless = theirs.verdict == Judged::Verdict::kDamaged ||
                         theirs.reader.error == -EACCES || theirs.reader.error == -EPERM;
    if (!useless || !Quarantine(path, theirs.reader.stat)) return Published::kNot;
  }
  if (why.empty()) why = Format("{}: the file changes faster than it can be written", path);
  return Published::kNot;
}

std::optional<StoreDir::Negative> StoreDir::Impl::ReadNegative(const ArtifactKey& action,
                                                               const std::string& path) {
  FileReader reader;
  const FileReader::Outcome outcome = reader.Read(files, path, trust, kMaxNegativeBytes);
  if (outcome == FileReader::Outcome::kForeign) {
    QuarantineUncounted(path, reader.stat);
    return std::nullopt;
  }
  if (outcome != FileReader::Outcome::kRead) return std::nullopt;
  Result<Negative> negative = DecodeNegative(action, reader.bytes.view());
  if (!negative) {
    QuarantineUncounted(path, reader.stat);
    return std::nullopt;
  }
  return std::move(*negative);
}

StoreDir::Published StoreDir::Impl::PublishNegative(const ArtifactKey& action,
                                                    const Negative& negative) {
  if (!mends()) return Published::kNot;
  const Result<std::string> bytes = EncodeNegative(action, negative);
  if (!bytes) return Published::kNot;
  const std::string path = layout.NegativePath(action);
  const std::string shard = ParentOf(path);
  std::string why;
  TemporaryFile temporary(files);
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (WriteTemporary(temporary, *bytes, negative.unix_s, why) != 0) return Published::kNot;
    int error = EnsureFolder(shard, true);
    if (error == -ENOENT && EnsureTree() == 0) error = EnsureFolder(shard, true);
    if (error == 0) error = files.Rename(temporary.path().c_str(), path.c_str());
    if (error == 0) {
      temporary.Renamed();
      if (options.durable) SyncFolder(shard);
      SweepIfDue();
      return Published::kNew;
    }
    if (error == -ENOENT || error == -ESTALE) {
      temporary.Remove();
      continue;
    }
    Filesystem::Stat there;
    const bool folder_there = (error == -EISDIR || error == -ENOTEMPTY || error == -EEXIST) &&
                              files.StatPath(path.c_str(), there) == 0 && !there.IsRegular();
    if (folder_there && Quarantine(path, there)) continue;
    (void)Failed("rename into place", path, error);
    return Published::kNot;
  }
  return Published::kNot;
}

StoreDir::StoreDir(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StoreDir::~StoreDir() = default;

std::unique_ptr<StoreDir> StoreDir::Open(const std::string& root, Options options) {
  auto impl = std::make_unique<Impl>(root, std::move(options));
  impl->Open();
  return std::unique_ptr<StoreDir>(new StoreDir(std::move(impl)));
}

StoreDir::State StoreDir::state() const { return impl_->state.load(); }
std::string StoreDir::reason() const { return impl_->Reason(); }
const std::string& StoreDir::root() const { return impl_->layout.root; }
std::uint64_t StoreDir::evictions() const { return impl_->evictions.load(); }
StoreDir::Lookup StoreDir::Find(const ArtifactKey& action) { return impl_->Find(action, true); }
StoreDir::Lookup StoreDir::Look(const ArtifactKey& action) { return impl_->Find(action, false); }
std::string StoreDir::EntryPath(const ArtifactKey& action) const {
  return impl_->layout.EntryPath(action);
}
std::string StoreDir::NegativePath(const ArtifactKey& action) const {
  return impl_->layout.NegativePath(action);
}

StoreDir::Published StoreDir::Publish(const ArtifactKey& action, std::string_view bytes,
                                      std::string* why) {
  std::string text;
  const Published published = impl_->Publish(action, bytes, text);
  if (why != nullptr) *why = published == Published::kNot ? text : "";
  return published;
}

Status StoreDir::Remove(const ArtifactKey& action) {
  if (!impl_->mends()) {
    const std::string why = impl_->Reason();
    return Fail(ErrorCode::kUnavailable,
                why.empty() ? root() + ": nothing is removed from it here" : why);
  }
  const std::string path = impl_->layout.EntryPath(action);
  Filesystem::Stat stat;
  int error = impl_->files.StatPath(path.c_str(), stat);
  if (error == 0) {
    error = impl_->RemoveCounted(path, stat.size);
    if (error == -EISDIR && impl_->Quarantine(path, stat)) error = 0;
  }
  if (error == 0 || error == -ENOENT || error == -ENOTDIR) return {};
  return Fail(ErrorCode::kIo, impl_->Failed("remove", path, error));
}

std::optional<StoreDir::Negative> StoreDir::FindNegative(const ArtifactKey& action) {
  if (state() == State::kRefused) return std::nullopt;
  const std::string path = impl_->layout.NegativePath(action);
  if (impl_->EnsureFolder(ParentOf(path), false) != 0) return std::nullopt;
  std::optional<Negative> negative = impl_->ReadNegative(action, path);
  if (!negative) return std::nullopt;
  // From the future: the clock was wrong, then or now, and it is safe to ask the compiler again.
  // The clocks of two hosts may differ by a few minutes.
  constexpr std::int64_t kSkewSeconds = 300;
  const std::int64_t now = impl_->Now();
  const bool fresh = negative->unix_s <= now + kSkewSeconds &&
                     negative->unix_s > now - impl_->options.negative_ttl_s;
  if (!fresh) return std::nullopt;
  return negative;
}

StoreDir::Published StoreDir::PublishNegative(const ArtifactKey& action, const Negative& negative) {
  return impl_->PublishNegative(action, negative);
}

void StoreDir::Count(std::size_t counter, std::uint64_t amount) {
  if (counter < kCounters) impl_->counters.Add(CountersFile::kSlot0 + counter, amount);
}

std::vector<std::uint64_t> StoreDir::Counters() const {
  static_assert(kCounters == CountersFile::kSlots);
  std::vector<std::uint64_t> values(kCounters);
  impl_->counters.GetSlots(values.data(), values.size());
  return values;
}

StoreDir::KeyLock::KeyLock(KeyLock&& other) noexcept
    : dir_(std::exchange(other.dir_, nullptr)),
      stripe_(other.stripe_),
      start_(other.start_),
      fork_generation_(other.fork_generation_) {}

StoreDir::KeyLock& StoreDir::KeyLock::operator=(KeyLock&& other) noexcept {
  if (this != &other) {
    Release();
    dir_ = std::exchange(other.dir_, nullptr);
    stripe_ = other.stripe_;
    start_ = other.start_;
    fork_generation_ = other.fork_generation_;
  }
  return *this;
}

StoreDir::KeyLock::~KeyLock() { Release(); }

void StoreDir::KeyLock::Release() {
  if (dir_ != nullptr) dir_->impl_->locks.Unlock({stripe_, start_}, fork_generation_);
  dir_ = nullptr;
}

StoreDir::LockResult StoreDir::TryLock(const ArtifactKey& action, KeyLock& lock) {
  lock.Release();
  if (!impl_->writable()) return LockResult::kUnusable;
  const KeyLocks::Range range = KeyLocks::RangeOf(action);
  const std::uint64_t generation = KeyLocks::ForkGeneration();
  int error = impl_->locks.TryLock(range, impl_->file_mode);
  if (error == -ENOENT && impl_->EnsureTree() == 0) {
    error = impl_->locks.TryLock(range, impl_->file_mode);
  }
  if (error == -EAGAIN) return LockResult::kBusy;
  if (error != 0) return LockResult::kUnusable;
  lock.dir_ = this;
  lock.stripe_ = range.stripe;
  lock.start_ = range.start;
  lock.fork_generation_ = generation;
  return LockResult::kHeld;
}

}  // namespace tilewright
