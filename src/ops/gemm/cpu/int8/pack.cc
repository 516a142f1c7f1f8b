#include "ops/gemm/cpu/int8/pack.h"

#include <cstring>

#include "core/block_format.h"

namespace tilewright::gemm_int8 {
namespace {

/// Byte of value (column, k) in a block whose quads lie one to a line.
constexpr std::size_t ByteOf(int column, int k) {
  return static_cast<std::size_t>(64 * (k / 4) + 4 * column + k % 4);
}

struct Panel {
  std::uint8_t* codes;
  std::uint8_t* scales;
};

void PutHalf(std::uint8_t* scales, int column, std::uint16_t value) {
  std::memcpy(scales + 2 * column, &value, 2);
}

/// File byte j holds k = j and k = j + 16, just as line j / 4 holds quad j / 4 and quad j / 4 + 4.
template <class Block>
void PackQ4(const std::uint8_t* row, int column, int blocks, const Panel& panel) {
  constexpr Format kFormat = sizeof(Block) == sizeof(BlockQ4_1) ? Format::kQ4_1 : Format::kQ4_0;
  for (int b = 0; b < blocks; ++b) {
    Block block;
    std::memcpy(&block, row + static_cast<std::size_t>(b) * sizeof block, sizeof block);
    std::uint8_t* codes = panel.codes + static_cast<std::size_t>(b) * CodeBytes(kFormat);
    for (int j = 0; j < 16; ++j) codes[ByteOf(column, j)] = block.qs[j];
    std::uint8_t* scales = panel.scales + static_cast<std::size_t>(b) * ScaleBytes(kFormat, 1);
    PutHalf(scales, column, block.d);
    if constexpr (kFormat == Format::kQ4_1) PutHalf(scales + 32, column, block.m);
  }
}

void PackQ8(const std::uint8_t* row, int column, int blocks, const Panel& panel) {
  for (int b = 0; b < blocks; ++b) {
    BlockQ8_0 block;
    std::memcpy(&block, row + static_cast<std::size_t>(b) * sizeof block, sizeof block);
    std::uint8_t* codes = panel.codes + static_cast<std::size_t>(b) * CodeBytes(Format::kQ8_0);
    for (int j = 0; j < 32; ++j) {
      codes[ByteOf(column, j)] = static_cast<std::uint8_t>(block.qs[j] + 128);
    }
    PutHalf(panel.scales + static_cast<std::size_t>(b) * ScaleBytes(Format::kQ8_0, 1), column,
            block.d);
  }
}

void PackQ6(const std::uint8_t* row, int column, int blocks, const Panel& panel) {
  for (int super = 0; super < blocks / 8; ++super) {
    BlockQ6_K block;
    std::memcpy(&block, row + static_cast<std::size_t>(super) * sizeof block, sizeof block);
    std::uint8_t* scales =
        panel.scales + static_cast<std::size_t>(super) * ScaleBytes(Format::kQ6_K, 8);
    for (int b = 0; b < 8; ++b) {
      std::uint8_t* codes =
          panel.codes + static_cast<std::size_t>(8 * super + b) * CodeBytes(Format::kQ6_K);
      const int half = b / 4, s = b % 4;
      for (int l = 0; l < 32; ++l) {
        const int low = block.ql[64 * half + 32 * (s & 1) + l] >> (s < 2 ? 0 : 4) & 0x0f;
        const int high = block.qh[32 * half + l] >> (2 * s) & 3;
        const int quad = l / 4;
        const int line = quad % 4;
        std::uint8_t& low_byte = codes[ByteOf(column, l % 16)];
        low_byte = static_cast<std::uint8_t>(low_byte | low << (quad < 4 ? 0 : 4));
        // Quad `line` (+ 4) lies in line line / 2 of the high bits, in field line % 2 (+ 2).
        std::uint8_t& high_byte = codes[256 + 64 * (line / 2) + 4 * column + l % 4];
        high_byte =
            static_cast<std::uint8_t>(high_byte | high << (2 * (line % 2) + (quad < 4 ? 0 : 4)));
      }
      for (int i = 0; i < 2; ++i) {
        scales[32 * b + 16 * i + column] = static_cast<std::uint8_t>(block.scales[2 * b + i]);
      }
    }
    PutHalf(scales + 256, column, block.d);
  }
}

}  // namespace

void PackPanels(Format format, const void* plain, std::int64_t n, std::int64_t k,
                std::size_t row_bytes, void* packed, Stream stream) {
  const int blocks = static_cast<int>(k / kBlock);
  const std::size_t panel_bytes = PanelBytes(format, blocks);
  const auto panels = static_cast<int>((n + kPanelColumns - 1) / kPanelColumns);
  stream.exec().Run(panels, [&](int index, int) {
    auto* start =
        static_cast<std::uint8_t*>(packed) + static_cast<std::size_t>(index) * panel_bytes;
    std::memset(start, 0, panel_bytes);
    const Panel panel{start, start + static_cast<std::size_t>(CodeBytes(format)) *
                                         static_cast<std::size_t>(blocks)};
    for (int column = 0; column < kPanelColumns; ++column) {
      const std::int64_t row_index = static_cast<std::int64_t>(index) * kPanelColumns + column;
      if (row_index >= n) break;
      const auto* row =
          static_cast<const std::uint8_t*>(plain) + static_cast<std::size_t>(row_index) * row_bytes;
      switch (format) {
        case Format::kQ4_0:
          PackQ4<BlockQ4_0>(row, column, blocks, panel);
          break;
        case Format::kQ4_1:
          PackQ4<BlockQ4_1>(row, column, blocks, panel);
          break;
        case Format::kQ8_0:
          PackQ8(row, column, blocks, panel);
          break;
        case Format::kQ6_K:
          PackQ6(row, column, blocks, panel);
          break;
      }
    }
  });
}

}  // namespace tilewright::gemm_int8
