#pragma once

namespace tilewright {

// Loops over one instruction that use registers only: no operand is loaded, and enough independent
// sums are kept to hide its latency. One file per instruction set. One asm statement holds a whole
// round, since GCC keeps an array of sums in memory, which costs half the rate on a Xeon.

constexpr int kPeakSums = 12;  ///< covers two units at four cycles with room to spare

void PeakF32Avx2(int rounds);         ///< vfmadd ymm
void PeakI8Avx2(int rounds);          ///< vpmaddubsw, vpmaddwd and vpaddd ymm
void PeakF32Avx512(int rounds);       ///< vfmadd zmm
void PeakI8Avx512(int rounds);        ///< vpmaddubsw, vpmaddwd and vpaddd zmm
void PeakI8Avx512Vnni(int rounds);    ///< vpdpbusd zmm
void PeakBF16Avx512Bf16(int rounds);  ///< vdpbf16ps zmm
void PeakBF16Amx(int rounds);         ///< tdpbf16ps
void PeakI8Amx(int rounds);           ///< tdpbssd

}  // namespace tilewright
