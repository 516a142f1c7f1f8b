#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/result.h"

namespace tilewright {

/// Replaces `path` by `bytes` so that a reader, or the next run after a crash, sees the old file or
/// the new one, never a part: a temporary file beside it is written, synced and renamed, then the
/// folder is synced. On any error `path` is as it was and the temporary file is gone. The error
/// names the path, the step and the system's reason. Mode 0666 less the umask. Safe for several
/// processes and threads writing one path: the last rename wins.
Status WriteFileAtomic(const std::string& path, std::string_view bytes);

/// The whole file. kNotFound if absent; kExhausted above `max_bytes`; kIo otherwise.
Result<std::string> ReadFile(const std::string& path, std::size_t max_bytes = std::size_t{1} << 31);

/// A file mapped read-only. Movable; unmaps on destruction. Another process that truncates the file
/// while it is mapped makes reads beyond its new end raise SIGBUS: files the library writes itself
/// are replaced by rename, never truncated.
class MappedFile {
 public:
  /// kNotFound if absent, kIo if it is a folder or cannot be mapped. An empty file gives size() ==
  /// 0.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  const std::string& path() const { return path_; }

  /// The bytes [offset, offset + length); kCorrupt, naming both and the size, if the file does not
  /// hold them.
  Result<std::span<const std::byte>> Slice(std::uint64_t offset, std::uint64_t length) const;

  /// Tells the kernel that the whole pages inside the range are no longer needed: they leave this
  /// process' resident set and are read again from the file when touched. `Prefetch` asks for the
  /// range ahead of use. Both are hints and clamp to the file.
  void Discard(std::uint64_t offset, std::uint64_t length) const;
  void Prefetch(std::uint64_t offset, std::uint64_t length) const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::string path_;
};

}  // namespace tilewright
