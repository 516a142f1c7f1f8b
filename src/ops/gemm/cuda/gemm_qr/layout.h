#pragma once

// What lies where in the shared memory of a kernel of gemm_qr, for the kernel and for the host, which asks for the
// room it takes. Plain C++.

#include "tilewright/cuda/gemm_qr_params.h"
#include "tilewright/cuda/gemm_qw_params.h"

namespace tw {

/// What is chosen of a kernel of gemm_qr.
struct GemmQrShape {
  int block_bytes, block_elements;  // of W
  int tile_m, tile_n, stages;
};

/// Shared memory: a ring of each warp that multiplies, [stages] of a k-tile of W, [tile_n][line_bytes]; sums,
/// [kSumBuffers][warps][tile_m][sum_pitch] of f32; what rows of x were divided by, [warps][tile_m] of f32; barriers,
/// full[warps][stages], summed[warps that store] and taken[kSumBuffers]. In bytes and floats.
struct GemmQrLayout {
  static constexpr int kSumBuffers = 2;
  int line_bytes, stage_bytes, sum_pitch, sum_bytes;
  int sums, divisors, barriers, bytes;

  /// Four columns more: rows 0, 2, 4 and 6 of x in four groups of eight banks.
  static constexpr int SumPitch(int tile_n) { return tile_n + 4; }

  static constexpr GemmQrLayout Of(const GemmQrShape& s) {
    constexpr int kWarps = tilewright::cuda::kGemmQrWarps;
    GemmQrLayout all{};
    all.line_bytes = tilewright::cuda::GemmQwLineBytes(s.block_bytes, s.block_elements);
    all.stage_bytes = s.tile_n * all.line_bytes;
    all.sum_pitch = SumPitch(s.tile_n);
    all.sum_bytes = s.tile_m * all.sum_pitch * 4;
    all.sums = kWarps * s.stages * all.stage_bytes;
    all.divisors = all.sums + kSumBuffers * kWarps * all.sum_bytes;
    all.barriers = all.divisors + kWarps * s.tile_m * 4;
    all.bytes = all.barriers +
                8 * (kWarps * s.stages + tilewright::cuda::kGemmQrStoringWarps + kSumBuffers);
    return all;
  }
};

}  // namespace tw
