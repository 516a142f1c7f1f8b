#include "model/gguf/gguf_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/text.h"

namespace tilewright {
namespace {

/// False with errno, which is 0 where the file ends before `size` bytes.
bool ReadAll(int fd, std::byte* into, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    errno = 0;
    const ssize_t got = ::pread(fd, into + done, size - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<GgufFile::Mapping>> GgufFile::Mapping::Open(const std::string& path) {
  const auto fail = [&path](ErrorCode code, std::string_view what) {
    return Fail(code, Format("{}: {}", path, what));
  };
  // Non-blocking, so that a named pipe is rejected below instead of blocking here.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    return fail(error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo,
                Format("cannot be opened: {}", std::strerror(error)));
  }
  std::unique_ptr<Mapping> mapping(new Mapping(fd));
  struct stat status;
  if (::fstat(fd, &status) != 0) return fail(ErrorCode::kIo, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return fail(ErrorCode::kInvalidArgument, "is not a regular file");
  if (status.st_size == 0) return fail(ErrorCode::kCorrupt, "the file is empty");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int why = errno;
  mapping->copied_ = data == MAP_FAILED;
  if (mapping->copied_) {
    data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      return fail(ErrorCode::kIo,
                  Format("{} bytes cannot be mapped: {}", size, std::strerror(why)));
  }
  mapping->bytes_ = {static_cast<const std::byte*>(data), size};
  if (mapping->copied_ && !ReadAll(fd, static_cast<std::byte*>(data), size)) {
    return fail(ErrorCode::kIo,
                Format("{} bytes can neither be mapped ({}) nor read ({})", size,
                       std::strerror(why), errno != 0 ? std::strerror(errno) : "too few"));
  }
  mapping->modified_ = status.st_mtim;
  return mapping;
}

GgufFile::Mapping::~Mapping() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  ::close(fd_);
}

Status GgufFile::Mapping::CheckUnchanged(const std::string& path) const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) {
    return Fail(ErrorCode::kIo, Format("{}: {}", path, std::strerror(errno)));
  }
  if (static_cast<std::size_t>(status.st_size) != bytes_.size()) {
    return Fail(ErrorCode::kIo, Format("{}: was {} bytes long when it was opened and is {} now",
                                       path, bytes_.size(), status.st_size));
  }
  if (status.st_mtim.tv_sec != modified_.tv_sec || status.st_mtim.tv_nsec != modified_.tv_nsec) {
    return Fail(ErrorCode::kIo, Format("{}: was written to since it was opened", path));
  }
  return {};
}

void GgufFile::Mapping::Advise(std::uint64_t offset, std::uint64_t size, int advice) const {
  if (size == 0 || copied_) return;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = offset / page * page;
  const std::uint64_t end =
      std::min<std::uint64_t>((offset + size + page - 1) / page * page, bytes_.size());
  // Advice only: on failure the pages stay where they are.
  (void)::madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, advice);
}

}  // namespace tilewright
