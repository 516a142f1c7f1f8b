#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace tilewright {

/// Fast hashes for in-memory tables: a 64-byte struct takes a few nanoseconds. Not cryptographic,
/// and may change between versions, so never written to a file (files use core/sha256.h).
///
/// Method: in steps of 16 bytes, the two words are xor-ed with constants and the state, multiplied
/// to 128 bits, and the halves folded (the multiply-fold of the wyhash family, a public domain
/// idea; the constants are the leading bits of pi).
namespace hash_internal {

inline constexpr std::uint64_t kPi0 = 0x243f6a8885a308d3u;
inline constexpr std::uint64_t kPi1 = 0x13198a2e03707344u;
inline constexpr std::uint64_t kPi2 = 0xa4093822299f31d1u;  // made odd

inline std::uint64_t Fold(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t Load64(const unsigned char* p) {
  std::uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// The last 0..16 bytes as two words. The length that is mixed in at the end distinguishes "a" from
/// "a\0".
inline void LoadTail(const unsigned char* p, std::size_t n, std::uint64_t& a, std::uint64_t& b) {
  unsigned char padded[16] = {};
  std::memcpy(padded, p, n);
  a = Load64(padded);
  b = Load64(padded + 8);
}

}  // namespace hash_internal

inline std::uint64_t Hash64(const void* data, std::size_t bytes, std::uint64_t seed = 0) {
  using hash_internal::Fold, hash_internal::Load64, hash_internal::LoadTail;
  using hash_internal::kPi0, hash_internal::kPi1, hash_internal::kPi2;
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t state = seed ^ kPi2;
  std::size_t left = bytes;
  for (; left >= 16; left -= 16, p += 16) {
    state = Fold(Load64(p) ^ kPi0 ^ state, Load64(p + 8) ^ kPi1) ^ (state << 31 | state >> 33);
  }
  if (left != 0) {
    std::uint64_t a, b;
    LoadTail(p, left, a, b);
    state = Fold(a ^ kPi0 ^ state, b ^ kPi1) ^ (state << 31 | state >> 33);
  }
  return Fold(state ^ kPi0, static_cast<std::uint64_t>(bytes) ^ kPi2);
}

inline std::uint64_t Hash64(std::string_view text, std::uint64_t seed = 0) {
  return Hash64(text.data(), text.size(), seed);
}

/// Hash of a struct without padding (checked), so that equal values have equal bytes.
template <class T>
std::uint64_t HashValue(const T& value, std::uint64_t seed = 0) {
  static_assert(std::has_unique_object_representations_v<T>,
                "padding or floats: hash the fields instead");
  return Hash64(static_cast<const void*>(&value), sizeof value, seed);
}

/// Adds one word to a running hash; for hashing field by field.
inline std::uint64_t HashCombine(std::uint64_t hash, std::uint64_t word) {
  using hash_internal::Fold, hash_internal::kPi0, hash_internal::kPi2;
  return Fold(hash ^ kPi0, word ^ kPi2) ^ (hash << 29 | hash >> 35);
}

}  // namespace tilewright
