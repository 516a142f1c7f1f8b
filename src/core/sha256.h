#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tilewright/result.h"

namespace tilewright {

using Sha256Digest = std::array<std::uint8_t, 32>;

/// SHA-256 of the parts one after the other (no separators: put lengths or separators in where the
/// parts vary). Fails with kInternal only if libcrypto cannot provide the digest. Thread-safe.
Result<Sha256Digest> Sha256(std::initializer_list<std::string_view> parts);
inline Result<Sha256Digest> Sha256(std::string_view bytes) { return Sha256({bytes}); }

/// 64 lower-case hexadecimal digits.
std::string HexOf(const Sha256Digest& digest);

/// HexOf(Sha256(bytes)).
Result<std::string> Sha256Hex(std::string_view bytes);

}  // namespace tilewright
