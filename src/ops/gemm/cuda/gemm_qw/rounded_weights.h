#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/formats/q4_k.h"
#include "core/formats/q5_k.h"
#include "core/formats/q6_k.h"
#include "core/numeric.h"
#include "tilewright/types.h"

/// For tests only; no library file includes this header.

namespace tilewright::test {

/// To nearest, ties to even, as f16 holds numbers that are neither too large nor too small for it.
inline double To11Bits(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 11)), exponent - 11);
}

/// The weights of blocks whose scales and minima, if they have some, are rounded before them.
template <class Block, class T>
void RoundWithFactors(const void* blocks, std::span<T> values) {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr auto kElements = static_cast<std::size_t>(kFormat.elements);
  constexpr auto kSubBlock = static_cast<std::size_t>(kFormat.sub_block);
  constexpr bool kHasMin = kFormat.min != Factor::kNone;
  const auto* at = static_cast<const std::byte*>(blocks);
  for (std::size_t first = 0; first < values.size(); first += kElements, at += sizeof(Block)) {
    Block block;
    std::memcpy(&block, at, sizeof block);
    UnpackedBlock parts{};
    Unpack(block, parts);
    const double d = F16ToF32(parts.scale), dmin = kHasMin ? F16ToF32(parts.min) : 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const double scale = To11Bits(d * parts.scales[i / kSubBlock]);
      const double min = To11Bits(dmin * parts.mins[i / kSubBlock]);
      values[first + i] = static_cast<T>(To11Bits(scale * (parts.codes[i] - kFormat.zero) + min));
    }
  }
}

/// What gemm_qw multiplies in place of weights in blocks. `blocks`: as in memory, whole blocks; `values`:
/// the exact weights, replaced.
template <class T>
void RoundAsGemmQw(DataType type, const void* blocks, std::span<T> values) {
  if (type == DataType::kQ4_K) {
    RoundWithFactors<BlockQ4_K>(blocks, values);
  } else if (type == DataType::kQ5_K) {
    RoundWithFactors<BlockQ5_K>(blocks, values);
  } else if (type == DataType::kQ6_K) {
    RoundWithFactors<BlockQ6_K>(blocks, values);
  } else {
    // By multiply-adds of f16 or, of the other formats, of f32.
    const bool of_f32 = type != DataType::kQ4_1;
    for (T& value : values) {
      const auto exact = static_cast<double>(value);
      const double sum = of_f32 ? static_cast<double>(static_cast<float>(exact)) : exact;
      value = static_cast<T>(To11Bits(sum));
    }
  }
}

}  // namespace tilewright::test
