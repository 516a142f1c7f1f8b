#pragma once

// What a launch of a kernel of the family rope_kv consists of. The kernel includes this very file,
// so it is plain C++ without any other header, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, no dynamic shared memory; and (rows, RopeKvGridY, 1) CTAs. There is no
// workspace; `fault` is zeroed by the caller before the first launch and whenever it was read.
//
// Fields of a KernelSpec that the family names itself:
//
//   param0  head dimension, even, 2 to 1024
//   param1  0: adjacent elements are a pair; 1: elements half a rotated part apart are
//   param2, param3  0
//   tile_n  heads of a CTA

namespace tilewright::cuda {

/// For every row r: pairs of the first `dims` elements of each head of q and k turn by the angle of
/// positions[r]; q goes to q_out, k and v to the caches:
///   k_cache[:, h, positions[r], slots[r]] = turned k[:, h, r], v_cache[...] = v[:, h, r].
/// Layouts are those of the CPU's rope and kv_scatter: q, k, v [head_dim, heads, rows], caches
/// [head_dim, kv_heads, context, slots], elements of a head adjacent, every other stride free and
/// in elements. All pointers are of device memory. q_out may be q; nothing else overlaps. No
/// (position, slot) occurs twice. heads or kv_heads may be 0.
///
/// A row whose position is below 0, or beyond the context, or whose slot does not exist, is left
/// alone whole (q too), and `fault`, if given, becomes at least r + 1: a kernel cannot refuse a
/// launch, the host checks when it next looks. Rows that pad a captured batch have position -1.
///
/// 16-byte loads and stores (8-byte ones of 16-bit types) when head_dim and dims are multiples of 8
/// and every pointer and stride of that many elements; single elements else.
struct RopeKvParams {
  const void* q;                    ///< type_a
  void* q_out;                      ///< type_d
  const void* k;                    ///< type_a
  const void* v;                    ///< type_a
  void* k_cache;                    ///< type_c
  void* v_cache;                    ///< type_c
  const int* positions;             ///< [rows]
  const int* slots;                 ///< [rows]; read if kv_heads > 0
  const unsigned long long* turns;  ///< [dims / 2], fractions of a turn a position in units
                                    ///< of 2^-64, whole turns dropped
  int* fault;                       ///< one int, or null
  long long q_head, q_row, q_out_head, q_out_row, k_head, k_row, v_head, v_row;
  long long k_cache_head, k_cache_position, k_cache_slot;
  long long v_cache_head, v_cache_position, v_cache_slot;
  int rows, heads, kv_heads;
  int dims;  ///< even, 2 to head_dim; the rest of a head passes through
  int context, slot_count;
};

/// Grid y: heads of q, k and v in steps of tile_n.
constexpr unsigned int RopeKvGridY(int heads, int kv_heads, int tile_n) {
  return static_cast<unsigned int>((heads + 2 * kv_heads + tile_n - 1) / tile_n);
}

}  // namespace tilewright::cuda
