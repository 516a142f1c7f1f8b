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

/// The public half of an Ed25519 key pair (RFC 8032), raw 32 bytes; in files it is PEM
/// (openssl genpkey -algorithm ed25519; openssl pkey -pubout).
using Ed25519Public = std::array<std::uint8_t, 32>;

/// "ed25519:" and 64 hexadecimal digits.
std::string PublicKeyText(const Ed25519Public& key);
/// The key of a PEM file with a public key ("-----BEGIN PUBLIC KEY-----"). kNotFound, kIo;
/// kInvalidArgument naming the file for what is no public key, or one of another algorithm.
Result<Ed25519Public> ReadPublicKey(const std::string& pem_file);

struct BundleWriteOptions {
  bool with_ptx = true;
  bool with_source = true;
  std::string sign_key_file = {};  ///< PEM private key, not encrypted; "" writes no signature
};

/// The bundle file's bytes for these artifacts (docs/bundle.md). Sorted by request key, payloads
/// that are equal stored once, nothing of this machine or moment in it (no compile time, no
/// compiler log): equal artifacts give equal bytes, in whatever order they come. Errors:
/// kInvalidArgument for two artifacts of one request key, for an artifact without a cubin or whose
/// records do not belong to its keys, spec or compiler, naming it; what is wrong with the key file.
Result<std::string> EncodeBundle(std::span<const ArtifactData> artifacts,
                                 const BundleWriteOptions& options = {});

/// Bundle::Digest of these bytes, of which the header is checked and nothing else read.
Result<std::string> BundleDigest(std::string_view bundle);

/// Writes a bundle's bytes so that a reader sees the old file or the new one, whole. A process that
/// has the old one open keeps it. kNotFound where the folder is missing, kIo.
Status WriteBundleFile(const std::string& path, std::string_view bytes);

/// Whether a file that begins with these bytes (8 are enough) is meant as a bundle, sound or not.
bool IsBundleFile(std::string_view bytes);

/// What a process can use; an entry is compared with it field by field.
struct BundleNeeds {
  std::uint32_t launch_abi = 0;  ///< of the family; 0: do not compare
  int compute_capability = 0;    ///< of the device; 0: none here, do not compare
  std::uint32_t driver = 0;      ///< cuDriverGetVersion; 0: do not compare
};

/// Why an entry of a bundle does not serve.
struct BundleRefusal {
  std::string field;             ///< "format", "launch_abi", "arch", "min_driver", "payload_digest"
  std::string have;              ///< the entry's
  std::string need;              ///< the process's
  std::string ToString() const;  ///< "min_driver: the entry needs 13000, here is 12080"
};

/// What the entries of a bundle ask for, all together: the file's compatibility block.
struct BundleCompat {
  std::uint32_t format_major = 0, format_minor = 0;
  std::vector<CudaArch> archs;                          ///< ascending
  std::vector<std::uint32_t> launch_abis;               ///< ascending
  std::uint32_t lowest_driver = 0, highest_driver = 0;  ///< of the entries' min_driver
  std::vector<CompilerIdentity> compilers;              ///< ascending
};

/// An open bundle. Immutable, any thread; views into it live as long as the object.
///
/// Nothing is mapped. The index is read when the bundle is opened; the payloads of an entry are
/// read into memory of the bundle's own and checked there when they are first asked for, and stay
/// until it is destroyed. So whatever happens to the file later, what was served does not change
/// and nothing unchecked is served. Replace a bundle by renaming another over it, as
/// WriteBundleFile does: who has the old one open keeps it. One that is changed in place serves
/// only what still has its digest, and nothing at all where its length is another.
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
    /// Accept only a bundle signed by one of these (PEM public key files); empty: accept any. A
    /// signature that is there must be right in either case.
    std::vector<std::string> trusted_keys;
  };

  /// Opens the file and checks header, index, index digest and signature (not every payload: those
  /// are checked when first used, or all by Verify). kNotFound, kIo; kCorrupt with the place;
  /// kUnsupported for a newer format; kInvalidArgument where a trusted key is demanded and the
  /// signature is missing or made by another, and for a key file that holds no public key.
  static Result<std::shared_ptr<const Bundle>> Open(const std::string& path,
                                                    const OpenOptions& options);
  static Result<std::shared_ptr<const Bundle>> Open(const std::string& path) {
    return Open(path, OpenOptions());
  }
  /// The same over bytes in memory that outlive it.
  static Result<std::shared_ptr<const Bundle>> FromBytes(std::string_view bytes,
                                                         const OpenOptions& options);
  static Result<std::shared_ptr<const Bundle>> FromBytes(std::string_view bytes) {
    return FromBytes(bytes, OpenOptions());
  }
  ~Bundle();
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  const std::string& path() const;   ///< "" of FromBytes
  std::size_t size() const;          ///< entries
  Entry entry(std::size_t i) const;  ///< in the order of request keys; i < size()
  const BundleCompat& compat() const;
  std::uint64_t file_bytes() const;
  std::string Digest() const;  ///< hex of the manifest digest: names the content, signed or not
  std::optional<Ed25519Public> signer() const;  ///< whose signature was found right

  /// Index of the entry of a request key; binary search over the index, no allocation, no system
  /// call, well under 1 us.
  std::optional<std::size_t> Find(const ArtifactKey& request) const noexcept;
  /// The artifact, after its parts were read and their digests checked (once each; 0.15 ms for
  /// 150 KB). kCorrupt names the entry and the part; kUnsupported for an entry of a newer format;
  /// kInvalidArgument for i >= size(); kIo, kOutOfMemory.
  Result<ArtifactData> Load(std::size_t i) const;
  /// nullopt when entry `i` serves: its format, launch ABI, architecture and driver, in this order,
  /// then the digests of its payloads (checked once). i < size().
  std::optional<BundleRefusal> Check(std::size_t i, const BundleNeeds& needs) const;
  /// The same for an artifact at hand: launch ABI, architecture, driver.
  static std::optional<BundleRefusal> Check(const ArtifactData& artifact, const BundleNeeds& needs);

  struct VerifyResult {
    std::size_t good = 0;               ///< entries
    std::size_t newer = 0;              ///< of a newer format: their payloads have their digests
    std::vector<std::string> troubles;  ///< one line each, with the entry's request key
    bool is_signed = false;             ///< and the signature is right
  };
  /// Checks all of the file as it is now, whatever was checked before: all payloads, the padding
  /// between them, every record. Keeps nothing of what it reads.
  VerifyResult Verify() const;

 private:
  struct Impl;
  explicit Bundle(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// One bundle of several, as EncodeBundle of all their artifacts. Entries of one request key must
/// have the same action key and cubin, and the first bundle's is taken; kInvalidArgument names one
/// where they differ. Errors of Load and EncodeBundle.
Result<std::string> MergeBundles(std::span<const Bundle* const> bundles,
                                 const BundleWriteOptions& options = {});

}  // namespace tilewright
