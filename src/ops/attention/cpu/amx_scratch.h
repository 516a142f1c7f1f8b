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
  std::uint16_t* keys = nullptr;     ///< [kSplit][hd], of what is not read as it lies
  std::uint16_t* values = nullptr;   ///< [kSplit / 32][hd / 16] tiles
  std::uint16_t* weights = nullptr;  ///< [kSplit / 32][2] tiles
  float* scores = nullptr;           ///< [2][kSplit][32]
  std::uint16_t* zeros = nullptr;    ///< [hd]: a position that nobody sees
};

/// Bytes that they take, for vectors and hd in whole tiles.
inline std::size_t AmxOperandBytes(std::size_t vectors, std::size_t hd) {
  const std::size_t split = kSplit, group = kAmxGroup;
  return 2 * (hd + 2 * 2 * split * group + split * group + 2 * split * hd + vectors * hd);
}

inline AmxScratch CarveAmx(const AttentionScratch& s) {
  AmxScratch amx;
  const int hd = s.hd_padded;
  amx.zeros = static_cast<std::uint16_t*>(s.operands);
  amx.scores = reinterpret_cast<float*>(amx.zeros + hd);
  amx.weights = reinterpret_cast<std::uint16_t*>(amx.scores + 2 * kSplit * kAmxGroup);
  amx.keys = amx.weights + kSplit * kAmxGroup;
  amx.values = amx.keys + kSplit * hd;
  amx.queries = amx.values + kSplit * hd;
  return amx;
}

}  // namespace
}  // namespace tilewright
