#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

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

  /// Opens, reads header, index and signature, and maps the file at `path`.
  Status OpenFile(const OpenOptions& options);
  /// Takes header, index and signature; `file` is the whole of it for payloads.
  Status Adopt(std::string_view head_and_index, std::string_view signature,
               const OpenOptions& options);
  /// kCorrupt if the file is not as long as it was: its pages may be gone.
  Status CheckLength() const;

  std::string_view Payload(std::uint32_t blob) const;
  /// Whether the payload has its digest, found out once; true of kNoBlob.
  Result<bool> IsGood(std::uint32_t blob) const;
  /// The same, found out again; not of kNoBlob.
  Result<bool> Recheck(std::uint32_t blob) const;
  /// kCorrupt names the first payload of entry `i` whose digest differs.
  Status CheckPayloads(std::size_t i) const;
  /// The artifact of payloads whose digests are known to be right.
  Result<ArtifactData> Decode(std::size_t i, const bundle_format::Record& record) const;
  /// kCorrupt unless EncodeBundle would have written this: the compat block has what entries have
  /// and no more, and no payload is there twice.
  Status CheckOneForm() const;

  ArtifactKey KeyAt(std::size_t i) const;
  Error EntryError(std::size_t i, ErrorCode code, std::string_view what) const;

  /// Threads that come together may each find the state of a blob out; they find the same.
  enum class BlobState : std::uint8_t { kUnknown, kGood, kBad };

  std::string path;
  int fd = -1;
  void* mapping = nullptr;
  std::uint64_t file_bytes = 0;
  std::string owned;      ///< header and index of an opened file
  std::string_view file;  ///< mapping or memory
  bundle_format::Header header;
  bundle_format::Index index;
  std::optional<Ed25519Public> signer;
  std::unique_ptr<std::atomic<BlobState>[]> states;  ///< of each blob
};

}  // namespace tilewright
