#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "core/formats/formats.h"
#include "tilewright/gemm.h"

namespace tilewright {

// Packed layouts of weights. Records and keys spell the name; a name, once released, keeps its
// meaning. Describe the bytes where PackB is.

// A panel is 16 columns of B side by side, so that one vector of 16 lanes holds one k of 16
// columns. Panels follow each other; columns beyond n decode to zero. cpu/panel_layout.h gives the
// bytes.
constexpr Pack kPackF32x16 = 0x01;  ///< [panel][k][16]
constexpr Pack kPackF16x16 = 0x02;
/// [panel][k / 2][16][2], k filled up with zeros to a multiple of 32: what a bf16 dot product of
/// pairs and a tile of AMX read. (0x03 was [k][16].)
constexpr Pack kPackBF16x16x2 = 0x04;
/// int8 with one scale a column, of weights of any type: cpu/w8a8/layout.h.
constexpr Pack kPackI8x16x4 = 0x05;
/// Strips of 64 columns in oneDNN's layout, [strip][k][64], [strip][k / 2][64][2] and, of weights of any type
/// by int8 with one scale a column, [strip][k / 4][64][4]: cpu/onednn/onednn_panels.h.
constexpr Pack kPackF32x64 = 0x06, kPackBF16x64x2 = 0x07, kPackI8x64x4 = 0x08;
/// [panel][block of k]: compressed, members interleaved over the 16 columns.
constexpr Pack PanelPack(const BlockFormat& format) {
  return static_cast<Pack>(0x200 + format.gguf_type);
}

/// A panel is 16 columns; a 64-byte line holds 4 consecutive k of each: the operand of vpdpbusd.
/// cpu/int8/layout.h gives the bytes.
constexpr Pack Int8Pack(const BlockFormat& format) {
  return static_cast<Pack>(0x300 + format.gguf_type);
}

/// A name in two parts: that of a type and the shape of a panel.
struct PackRow {
  Pack pack = kPackPlain;
  std::string_view stem, shape;

  std::string name() const { return std::string(stem).append(shape); }
};
constexpr auto kPackTable = [] {
  std::array<PackRow, static_cast<std::size_t>(9 + 2 * kFormatCount)> table = {{
      {kPackPlain, "plain", ""},
      {kPackAny, "any", ""},
      {kPackF32x16, "f32", "x16"},
      {kPackF16x16, "f16", "x16"},
      {kPackBF16x16x2, "bf16", "x16x2"},
      {kPackI8x16x4, "i8", "x16x4"},
      {kPackF32x64, "f32", "x64"},
      {kPackBF16x64x2, "bf16", "x64x2"},
      {kPackI8x64x4, "i8", "x64x4"},
  }};
  std::size_t next = 9;
  for (const BlockFormat& format : kFormats) {
    table[next++] = {PanelPack(format), format.name, "x16"};
    table[next++] = {Int8Pack(format), format.name, "x16x4"};
  }
  return table;
}();

}  // namespace tilewright
