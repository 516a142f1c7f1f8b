#include "ops/gemm/cpu/int8/pack.h"

#include <cstring>

#include "core/formats/formats.h"

namespace tilewright::gemm_int8 {
namespace {

/// Four codes of consecutive k, the lowest in the lowest byte.
std::uint32_t Quad(const std::uint8_t* codes, int quad) {
  std::uint32_t value;
  std::memcpy(&value, codes + 4 * quad, sizeof value);
  return value;
}
void PutQuad(std::uint8_t* line, int column, std::uint32_t value) {
  std::memcpy(line + 4 * column, &value, sizeof value);
}

/// The 32 codes of one column of a block.
template <int kBits>
void PackCodes(const std::uint8_t* codes, int column, std::uint8_t* out) {
  if constexpr (kBits == 8) {
    for (int line = 0; line < 8; ++line) PutQuad(out + 64 * line, column, Quad(codes, line));
    return;
  }
  std::uint8_t* rest = out;
  if constexpr (kBits >= 4) {
    const auto low = [codes](int quad) { return Quad(codes, quad) & 0x0f0f0f0fu; };
    for (int line = 0; line < 4; ++line, rest += 64)
      PutQuad(rest, column, low(line) | low(line + 4) << 4);
  }
  if constexpr (kBits == 6 || kBits < 4) {
    constexpr int kFrom = kBits == 6 ? 4 : 0;
    const auto two = [codes](int quad) { return Quad(codes, quad) >> kFrom & 0x03030303u; };
    for (int line = 0; line < 2; ++line, rest += 64) {
      PutQuad(
          rest, column,
          two(2 * line) | two(2 * line + 1) << 2 | two(2 * line + 4) << 4 | two(2 * line + 5) << 6);
    }
  }
  if constexpr (kBits == 5 || kBits == 3) {
    std::uint32_t bits = 0;
    for (int quad = 0; quad < 8; ++quad)
      bits |= (Quad(codes, quad) >> (kBits - 1) & 0x01010101u) << quad;
    PutQuad(rest, column, bits);
  }
}

/// One column of the panel at `out`: `blocks` blocks of 32 k of the file's `row`.
template <class Block>
void PackColumn(const std::uint8_t* row, int column, int blocks, std::uint8_t* out) {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr int kInside = kFormat.elements / kBlock;
  std::uint8_t* codes = out;
  std::uint8_t* factors =
      out + static_cast<std::size_t>(CodeBytes(kFormat)) * static_cast<std::size_t>(blocks);
  const auto put_integers = [&](const std::int16_t* integers) {
    for (int s = 0; s < kBlock / kFormat.sub_block; ++s, factors += kPanelColumns)
      factors[column] = static_cast<std::uint8_t>(integers[s]);
  };
  const auto put_half = [&](std::uint16_t half) {
    std::memcpy(factors + 2 * column, &half, sizeof half);
    factors += 2 * kPanelColumns;
  };
  for (int done = 0; done < blocks; done += kInside, row += sizeof(Block)) {
    Block block;
    std::memcpy(&block, row, sizeof block);
    UnpackedBlock unpacked;
    Unpack(block, unpacked);
    for (int b = 0; b < kInside; ++b, codes += CodeBytes(kFormat)) {
      PackCodes<PanelCodeBits(kFormat)>(unpacked.codes + kBlock * b, column, codes);
      const int s = b * kBlock / kFormat.sub_block;
      if constexpr (kFormat.PairsIntegers()) {
        for (int i = s; i < s + kBlock / kFormat.sub_block; ++i)
          unpacked.scales[i] =
              static_cast<std::int16_t>(unpacked.scales[i] | unpacked.mins[i] << 4);
        put_integers(unpacked.scales + s);
      } else {
        if constexpr (kFormat.scale == Factor::kF16TimesInt) put_integers(unpacked.scales + s);
        if constexpr (kFormat.min == Factor::kF16TimesInt) put_integers(unpacked.mins + s);
      }
    }
    if constexpr (kFormat.scale == Factor::kPowerOfTwo) {
      factors[column] = static_cast<std::uint8_t>(unpacked.scale);
      factors += kPanelColumns;
    } else {
      put_half(unpacked.scale);
    }
    if constexpr (kFormat.min != Factor::kNone) put_half(unpacked.min);
  }
}

using PackFunction = void (*)(const std::uint8_t* row, int column, int blocks, std::uint8_t* out);

PackFunction PackFunctionOf(DataType type) {
  PackFunction function = nullptr;
  WithBlock(AllBlocks{}, type, [&function]<class Block>() {
    if constexpr (HasInt8(Block::kFormat)) function = &PackColumn<Block>;
  });
  return function;
}

}  // namespace

void PackPanels(const BlockFormat& format, const void* plain, std::int64_t n, std::int64_t k,
                std::size_t row_bytes, void* packed, Stream stream) {
  const int blocks = static_cast<int>(k / kBlock);
  const std::size_t panel_bytes = PanelBytes(format, blocks);
  const auto panels = static_cast<int>((n + kPanelColumns - 1) / kPanelColumns);
  const PackFunction pack = PackFunctionOf(format.type);
  stream.exec().Run(panels, [&](int index, int) {
    auto* start =
        static_cast<std::uint8_t*>(packed) + static_cast<std::size_t>(index) * panel_bytes;
    std::memset(start, 0, panel_bytes);
    for (int column = 0; column < kPanelColumns; ++column) {
      const std::int64_t row_index = static_cast<std::int64_t>(index) * kPanelColumns + column;
      if (row_index >= n) break;
      const auto* row =
          static_cast<const std::uint8_t*>(plain) + static_cast<std::size_t>(row_index) * row_bytes;
      pack(row, column, blocks, start);
    }
  });
}

}  // namespace tilewright::gemm_int8
