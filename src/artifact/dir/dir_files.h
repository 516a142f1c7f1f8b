#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "artifact/dir/dir_layout.h"
#include "artifact/dir/store_dir.h"
#include "core/filesystem.h"

namespace tilewright {

/// A descriptor that is closed at the end of its scope.
class OpenFile {
 public:
  OpenFile() = default;
  OpenFile(Filesystem& files, int fd) : files_(&files), fd_(fd) {}
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;
  ~OpenFile() { (void)Close(); }

  int fd() const { return fd_; }
  /// The result of closing; 0 if nothing is open.
  int Close();

 private:
  Filesystem* files_ = nullptr;
  int fd_ = -1;  // negative: nothing
};

/// A file read in full, with what is needed to judge it.
class FileReader {
 public:
  enum class Outcome {
    kRead,
    kAbsent,
    kForeign,  ///< not a regular file, or not trusted: `detail` says why
    kFailed,   ///< a system call failed: `detail` says which
  };

  /// Reads at most `max_bytes`; a larger file is foreign. Tries a few times if the file vanishes or
  /// its handle goes stale (network file systems).
  Outcome Read(Filesystem& files, const std::string& path, const Trust& trust,
               std::uint64_t max_bytes);

  FileBytes bytes;
  Filesystem::Stat stat;  ///< of the file that was read or is foreign
  std::string detail;
  int error = 0;  ///< of kFailed, negative
  OpenFile file;  ///< still open, for its time stamp

 private:
  Outcome ReadOnce(Filesystem& files, const std::string& path, const Trust& trust,
                   std::uint64_t max_bytes, bool& again);
  Outcome Failed(std::string_view step, const std::string& path, int failure, bool& again);
};

/// A complete file in tmp/ under a unique name, until it is renamed; removed otherwise.
class TemporaryFile {
 public:
  explicit TemporaryFile(Filesystem& files) : files_(files) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { Remove(); }

  struct Contents {
    std::string_view bytes;
    std::int64_t stamp_s = 0;
    mode_t mode = 0600;  ///< bits for group and others are set despite the umask
    bool durable = false;
  };
  /// 0, or the error of the failed step, which `step` names; then no file is left.
  int Write(const std::string& path, const Contents& contents, const char*& step);
  const std::string& path() const { return path_; }
  bool exists() const { return !path_.empty(); }
  /// Identifies the file, whatever its name is now; nullopt if the system did not report it.
  const std::optional<Filesystem::Stat>& identity() const { return identity_; }
  void Renamed() { path_.clear(); }
  void Remove();

 private:
  Filesystem& files_;
  std::string path_;
  std::optional<Filesystem::Stat> identity_;
};

}  // namespace tilewright
