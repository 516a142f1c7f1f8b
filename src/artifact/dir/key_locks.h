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

/// The locks of a store: byte ranges of 16 files that are made once and never removed, so that no
/// number of keys costs more inodes, and no removal leaves two processes with locks on two files of
/// one name. Range locks of open file descriptions do not tell the threads of a process apart:
/// `held_` does.
///
/// A child of fork shares the descriptions and would keep the parent's locks alive after its death:
/// all descriptors are closed in the child, and it starts with no lock. The mutex is held around a
/// fork, so that the child finds it free; whoever has it waits for nothing but short system calls.
class KeyLocks {
 public:
  static constexpr int kStripes = 16;
  struct Range {
    int stripe = 0;
    std::uint64_t start = 0;
    auto operator<=>(const Range&) const = default;
  };
  static Range RangeOf(const ArtifactKey& key);
  /// Beyond every key's.
  static constexpr Range kTrimming{0, (std::uint64_t{1} << 62) + 1};

  KeyLocks(Filesystem& files, const DirLayout& layout);
  KeyLocks(const KeyLocks&) = delete;
  KeyLocks& operator=(const KeyLocks&) = delete;
  ~KeyLocks();

  /// 0; -EAGAIN where it is held, by whomever; another error where locks do not work.
  int TryLock(Range range, mode_t mode);
  /// Nothing where `fork_generation` is that of a parent process.
  void Unlock(Range range, std::uint64_t fork_generation);
  static std::uint64_t ForkGeneration();

  /// For what else must be consistent in the child of a fork.
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
