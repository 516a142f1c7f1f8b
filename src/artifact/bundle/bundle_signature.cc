#include "artifact/bundle/bundle_signature.h"

#include <cstring>

#include "artifact/bundle/ed25519.h"
#include "core/text.h"

namespace tilewright {
namespace {

constexpr std::string_view kScheme{"ed25519\0", 8};
// Prevents a signature made for another purpose from being accepted for a bundle.
constexpr std::string_view kDomain = "tilewright bundle signature 1\n";

std::string Message(const Sha256Digest& manifest) {
  return std::string(kDomain).append(bundle_format::BytesOf(manifest));
}

}  // namespace

Status AppendSignature(std::string& bundle, const std::string& sign_key_file) {
  Sha256Digest manifest;
  std::memcpy(manifest.data(), bundle.data() + bundle_format::kManifestDigestAt, manifest.size());
  const Result<Ed25519Signed> made = SignEd25519(sign_key_file, Message(manifest));
  if (!made) return Fail(made.error());
  std::string size;
  bundle_format::Append(size, static_cast<std::uint32_t>(bundle_format::kSignatureBytes));
  bundle.replace(bundle_format::kSignatureBytesAt, size.size(), size);
  bundle += kScheme;
  bundle.append(reinterpret_cast<const char*>(made->key.data()), made->key.size());
  bundle.append(reinterpret_cast<const char*>(made->signature.data()), made->signature.size());
  return {};
}

Result<Ed25519Public> CheckSignature(std::string_view block, const Sha256Digest& manifest) {
  if (block.size() != bundle_format::kSignatureBytes ||
      block.substr(0, kScheme.size()) != kScheme) {
    return Fail(ErrorCode::kCorrupt, "signature: its kind is not ed25519");
  }
  Ed25519Public key;
  Ed25519Signature signature;
  std::memcpy(key.data(), block.data() + kScheme.size(), key.size());
  std::memcpy(signature.data(), block.data() + kScheme.size() + key.size(), signature.size());
  if (!VerifyEd25519(key, signature, Message(manifest))) {
    return Fail(ErrorCode::kCorrupt, "signature: invalid for its key " + PublicKeyText(key));
  }
  return key;
}

Status CheckTrust(const std::optional<Ed25519Public>& signer,
                  const std::vector<std::string>& trusted_keys) {
  if (trusted_keys.empty()) return {};
  bool found = false;
  for (const std::string& file : trusted_keys) {
    const Result<Ed25519Public> key = ReadPublicKey(file);
    if (!key) return Fail(key.error());
    found = found || (signer && *signer == *key);
  }
  if (found) return {};
  return Fail(ErrorCode::kInvalidArgument,
              signer ? Format("signed by {}, which is not one of the {} trusted keys",
                              PublicKeyText(*signer), trusted_keys.size())
                     : Format("not signed, but a signature by one of {} trusted keys is required",
                              trusted_keys.size()));
}

}  // namespace tilewright
