#include "core/block_format.h"

#include <cstring>
#include <vector>

#include "core/i8x32.h"
#include "core/numeric.h"
#include "core/tensor_access.h"
#include "core/text.h"

namespace tilewright {
namespace {

template <class T>
T LoadAs(const unsigned char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <class Block, class Out>
void DecodeBlocks(const unsigned char* p, std::int64_t n, Out* out) {
  UnpackedBlock unpacked;
  for (std::int64_t i = 0; i < n; i += Block::kFormat.elements, p += sizeof(Block)) {
    Unpack(LoadAs<Block>(p), unpacked);
    ExpandBlock<Block>(unpacked, out + i, 1);
  }
}

template <class Out>
void DecodeI8x32(const unsigned char* p, std::int64_t n, Out* out) {
  for (std::int64_t i = 0; i < n; i += BlockI8x32::kElements, p += sizeof(BlockI8x32)) {
    const auto block = LoadAs<BlockI8x32>(p);
    for (int j = 0; j < BlockI8x32::kElements; ++j)
      out[i + j] = static_cast<Out>(block.d) * block.q[j];
  }
}

template <class T, class Out, class Convert>
void DecodePlain(const unsigned char* p, std::int64_t n, Out* out, Convert convert) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<Out>(convert(LoadAs<T>(p + i * static_cast<std::int64_t>(sizeof(T)))));
  }
}

Status CheckLength(DataType type, std::int64_t n) {
  const TypeInfo& info = GetTypeInfo(type);
  if (type == DataType::kNone) return Fail(ErrorCode::kUnsupported, "type none has no values");
  if (n < 0 || n % info.block_elements != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("{} values of type {}: must be a multiple of its block of {}", n, info.name,
                       info.block_elements));
  }
  return {};
}

template <class Out>
Status Decode(DataType type, const void* source, std::int64_t n, Out* out) {
  if (Status status = CheckLength(type, n); !status) return status;
  const auto* p = static_cast<const unsigned char*>(source);
  const auto same = [](auto value) { return value; };
  switch (type) {
    case DataType::kNone:
      break;
    case DataType::kF32:
      DecodePlain<float>(p, n, out, same);
      break;
    case DataType::kF16:
      DecodePlain<std::uint16_t>(p, n, out, F16ToF32);
      break;
    case DataType::kBF16:
      DecodePlain<std::uint16_t>(p, n, out, BF16ToF32);
      break;
    case DataType::kF64:
      DecodePlain<double>(p, n, out, same);
      break;
    case DataType::kF8E4M3:
      DecodePlain<std::uint8_t>(p, n, out, E4M3ToF32);
      break;
    case DataType::kI8:
      DecodePlain<std::int8_t>(p, n, out, same);
      break;
    case DataType::kI32:
      DecodePlain<std::int32_t>(p, n, out, same);
      break;
    case DataType::kI64:
      DecodePlain<std::int64_t>(p, n, out, same);
      break;
    case DataType::kU8:
      DecodePlain<std::uint8_t>(p, n, out, same);
      break;
    case DataType::kU4:
      for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(p[i / 2] >> (i % 2 * 4) & 15);
      break;
    case DataType::kI8X32:
      DecodeI8x32(p, n, out);
      break;
    default:
      WithBlock(AllBlocks{}, type, [&]<class Block>() { DecodeBlocks<Block>(p, n, out); });
      break;
  }
  return {};
}

template <class Block>
void EncodeBlocks(DataType type, const float* source, std::int64_t n, unsigned char* out) {
  const std::int64_t elements = GetTypeInfo(type).block_elements;
  for (std::int64_t i = 0; i < n; i += elements, out += sizeof(Block)) {
    Block block;
    Encode(source + i, block);
    std::memcpy(out, &block, sizeof block);
  }
}

template <class T, class Convert>
void EncodePlain(const float* source, std::int64_t n, unsigned char* out, Convert convert) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T value = static_cast<T>(convert(source[i]));
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof value);
  }
}

}  // namespace

Status DecodeRow(DataType type, const void* source, std::int64_t n, float* out) {
  return Decode(type, source, n, out);
}

Status DecodeRow(DataType type, const void* source, std::int64_t n, double* out) {
  return Decode(type, source, n, out);
}

Status EncodeRow(DataType type, const float* source, std::int64_t n, void* out) {
  if (Status status = CheckLength(type, n); !status) return status;
  auto* p = static_cast<unsigned char*>(out);
  const auto same = [](float value) { return value; };
  switch (type) {
    case DataType::kF32:
      EncodePlain<float>(source, n, p, same);
      break;
    case DataType::kF64:
      EncodePlain<double>(source, n, p, same);
      break;
    case DataType::kF16:
      EncodePlain<std::uint16_t>(source, n, p, F32ToF16);
      break;
    case DataType::kBF16:
      EncodePlain<std::uint16_t>(source, n, p, F32ToBF16);
      break;
    case DataType::kF8E4M3:
      EncodePlain<std::uint8_t>(source, n, p, F32ToE4M3);
      break;
    case DataType::kI8X32:
      EncodeBlocks<BlockI8x32>(type, source, n, p);
      break;
    default:
      if (WithBlock(AllBlocks{}, type,
                    [&]<class Block>() { EncodeBlocks<Block>(type, source, n, p); }))
        break;
      return Fail(ErrorCode::kUnsupported,
                  Format("floats cannot be encoded as {}", DataTypeName(type)));
  }
  return {};
}

Status EncodeRow(DataType type, const double* source, std::int64_t n, void* out) {
  if (!IsFloatType(type)) {
    const std::vector<float> narrow(source, source + n);
    return EncodeRow(type, narrow.data(), n, out);
  }
  for (std::int64_t i = 0; i < n; ++i) WriteF64(type, out, i, source[i]);
  return {};
}

}  // namespace tilewright
