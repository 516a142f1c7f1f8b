#pragma once

// Scalar decoding and encoding of every element and block format of a GEMM operand. Everything here
// is static: kernel files compiled for different instruction sets each get their own copy. No
// alignment is assumed of any pointer.

#include <cstdint>

#include "core/formats/formats.h"
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

// One block to f32, values `stride` floats apart; nothing for a type that has no blocks.
static inline void DecodeBlock(DataType type, const std::uint8_t* block, float* out,
                               std::int64_t stride) {
  UnpackedBlock unpacked;
  WithBlock(AllBlocks{}, type, [&]<class Block>() {
    Unpack(LoadAs<Block>(block), unpacked);
    ExpandBlock<Block>(unpacked, out, stride);
  });
}

// Elements and bytes of a block format; 1 element for plain types (u4: two elements share a byte,
// see DecodeRun).
static inline int BlockElements(DataType type) {
  const BlockFormat* format = FindFormat(type);
  return format != nullptr ? format->elements : 1;
}
static inline int BlockBytes(DataType type) { return GetTypeInfo(type).block_bytes; }

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
