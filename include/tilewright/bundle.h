#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/artifact.h"

namespace tilewright {

/// An Ed25519 key pair's halves, raw 32 bytes; files are PEM (openssl genpkey -algorithm ed25519).
using Ed25519Public = std::array<std::uint8_t, 32>;

struct BundleWriteOptions {
  bool with_ptx = true;
  bool with_source = true;
  std::string sign_key_file;  ///< PEM private key; "" writes no signature
};

/// The bundle file's bytes for these artifacts (docs/bundle.md). Sorted by request key, payloads
/// that are equal stored once, nothing of this machine or moment in it: equal artifacts give equal
/// bytes, in whatever order they come. Two artifacts of one request key: kInvalidArgument.
Result<std::string> EncodeBundle(std::span<const ArtifactData> artifacts,
                                 const BundleWriteOptions& options = {});

/// What a process can use; an entry is compared with it field by field.
struct BundleNeeds {
  std::uint32_t launch_abi = 0;  ///< of the family; 0: do not compare
  int compute_capability = 0;    ///< of the device; 0: none here, do not compare
  std::uint32_t driver = 0;      ///< cuDriverGetVersion; 0: do not compare
};

/// Why an entry of a bundle does not serve.
struct BundleRefusal {
  std::string field;             ///< "arch", "launch_abi", "min_driver", "payload_digest", ...
  std::string have;              ///< the entry's
  std::string need;              ///< the process's
  std::string ToString() const;  ///< "min_driver: the entry needs 13000, here is 12080"
};

/// A bundle, mapped into memory. Immutable, any thread; views into it live as long as the object.
class Bundle {
 public:
  struct Entry {
    ArtifactKey request;
    std::uint64_t offset = 0, size = 0;
    CudaArch arch;
  };
  struct OpenOptions {
    /// Accept only a bundle signed by one of these (PEM public key files); empty: accept any, and
    /// check a signature's presence only with Verify.
    std::vector<std::string> trusted_keys;
  };

  /// Maps the file and checks header, index and index digest (not every payload: those are checked
  /// when first used, or all by Verify). kNotFound, kIo; kCorrupt with the place; kUnsupported for
  /// a newer format; kInvalidArgument where a trusted key is demanded and the signature is not its.
  static Result<std::shared_ptr<const Bundle>> Open(const std::string& path,
                                                    const OpenOptions& options);
  static Result<std::shared_ptr<const Bundle>> Open(const std::string& path) {
    return Open(path, OpenOptions());
  }
  /// The same over bytes in memory that outlive it.
  static Result<std::shared_ptr<const Bundle>> FromBytes(std::string_view bytes,
                                                         const OpenOptions& options);
  ~Bundle();

  const std::string& path() const;
  std::size_t size() const;          ///< entries
  Entry entry(std::size_t i) const;  ///< in the order of request keys
  std::string Digest() const;        ///< hex of the manifest digest: names the content
  std::optional<Ed25519Public> signer() const;

  /// Index of the entry of a request key; binary search over the mapped index, no allocation, well
  /// under 1 us.
  std::optional<std::size_t> Find(const ArtifactKey& request) const;
  /// The artifact, after its digest was checked (once an entry). kCorrupt names the entry.
  Result<ArtifactData> Load(std::size_t i) const;
  /// nullopt when entry `i` serves.
  std::optional<BundleRefusal> Check(const ArtifactData& artifact, const BundleNeeds& needs) const;

  struct VerifyResult {
    std::size_t good = 0;
    std::vector<std::string> troubles;
    bool is_signed = false;  ///< and the signature is right
  };
  /// Checks everything: all payloads, the manifest, the signature.
  VerifyResult Verify() const;

 private:
  struct Impl;
  explicit Bundle(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
