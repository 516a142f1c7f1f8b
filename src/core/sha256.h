#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tilewright/result.h"

namespace tilewright {

using Sha256Digest = std::array<std::uint8_t, 32>;

/// SHA-256 of the concatenated parts (there are no separators: add lengths or separators if the
/// parts vary in length). Fails with kInternal only if libcrypto lacks the digest. Thread-safe.
Result<Sha256Digest> Sha256(std::initializer_list<std::string_view> parts);
inline Result<Sha256Digest> Sha256(std::string_view bytes) { return Sha256({bytes}); }

/// 64 lower-case hexadecimal digits.
std::string HexOf(const Sha256Digest& digest);

/// HexOf(Sha256(bytes)).
Result<std::string> Sha256Hex(std::string_view bytes);

}  // namespace tilewright
