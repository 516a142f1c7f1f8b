#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "core/sha256.h"
#include "tilewright/bundle.h"
#include "tilewright/result.h"

/// The bundle file's layout (docs/bundle.md, byte by byte). Numbers are little endian.
///
///   header [192] | compat block | keys [n][32] | records [n][40] | blobs [b][48] | zeros to 64 |
///   payload region: blobs, each at the next multiple of 64 | signature [0 or 104]
namespace tilewright::bundle_format {

inline constexpr std::string_view kMagic = "TWBUNDLE";
inline constexpr std::uint32_t kMajor = 1;
inline constexpr std::uint32_t kMinor = 0;
inline constexpr std::uint32_t kEntryFormat = 1;

inline constexpr std::size_t kHeaderBytes = 192;
inline constexpr std::size_t kKeyBytes = 32;
inline constexpr std::size_t kRecordBytes = 40;
inline constexpr std::size_t kBlobBytes = 48;
inline constexpr std::size_t kAlignment = 64;
inline constexpr std::size_t kSignatureBytes = 104;

// Offsets in the header.
inline constexpr std::size_t kContentBytesAt = 16;
inline constexpr std::size_t kIndexBytesAt = 24;
inline constexpr std::size_t kPayloadOffsetAt = 32;
inline constexpr std::size_t kEntryCountAt = 40;
inline constexpr std::size_t kBlobCountAt = 44;
inline constexpr std::size_t kCompatBytesAt = 48;
inline constexpr std::size_t kIndexDigestAt = 64;
inline constexpr std::size_t kManifestDigestAt = 96;  // covers everything before it
inline constexpr std::size_t kSignatureBytesAt = 128;

inline constexpr std::uint32_t kNoBlob = 0xffffffffu;

// Little endian on any machine: written byte by byte, which compilers turn into one move.
template <class T>
T Load(const char* p) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(
        value | static_cast<T>(static_cast<T>(static_cast<unsigned char>(p[i])) << (8 * i)));
  }
  return value;
}
template <class T>
void Append(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<unsigned char>(value >> (8 * i))));
  }
}
inline constexpr std::uint64_t AlignUp(std::uint64_t value) {
  return (value + kAlignment - 1) / kAlignment * kAlignment;
}
inline std::string_view BytesOf(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

struct Header {
  std::uint32_t major = 0, minor = 0;
  std::uint64_t content_bytes = 0;  ///< the file without its signature
  std::uint64_t index_bytes = 0;    ///< compat block, keys, records and blob table
  std::uint64_t payload_offset = 0;
  std::uint32_t entry_count = 0, blob_count = 0, compat_bytes = 0;
  std::uint32_t signature_bytes = 0;
  Sha256Digest index_digest{}, manifest_digest{};
};

/// The header from the first kHeaderBytes of a file of `file_bytes`: magic, version, manifest
/// digest, and that all sizes agree with one another and with the file's. After it, offsets and
/// counts may be used without a further check against the file's size.
Result<Header> ParseHeader(std::string_view bytes, std::uint64_t file_bytes);

/// SHA-256 of the domain prefix and header bytes [0, kManifestDigestAt).
Result<Sha256Digest> ManifestDigest(std::string_view header);

/// What the index says about an entry.
struct Record {
  std::uint32_t format = 0;
  CudaArch arch;
  std::uint32_t launch_abi = 0, min_driver = 0;
  std::uint32_t compiler = 0;
  std::uint32_t description = kNoBlob, cubin = kNoBlob, ptx = kNoBlob, source = kNoBlob;
};
struct Blob {
  std::uint64_t offset = 0, size = 0;
  Sha256Digest digest{};
};

/// A checked index: views into its bytes, which must outlive it.
struct Index {
  BundleCompat compat;
  std::string_view keys, records, blobs;

  std::string_view KeyAt(std::size_t i) const { return keys.substr(i * kKeyBytes, kKeyBytes); }
  Record RecordAt(std::size_t i) const;
  Blob BlobAt(std::size_t k) const;
};

/// Checks the digest of the index, the order of keys, every record, and that the blobs follow each
/// other at multiples of 64, in the order in which the records first refer to them, up to the end
/// of the content: nothing overlaps, nothing is unused. `bytes` are header.index_bytes and the
/// zeros up to the payload.
Result<Index> ParseIndex(const Header& header, std::string_view bytes);

/// Builds the compat block of a set of entries, in canonical form.
class CompatBuilder {
 public:
  void Add(CudaArch arch, std::uint32_t launch_abi, std::uint32_t min_driver,
           const CompilerIdentity& compiler);
  BundleCompat Take() const;

 private:
  std::set<CudaArch> archs_;
  std::set<std::uint32_t> launch_abis_, drivers_;
  std::set<CompilerIdentity> compilers_;
};

/// The bytes of the index for sorted keys, records and blobs, without padding.
std::string EncodeCompat(const BundleCompat& compat);
void AppendRecord(std::string& out, const Record& record);
void AppendBlob(std::string& out, const Blob& blob);

/// What an entry needs in addition to its payloads, stored as a separate blob. Spec, compiler and
/// symbol follow from the records.
struct Description {
  KernelLaunchShape launch;
  std::uint32_t launch_abi = 0, min_driver = 0;
  ResourceUsage resources;
  std::string_view request_record, action_record;
};
std::string EncodeDescription(const Description& description);
Result<Description> ParseDescription(std::string_view bytes);

}  // namespace tilewright::bundle_format
