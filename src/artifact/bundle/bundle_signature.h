#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/bundle/bundle_format.h"
#include "tilewright/bundle.h"
#include "tilewright/result.h"

/// The signature at the end of a bundle: "ed25519" and a zero, the public key [32], the signature
/// [64] over a domain prefix and the manifest digest. It follows the content and is not part of it,
/// so that signing does not change the bundle's digest.
namespace tilewright {

/// Signs an unsigned bundle: sets its signature_bytes and appends the block. Errors of SignEd25519.
Status AppendSignature(std::string& bundle, const std::string& sign_key_file);

/// The signer's key. kCorrupt for a block of another kind or an invalid signature.
Result<Ed25519Public> CheckSignature(std::string_view block, const Sha256Digest& manifest);

/// Ok if `signer` (nullopt: not signed) is one of the PEM files' keys, or no files are given. Else
/// kInvalidArgument, also for a file that does not hold a key.
Status CheckTrust(const std::optional<Ed25519Public>& signer,
                  const std::vector<std::string>& trusted_keys);

}  // namespace tilewright
