#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/result.h"

namespace tilewright {

class Filesystem;
Filesystem& SystemFilesystem();

/// Writes a file atomically: a reader, or the next run after a crash, sees the old file or the new
/// one, never a part. The bytes go to a temporary file beside it, which Publish syncs and renames
/// (then it syncs the folder); until then, and on any error, the old file is unchanged, and the
/// destructor removes the temporary file. If the path is a symbolic link, its target is replaced.
/// The new file has the mode of the one it replaces, else 0666 less the umask. Errors name the path
/// and the system's reason. Several processes and threads may write the same path: the last rename
/// wins.
class AtomicFile {
 public:
  /// What to do with a path that names a device, a pipe or an open descriptor (/dev/stdout), which
  /// cannot be replaced.
  enum class Special { kRefuse, kWriteDirectly };

  /// kNotFound if its folder is missing; kInvalidArgument for a path that `special` refuses; kIo
  /// for a folder, or if the file system has less than `expected_bytes` free.
  static Result<AtomicFile> Create(const std::string& path, Special special = Special::kRefuse,
                                   std::uint64_t expected_bytes = 0,
                                   Filesystem& files = SystemFilesystem());

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status Append(std::span<const std::byte> bytes);
  Status Publish();

 private:
  explicit AtomicFile(Filesystem& files) : files_(&files) {}

  Filesystem* files_;
  std::string path_;       // as given by the caller
  std::string target_;     // what it resolves to
  std::string temporary_;  // empty when written directly or published
  int fd_ = -1;
};

/// AtomicFile in one step.
Status WriteFileAtomic(const std::string& path, std::string_view bytes,
                       AtomicFile::Special special = AtomicFile::Special::kRefuse,
                       Filesystem& files = SystemFilesystem());

/// The whole file. kNotFound if absent; kExhausted above `max_bytes`; kIo otherwise.
Result<std::string> ReadFile(const std::string& path, std::size_t max_bytes = std::size_t{1} << 31);

}  // namespace tilewright
