#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "artifact/dir/dir_files.h"
#include "core/filesystem.h"

namespace tilewright {

/// The file `counters` of a store: one page of 64-bit words, shared among processes by mapping it,
/// so that what was added is kept whatever becomes of the process. Where there is no file, words in
/// memory. Each operation looks first whether the file is still there and whole, since touching
/// what was cut off would be fatal; a file that was deleted or damaged is made anew, from zero.
/// Any thread; the mutex is the caller's.
class CountersFile {
 public:
  static constexpr std::size_t kBytes = 4096;
  static constexpr std::size_t kHeaderWords = 16;
  static constexpr std::size_t kSlots = kBytes / 8 - kHeaderWords;

  /// Words of the header that belong to the store itself.
  enum Word : std::size_t {
    kTotalsKnown = 4,  ///< 0: the next two count from an unknown start
    kEntries = 5,      ///< entry files, those about to be renamed into place included (total.h)
    kEntryBytes = 6,   ///< their sizes (total.h)
    kTrimUnixS = 7,    ///< when somebody last looked through all entries to trim
    kSweepUnixS = 8,   ///< when somebody last swept
    kSlot0 = kHeaderWords
  };

  /// What it needs from its folder: to make a file of that content in place of none (0, -EEXIST or
  /// an error), and to move a damaged one away.
  struct Folder {
    std::function<int(const std::string& path, std::string_view bytes)> create;
    std::function<bool(const std::string& path, const Filesystem::Stat& stat)> quarantine;
  };

  /// `trust` is the caller's, and looked at each time.
  CountersFile(Filesystem& files, std::string path, const Trust& trust, Folder folder,
               std::mutex& mutex);
  CountersFile(const CountersFile&) = delete;
  CountersFile& operator=(const CountersFile&) = delete;
  ~CountersFile();

  /// Maps the file, making it where it is missing. 0, or the error that leaves it in memory.
  int Open();

  std::uint64_t Add(std::size_t word, std::uint64_t amount);  ///< modulo 2^64; gives the new value
  std::uint64_t Get(std::size_t word) const;
  void Set(std::size_t word, std::uint64_t value);
  /// Replaces what is there by what `next` makes of it, in one step; `next` may be asked again, and
  /// leaves it by giving it back.
  template <class Next>
  void Change(std::size_t word, const Next& next) {
    const std::lock_guard lock(mutex_);
    std::atomic<std::uint64_t>& there = Current()[word];
    std::uint64_t value = there.load();
    while (!there.compare_exchange_weak(value, next(value))) {
    }
  }
  /// Sets the word if it is still `expected`.
  bool Replace(std::size_t word, std::uint64_t expected, std::uint64_t value);
  /// What was counted: in the file and, where that cannot be written, in memory as well.
  void GetSlots(std::uint64_t* values, std::size_t count) const;

 private:
  using Words = std::array<std::atomic<std::uint64_t>, kBytes / 8>;

  Words& Current() const;  // with mutex_ held
  int OpenLocked() const;
  int OpenExisting() const;
  bool ReadStored(std::array<std::uint64_t, kBytes / 8>& words) const;
  void Drop() const;

  Filesystem& files_;
  const std::string path_;
  const Trust& trust_;
  const Folder folder_;
  std::mutex& mutex_;
  bool wanted_ = false;     // a file, that is: Open was called
  mutable Words memory_{};  // where there is no file
  mutable Words* mapped_ = nullptr;
  mutable OpenFile file_;
  mutable std::int64_t failed_unix_s_ = 0;  // when the file was last asked for in vain
};

}  // namespace tilewright
