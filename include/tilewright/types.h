#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tilewright {

/// Element and block formats. The enumerators' values are never stored; files hold the names
/// (DataTypeName).
enum class DataType : std::uint8_t {
  kNone = 0,
  kF32,
  kF16,
  kBF16,
  kF64,
  /// One byte: 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinities; 0x7f and 0xff are NaN.
  kF8E4M3,
  kI8,
  kI32,
  kI64,
  kU8,
  /// Two unsigned 4-bit values in a byte, the lower index in the low nibble; scales and zeros are
  /// operands of their own (U, V).
  kU4,
  kQ4_0,  ///< GGUF: 32 values, f16 d, 16 bytes; value = d * (q - 8)
  kQ4_1,  ///< GGUF: 32 values, f16 d, f16 m, 16 bytes; value = d * q + m
  kQ8_0,  ///< GGUF: 32 values, f16 d, 32 int8; value = d * q
  kQ6_K,  ///< GGUF: 256 values, 128 bytes low nibbles, 64 bytes high pairs, 16 int8 scales, f16 d
  /// GGUF: 256 values, f16 d, f16 dmin, 12 bytes of 6-bit scales and mins, 128 bytes;
  /// value = d * scale * q - dmin * min
  kQ4_K,
  kQ5_0,  ///< GGUF: 32 values, f16 d, 4 bytes of fifth bits, 16 bytes; value = d * (q - 16)
  kQ5_K,  ///< GGUF: as kQ4_K with 32 bytes of fifth bits
  /// GGUF: 256 values, 16 bytes of 4-bit scales and mins, 64 bytes, f16 d, f16 dmin;
  /// value = d * scale * q - dmin * min
  kQ2_K,
  /// GGUF: 256 values, 32 bytes of third bits, 64 bytes, 12 bytes of 6-bit scales, f16 d;
  /// value = d * (scale - 32) * (q - 4)
  kQ3_K,
  kIQ4_NL,  ///< GGUF: 32 values, f16 d, 16 bytes; value = d * table[q]
  kIQ4_XS,  ///< GGUF: 256 values, f16 d, 6 bytes of 6-bit scales, 128 bytes; table as kIQ4_NL's
  kQ5_1,    ///< GGUF: 32 values, f16 d, f16 m, then as kQ5_0; value = d * q + m
  /// GGUF: 32 values, a byte e, 16 bytes of signed values with 2 exponent bits and 1 bit of mantissa;
  /// value = 2^(e - 127) * q
  kMXFP4,
  /// Activations: blocks of f32 d, 32 int8 (36 bytes); value = d * q. What a copy of f32 gives to
  /// several int8 products, so that each need not round them again.
  kI8X32,
};

struct TypeInfo {
  std::string_view name;  ///< "f32", "q4_1", ...: as in ids, keys and on the command line
  int block_elements;     ///< values in a block; 1 for plain types, 2 for u4
  int block_bytes;        ///< bytes of a block
  bool block_quantised;   ///< true for the GGUF block formats and i8x32
};

const TypeInfo& GetTypeInfo(DataType type);
inline std::string_view DataTypeName(DataType type) { return GetTypeInfo(type).name; }
std::optional<DataType> ParseDataType(std::string_view name);

/// Bytes that `elements` consecutive values occupy. `elements` must be a multiple of the block.
inline std::size_t BytesOf(DataType type, std::int64_t elements) {
  const TypeInfo& info = GetTypeInfo(type);
  return static_cast<std::size_t>(elements / info.block_elements) *
         static_cast<std::size_t>(info.block_bytes);
}

/// Layout of a packed operand. Values below 0x8000 are reserved for Tilewright (PackName names
/// them), the rest are for users' kernels.
using Pack = std::uint16_t;
constexpr Pack kPackPlain = 0;
/// In a problem: the weights are not packed yet, so each kernel may ask for its own layout.
constexpr Pack kPackAny = 0xffff;

/// The mask bit of an enumerator.
template <class E>
constexpr std::uint32_t Bit(E value) {
  return 1u << static_cast<unsigned>(value);
}

enum class Order : std::uint8_t { kColMajor = 0, kRowMajor = 1 };
constexpr Order Flip(Order order) {
  return order == Order::kColMajor ? Order::kRowMajor : Order::kColMajor;
}

/// How the matrices of a grouped problem (num > 1) are located.
enum class Striding : std::uint8_t {
  kFlat,  ///< one matrix at `data` (num == 1)
  /// num matrices; group g holds rows offsets[g] .. offsets[g + 1] of the batch dimension, or
  /// matrix g of the weights
  kBlocked,
  kIndexed,  ///< as kBlocked, and row r of the operand is row idxs[r] of the memory at `data`
};

}  // namespace tilewright
