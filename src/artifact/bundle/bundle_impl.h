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

/// The error, prefixed by the file's path if there is one.
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
  /// kCorrupt if the length of the file has changed since it was opened.
  Status CheckLength() const;

  /// Reads `bytes.size()` bytes from `offset`. kCorrupt if the file ends before.
  Status Read(std::uint64_t offset, std::span<char> bytes) const;
  /// A payload whose digest was checked, in memory that nobody else writes: for a file, a copy that
  /// is read when first requested and kept, so that later changes of the file do not affect what
  /// was served. Empty for kNoBlob. kCorrupt, with `found` the actual digest if the whole payload
  /// could be read; kIo, kOutOfMemory.
  Result<std::string_view> Payload(std::uint32_t blob,
                                   std::optional<Sha256Digest>* found = nullptr) const;
  /// The payloads of an entry.
  struct Parts {
    std::string_view description{}, cubin{}, ptx{}, source{};
  };
  /// kCorrupt names the first payload of entry `i` whose digest differs.
  Result<Parts> Payloads(std::size_t i) const;
  Error PartError(std::size_t i, std::string_view part, const Error& error) const;
  /// The artifact made of payloads whose digests were checked.
  Result<ArtifactData> Decode(std::size_t i, const Parts& parts) const;
  /// For Verify, which keeps nothing of what it reads: checks the padding before each payload and
  /// its digest; returns for each payload whether it is intact.
  Result<std::vector<bool>> CheckBlobs(std::vector<std::string>& troubles) const;
  Status CheckEntry(std::size_t i, const std::vector<bool>& good) const;
  /// kCorrupt unless EncodeBundle could have written this: the compat block lists exactly what the
  /// entries have, and no payload is stored twice.
  Status CheckOneForm() const;

  ArtifactKey KeyAt(std::size_t i) const;
  Error EntryError(std::size_t i, ErrorCode code, std::string_view what) const;

  std::string path;
  int fd = -1;
  std::uint64_t file_bytes = 0;
  std::string owned;        ///< header and index of an opened file
  std::string_view memory;  ///< the whole bundle, if given as bytes
  bundle_format::Header header;
  bundle_format::Index index;
  std::optional<Ed25519Public> signer;
  /// The checked bytes of each blob, null until first requested. Several threads may read a blob at
  /// the same time; the first one's copy is kept.
  std::unique_ptr<std::atomic<const char*>[]> payloads;
};

}  // namespace tilewright
