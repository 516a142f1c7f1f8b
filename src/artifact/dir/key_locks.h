#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "artifact/dir/dir_layout.h"
#include "core/filesystem.h"

namespace tilewright {

/// The locks of a store: byte ranges of 16 files that are created once and never removed. So the
/// number of inodes does not depend on the number of keys, and two processes cannot lock two
/// different files of the same name. Since the threads of a process share an open file description,
/// `held_` keeps track of which ranges are locked.
///
/// The child of a fork shares the descriptions and would keep the parent's locks alive after the
/// parent's death, so all descriptors are closed in the child, which starts without locks. The
/// mutex is held around a fork, so that it is free in the child; it is only ever held for short
/// system calls.
class KeyLocks {
 public:
  static constexpr int kStripes = 16;
  struct Range {
    int stripe = 0;
    std::uint64_t start = 0;
    auto operator<=>(const Range&) const = default;
  };
  static Range RangeOf(const ArtifactKey& key);
  /// Outside the ranges of all keys.
  static constexpr Range kTrimming{0, (std::uint64_t{1} << 62) + 1};

  KeyLocks(Filesystem& files, const DirLayout& layout);
  KeyLocks(const KeyLocks&) = delete;
  KeyLocks& operator=(const KeyLocks&) = delete;
  ~KeyLocks();

  /// 0; -EAGAIN if the range is held by anyone; another error if locks do not work.
  int TryLock(Range range, mode_t mode);
  /// Does nothing if `fork_generation` is that of a parent process.
  void Unlock(Range range, std::uint64_t fork_generation);
  static std::uint64_t ForkGeneration();

  /// Also protects other state that must be consistent in the child of a fork.
  std::mutex& mutex() const { return mutex_; }

 private:
  friend struct ForkList;
  void CloseInChild();
  int Descriptor(int stripe, mode_t mode);  // with mutex_ held

  Filesystem& files_;
  const DirLayout& layout_;
  mutable std::mutex mutex_;
  std::array<int, kStripes> descriptors_;
  std::set<Range> held_;
};

}  // namespace tilewright
