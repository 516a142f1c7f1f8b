#pragma once

#include <cstdint>

namespace tilewright {

// Loops over one instruction that use registers only: no operand is loaded, and enough independent
// sums are kept to hide its latency. One file per instruction set. One asm statement holds a whole
// round, since GCC keeps an array of sums in memory, which costs half the rate on a Xeon.

// Operands are random: units that switch fewer bits take less power and clock higher, AMX by 10 to
// 17 % with zeros. They are between -1 and 1, so that no sum of a measurement overflows f32.
const float* LiveFloats();         ///< 16 x 16
const std::uint16_t* LiveBF16();   ///< 4 x 16 x 32, for four tiles
const unsigned char* LiveBytes();  ///< 4 x 16 x 64

constexpr int kPeakSums = 12;  ///< covers two units at four cycles with room to spare

void PeakF32Avx2(int rounds);         ///< vfmadd ymm
void PeakI8Avx2(int rounds);          ///< vpmaddubsw, vpmaddwd and vpaddd ymm
void PeakF32Avx512(int rounds);       ///< vfmadd zmm
void PeakI8Avx512(int rounds);        ///< vpmaddubsw, vpmaddwd and vpaddd zmm
void PeakI8Avx512Vnni(int rounds);    ///< vpdpbusd zmm
void PeakBF16Avx512Bf16(int rounds);  ///< vdpbf16ps zmm
void PeakBF16Amx(int rounds);         ///< tdpbf16ps
void PeakI8Amx(int rounds);           ///< tdpbssd

/// tdpbf16ps with all eight registers in use: as fast where the core is this thread's, and 2.3 times as long where
/// its other hardware thread works as well.
void AllTilesBF16Amx(int rounds);

}  // namespace tilewright
