#include <fmt/format.h>

#include <cstring>

#include "ops/gemm/cpu/common.h"
#include "ops/gemm/cpu/panel_layout.h"
#include "ops/gemm/cpu/panel_pack.h"

namespace tilewright::gemm {
namespace {

// A column of the source as it is packed; nullptr beyond n.
struct Columns {
  const std::uint8_t* base;
  std::int64_t stride;  // bytes
  int count;            // of 16

  const std::uint8_t* At(int column, std::int64_t offset) const {
    return base + column * stride + offset;
  }
};

// `T` stands for the bits of an element: a copy of a known size.
template <class T>
void PackPlain(const Columns& columns, int k, std::uint8_t* out) {
  for (int i = 0; i < k; ++i, out += sizeof(T) * kPanelCols) {
    for (int c = 0; c < columns.count; ++c) {
      StoreAs<T>(out + c * sizeof(T),
                 LoadAs<T>(columns.At(c, i * static_cast<std::int64_t>(sizeof(T)))));
    }
  }
}

// The codes of one column of a block.
template <class Block>
void PackCodes(const UnpackedBlock& block, int column, std::uint8_t* out) {
  constexpr int kElements = Block::kFormat.elements, kBits = PanelCodeBits(Block::kFormat);
  const std::uint8_t* codes = block.codes;
  if constexpr (kBits == 8) {
    for (int i = 0; i < kElements; ++i)
      out[i * kPanelCols + column] = static_cast<std::uint8_t>(codes[i] - 128);
  } else {
    for (int i = 0; i < kElements; i += 2) {
      out[i / 2 * kPanelCols + column] =
          static_cast<std::uint8_t>((codes[i] & 15) | (codes[i + 1] & 15) << 4);
    }
  }
  if constexpr (kBits == 5 || kBits == 6) {
    constexpr int kTop = kBits - 4, kPerByte = 8 / kTop;
    out += kElements / 2 * kPanelCols;
    for (int i = 0; i < kElements; i += kPerByte) {
      int byte = 0;
      for (int j = 0; j < kPerByte; ++j) byte |= codes[i + j] >> 4 << (kTop * j);
      out[i / kPerByte * kPanelCols + column] = static_cast<std::uint8_t>(byte);
    }
  }
}

template <class Block>
void PackBlocks(const Columns& columns, int k, std::uint8_t* out) {
  constexpr BlockFormat kFormat = Block::kFormat;
  UnpackedBlock block;
  for (int i = 0; i < k; i += kFormat.elements) {
    const std::int64_t offset = static_cast<std::int64_t>(i / kFormat.elements) * kFormat.bytes;
    for (int c = 0; c < columns.count; ++c) {
      Unpack(LoadAs<Block>(columns.At(c, offset)), block);
      std::uint8_t* codes = out;
      const auto put_half = [&](std::uint16_t half) {
        StoreAs<std::uint16_t>(codes + 2 * c, half);
        codes += 2 * kPanelCols;
      };
      const auto put_integers = [&](const std::int16_t* integers) {
        for (int s = 0; s < kFormat.sub_blocks(); ++s, codes += kPanelCols)
          codes[c] = static_cast<std::uint8_t>(integers[s]);
      };
      put_half(block.scale);
      if constexpr (kFormat.min != Factor::kNone) put_half(block.min);
      if constexpr (kFormat.scale == Factor::kF16TimesInt) put_integers(block.scales);
      if constexpr (kFormat.min == Factor::kF16TimesInt) put_integers(block.mins);
      PackCodes<Block>(block, c, codes);
    }
    out += PanelBlockBytes(kFormat) * kPanelCols;
  }
}

void PackPanel(DataType type, const Columns& columns, int k, std::uint8_t* out) {
  // Zero factors make the missing columns decode to zero whatever their codes.
  if (columns.count < kPanelCols)
    std::memset(out, 0, static_cast<std::size_t>(PanelBytes(type, k)));
  if (WithBlock(AllBlocks{}, type, [&]<class Block>() { PackBlocks<Block>(columns, k, out); }))
    return;
  if (type == DataType::kF32) return PackPlain<std::uint32_t>(columns, k, out);
  return PackPlain<std::uint16_t>(columns, k, out);
}

}  // namespace

std::string_view PanelPackTu() { return TILEWRIGHT_TU; }

std::size_t PanelPackBytes(const MatrixLayout& b) {
  return static_cast<std::size_t>(CeilDiv(b.cols, kPanelCols)) *
         static_cast<std::size_t>(PanelBytes(b.type, b.rows));
}

Status PackPanels(const void* plain, const MatrixLayout& b, void* packed, Stream stream) {
  const int block = BlockElements(b.type);
  if (b.order != Order::kColMajor) {
    return Fail(ErrorCode::kInvalidArgument,
                "weights to pack: row-major, must be column-major (W[n][k])");
  }
  if (b.rows % block != 0 || b.ld % block != 0 || b.ld < b.rows) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "weights to pack: k = {}, ld = {}: both must be multiples of {} and ld >= k for {}",
            b.rows, b.ld, block, DataTypeName(b.type)));
  }
  const std::int64_t column_bytes = b.ld / block * BlockBytes(b.type);
  const std::int64_t panel_bytes = PanelBytes(b.type, b.rows);
  const int panels = CeilDiv(b.cols, kPanelCols);
  stream.exec().Run(panels, [&](int panel, int) {
    const int first = panel * kPanelCols;
    const Columns columns{static_cast<const std::uint8_t*>(plain) + first * column_bytes,
                          column_bytes, b.cols - first < kPanelCols ? b.cols - first : kPanelCols};
    PackPanel(b.type, columns, b.rows, static_cast<std::uint8_t*>(packed) + panel * panel_bytes);
  });
  return {};
}

}  // namespace tilewright::gemm
