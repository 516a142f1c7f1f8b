// Makes a bundle with checked index and signature from a file or from bytes in memory.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "artifact/bundle/bundle_impl.h"
#include "artifact/bundle/bundle_signature.h"
#include "core/text.h"

namespace tilewright {
namespace {

using bundle_format::Header;
using bundle_format::Index;
using bundle_format::kHeaderBytes;

Error IoError(const char* what) {
  const int code = errno;
  return {code == ENOENT || code == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo,
          Format("{}: {}", what, std::strerror(code))};
}

}  // namespace

Error AtBundle(const std::string& path, Error error) {
  if (!path.empty()) error.message = path + ": " + error.message;
  return error;
}

bool IsBundleFile(std::string_view bytes) {
  return bytes.substr(0, bundle_format::kMagic.size()) == bundle_format::kMagic;
}

Status Bundle::Impl::Read(std::uint64_t offset, std::span<char> bytes) const {
  if (fd < 0) {
    std::memcpy(bytes.data(), memory.data() + offset, bytes.size());
    return {};
  }
  // By read, not mmap: if the file shrinks meanwhile, that is an error, not a signal.
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(IoError("cannot read"));
    if (got == 0) {
      return Fail(ErrorCode::kCorrupt, Format("it ends at {}, but {} bytes from {} are needed",
                                              offset + done, bytes.size(), offset));
    }
    done += static_cast<std::size_t>(got);
  }
  return {};
}

Status Bundle::Impl::OpenFile(const OpenOptions& options) {
  // O_NONBLOCK: a pipe in its place must not block.
  fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return Fail(IoError("cannot open"));
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Fail(IoError("cannot stat"));
  if (!S_ISREG(info.st_mode)) return Fail(ErrorCode::kIo, "not a regular file");
  file_bytes = static_cast<std::uint64_t>(info.st_size);

  std::string head(std::min<std::uint64_t>(file_bytes, kHeaderBytes), '\0');
  if (Status read = Read(0, head); !read) return read;
  Result<Header> parsed = bundle_format::ParseHeader(head, file_bytes);
  if (!parsed) return Fail(parsed.error());
  header = *parsed;
  owned = std::move(head);
  owned.resize(header.payload_offset);
  if (Status read = Read(kHeaderBytes, std::span(owned).subspan(kHeaderBytes)); !read) {
    return read;
  }
  std::string signature(header.signature_bytes, '\0');
  if (Status read = Read(header.content_bytes, signature); !read) return read;
  return Adopt(owned, signature, options);
}

Status Bundle::Impl::Adopt(std::string_view head_and_index, std::string_view signature,
                           const OpenOptions& options) {
  Result<Index> parsed = bundle_format::ParseIndex(header, head_and_index.substr(kHeaderBytes));
  if (!parsed) return Fail(parsed.error());
  index = std::move(*parsed);
  if (!signature.empty()) {
    Result<Ed25519Public> key = CheckSignature(signature, header.manifest_digest);
    if (!key) return Fail(key.error());
    signer = *key;
  }
  if (Status trusted = CheckTrust(signer, options.trusted_keys); !trusted) return trusted;
  payloads = std::make_unique<std::atomic<const char*>[]>(header.blob_count);
  return {};
}

Status Bundle::Impl::CheckLength() const {
  if (fd < 0) return {};
  struct stat now {};
  if (::fstat(fd, &now) != 0) return Fail(IoError("cannot stat"));
  if (static_cast<std::uint64_t>(now.st_size) == file_bytes) return {};
  return Fail(ErrorCode::kCorrupt, Format("it has {} bytes now and had {} when it was opened; "
                                          "replace a bundle by renaming another over it",
                                          now.st_size, file_bytes));
}

Result<std::shared_ptr<const Bundle>> Bundle::Open(const std::string& path,
                                                   const OpenOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  if (const Status status = impl->OpenFile(options); !status) {
    return Fail(AtBundle(path, status.error()));
  }
  return std::shared_ptr<const Bundle>(new Bundle(std::move(impl)));
}

Result<std::shared_ptr<const Bundle>> Bundle::FromBytes(std::string_view bytes,
                                                        const OpenOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->memory = bytes;
  impl->file_bytes = bytes.size();
  Result<Header> header =
      bundle_format::ParseHeader(bytes.substr(0, kHeaderBytes), impl->file_bytes);
  if (!header) return Fail(header.error());
  impl->header = *header;
  if (const Status status = impl->Adopt(bytes.substr(0, header->payload_offset),
                                        bytes.substr(header->content_bytes), options);
      !status) {
    return Fail(status.error());
  }
  return std::shared_ptr<const Bundle>(new Bundle(std::move(impl)));
}

}  // namespace tilewright
