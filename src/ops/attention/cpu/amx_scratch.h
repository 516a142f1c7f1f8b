#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/cpu/layout.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file

constexpr int kAmxChunk = 32;  ///< positions of a tile of weights
constexpr int kAmxGroup = 32;  ///< vectors that are computed together

/// AttentionScratch::operands of the kernels on tiles, each part aligned to a cache line.
struct AmxScratch {
  std::uint16_t* queries = nullptr;  ///< [vectors / 16][hd / 32] tiles
  std::uint16_t* keys = nullptr;  ///< [kSplit / 16][hd / 32] tiles, of what is not read as it lies
  std::uint16_t* values = nullptr;   ///< [kSplit / 32][hd / 16] tiles
  std::uint16_t* weights = nullptr;  ///< [2][kSplit / 32][2] tiles: of two groups
  float* scores = nullptr;           ///< [2][32][32]: of two chunks
};

/// Bytes that they take, for vectors and hd in whole tiles.
inline std::size_t AmxOperandBytes(std::size_t vectors, std::size_t hd) {
  const std::size_t split = kSplit, chunk = kAmxChunk, group = kAmxGroup;
  return 2 * (2 * 2 * chunk * group + 2 * split * group + 2 * split * hd + vectors * hd);
}

inline AmxScratch CarveAmx(const AttentionScratch& s) {
  AmxScratch amx;
  const int hd = s.hd_padded;
  amx.scores = static_cast<float*>(s.operands);
  amx.weights = reinterpret_cast<std::uint16_t*>(amx.scores + 2 * kAmxChunk * kAmxGroup);
  amx.keys = amx.weights + 2 * kSplit * kAmxGroup;
  amx.values = amx.keys + kSplit * hd;
  amx.queries = amx.values + kSplit * hd;
  return amx;
}

}  // namespace
}  // namespace tilewright
