#pragma once

#include <span>
#include <string_view>

namespace tilewright {

/// The identity of a kernel translation unit as built.
struct TuDigest {
  std::string_view tu;      ///< path relative to src/, e.g. "ops/gemm/cpu/gemm_f32_avx2.cc"
  std::string_view digest;  ///< first 32 hex digits of a SHA-256
};

/// Every kernel translation unit of this library, sorted by `tu`. The digest covers the file, all
/// project headers that it includes directly or indirectly, the compiler and its flags, but no path
/// outside the tree: two machines that build the same sources in the same way agree, and editing a
/// header changes exactly the digests of the files that include it.
std::span<const TuDigest> AllTuDigests();

/// Digest of one translation unit, or an empty string if `tu` is not the name of a kernel file.
/// Kernel files get their own name as TILEWRIGHT_TU. Any thread; no allocation; binary search over
/// AllTuDigests().
std::string_view TuFingerprint(std::string_view tu);

}  // namespace tilewright
