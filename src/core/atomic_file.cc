#include "core/atomic_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/text.h"

namespace tilewright {
namespace {

constexpr std::uint64_t kPage = 4096;

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
  /// Closes now and says whether that worked: some file systems report a failed write only here.
  bool Close() { return close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

tl::unexpected<Error> IoError(const std::string& step, const std::string& path, int reason) {
  const ErrorCode code = reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return Fail(code, Format("cannot {} {}: {}", step, path, std::strerror(reason)));
}

/// 0 or the errno of the write that failed.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Status WriteFileAtomic(const std::string& path, std::string_view bytes) {
  static std::atomic<unsigned> counter{0};
  const std::string temporary = Format("{}.{}.{}.tmp", path, getpid(), counter.fetch_add(1));
  FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) return IoError("create", temporary, errno);

  const char* step = "write";
  int reason = WriteAll(file.get(), bytes);
  if (reason == 0 && fsync(file.get()) != 0) step = "sync", reason = errno;
  if (!file.Close() && reason == 0) step = "close", reason = errno;
  if (reason == 0 && rename(temporary.c_str(), path.c_str()) != 0)
    step = "rename into place", reason = errno;
  if (reason != 0) {
    unlink(temporary.c_str());
    return IoError(step, path, reason);
  }
  // The rename is done; without this sync a power cut may still bring the old file back, which is
  // consistent too, so a file system that cannot sync folders is no error.
  const FileDescriptor folder(open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) fsync(folder.get());
  return {};
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

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return IoError("open", path, errno);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return IoError("inspect", path, errno);
  if (!S_ISREG(info.st_mode)) return Fail(ErrorCode::kIo, Format("{} is not a regular file", path));
  MappedFile mapped;
  mapped.path_ = path;
  if (info.st_size == 0) return mapped;
  void* data =
      mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return IoError("map", path, errno);
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.size_ = static_cast<std::size_t>(info.st_size);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::span<const std::byte>> MappedFile::Slice(std::uint64_t offset,
                                                     std::uint64_t length) const {
  if (offset > size_ || length > size_ - offset) {
    return Fail(ErrorCode::kCorrupt, Format("{}: {} bytes at offset {} are beyond its end at {}",
                                            path_, length, offset, size_));
  }
  return std::span(data_ + offset, static_cast<std::size_t>(length));
}

void MappedFile::Discard(std::uint64_t offset, std::uint64_t length) const {
  if (offset >= size_) return;
  const std::uint64_t end = length < size_ - offset ? offset + length : size_;
  const std::uint64_t first = (offset + kPage - 1) / kPage * kPage;
  // The page that holds the end of the file belongs to nobody else.
  const std::uint64_t last =
      end == size_ ? (size_ + kPage - 1) / kPage * kPage : end / kPage * kPage;
  if (first < last) madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

void MappedFile::Prefetch(std::uint64_t offset, std::uint64_t length) const {
  if (offset >= size_) return;
  const std::uint64_t end = length < size_ - offset ? offset + length : size_;
  const std::uint64_t first = offset / kPage * kPage;
  madvise(const_cast<std::byte*>(data_) + first, end - first, MADV_WILLNEED);
}

}  // namespace tilewright
