#pragma once

#include <cstdint>
#include <string_view>

#include "core/numeric.h"
#include "tilewright/types.h"

/// What defines a block format of weights. A format is one header of this folder: the bytes of its
/// block (a packed struct), its descriptor (`Block::kFormat`) and two functions, Unpack and Encode.
/// formats.h lists them; everything else about a format (TypeInfo, GGUF type numbers, decoding,
/// packing for kernels, synthetic weights, random test blocks, the table of docs/formats.md) is
/// derived from the descriptor and Unpack.
///
/// Functions are `static inline`, so that each kernel file, compiled for an instruction set, keeps
/// its own copy.

namespace tilewright {

/// How a factor of a block (the scale of its codes, or the minimum added to them) is stored.
enum class Factor : std::uint8_t {
  kNone,
  kF16,          ///< one f16 for the block
  kF16TimesInt,  ///< one f16 for the block times an integer of 8 bits or less for each sub-block
  kPowerOfTwo,   ///< one byte e for the block, for 2^(e - 128)
};

/// Value i of a block, with s = i / sub_block, is scale(s) * (code(i) - zero) + min(s), or
/// scale(s) * values[code(i)] + min(s) if there is a lookup table.
struct BlockFormat {
  DataType type = DataType::kNone;
  std::string_view name;             ///< as in TypeInfo
  std::uint32_t gguf_type = 0;       ///< type number of a tensor in a GGUF file
  std::uint32_t gguf_file_type = 0;  ///< general.file_type of a model that is mostly this type
  int elements = 0;                  ///< values per block
  int bytes = 0;                     ///< bytes per block
  int code_bits = 0;
  int zero = 0;          ///< the code of the value 0; 0 with a lookup table
  int sub_block = 0;     ///< consecutive values that share a scale and a minimum
  int integer_bits = 8;  ///< of each integer of a kF16TimesInt, as the file stores it
  Factor scale = Factor::kF16;
  Factor min = Factor::kNone;
  int scale_at = 0;  ///< byte offset of the f16 of the scales, or of its byte
  int min_at = -1;   ///< byte offset of the f16 of the minima, or -1
  /// Whether codes are looked up in `values`. (With a sanitizer, g++ does not compare pointers in
  /// constant expressions.)
  bool has_table = false;
  const std::int8_t* values = nullptr;  ///< [1 << code_bits], if has_table

  constexpr int sub_blocks() const { return elements / sub_block; }
  /// Bytes of the scale of a block, without integers of sub-blocks.
  constexpr int scale_bytes() const { return scale == Factor::kPowerOfTwo ? 1 : 2; }
  /// Bytes of the minimum of a block, without integers of sub-blocks.
  constexpr int min_bytes() const { return min == Factor::kNone ? 0 : 2; }
  /// Whether a scale and a minimum fit in a byte, as unsigned integers: panels keep them so.
  constexpr bool PairsIntegers() const {
    return scale == Factor::kF16TimesInt && min == Factor::kF16TimesInt && integer_bits <= 4;
  }
};

inline constexpr int kMaxBlockElements = 256;
inline constexpr int kMaxSubBlocks = 16;

/// The parts of a block. The integers of a factor are set only if it is kF16TimesInt.
struct UnpackedBlock {
  std::uint16_t scale;                                ///< f16 bits, or the byte of a kPowerOfTwo
  std::uint16_t min;                                  ///< f16 bits; minima are added
  std::int16_t scales[kMaxSubBlocks];                 ///< kF16TimesInt: times `scale`
  std::int16_t mins[kMaxSubBlocks];                   ///< kF16TimesInt: times `min`
  alignas(64) std::uint8_t codes[kMaxBlockElements];  ///< value i has code i
};

/// The smallest code width that kernels' panels support (2 bits, nibbles, either with one or two
/// separate bits, or bytes: 2, 3, 4, 5, 6 or 8 bits) and that holds the codes of `format`.
static inline constexpr int PanelCodeBits(const BlockFormat& format) {
  return format.code_bits <= 2 ? 2 : format.code_bits <= 6 ? format.code_bits : 8;
}

/// Sixteen codes in the compilers' vector extension: a loop over bytes is unrolled into single-byte
/// stores, and a vector load of what they wrote stalls.
typedef std::uint8_t CodeVec __attribute__((vector_size(16)));

static inline CodeVec LoadCodes(const std::uint8_t* p) {
  CodeVec codes;
  __builtin_memcpy(&codes, p, sizeof codes);
  return codes;
}
static inline void StoreCodes(std::uint8_t* p, CodeVec codes) {
  __builtin_memcpy(p, &codes, sizeof codes);
}

/// Writes the low nibbles of 16 bytes to low[16], the high ones to high[16].
static inline void SplitNibbles(const std::uint8_t* bytes, std::uint8_t* low, std::uint8_t* high) {
  const CodeVec both = LoadCodes(bytes);
  StoreCodes(low, both & 15);
  StoreCodes(high, both >> 4);
}

/// Byte i is 1 if bit i of `bits` is set, else 0.
static inline std::uint64_t SpreadBits(std::uint8_t bits) {
  const std::uint64_t apart = bits * 0x0101010101010101u & 0x8040201008040201u;
  return (apart + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}

/// Adds bit 4 to the codes of 32 values from `bits`, of which bit i % 8 of byte i / 8 is value i's.
static inline void AddFifthBits(const std::uint8_t (&bits)[4], std::uint8_t* codes) {
  for (int i = 0; i < 4; ++i) {
    std::uint64_t eight;
    __builtin_memcpy(&eight, codes + 8 * i, sizeof eight);
    eight |= SpreadBits(bits[i]) << 4;
    __builtin_memcpy(codes + 8 * i, &eight, sizeof eight);
  }
}

/// The scale of a block as it is stored.
template <class Block>
static inline float ScaleOf(const UnpackedBlock& block) {
  if constexpr (Block::kFormat.scale == Factor::kPowerOfTwo) return HalfOfE8M0(block.scale);
  return F16ToF32(block.scale);
}

/// Decodes Block::kFormat.elements values, `stride` apart. In f32 they are exact, except that
/// adding a minimum rounds once; in f64 they are exact.
template <class Block, class Out>
static inline void ExpandBlock(const UnpackedBlock& block, Out* out, std::int64_t stride) {
  constexpr BlockFormat kFormat = Block::kFormat;
  const Out scale = ScaleOf<Block>(block);
  const Out min = kFormat.min == Factor::kNone ? Out{} : Out{F16ToF32(block.min)};
  for (int s = 0; s < kFormat.sub_blocks(); ++s) {
    Out step = scale, offset = min;
    if constexpr (kFormat.scale == Factor::kF16TimesInt) step *= static_cast<Out>(block.scales[s]);
    if constexpr (kFormat.min == Factor::kF16TimesInt) offset *= static_cast<Out>(block.mins[s]);
    for (int i = s * kFormat.sub_block; i < (s + 1) * kFormat.sub_block; ++i) {
      int code = static_cast<int>(block.codes[i]) - kFormat.zero;
      if constexpr (kFormat.has_table) code = kFormat.values[block.codes[i]];
      // Without a minimum nothing is added: `+ 0` would turn -0 into 0.
      if constexpr (kFormat.min == Factor::kNone) {
        out[i * stride] = step * static_cast<Out>(code);
      } else {
        out[i * stride] = step * static_cast<Out>(code) + offset;
      }
    }
  }
}

}  // namespace tilewright
