#pragma once

#include <string_view>

#include "tilewright/gemm.h"

namespace tilewright {

// Packed layouts of weights, the one list: a number, once released, keeps its meaning (records and
// keys spell the name). Add a row beside the kernel that wants the layout; describe the bytes where
// PackB is.

// A panel is 16 columns of B side by side, so that one vector of 16 lanes holds one k of 16
// columns. Panels follow each other; columns beyond n decode to zero. cpu/panel_layout.h gives the
// bytes.
constexpr Pack kPackF32x16 = 0x01;  ///< [panel][k][16]
constexpr Pack kPackF16x16 = 0x02;
constexpr Pack kPackBF16x16 = 0x03;
constexpr Pack kPackQ4_0x16 =
    0x04;  ///< [panel][block of k]: compressed, members interleaved over the 16 columns
constexpr Pack kPackQ4_1x16 = 0x05;
constexpr Pack kPackQ8_0x16 = 0x06;
constexpr Pack kPackQ6_Kx16 = 0x07;

// A panel is 16 columns; a 64-byte line holds 4 consecutive k of each: the operand of vpdpbusd.
// cpu/int8/layout.h gives the bytes.
constexpr Pack kPackQ4_0x16x4 = 0x101;
constexpr Pack kPackQ4_1x16x4 = 0x102;
constexpr Pack kPackQ8_0x16x4 = 0x103;
constexpr Pack kPackQ6_Kx16x4 = 0x104;

struct PackRow {
  Pack pack;
  std::string_view name;
};
constexpr PackRow kPackTable[] = {
    {kPackPlain, "plain"},         {kPackAny, "any"},
    {kPackF32x16, "f32x16"},       {kPackF16x16, "f16x16"},
    {kPackBF16x16, "bf16x16"},     {kPackQ4_0x16, "q4_0x16"},
    {kPackQ4_1x16, "q4_1x16"},     {kPackQ8_0x16, "q8_0x16"},
    {kPackQ6_Kx16, "q6_kx16"},     {kPackQ4_0x16x4, "q4_0x16x4"},
    {kPackQ4_1x16x4, "q4_1x16x4"}, {kPackQ8_0x16x4, "q8_0x16x4"},
    {kPackQ6_Kx16x4, "q6_kx16x4"},
};

}  // namespace tilewright
