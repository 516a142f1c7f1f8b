#pragma once

#include <cstdint>
#include <string>

/// Helper for tests only.

namespace tilewright::test {

/// How many entries a folder of a store holds, and the most it held since this was made. Listing
/// the folders is not reliable while others write: an entry that is removed while the first is read
/// and one that is added before the last is read would both be seen. So the kernel's events
/// (inotify) are replayed. If the system has no inotify, or no watches left, trouble() says so, and
/// a test checks what it can without them and counts as skipped. One thread.
class EntryCount {
 public:
  /// Makes every shard of `root`, whose store has been opened, and counts from there.
  explicit EntryCount(const std::string& root);
  EntryCount(const EntryCount&) = delete;
  EntryCount& operator=(const EntryCount&) = delete;
  ~EntryCount();

  /// Takes in what happened; to be called often enough that the kernel's list
  /// (/proc/sys/fs/inotify/max_queued_events, 16,384 unless somebody changed it) does not overflow.
  void Update();
  std::int64_t now() const { return now_; }
  std::int64_t most() const { return most_; }
  /// Why the numbers are not reliable; "" if they are.
  const std::string& trouble() const { return trouble_; }

 private:
  int fd_ = -1;
  std::int64_t now_ = 0, most_ = 0;
  std::string trouble_;
};

}  // namespace tilewright::test
