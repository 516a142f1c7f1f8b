#pragma once

#include "tilewright/cuda/attention_params.h"

// What a launch of a kernel of the family attention_simt consists of. The kernels include this very
// file and attention_params.h, plain C++ both, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, AttentionSimtSmem bytes of dynamic shared memory, and a grid of
// (AttentionSimtGridX, 1, 1) CTAs. Fields of a KernelSpec that the family names itself: tile_m, the
// most query heads of a CTA; tile_n, the positions of a warp's tile; all others are 0.

namespace tilewright::cuda {

/// As AttentionParams says, whose `splits`, `partials` and `arrivals` are left alone.
struct AttentionSimtParams {
  AttentionParams attention;
  /// [heads], or null: what the exponentials of a head are divided by has e to this more.
  const float* sinks;
  int head_dim;  ///< at most kMaxAttentionHeadDim; multiples of 8 are read by 16 bytes
};

inline constexpr int kMaxAttentionHeadDim = 256;

/// A CTA for each row, key and value head, and block of at most tile_m query heads.
constexpr unsigned int AttentionSimtGridX(int rows, int heads, int kv_heads, int tile_m) {
  return static_cast<unsigned int>(rows) * static_cast<unsigned int>(kv_heads) *
         static_cast<unsigned int>(AttentionHeadBlocks(heads, kv_heads, tile_m));
}
/// Dynamic shared memory: the queries of a CTA's heads, in whole chunks of 8; of each warp, where the positions of its
/// tile lie, their weights, and its part of the result: eight elements of each lane and head, a
/// maximum and a sum.
constexpr unsigned int AttentionSimtSmem(int head_dim, int tile_n, int tile_m, int warps) {
  const int of_warp = 8 * tile_n + 4 * tile_m * (tile_n + 32 * 8 + 2);
  return static_cast<unsigned int>(4 * tile_m * ((head_dim + 7) / 8 * 8) + warps * of_warp);
}

}  // namespace tilewright::cuda
