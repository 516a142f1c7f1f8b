#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tilewright {

/// The system calls of the artifact store, one virtual function each, so that a test can make any
/// of them fail, write short, or be the last thing that a process does. Functions return what the
/// call returns, or -errno on failure (never -1 with errno). Stateless; any thread.
class Filesystem {
 public:
  struct Stat {
    std::uint64_t dev = 0, ino = 0, size = 0, links = 0;
    std::uint32_t mode = 0, uid = 0, gid = 0;
    std::int64_t mtime_s = 0, mtime_ns = 0;
    bool IsRegular() const;
    bool IsDirectory() const;
    bool IsSymlink() const;
  };

  virtual ~Filesystem() = default;
  virtual int Open(const char* path, int flags, mode_t mode) = 0;  ///< O_CLOEXEC is added
  virtual int Close(int fd) = 0;
  /// May read or write fewer than `bytes`; reading at the end returns 0.
  virtual ssize_t Read(int fd, void* data, std::size_t bytes, std::int64_t offset) = 0;
  virtual ssize_t Write(int fd, const void* data, std::size_t bytes) = 0;
  virtual int Sync(int fd) = 0;
  virtual int StatFd(int fd, Stat& out) = 0;
  virtual int StatPath(const char* path, Stat& out) = 0;  ///< does not follow a symbolic link
  virtual int MakeDir(const char* path, mode_t mode) = 0;
  virtual int RemoveDir(const char* path) = 0;
  /// Fails with -EEXIST if `to` exists. Uses renameat2(RENAME_NOREPLACE); if the file system lacks
  /// it, link and unlink; if it lacks hard links too, a check and a rename (two processes may then
  /// both succeed, and the later file stays).
  virtual int RenameNoReplace(const char* from, const char* to) = 0;
  virtual int Rename(const char* from, const char* to) = 0;
  virtual int Unlink(const char* path) = 0;
  virtual int SetMode(int fd, mode_t mode) = 0;                             ///< whatever the umask
  virtual int SetTime(int fd, std::int64_t mtime_s) = 0;                    ///< access time too
  virtual int List(const char* path, std::vector<std::string>& names) = 0;  ///< without . and ..
  virtual void* Map(int fd, std::size_t bytes, bool writable, int& error) = 0;  ///< shared
  virtual int Unmap(void* data, std::size_t bytes) = 0;
  /// Takes an exclusive open-file-description lock on bytes [start, start + 1): 0, or -EAGAIN if
  /// another open file description holds it (never this one: the caller keeps its own list).
  /// Released by UnlockRange, by closing the last descriptor of the open file, or by the kernel
  /// when the process ends.
  virtual int TryLockRange(int fd, std::uint64_t start) = 0;
  virtual int UnlockRange(int fd, std::uint64_t start) = 0;
  virtual std::int64_t NowUnixSeconds() = 0;
};

/// The real system calls.
Filesystem& SystemFilesystem();

}  // namespace tilewright
