#pragma once

namespace tilewright {

// Loops in registers, one instruction each: no operand is loaded, and as many independent sums are
// kept as cover its latency. One file an instruction set.

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
