#pragma once

#include "core/block_format.h"
#include "core/simd.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

void DecodeF32(const void* row, float* out, std::int64_t n) {
  __builtin_memcpy(out, row, static_cast<std::size_t>(n) * sizeof(float));
}

void DecodeF16(const void* row, float* out, std::int64_t n) {
  const auto* in = static_cast<const std::uint16_t*>(row);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) StoreVec(out + i, LoadF16(in + i));
  for (; i < n; ++i) out[i] = F16ToF32(in[i]);
}

void DecodeBF16(const void* row, float* out, std::int64_t n) {
  const auto* in = static_cast<const std::uint16_t*>(row);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) StoreVec(out + i, LoadBF16(in + i));
  for (; i < n; ++i) out[i] = BF16ToF32(in[i]);
}

void DecodeQ4_0(const void* row, float* out, std::int64_t n) {
  const auto* block = static_cast<const BlockQ4_0*>(row);
  for (std::int64_t i = 0; i < n; i += kBlock32, ++block) {
    const float d = F16ToF32(block->d);
    for (int j = 0; j < 16; j += kLanes) {
      const I32Vec bytes = LoadU8(block->qs + j);
      StoreVec(out + i + j, (FloatOf(bytes & 15) - 8.0f) * d);
      StoreVec(out + i + j + 16, (FloatOf(bytes >> 4) - 8.0f) * d);
    }
  }
}

void DecodeQ4_1(const void* row, float* out, std::int64_t n) {
  const auto* block = static_cast<const BlockQ4_1*>(row);
  for (std::int64_t i = 0; i < n; i += kBlock32, ++block) {
    const float d = F16ToF32(block->d), m = F16ToF32(block->m);
    for (int j = 0; j < 16; j += kLanes) {
      const I32Vec bytes = LoadU8(block->qs + j);
      StoreVec(out + i + j, FloatOf(bytes & 15) * d + m);
      StoreVec(out + i + j + 16, FloatOf(bytes >> 4) * d + m);
    }
  }
}

void DecodeQ8_0(const void* row, float* out, std::int64_t n) {
  const auto* block = static_cast<const BlockQ8_0*>(row);
  for (std::int64_t i = 0; i < n; i += kBlock32, ++block) {
    const float d = F16ToF32(block->d);
    for (int j = 0; j < kBlock32; j += kLanes) {
      StoreVec(out + i + j, FloatOf(LoadI8(block->qs + j)) * d);
    }
  }
}

/// See BlockQ6_K for the places of the bits. kLanes divides 16, so a vector has one scale.
void DecodeQ6K(const void* row, float* out, std::int64_t n) {
  const auto* block = static_cast<const BlockQ6_K*>(row);
  for (std::int64_t i = 0; i < n; i += kBlock256, ++block) {
    const float d = F16ToF32(block->d);
    for (int half = 0; half < 2; ++half) {
      for (int l = 0; l < 32; l += kLanes) {
        const I32Vec high = LoadU8(block->qh + 32 * half + l);
        const I32Vec low[2] = {LoadU8(block->ql + 64 * half + l),
                               LoadU8(block->ql + 64 * half + 32 + l)};
        for (int s = 0; s < 4; ++s) {
          const I32Vec nibble = s < 2 ? low[s & 1] & 15 : low[s & 1] >> 4;
          const I32Vec code = nibble | ((high >> (2 * s)) & 3) << 4;
          const float scale = d * static_cast<float>(block->scales[8 * half + 2 * s + l / 16]);
          StoreVec(out + i + 128 * half + 32 * s + l, (FloatOf(code) - 32.0f) * scale);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tilewright
