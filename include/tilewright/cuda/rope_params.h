#pragma once

#include "tilewright/cuda/kv_cache_params.h"

// What a launch of a kernel of the family rope consists of. The kernel includes this very file, so
// it is plain C++, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, no dynamic shared memory; and (rows, RopeGridY, 1) CTAs. There is no
// workspace, nothing has to be zeroed. param0 to param3 of a KernelSpec are 0.

namespace tilewright::cuda {

/// Rotated elements of a head at most.
inline constexpr int kMaxRopeDims = 1024;

/// For every row r with a position of 0 or more: pairs of the first `dims` elements of each head
/// turn by the angle of that position and go to `out`, or, where cache.data is given, to the row's
/// place in the cache (KvCacheRows); the rest of a head goes with them. A row of padding, with
/// position -1, is left alone, and with a cache so is one without a place. All pointers are of
/// device memory, strides in elements, elements of a head adjacent; `out` may be `in`.
struct RopeHeadsParams {
  const void* in;        ///< [head_dim, heads, rows], type_a
  void* out;             ///< of the same shape, type_d; null with a cache
  const int* positions;  ///< [rows]
  /// [dims / 2], fractions of a turn a position in units of 2^-64, whole turns dropped.
  const unsigned long long* turns;
  KvCacheRows cache;  ///< of type_d
  long long in_head, in_row, out_head, out_row;
  int rows, heads;
  int head_dim;    ///< even
  int dims;        ///< even, 2 to head_dim and kMaxRopeDims
  int half_split;  ///< 0: adjacent elements are a pair; 1: elements dims / 2 apart are
  int cta_heads;   ///< heads that a CTA has
  /// 1: head_dim and dims are multiples of 8 and every head is at a multiple of four elements.
  int wide;
};

/// Heads of a CTA: as many as give each thread one item, of eight elements or of two.
constexpr int RopeCtaHeads(int head_dim, int wide, int threads) {
  const int items = head_dim / (wide != 0 ? 8 : 2);
  return items < threads ? threads / items : 1;
}
constexpr unsigned int RopeGridY(int heads, int cta_heads) {
  return static_cast<unsigned int>((heads + cta_heads - 1) / cta_heads);
}

}  // namespace tilewright::cuda
