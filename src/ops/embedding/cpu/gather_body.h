#pragma once

// Row decoders, compiled once for each instruction set; the loops over a block vectorise by themselves.

#include <cstdint>

#include "core/block_format.h"
#include "core/numeric.h"
#include "ops/embedding/cpu/gather.h"

namespace tilewright {
namespace {

inline void RowQ4_0(const BlockQ4_0* block, float* out, std::int64_t blocks) {
  for (std::int64_t b = 0; b < blocks; ++b, out += 32) {
    const float d = F16ToF32(block[b].d);
    for (int j = 0; j < 16; ++j) {
      out[j] = d * static_cast<float>((block[b].qs[j] & 15) - 8);
      out[j + 16] = d * static_cast<float>((block[b].qs[j] >> 4) - 8);
    }
  }
}

inline void RowQ4_1(const BlockQ4_1* block, float* out, std::int64_t blocks) {
  for (std::int64_t b = 0; b < blocks; ++b, out += 32) {
    const float d = F16ToF32(block[b].d), m = F16ToF32(block[b].m);
    for (int j = 0; j < 16; ++j) {
      out[j] = d * static_cast<float>(block[b].qs[j] & 15) + m;
      out[j + 16] = d * static_cast<float>(block[b].qs[j] >> 4) + m;
    }
  }
}

inline void RowQ8_0(const BlockQ8_0* block, float* out, std::int64_t blocks) {
  for (std::int64_t b = 0; b < blocks; ++b, out += 32) {
    const float d = F16ToF32(block[b].d);
    for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(block[b].qs[j]);
  }
}

inline void RowQ6_K(const BlockQ6_K* block, float* out, std::int64_t blocks) {
  for (std::int64_t b = 0; b < blocks; ++b) {
    const float d = F16ToF32(block[b].d);
    for (int half = 0; half < 2; ++half) {
      for (int s = 0; s < 4; ++s, out += 32) {
        const std::uint8_t* low = block[b].ql + 64 * half + 32 * (s & 1);
        const std::uint8_t* high = block[b].qh + 32 * half;
        const std::int8_t* scales = block[b].scales + 8 * half + 2 * s;
        for (int l = 0; l < 32; ++l) {
          const int nibble = s < 2 ? low[l] & 15 : low[l] >> 4;
          const int q = (nibble | (((high[l] >> (2 * s)) & 3) << 4)) - 32;
          out[l] = d * static_cast<float>(scales[l / 16]) * static_cast<float>(q);
        }
      }
    }
  }
}

void Row(DataType type, const void* src, float* out, std::int64_t count) {
  switch (type) {
    case DataType::kF16:
      for (std::int64_t i = 0; i < count; ++i) out[i] = F16ToF32(static_cast<const std::uint16_t*>(src)[i]);
      return;
    case DataType::kBF16:
      for (std::int64_t i = 0; i < count; ++i) out[i] = BF16ToF32(static_cast<const std::uint16_t*>(src)[i]);
      return;
    case DataType::kQ4_0: return RowQ4_0(static_cast<const BlockQ4_0*>(src), out, count / 32);
    case DataType::kQ4_1: return RowQ4_1(static_cast<const BlockQ4_1*>(src), out, count / 32);
    case DataType::kQ8_0: return RowQ8_0(static_cast<const BlockQ8_0*>(src), out, count / 32);
    case DataType::kQ6_K: return RowQ6_K(static_cast<const BlockQ6_K*>(src), out, count / 256);
    default: __builtin_memcpy(out, src, static_cast<std::size_t>(count) * sizeof(float)); return;
  }
}

}  // namespace
}  // namespace tilewright
