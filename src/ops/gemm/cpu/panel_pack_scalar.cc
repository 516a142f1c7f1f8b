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

// `T` is an integer of an element's size, so that copies have a known size.
template <class T>
void PackPlain(const Columns& columns, int k, std::uint8_t* out) {
  for (int i = 0; i < k; ++i, out += sizeof(T) * kPanelCols) {
    for (int c = 0; c < columns.count; ++c) {
      StoreAs<T>(out + c * sizeof(T),
                 LoadAs<T>(columns.At(c, i * static_cast<std::int64_t>(sizeof(T)))));
    }
  }
}

// Pairs of k; an odd k and those up to a whole tile are zero.
void PackPairs(const Columns& columns, int k, std::uint8_t* out) {
  const auto bytes = static_cast<std::size_t>(PanelBytes(DataType::kBF16, k));
  const std::size_t whole = static_cast<std::size_t>(k / 2) * 4 * kPanelCols;
  std::memset(out + whole, 0, bytes - whole);
  for (int i = 0; i < k; ++i) {
    for (int c = 0; c < columns.count; ++c) {
      StoreAs<std::uint16_t>(
          out + i / 2 * 4 * kPanelCols + 4 * c + 2 * (i % 2),
          LoadAs<std::uint16_t>(columns.At(c, 2 * static_cast<std::int64_t>(i))));
    }
  }
}

// Bytes of one column of one block of a panel beside the factors of the block.
template <class Block>
constexpr int kColumnBytes =
    PanelBlockBytes(Block::kFormat) - Block::kFormat.scale_bytes() - Block::kFormat.min_bytes();

// Those bytes, in their order: integers, then codes.
template <class Block>
void PackColumn(const UnpackedBlock& __restrict block, std::uint8_t* __restrict out) {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr int kElements = kFormat.elements, kBits = PanelCodeBits(kFormat);
  constexpr int kLow = LowBits(kFormat), kTop = kBits - kLow;
  const std::uint8_t* codes = block.codes;
  const auto put_integers = [&](const std::int16_t* integers) {
    for (int s = 0; s < kFormat.sub_blocks(); ++s) *out++ = static_cast<std::uint8_t>(integers[s]);
  };
  if constexpr (kFormat.PairsIntegers()) {
    for (int s = 0; s < kFormat.sub_blocks(); ++s)
      *out++ = static_cast<std::uint8_t>(block.scales[s] | block.mins[s] << 4);
  } else {
    if constexpr (kFormat.scale == Factor::kF16TimesInt) put_integers(block.scales);
    if constexpr (kFormat.min == Factor::kF16TimesInt) put_integers(block.mins);
  }
  // Four bytes at a time, as Transpose reads them.
  if constexpr (kBits == 8) {
    for (int i = 0; i < kElements; i += 4)
      StoreAs<std::uint32_t>(out + i, LoadAs<std::uint32_t>(codes + i) ^ 0x80808080u);
    return;
  }
  for (int i = 0; i < kElements; i += 8) {
    std::uint64_t word = LoadAs<std::uint64_t>(codes + i);
    if constexpr (kLow == 4) {
      word &= 0x0f0f0f0f0f0f0f0fu;
      word = (word | word >> 4) & 0x00ff00ff00ff00ffu;
      word = (word | word >> 8) & 0x0000ffff0000ffffu;
      StoreAs<std::uint32_t>(out + i / 2, static_cast<std::uint32_t>(word | word >> 16));
    } else {
      word &= 0x0303030303030303u;
      word = (word | word >> 6) & 0x000f000f000f000fu;
      word = (word | word >> 12) & 0x000000ff000000ffu;
      StoreAs<std::uint16_t>(out + i / 4, static_cast<std::uint16_t>(word | word >> 24));
    }
  }
  if constexpr (kTop > 0) {
    constexpr int kPerByte = 8 / kTop;
    out += kElements * kLow / 8;
    for (int i = 0; i < kElements / kPerByte; ++i) {
      int byte = 0;
      for (int j = 0; j < kPerByte; ++j) byte |= codes[kPerByte * i + j] >> kLow << (kTop * j);
      out[i] = static_cast<std::uint8_t>(byte);
    }
  }
}

// out[i][16] = columns[c][i], four by four bytes at a time.
template <int kBytes>
void Transpose(const std::uint8_t (&columns)[kPanelCols][kBytes], std::uint8_t* out) {
  constexpr int kWhole = kBytes / 4 * 4;
  for (int i = 0; i < kWhole; i += 4) {
    for (int c = 0; c < kPanelCols; c += 4) {
      std::uint32_t w[4];
      for (int j = 0; j < 4; ++j) w[j] = LoadAs<std::uint32_t>(columns[c + j] + i);
      for (int r = 0; r < 4; ++r) {
        const std::uint32_t row = (w[0] >> 8 * r & 255) | (w[1] >> 8 * r & 255) << 8 |
                                  (w[2] >> 8 * r & 255) << 16 | w[3] >> 8 * r << 24;
        StoreAs<std::uint32_t>(out + (i + r) * kPanelCols + c, row);
      }
    }
  }
  for (int i = kWhole; i < kBytes; ++i) {
    for (int c = 0; c < kPanelCols; ++c) out[i * kPanelCols + c] = columns[c][i];
  }
}

template <class Block>
void PackBlocks(const Columns& columns, int k, std::uint8_t* out) {
  constexpr BlockFormat kFormat = Block::kFormat;
  std::uint8_t bytes[kPanelCols][kColumnBytes<Block>] = {};
  UnpackedBlock block;
  for (int i = 0; i < k; i += kFormat.elements) {
    const std::int64_t offset = static_cast<std::int64_t>(i / kFormat.elements) * kFormat.bytes;
    for (int c = 0; c < columns.count; ++c) {
      Unpack(LoadAs<Block>(columns.At(c, offset)), block);
      if constexpr (kFormat.scale == Factor::kPowerOfTwo) {
        out[c] = static_cast<std::uint8_t>(block.scale);
      } else {
        StoreAs<std::uint16_t>(out + 2 * c, block.scale);
      }
      if constexpr (kFormat.min != Factor::kNone)
        StoreAs<std::uint16_t>(out + 2 * (kPanelCols + c), block.min);
      PackColumn<Block>(block, bytes[c]);
    }
    Transpose(bytes, out + (PanelBlockBytes(kFormat) - kColumnBytes<Block>)*kPanelCols);
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
  if (type == DataType::kBF16) return PackPairs(columns, k, out);
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
