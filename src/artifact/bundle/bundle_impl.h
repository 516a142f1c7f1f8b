#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/bundle/bundle_format.h"
#include "tilewright/bundle.h"

namespace tilewright {

/// The error, after the file's path where there is one.
Error AtBundle(const std::string& path, Error error);

struct Bundle::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  /// Opens the file at `path` and reads header, index and signature.
  Status OpenFile(const OpenOptions& options);
  /// Takes header, index and signature.
  Status Adopt(std::string_view head_and_index, std::string_view signature,
               const OpenOptions& options);
  /// kCorrupt if the file is not as long as it was: it is another one by now.
  Status CheckLength() const;

  /// Reads `bytes.size()` bytes from `offset`. kCorrupt where the file ends before.
  Status Read(std::uint64_t offset, std::span<char> bytes) const;
  /// A payload whose digest is right, in memory that nobody else writes: of a file a copy, read
  /// when it is first asked for and kept, so that what happens to the file later touches nothing
  /// that was served. Empty for kNoBlob. kCorrupt, with `found` the digest of what is there where
  /// all of it could be read; kIo, kOutOfMemory.
  Result<std::string_view> Payload(std::uint32_t blob,
                                   std::optional<Sha256Digest>* found = nullptr) const;
  /// The payloads of an entry.
  struct Parts {
    std::string_view description, cubin, ptx, source;
  };
  /// kCorrupt names the first payload of entry `i` whose digest differs.
  Result<Parts> Payloads(std::size_t i) const;
  Error PartError(std::size_t i, std::string_view part, const Error& error) const;
  /// The artifact of payloads whose digests are known to be right.
  Result<ArtifactData> Decode(std::size_t i, const Parts& parts) const;
  /// Verify's, which keeps nothing of what it reads: the padding before each payload and its
  /// digest; for each whether it is good.
  Result<std::vector<bool>> CheckBlobs(std::vector<std::string>& troubles) const;
  Status CheckEntry(std::size_t i, const std::vector<bool>& good) const;
  /// kCorrupt unless EncodeBundle would have written this: the compat block has what entries have
  /// and no more, and no payload is there twice.
  Status CheckOneForm() const;

  ArtifactKey KeyAt(std::size_t i) const;
  Error EntryError(std::size_t i, ErrorCode code, std::string_view what) const;

  std::string path;
  int fd = -1;
  std::uint64_t file_bytes = 0;
  std::string owned;        ///< header and index of an opened file
  std::string_view memory;  ///< all of it where it was given as bytes
  bundle_format::Header header;
  bundle_format::Index index;
  std::optional<Ed25519Public> signer;
  /// Of each blob its checked bytes, null until they were asked for. Threads that come together may
  /// each read it; the first one's copy stays.
  std::unique_ptr<std::atomic<const char*>[]> payloads;
};

}  // namespace tilewright
