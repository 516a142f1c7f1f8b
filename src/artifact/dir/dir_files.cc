#include "artifact/dir/dir_files.h"

#include <fcntl.h>

#include <cerrno>
#include <new>
#include <utility>

#include "core/text.h"

namespace tilewright {

OpenFile::OpenFile(OpenFile&& other) noexcept
    : files_(other.files_), fd_(std::exchange(other.fd_, -1)) {}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  if (this != &other) {
    (void)Close();
    files_ = other.files_;
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

int OpenFile::Close() { return fd_ < 0 ? 0 : files_->Close(std::exchange(fd_, -1)); }

FileReader::Outcome FileReader::Failed(std::string_view step, const std::string& path, int failure,
                                       bool& again) {
  error = failure;
  again = error == -ESTALE || error == -ENOENT || error == -ELOOP || error == -EINTR;
  detail = Trouble(step, path, error);
  return Outcome::kFailed;
}

FileReader::Outcome FileReader::Read(Filesystem& files, const std::string& path, const Trust& trust,
                                     std::uint64_t max_bytes) {
  constexpr int kAttempts = 4;
  Outcome outcome = Outcome::kFailed;
  bool again = true;
  for (int attempt = 0; again && attempt < kAttempts; ++attempt) {
    again = false;
    outcome = ReadOnce(files, path, trust, max_bytes, again);
  }
  return outcome;
}

FileReader::Outcome FileReader::ReadOnce(Filesystem& files, const std::string& path,
                                         const Trust& trust, std::uint64_t max_bytes, bool& again) {
  // Checked before it is opened, since opening a device or a pipe can have side effects.
  error = files.StatPath(path.c_str(), stat);
  if (error == -ENOENT || error == -ENOTDIR) return Outcome::kAbsent;
  if (error != 0) return Failed("inspect", path, error, again);
  const auto foreign = [&] {
    detail = stat.IsRegular() ? trust.Complaint(stat) : "not a regular file";
    if (detail.empty() && stat.size > max_bytes) {
      detail = Format("{} bytes, at most {} are allowed", stat.size, max_bytes);
    }
    return !detail.empty();
  };
  if (foreign()) return Outcome::kForeign;
  file =
      OpenFile(files, files.Open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0));
  if (file.fd() < 0) return Failed("open", path, file.fd(), again);
  // The name may refer to another file by now, so judge the one that is open.
  error = files.StatFd(file.fd(), stat);
  if (error != 0) return Failed("inspect", path, error, again);
  if (foreign()) return Outcome::kForeign;

  bytes.data_.reset(new (std::nothrow) char[stat.size + 1]);
  if (bytes.data_ == nullptr) return Failed("read", path, -ENOMEM, again);
  std::size_t done = 0;
  while (done < stat.size) {
    const ssize_t got = files.Read(file.fd(), bytes.data_.get() + done, stat.size - done,
                                   static_cast<std::int64_t>(done));
    if (got < 0) return Failed("read", path, static_cast<int>(got), again);
    if (got == 0) break;  // truncated meanwhile; the digest will not match
    done += static_cast<std::size_t>(got);
  }
  bytes.bytes_ = done;
  return Outcome::kRead;
}

int TemporaryFile::Write(const std::string& path, const Contents& contents, const char*& step) {
  step = "create";
  OpenFile file(files_,
                files_.Open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, contents.mode));
  if (file.fd() < 0) return file.fd();
  path_ = path;
  const auto fail = [&](int error) {
    (void)file.Close();
    Remove();
    return error;
  };
  // On a file system without modes, the mount options decide who may read.
  if ((contents.mode & 077) != 0) (void)files_.SetMode(file.fd(), contents.mode);
  step = "write";
  for (std::string_view rest = contents.bytes; !rest.empty();) {
    const ssize_t put = files_.Write(file.fd(), rest.data(), rest.size());
    if (put <= 0) return fail(put < 0 ? static_cast<int>(put) : -EIO);
    rest.remove_prefix(static_cast<std::size_t>(put));
  }
  Filesystem::Stat stat;
  identity_.reset();
  if (files_.StatFd(file.fd(), stat) == 0) identity_ = stat;
  // The stamp is taken from our clock, not from a file server's. The file is usable without it.
  (void)files_.SetTime(file.fd(), contents.stamp_s);
  if (contents.durable) {
    step = "sync";
    if (const int error = files_.Sync(file.fd()); error != 0) return fail(error);
  }
  step = "close";  // network file systems report failed writes here
  const int error = file.Close();
  return error == 0 ? 0 : fail(error);
}

void TemporaryFile::Remove() {
  if (!path_.empty()) (void)files_.Unlink(path_.c_str());
  path_.clear();
}

}  // namespace tilewright
