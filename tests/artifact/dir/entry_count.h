#pragma once

#include <cstdint>
#include <string>

/// Helper for tests only.

namespace tilewright::test {

/// How many entries a folder of a store holds, and at most held since this was made. Reading the
/// folders could not tell while others write: an entry that goes while the first is read and one
/// that comes before the last is read are both seen. So the kernel's list of what happened is
/// replayed (inotify). One thread.
class EntryCount {
 public:
  /// Makes every shard of `root`, whose store has been opened, and counts from there.
  explicit EntryCount(const std::string& root);
  EntryCount(const EntryCount&) = delete;
  EntryCount& operator=(const EntryCount&) = delete;
  ~EntryCount();

  /// Takes in what happened; to be called often enough that the kernel's list (16,384) does not
  /// overflow. Whether it did not.
  bool Update();
  std::int64_t now() const { return now_; }
  std::int64_t most() const { return most_; }

 private:
  int fd_ = -1;
  std::int64_t now_ = 0, most_ = 0;
};

}  // namespace tilewright::test
