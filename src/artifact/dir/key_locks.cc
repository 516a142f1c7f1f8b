#include "artifact/dir/key_locks.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

namespace tilewright {

namespace {
std::atomic<std::uint64_t> fork_generation{0};
}  // namespace

/// Every KeyLocks of the process.
struct ForkList {
  std::mutex mutex;
  std::vector<KeyLocks*> all;

  /// Never destroyed: a fork may happen while the process ends.
  static ForkList& Get() {
    static auto* const kList = new ForkList;
    return *kList;
  }

  static void Before() {
    Get().mutex.lock();
    for (KeyLocks* const locks : Get().all) locks->mutex_.lock();
  }
  static void Release() {
    for (KeyLocks* const locks : Get().all) locks->mutex_.unlock();
    Get().mutex.unlock();
  }
  static void InChild() {
    fork_generation.fetch_add(1);
    for (KeyLocks* const locks : Get().all) locks->CloseInChild();
    Release();
  }
};

KeyLocks::Range KeyLocks::RangeOf(const ArtifactKey& key) {
  std::uint64_t start = 0;
  std::memcpy(&start, key.bytes.data() + 8, sizeof start);
  return {key.bytes[0] % kStripes, start >> 2};  // offsets of files are signed: 62 bits
}

KeyLocks::KeyLocks(Filesystem& files, const DirLayout& layout) : files_(files), layout_(layout) {
  descriptors_.fill(-1);
  static std::once_flag once;
  std::call_once(once,
                 [] { pthread_atfork(&ForkList::Before, &ForkList::Release, &ForkList::InChild); });
  const std::lock_guard lock(ForkList::Get().mutex);
  ForkList::Get().all.push_back(this);
}

KeyLocks::~KeyLocks() {
  {
    const std::lock_guard lock(ForkList::Get().mutex);
    std::erase(ForkList::Get().all, this);
  }
  for (const int fd : descriptors_) {
    if (fd >= 0) files_.Close(fd);
  }
}

std::uint64_t KeyLocks::ForkGeneration() { return fork_generation.load(); }

int KeyLocks::Descriptor(int stripe, mode_t mode) {
  int& fd = descriptors_[static_cast<std::size_t>(stripe)];
  if (fd >= 0) return fd;
  const std::string path = layout_.LockPath(stripe);
  fd = files_.Open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode);
  // For a group, set the mode despite the umask; a file created by another member has it already.
  if (fd >= 0 && (mode & 077) != 0) (void)files_.SetMode(fd, mode);
  return fd;
}

int KeyLocks::TryLock(Range range, mode_t mode) {
  int fd = -1;
  {
    // The descriptor is listed before the mutex is released, so that a fork never misses one.
    const std::lock_guard lock(mutex_);
    if (!held_.insert(range).second) return -EAGAIN;
    fd = Descriptor(range.stripe, mode);
    if (fd < 0) {
      held_.erase(range);
      return fd == -EAGAIN ? -EIO : fd;
    }
  }
  // Without the mutex, since on a network file system this is a message to the server.
  const int result = files_.TryLockRange(fd, range.start);
  if (result != 0) {
    const std::lock_guard lock(mutex_);
    held_.erase(range);
  }
  return result;
}

void KeyLocks::Unlock(Range range, std::uint64_t generation) {
  int fd = -1;
  {
    const std::lock_guard lock(mutex_);
    if (generation != ForkGeneration() || !held_.contains(range)) return;
    fd = descriptors_[static_cast<std::size_t>(range.stripe)];
  }
  // Unlocked before it is removed from the list, so that no thread takes the range in between.
  files_.UnlockRange(fd, range.start);
  const std::lock_guard lock(mutex_);
  held_.erase(range);
}

void KeyLocks::CloseInChild() {
  for (int& fd : descriptors_) {
    if (fd >= 0) files_.Close(fd);
    fd = -1;
  }
  held_.clear();
}

}  // namespace tilewright
