#pragma once

// Scalar decoding and encoding of every element and block format of a GEMM operand. Everything here
// is static: kernel files compiled for different instruction sets each get their own copy. No
// alignment is assumed of any pointer.

#include <cstdint>

#include "core/numeric.h"
#include "tilewright/types.h"

namespace tilewright::gemm {

template <class T>
static inline T LoadAs(const void* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof(T));
  return value;
}
template <class T>
static inline void StoreAs(void* p, T value) {
  __builtin_memcpy(p, &value, sizeof(T));
}

constexpr int kQ4_0Bytes = 18, kQ4_1Bytes = 20, kQ8_0Bytes = 34, kQ6_KBytes = 210;
constexpr int kQ6_KElements = 256;

// The 256 six-bit values of a Q6_K block, still with their offset of 32.
static inline void UnpackQ6K(const std::uint8_t* block, std::uint8_t* q) {
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t* low = block + 64 * half;
    const std::uint8_t* high = block + 128 + 32 * half;
    std::uint8_t* out = q + 128 * half;
    for (int i = 0; i < 32; ++i) {
      out[i] = static_cast<std::uint8_t>((low[i] & 15) | ((high[i] & 3) << 4));
      out[i + 32] = static_cast<std::uint8_t>((low[i + 32] & 15) | (((high[i] >> 2) & 3) << 4));
      out[i + 64] = static_cast<std::uint8_t>((low[i] >> 4) | (((high[i] >> 4) & 3) << 4));
      out[i + 96] = static_cast<std::uint8_t>((low[i + 32] >> 4) | ((high[i] >> 6) << 4));
    }
  }
}

// One block to f32, values `stride` floats apart. Products d * q are exact in f32, so every order
// of rounding agrees with GGUF's.
static inline void DecodeBlock(DataType type, const std::uint8_t* block, float* out,
                               std::int64_t stride) {
  switch (type) {
    case DataType::kQ4_0: {
      const float d = F16ToF32(LoadAs<std::uint16_t>(block));
      for (int i = 0; i < 16; ++i) {
        out[i * stride] = d * static_cast<float>((block[2 + i] & 15) - 8);
        out[(i + 16) * stride] = d * static_cast<float>((block[2 + i] >> 4) - 8);
      }
      return;
    }
    case DataType::kQ4_1: {
      const float d = F16ToF32(LoadAs<std::uint16_t>(block));
      const float m = F16ToF32(LoadAs<std::uint16_t>(block + 2));
      for (int i = 0; i < 16; ++i) {
        out[i * stride] = d * static_cast<float>(block[4 + i] & 15) + m;
        out[(i + 16) * stride] = d * static_cast<float>(block[4 + i] >> 4) + m;
      }
      return;
    }
    case DataType::kQ8_0: {
      const float d = F16ToF32(LoadAs<std::uint16_t>(block));
      for (int i = 0; i < 32; ++i)
        out[i * stride] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
      return;
    }
    case DataType::kQ6_K: {
      std::uint8_t q[kQ6_KElements];
      UnpackQ6K(block, q);
      const float d = F16ToF32(LoadAs<std::uint16_t>(block + 208));
      for (int i = 0; i < kQ6_KElements; ++i) {
        const float scale = d * static_cast<float>(static_cast<std::int8_t>(block[192 + i / 16]));
        out[i * stride] = scale * static_cast<float>(static_cast<int>(q[i]) - 32);
      }
      return;
    }
    default:
      return;
  }
}

// Elements and bytes of a block format; 1 element for plain types (u4: two elements share a byte,
// see DecodeRun).
static inline int BlockElements(DataType type) {
  switch (type) {
    case DataType::kQ4_0:
    case DataType::kQ4_1:
    case DataType::kQ8_0:
      return 32;
    case DataType::kQ6_K:
      return kQ6_KElements;
    default:
      return 1;
  }
}
static inline int BlockBytes(DataType type) {
  switch (type) {
    case DataType::kQ4_0:
      return kQ4_0Bytes;
    case DataType::kQ4_1:
      return kQ4_1Bytes;
    case DataType::kQ8_0:
      return kQ8_0Bytes;
    case DataType::kQ6_K:
      return kQ6_KBytes;
    case DataType::kF32:
      return 4;
    case DataType::kF64:
      return 8;
    case DataType::kF16:
    case DataType::kBF16:
      return 2;
    default:
      return 1;
  }
}

// One value of a plain type at linear element `index` of `base`, without its outer scale.
static inline float LoadElement(DataType type, const void* base, std::int64_t index) {
  const auto* bytes = static_cast<const std::uint8_t*>(base);
  switch (type) {
    case DataType::kF32:
      return LoadAs<float>(bytes + 4 * index);
    case DataType::kF64:
      return static_cast<float>(LoadAs<double>(bytes + 8 * index));
    case DataType::kF16:
      return F16ToF32(LoadAs<std::uint16_t>(bytes + 2 * index));
    case DataType::kBF16:
      return BF16ToF32(LoadAs<std::uint16_t>(bytes + 2 * index));
    case DataType::kF8E4M3:
      return E4M3ToF32(bytes[index]);
    case DataType::kI8:
      return static_cast<float>(static_cast<std::int8_t>(bytes[index]));
    case DataType::kU8:
      return static_cast<float>(bytes[index]);
    case DataType::kU4:
      return static_cast<float>((bytes[index >> 1] >> (4 * (index & 1))) & 15);
    default:
      return 0;
  }
}

// `count` values from linear element `index` on, `step` elements apart, to out[i * stride]. Block
// formats need step 1 and index and count in whole blocks.
static inline void DecodeRun(DataType type, const void* base, std::int64_t index, std::int64_t step,
                             int count, float* out, std::int64_t stride) {
  const int block = BlockElements(type);
  if (block > 1) {
    const auto* bytes = static_cast<const std::uint8_t*>(base) + index / block * BlockBytes(type);
    for (int i = 0; i < count; i += block, bytes += BlockBytes(type))
      DecodeBlock(type, bytes, out + i * stride, stride);
    return;
  }
  switch (type) {  // one loop a type: the common ones vectorise
    case DataType::kF32:
      for (int i = 0; i < count; ++i) {
        out[i * stride] =
            LoadAs<float>(static_cast<const std::uint8_t*>(base) + 4 * (index + i * step));
      }
      return;
    case DataType::kBF16:
      for (int i = 0; i < count; ++i) {
        out[i * stride] = BF16ToF32(
            LoadAs<std::uint16_t>(static_cast<const std::uint8_t*>(base) + 2 * (index + i * step)));
      }
      return;
    default:
      for (int i = 0; i < count; ++i) out[i * stride] = LoadElement(type, base, index + i * step);
      return;
  }
}

static inline void StoreElement(DataType type, void* base, std::int64_t index, double value) {
  auto* bytes = static_cast<std::uint8_t*>(base);
  switch (type) {
    case DataType::kF64:
      StoreAs<double>(bytes + 8 * index, value);
      return;
    case DataType::kF16:
      StoreAs<std::uint16_t>(bytes + 2 * index, F32ToF16(static_cast<float>(value)));
      return;
    case DataType::kBF16:
      StoreAs<std::uint16_t>(bytes + 2 * index, F32ToBF16(static_cast<float>(value)));
      return;
    default:
      StoreAs<float>(bytes + 4 * index, static_cast<float>(value));
      return;
  }
}

}  // namespace tilewright::gemm
