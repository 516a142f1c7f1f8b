#include <fmt/format.h>

#include <cstring>

#include "core/block_format.h"
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

// Value i of a block of 16 low and 16 high nibbles.
std::uint8_t NibbleAt(const std::uint8_t* qs, int i) {
  return static_cast<std::uint8_t>(i < 16 ? qs[i] & 15 : qs[i - 16] >> 4);
}

// q4_0 and q4_1: `head` bytes of f16 members, then the nibbles.
void PackNibbles(const Columns& columns, int head, int k, std::uint8_t* out) {
  const int block_bytes = head + 16;
  for (int block = 0; block < k / 32; ++block, out += block_bytes * kPanelCols) {
    std::uint8_t* nibbles = out + head * kPanelCols;
    for (int c = 0; c < columns.count; ++c) {
      const std::uint8_t* source = columns.At(c, static_cast<std::int64_t>(block) * block_bytes);
      for (int member = 0; member < head; member += 2) {
        __builtin_memcpy(out + member * kPanelCols + 2 * c, source + member, 2);
      }
      for (int i = 0; i < 32; i += 2) {
        nibbles[i / 2 * kPanelCols + c] = static_cast<std::uint8_t>(
            NibbleAt(source + head, i) | (NibbleAt(source + head, i + 1) << 4));
      }
    }
  }
}

void PackQ8(const Columns& columns, int k, std::uint8_t* out) {
  for (int block = 0; block < k / 32; ++block, out += kQ8_0Bytes * kPanelCols) {
    for (int c = 0; c < columns.count; ++c) {
      const std::uint8_t* source = columns.At(c, static_cast<std::int64_t>(block) * kQ8_0Bytes);
      __builtin_memcpy(out + 2 * c, source, 2);
      for (int i = 0; i < 32; ++i) out[(2 + i) * kPanelCols + c] = source[2 + i];
    }
  }
}

void PackQ6K(const Columns& columns, int k, std::uint8_t* out) {
  std::uint8_t q[kQ6_KElements];
  for (int block = 0; block < k / kQ6_KElements; ++block, out += kQ6_KBytes * kPanelCols) {
    std::uint8_t* scales = out + 2 * kPanelCols;
    std::uint8_t* low = scales + 16 * kPanelCols;
    std::uint8_t* high = low + 128 * kPanelCols;
    for (int c = 0; c < columns.count; ++c) {
      const std::uint8_t* source = columns.At(c, static_cast<std::int64_t>(block) * kQ6_KBytes);
      __builtin_memcpy(out + 2 * c, source + 208, 2);
      for (int i = 0; i < 16; ++i) scales[i * kPanelCols + c] = source[192 + i];
      UnpackQ6K(source, q);
      for (int i = 0; i < 128; ++i) {
        low[i * kPanelCols + c] =
            static_cast<std::uint8_t>((q[2 * i] & 15) | ((q[2 * i + 1] & 15) << 4));
      }
      for (int i = 0; i < 64; ++i) {
        const std::uint8_t* quad = q + 4 * i;
        high[i * kPanelCols + c] = static_cast<std::uint8_t>(
            (quad[0] >> 4) | ((quad[1] >> 4) << 2) | ((quad[2] >> 4) << 4) | ((quad[3] >> 4) << 6));
      }
    }
  }
}

void PackPanel(DataType type, const Columns& columns, int k, std::uint8_t* out) {
  // Zero d, m and scales make the missing columns decode to zero whatever their codes.
  if (columns.count < kPanelCols)
    std::memset(out, 0, static_cast<std::size_t>(PanelBytes(type, k)));
  switch (type) {
    case DataType::kQ4_0:
      return PackNibbles(columns, 2, k, out);
    case DataType::kQ4_1:
      return PackNibbles(columns, 4, k, out);
    case DataType::kQ8_0:
      return PackQ8(columns, k, out);
    case DataType::kQ6_K:
      return PackQ6K(columns, k, out);
    case DataType::kF32:
      return PackPlain<std::uint32_t>(columns, k, out);
    default:
      return PackPlain<std::uint16_t>(columns, k, out);
  }
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
