#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/artifact.h"

namespace tilewright {

/// The public half of an Ed25519 key pair (RFC 8032): 32 raw bytes. Key files are PEM (openssl
/// genpkey -algorithm ed25519; openssl pkey -pubout).
using Ed25519Public = std::array<std::uint8_t, 32>;

/// "ed25519:" and 64 hexadecimal digits.
std::string PublicKeyText(const Ed25519Public& key);
/// Reads a public key from a PEM file ("-----BEGIN PUBLIC KEY-----"). kNotFound, kIo;
/// kInvalidArgument, naming the file, if it holds no public key or one of another algorithm.
Result<Ed25519Public> ReadPublicKey(const std::string& pem_file);

struct BundleWriteOptions {
  bool with_ptx = true;
  bool with_source = true;
  std::string sign_key_file = {};  ///< unencrypted PEM private key; "" writes no signature
};

/// The bytes of a bundle file with these artifacts (docs/bundle.md). Entries are sorted by request
/// key, equal payloads are stored once, and nothing specific to this machine or time is included
/// (no compile times, no compiler logs): equal artifacts give equal bytes, whatever their order.
/// kInvalidArgument, naming the artifact: two with the same request key; one without a cubin, or
/// whose records do not match its keys, spec or compiler. Also the errors of reading the key file.
Result<std::string> EncodeBundle(std::span<const ArtifactData> artifacts,
                                 const BundleWriteOptions& options = {});

/// Bundle::Digest of these bytes. Reads and checks the header only.
Result<std::string> BundleDigest(std::string_view bundle);

/// Writes a bundle's bytes atomically: a reader sees either the whole old file or the whole new
/// one.
/// A process that has the old file open keeps it. kNotFound if the folder is missing, kIo.
Status WriteBundleFile(const std::string& path, std::string_view bytes);

/// Whether a file that begins with these bytes (8 are enough) is a bundle, intact or not.
bool IsBundleFile(std::string_view bytes);

/// What a process needs of an entry; compared field by field.
struct BundleNeeds {
  std::uint32_t launch_abi = 0;  ///< of the family; 0: do not compare
  int compute_capability = 0;    ///< of the device; 0: no device, do not compare
  std::uint32_t driver = 0;      ///< cuDriverGetVersion; 0: do not compare
};

/// Why an entry of a bundle cannot be used.
struct BundleRefusal {
  std::string field;  ///< "format", "launch_abi", "arch", "min_driver", "payload_digest"
  std::string have;   ///< the entry's
  std::string need;   ///< the process's
  std::string ToString()
      const;  ///< "min_driver: the entry needs 13000, but this process has 12080"
};

/// What the entries of a bundle require, taken together: the file's compatibility block.
struct BundleCompat {
  std::uint32_t format_major = 0, format_minor = 0;
  std::vector<CudaArch> archs;                          ///< ascending
  std::vector<std::uint32_t> launch_abis;               ///< ascending
  std::uint32_t lowest_driver = 0, highest_driver = 0;  ///< of the entries' min_driver
  std::vector<CompilerIdentity> compilers;              ///< ascending
};

/// An open bundle. Immutable; usable from any thread. Views into it live as long as the object.
///
/// The file is not mapped. Open reads the index; the payloads of an entry are read into memory
/// owned by the bundle when first requested, checked there, and kept until the bundle is destroyed.
/// So whatever happens to the file later, what was served does not change and nothing unchecked is
/// served. Replace a bundle by renaming another file over it, as WriteBundleFile does: processes
/// that have the old one open keep it. A bundle that is changed in place serves only payloads that
/// still match their digests, and none at all if its length changed.
class Bundle {
 public:
  struct Entry {
    ArtifactKey request;
    std::uint64_t offset = 0, size = 0;  ///< of the cubin in the file
    CudaArch arch;
    std::uint32_t format = 0;  ///< of the entry's description; this library reads 1
    std::uint32_t launch_abi = 0;
    std::uint32_t min_driver = 0;
    std::uint32_t compiler = 0;                 ///< index into compat().compilers
    std::array<std::uint8_t, 32> cubin_digest;  ///< SHA-256
  };
  struct OpenOptions {
    /// Accept only a bundle signed by one of these keys (PEM public key files); empty: accept any.
    /// A signature that is present must be valid in either case.
    std::vector<std::string> trusted_keys;
  };

  /// Opens the file and checks header, index, index digest and signature. Payloads are checked when
  /// first used, or all at once by Verify. kNotFound, kIo; kCorrupt with the place; kUnsupported
  /// for a newer format; kInvalidArgument if a trusted key is required and the signature is missing
  /// or made by another key, and for a key file that holds no public key.
  static Result<std::shared_ptr<const Bundle>> Open(const std::string& path,
                                                    const OpenOptions& options);
  static Result<std::shared_ptr<const Bundle>> Open(const std::string& path) {
    return Open(path, OpenOptions());
  }
  /// The same for bytes in memory, which must outlive the bundle.
  static Result<std::shared_ptr<const Bundle>> FromBytes(std::string_view bytes,
                                                         const OpenOptions& options);
  static Result<std::shared_ptr<const Bundle>> FromBytes(std::string_view bytes) {
    return FromBytes(bytes, OpenOptions());
  }
  ~Bundle();
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  const std::string& path() const;   ///< "" after FromBytes
  std::size_t size() const;          ///< entries
  Entry entry(std::size_t i) const;  ///< in the order of request keys; i < size()
  const BundleCompat& compat() const;
  std::uint64_t file_bytes() const;
  std::string Digest() const;  ///< hex of the manifest digest: names the content, signed or not
  std::optional<Ed25519Public> signer() const;  ///< the key whose signature was verified

  /// Index of the entry with this request key, by binary search over the index: no allocation, no
  /// system call, well under 1 us.
  std::optional<std::size_t> Find(const ArtifactKey& request) const noexcept;
  /// The artifact, once its parts were read and their digests checked (once each; 0.15 ms for
  /// 150 KB). kCorrupt names the entry and the part; kUnsupported for an entry of a newer format;
  /// kInvalidArgument for i >= size(); kIo, kOutOfMemory.
  Result<ArtifactData> Load(std::size_t i) const;
  /// nullopt if entry `i` can be used. Checks its format, launch ABI, architecture and driver, in
  /// this order, then the digests of its payloads (once). i < size().
  std::optional<BundleRefusal> Check(std::size_t i, const BundleNeeds& needs) const;
  /// The same for a decoded artifact: launch ABI, architecture, driver.
  static std::optional<BundleRefusal> Check(const ArtifactData& artifact, const BundleNeeds& needs);

  struct VerifyResult {
    std::size_t good = 0;               ///< entries
    std::size_t newer = 0;              ///< entries of a newer format whose payload digests match
    std::vector<std::string> troubles;  ///< one line each, with the entry's request key
    bool is_signed = false;             ///< signed, and the signature is valid
  };
  /// Checks the whole file as it is now, whatever was checked before: all payloads, the padding
  /// between them, every record. Keeps nothing of what it reads.
  VerifyResult Verify() const;

 private:
  struct Impl;
  explicit Bundle(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Merges several bundles into one, as EncodeBundle of all their artifacts. Entries with the same
/// request key must have the same action key and cubin; the first bundle's entry is used.
/// kInvalidArgument names one where they differ. Also the errors of Load and EncodeBundle.
Result<std::string> MergeBundles(std::span<const Bundle* const> bundles,
                                 const BundleWriteOptions& options = {});

}  // namespace tilewright
