#include "core/atomic_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "core/filesystem.h"
#include "core/text.h"

namespace tilewright {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

tl::unexpected<Error> IoError(const std::string& step, const std::string& path, int reason) {
  const ErrorCode code = reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return Fail(code, Format("cannot {} {}: {}", step, path, std::strerror(reason)));
}

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// Where a write to a path actually goes.
struct Target {
  std::string path;
  bool special = false;             // a device, a pipe or a descriptor: cannot be replaced
  std::optional<mode_t> mode = {};  // of the existing file
};

/// Follows the last component of `path` through symbolic links, even to a file that does not exist
/// yet. A link below /proc is a descriptor of a process: its text is not a path.
Result<Target> Resolve(const std::string& path) {
  constexpr int kMostLinks = 40;  // Linux's limit
  Target target{path};
  for (int links = 0; links <= kMostLinks; ++links) {
    struct stat info {};
    if (lstat(target.path.c_str(), &info) != 0) {
      if (errno == ENOENT) return target;  // if the folder is missing, Create reports it
      return IoError("inspect", path, errno);
    }
    if (S_ISDIR(info.st_mode)) {
      return Fail(ErrorCode::kIo, Format("cannot write {}: it is a folder", path));
    }
    target.mode = info.st_mode & 07777;
    if (S_ISREG(info.st_mode)) return target;
    target.special = !S_ISLNK(info.st_mode) || target.path.starts_with("/proc/") ||
                     target.path.starts_with("/dev/fd/");
    if (target.special) return target;
    char text[PATH_MAX];
    const ssize_t size = readlink(target.path.c_str(), text, sizeof text);
    if (size < 0) return IoError("follow", path, errno);
    const std::string next(text, static_cast<std::size_t>(size));
    target.path = next.starts_with('/') ? next : FolderOf(target.path) + "/" + next;
    target.mode.reset();
  }
  return IoError("follow", path, ELOOP);
}

Status CheckSpace(int fd, const std::string& path, std::uint64_t bytes) {
  struct statvfs space {};
  if (bytes == 0 || fstatvfs(fd, &space) != 0) return {};
  const std::uint64_t free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  if (free_bytes >= bytes) return {};
  return Fail(ErrorCode::kIo, Format("cannot write {}: it takes {} and the file system has {} free",
                                     path, HumanBytes(bytes), HumanBytes(free_bytes)));
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::string& path, Special special,
                                      std::uint64_t expected_bytes, Filesystem& files) {
  Result<Target> target = Resolve(path);
  if (!target) return Fail(target.error());
  AtomicFile file(files);
  file.path_ = path;
  if (target->special) {
    if (special == Special::kRefuse) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("cannot write {}: it is not a regular file", path));
    }
    file.fd_ = files.Open(path.c_str(), O_WRONLY | O_APPEND, 0);
    if (file.fd_ < 0) return IoError("open", path, -file.fd_);
    return file;
  }
  static std::atomic<unsigned> counter{0};
  file.target_ = std::move(target->path);
  std::string temporary;
  do {
    // An existing one was left by a killed process with the same pid; the first process of every
    // container has the same one.
    temporary = Format("{}.{}.{}.tmp", file.target_, getpid(), counter.fetch_add(1));
    file.fd_ = files.Open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
  } while (file.fd_ == -EEXIST);
  if (file.fd_ < 0) return IoError("create", temporary, -file.fd_);
  file.temporary_ = temporary;
  if (target->mode) {
    const int error = files.SetMode(file.fd_, *target->mode);
    if (error != 0) return IoError("write", path, -error);
  }
  if (Status space = CheckSpace(file.fd_, path, expected_bytes); !space) return Fail(space.error());
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : files_(other.files_),
      path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) (void)files_->Close(fd_);
  if (!temporary_.empty()) (void)files_->Unlink(temporary_.c_str());
}

Status AtomicFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = files_->Write(fd_, bytes.data(), bytes.size());
    if (written <= 0)
      return IoError("write", path_, written < 0 ? static_cast<int>(-written) : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status AtomicFile::Publish() {
  const bool direct = temporary_.empty();
  if (const int error = direct ? 0 : files_->Sync(fd_); error != 0) {
    return IoError("sync", path_, -error);
  }
  // Some file systems report a failed write only when the file is closed.
  if (const int error = files_->Close(std::exchange(fd_, -1)); error != 0) {
    return IoError("close", path_, -error);
  }
  if (direct) return {};
  if (const int error = files_->Rename(temporary_.c_str(), target_.c_str()); error != 0) {
    return IoError("rename into place", path_, -error);
  }
  temporary_.clear();
  // The rename is done. Without this sync, a power cut may bring the old file back, which is
  // consistent too, so a file system that cannot sync folders is not an error.
  const int folder = files_->Open(FolderOf(target_).c_str(), O_RDONLY | O_DIRECTORY, 0);
  if (folder < 0) return {};
  (void)files_->Sync(folder);
  (void)files_->Close(folder);
  return {};
}

Status WriteFileAtomic(const std::string& path, std::string_view bytes, AtomicFile::Special special,
                       Filesystem& files) {
  Result<AtomicFile> file = AtomicFile::Create(path, special, 0, files);
  if (!file) return Fail(file.error());
  if (Status status = file->Append(std::as_bytes(std::span(bytes))); !status) return status;
  return file->Publish();
}

Result<std::string> ReadFile(const std::string& path, std::size_t max_bytes) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return IoError("open", path, errno);
  std::string bytes;
  struct stat info {};
  if (fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
      static_cast<std::uint64_t>(info.st_size) <= max_bytes) {
    bytes.reserve(static_cast<std::size_t>(info.st_size) + 1);
  }
  // Read to the end instead of st_size: files in /proc report 0.
  char chunk[64 << 10];
  for (;;) {
    const ssize_t got = read(file.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError("read", path, errno);
    if (got == 0) return bytes;
    if (bytes.size() + static_cast<std::size_t>(got) > max_bytes) {
      return Fail(ErrorCode::kExhausted,
                  Format("{} is larger than the limit of {} bytes", path, max_bytes));
    }
    bytes.append(chunk, static_cast<std::size_t>(got));
  }
}

}  // namespace tilewright
