#pragma once

#include "tilewright/cuda/kv_cache_params.h"
#include "tilewright/cuda/rope_params.h"

// What a launch of a kernel of the family rope_kv consists of. The kernel includes this very file,
// so it is plain C++, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, no dynamic shared memory; and (rows, RopeKvGridY, 1) CTAs. There is no
// workspace; `fault` is zeroed by the caller before the first launch and whenever it was read.
// param0 to param3 of a KernelSpec are 0.

namespace tilewright::cuda {

/// For every row r: pairs of the first `dims` elements of each head of q and k turn by the angle of
/// the row's position; q goes to q_out, k to the row's place in `cache` (KvCacheRows) and v to the
/// same place in v_cache. q, k, v [head_dim, heads or kv_heads, rows], elements of a head adjacent,
/// every other stride free and in elements. All pointers are of device memory. q_out may be q;
/// nothing else overlaps. No two rows have one place. heads or kv_heads may be 0.
///
/// A row that has no place in the cache, or without kv_heads one whose position is below 0, is left
/// alone whole (q too), and `fault`, if given, becomes at least r + 1: a kernel cannot refuse a
/// launch, the host checks when it next looks. Rows that pad a captured batch have position -1.
struct RopeKvParams {
  const void* q;  ///< type_a
  void* q_out;    ///< type_d
  const void* k;  ///< type_a
  const void* v;  ///< type_a
  /// [dims / 2], fractions of a turn a position in units of 2^-64, whole turns dropped.
  const unsigned long long* turns;
  int* fault;         ///< one int, or null
  KvCacheRows cache;  ///< of k, type_c; without kv_heads only its positions are read
  void* v_cache;      ///< type_c, with as many positions, pages and slots as that of k
  long long v_cache_head, v_cache_position, v_cache_page;  ///< as those of `cache`
  long long q_head, q_row, q_out_head, q_out_row, k_head, k_row, v_head, v_row;
  int rows, heads, kv_heads;
  int head_dim;    ///< even
  int dims;        ///< even, 2 to head_dim and kMaxRopeDims; the rest of a head passes through
  int half_split;  ///< 0: adjacent elements are a pair; 1: elements dims / 2 apart are
  int cta_heads;   ///< heads that a CTA has, of q's, then k's, then v's: RopeCtaHeads
  /// 1: head_dim and dims are multiples of 8 and every head is at a multiple of four elements.
  int wide;
};

/// Grid y: heads of q, k and v in steps of cta_heads.
constexpr unsigned int RopeKvGridY(int heads, int kv_heads, int cta_heads) {
  return RopeGridY(heads + 2 * kv_heads, cta_heads);
}

}  // namespace tilewright::cuda
