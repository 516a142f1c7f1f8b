#include "core/filesystem.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

namespace tilewright {
namespace {

int OrError(int result) { return result < 0 ? -errno : result; }

/// Repeats the call until it is not interrupted.
template <class Call>
auto Uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

void Fill(const struct stat& from, Filesystem::Stat& to) {
  to.dev = from.st_dev;
  to.ino = from.st_ino;
  to.size = from.st_size < 0 ? 0 : static_cast<std::uint64_t>(from.st_size);
  to.links = from.st_nlink;
  to.mode = from.st_mode;
  to.uid = from.st_uid;
  to.gid = from.st_gid;
  to.mtime_s = from.st_mtim.tv_sec;
  to.mtime_ns = from.st_mtim.tv_nsec;
}

struct flock Range(short type, std::uint64_t start) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(start);
  range.l_len = 1;
  return range;
}

class System final : public Filesystem {
 public:
  int Open(const char* path, int flags, mode_t mode) override {
    return OrError(Uninterrupted([&] { return open(path, flags | O_CLOEXEC, mode); }));
  }

  int Close(int fd) override {
    // After EINTR Linux has closed the descriptor; closing again could hit another thread's.
    const int result = OrError(close(fd));
    return result == -EINTR ? 0 : result;
  }

  ssize_t Read(int fd, void* data, std::size_t bytes, std::int64_t offset) override {
    const ssize_t got = Uninterrupted([&] { return pread(fd, data, bytes, offset); });
    return got < 0 ? -errno : got;
  }

  ssize_t Write(int fd, const void* data, std::size_t bytes) override {
    const ssize_t put = Uninterrupted([&] { return write(fd, data, bytes); });
    return put < 0 ? -errno : put;
  }

  int Sync(int fd) override {
    return OrError(Uninterrupted([&] { return fsync(fd); }));
  }

  int StatFd(int fd, Stat& out) override {
    struct stat info {};
    if (fstat(fd, &info) != 0) return -errno;
    Fill(info, out);
    return 0;
  }

  int StatPath(const char* path, Stat& out) override {
    struct stat info {};
    if (lstat(path, &info) != 0) return -errno;
    Fill(info, out);
    return 0;
  }

  int MakeDir(const char* path, mode_t mode) override { return OrError(mkdir(path, mode)); }
  int RemoveDir(const char* path) override { return OrError(rmdir(path)); }

  int RenameNoReplace(const char* from, const char* to) override {
    // By number: musl and older C libraries lack the wrapper.
    const long renamed = syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to,
                                 static_cast<unsigned>(RENAME_NOREPLACE));
    if (renamed == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) return -errno;
    struct stat info {};
    if (lstat(from, &info) != 0) return -errno;
    // Folders cannot have hard links; those that are moved (into quarantine) get unique names.
    if (!S_ISDIR(info.st_mode)) {
      if (link(from, to) == 0) {
        // If this fails, a second name stays in tmp/, which the sweep removes.
        unlink(from);
        return 0;
      }
      if (errno != EPERM && errno != EOPNOTSUPP && errno != EMLINK && errno != ENOSYS) {
        return -errno;
      }
    }
    if (lstat(to, &info) == 0) return -EEXIST;
    return OrError(rename(from, to));
  }

  int Rename(const char* from, const char* to) override { return OrError(rename(from, to)); }
  int Unlink(const char* path) override { return OrError(unlink(path)); }

  int SetMode(int fd, mode_t mode) override { return OrError(fchmod(fd, mode)); }

  int SetTime(int fd, std::int64_t mtime_s) override {
    struct timespec times[2] = {};
    times[0].tv_sec = times[1].tv_sec = static_cast<time_t>(mtime_s);
    return OrError(futimens(fd, times));
  }

  int List(const char* path, std::vector<std::string>& names) override {
    names.clear();
    // Not opendir, which would follow a symbolic link that has replaced the folder.
    const int fd = Open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd < 0) return fd;
    DIR* const folder = fdopendir(fd);
    if (folder == nullptr) {
      const int error = -errno;
      close(fd);
      return error;
    }
    int result = 0;
    for (;;) {
      errno = 0;
      const struct dirent* const entry = readdir(folder);
      if (entry == nullptr) {
        result = -errno;
        break;
      }
      const std::string_view name(entry->d_name);
      if (name != "." && name != "..") names.emplace_back(name);
    }
    closedir(folder);
    return result;
  }

  void* Map(int fd, std::size_t bytes, bool writable, int& error) override {
    const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void* const data = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
    error = data == MAP_FAILED ? -errno : 0;
    return data == MAP_FAILED ? nullptr : data;
  }

  int Unmap(void* data, std::size_t bytes) override { return OrError(munmap(data, bytes)); }

  int TryLockRange(int fd, std::uint64_t start) override {
    struct flock range = Range(F_WRLCK, start);
    const int result = OrError(fcntl(fd, F_OFD_SETLK, &range));
    return result == -EACCES ? -EAGAIN : result;  // POSIX allows either
  }

  int UnlockRange(int fd, std::uint64_t start) override {
    struct flock range = Range(F_UNLCK, start);
    return OrError(fcntl(fd, F_OFD_SETLK, &range));
  }

  std::int64_t NowUnixSeconds() override { return static_cast<std::int64_t>(time(nullptr)); }
};

}  // namespace

bool Filesystem::Stat::IsRegular() const { return S_ISREG(mode); }
bool Filesystem::Stat::IsDirectory() const { return S_ISDIR(mode); }
bool Filesystem::Stat::IsSymlink() const { return S_ISLNK(mode); }

Filesystem& SystemFilesystem() {
  static System system;
  return system;
}

}  // namespace tilewright
