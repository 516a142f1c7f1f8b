#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tilewright/bundle.h"
#include "tilewright/result.h"

namespace tilewright {

using Ed25519Signature = std::array<std::uint8_t, 64>;

struct Ed25519Signed {
  Ed25519Public key;
  Ed25519Signature signature;
};

/// Signs `message` with the private key of a PEM file. Deterministic (RFC 8032): the same key and
/// message give the same signature. kNotFound, kIo; kInvalidArgument, naming the file, if it holds
/// no private key, or one that is encrypted (nobody is prompted for a password) or not Ed25519. Any
/// thread.
Result<Ed25519Signed> SignEd25519(const std::string& pem_file, std::string_view message);

/// Whether the signature is valid. Any thread.
bool VerifyEd25519(const Ed25519Public& key, const Ed25519Signature& signature,
                   std::string_view message);

}  // namespace tilewright
