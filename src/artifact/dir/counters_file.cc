#include "artifact/dir/counters_file.h"

#include <fcntl.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tilewright {
namespace {

constexpr std::uint64_t kMagic =
    std::bit_cast<std::uint64_t>(std::array<char, 8>{'T', 'W', 'C', 'O', 'U', 'N', 'T', '1'});
static_assert(std::endian::native == std::endian::little, "the file is little endian");
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Word 1 of the file: bytes of the header and number of slots, 32 bits each.
constexpr std::uint64_t kShape =
    CountersFile::kHeaderWords * 8 | std::uint64_t{CountersFile::kSlots} << 32;

}  // namespace

CountersFile::CountersFile(Filesystem& files, std::string path, const Trust& trust, Folder folder,
                           std::mutex& mutex)
    : files_(files),
      path_(std::move(path)),
      trust_(trust),
      folder_(std::move(folder)),
      mutex_(mutex) {}

CountersFile::~CountersFile() { Drop(); }

void CountersFile::Drop() const {
  if (mapped_ != nullptr) files_.Unmap(mapped_, kBytes);
  mapped_ = nullptr;
  file_ = OpenFile();
}

int CountersFile::Open() {
  const std::lock_guard lock(mutex_);
  wanted_ = true;
  return OpenLocked();
}

int CountersFile::OpenLocked() const {
  int error = -EIO;
  // Several attempts, since another process may create or move the file between two steps.
  for (int attempt = 0; attempt < 3; ++attempt) {
    error = OpenExisting();
    if (error != -ENOENT) break;
    std::array<std::uint64_t, kBytes / 8> words{};
    words[0] = kMagic;
    words[1] = kShape;
    words[2] = static_cast<std::uint64_t>(files_.NowUnixSeconds());
    // Write every byte now, so that the disk cannot turn out full later, on a mere memory access.
    error = folder_.create(
        path_, std::string_view(reinterpret_cast<const char*>(words.data()), sizeof words));
    if (error != 0 && error != -EEXIST) break;
  }
  if (error == 0 && mapped_ == nullptr) error = -EIO;  // created three times, and gone each time
  if (error != 0) failed_unix_s_ = files_.NowUnixSeconds();
  return error;
}

/// -ENOENT if there is none, or no longer one.
int CountersFile::OpenExisting() const {
  Filesystem::Stat stat;
  int error = files_.StatPath(path_.c_str(), stat);
  if (error != 0) return error;
  bool sound = stat.IsRegular() && stat.size == kBytes && trust_.Complaint(stat).empty();
  if (sound) {
    OpenFile file(files_, files_.Open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0));
    if (file.fd() < 0) return file.fd();
    std::array<std::uint64_t, 2> head{};
    const ssize_t got = files_.Read(file.fd(), head.data(), sizeof head, 0);
    if (got < 0) return static_cast<int>(got);
    if (got != sizeof head) return -EIO;  // the file is long enough, so this says nothing about it
    sound = head[0] == kMagic && head[1] == kShape;
    if (sound) {
      void* const data = files_.Map(file.fd(), kBytes, true, error);
      if (data == nullptr) return error;
      mapped_ = static_cast<Words*>(data);
      file_ = std::move(file);
      return 0;
    }
  }
  return folder_.quarantine(path_, stat) ? -ENOENT : -EIO;
}

CountersFile::Words& CountersFile::Current() const {
  if (mapped_ != nullptr) {
    Filesystem::Stat stat;
    if (files_.StatFd(file_.fd(), stat) == 0 && stat.links > 0 && stat.size == kBytes) {
      return *mapped_;
    }
    Drop();
  }
  constexpr std::int64_t kRetrySeconds = 60;
  if (!wanted_) return memory_;
  const std::int64_t now = files_.NowUnixSeconds();
  if (failed_unix_s_ != 0 && now >= failed_unix_s_ && now - failed_unix_s_ < kRetrySeconds) {
    return memory_;
  }
  if (OpenLocked() != 0) return memory_;
  failed_unix_s_ = 0;
  // Add what was counted in memory meanwhile, but not the header: totals start unknown.
  for (std::size_t i = kSlot0; i < memory_.size(); ++i) {
    const std::uint64_t amount = memory_[i].exchange(0);
    if (amount != 0) (*mapped_)[i].fetch_add(amount);
  }
  return *mapped_;
}

std::uint64_t CountersFile::Add(std::size_t word, std::uint64_t amount) {
  const std::lock_guard lock(mutex_);
  return Current()[word].fetch_add(amount) + amount;
}

std::uint64_t CountersFile::Get(std::size_t word) const {
  const std::lock_guard lock(mutex_);
  return Current()[word].load();
}

void CountersFile::Set(std::size_t word, std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  Current()[word].store(value);
}

bool CountersFile::Replace(std::size_t word, std::uint64_t expected, std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  return Current()[word].compare_exchange_strong(expected, value);
}

void CountersFile::GetSlots(std::uint64_t* values, std::size_t count) const {
  const std::lock_guard lock(mutex_);
  const Words& words = Current();
  for (std::size_t i = 0; i < count; ++i) values[i] = words[kSlot0 + i].load();
  if (&words != &memory_) return;
  std::array<std::uint64_t, kBytes / 8> stored{};
  if (!ReadStored(stored)) return;
  for (std::size_t i = 0; i < count; ++i) values[i] += stored[kSlot0 + i];
}

/// The content of a file that cannot be written; false if there is none or it is damaged.
bool CountersFile::ReadStored(std::array<std::uint64_t, kBytes / 8>& words) const {
  Filesystem::Stat stat;
  if (files_.StatPath(path_.c_str(), stat) != 0) return false;
  if (!stat.IsRegular() || stat.size != kBytes || !trust_.Complaint(stat).empty()) return false;
  const OpenFile file(files_, files_.Open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0));
  if (file.fd() < 0) return false;
  const ssize_t got = files_.Read(file.fd(), words.data(), kBytes, 0);
  return got == static_cast<ssize_t>(kBytes) && words[0] == kMagic && words[1] == kShape;
}

}  // namespace tilewright
