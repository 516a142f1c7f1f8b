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

/// The file `counters` of a store: one page of 64-bit words, mapped and shared between processes,
/// so that counts are kept even if the process is killed. Without a file, the words are in memory.
/// Each operation first checks that the file still exists and is complete, since accessing a
/// truncated mapping would be fatal; a file that was deleted or damaged is created again, from
/// zero. Any thread; the caller supplies the mutex.
class CountersFile {
 public:
  static constexpr std::size_t kBytes = 4096;
  static constexpr std::size_t kHeaderWords = 16;
  static constexpr std::size_t kSlots = kBytes / 8 - kHeaderWords;

  /// Words of the header that belong to the store itself.
  enum Word : std::size_t {
    kTotalsKnown = 4,  ///< 0: the next two count from an unknown start
    kEntries = 5,      ///< entry files, including those about to be renamed into place (total.h)
    kEntryBytes = 6,   ///< their sizes (total.h)
    kTrimUnixS = 7,    ///< time of the last trim
    kSweepUnixS = 8,   ///< time of the last sweep
    kSlot0 = kHeaderWords
  };

  /// What it needs from its folder: to create a file with the given content if there is none (0,
  /// -EEXIST or an error), and to move a damaged one away.
  struct Folder {
    std::function<int(const std::string& path, std::string_view bytes)> create;
    std::function<bool(const std::string& path, const Filesystem::Stat& stat)> quarantine;
  };

  /// `trust` belongs to the caller and is evaluated each time.
  CountersFile(Filesystem& files, std::string path, const Trust& trust, Folder folder,
               std::mutex& mutex);
  CountersFile(const CountersFile&) = delete;
  CountersFile& operator=(const CountersFile&) = delete;
  ~CountersFile();

  /// Maps the file, creating it if it is missing. 0, or the error, after which it counts in memory.
  int Open();

  /// Modulo 2^64; returns the new value.
  std::uint64_t Add(std::size_t word, std::uint64_t amount);
  std::uint64_t Get(std::size_t word) const;
  void Set(std::size_t word, std::uint64_t value);
  /// Atomically replaces the value by what `next` returns for it; `next` may be called several
  /// times, and leaves the value unchanged by returning it.
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
  /// The counts in the file plus, if that cannot be written, those in memory.
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
  bool wanted_ = false;     // Open was called: use a file if possible
  mutable Words memory_{};  // used without a file
  mutable Words* mapped_ = nullptr;
  mutable OpenFile file_;
  mutable std::int64_t failed_unix_s_ = 0;  // when opening the file last failed
};

}  // namespace tilewright
