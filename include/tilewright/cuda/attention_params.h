#pragma once

// What a launch of a kernel of the families attention_split, attention_decode and attention_mma
// consists of. The kernels include this very file, so it is plain C++ without any other header, seen by the host
// compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, and its dynamic shared memory or less: AttentionSplitSmem,
// AttentionDecodeSmem, AttentionMmaSmem.
//
// Fields of a KernelSpec that the families name themselves:
//
//   attention_split                      attention_decode       attention_mma
//   tile_m  most query heads of a CTA    the same: 8            query vectors of a CTA (rows times heads)
//   tile_n  positions of a split         AttentionDecodeRound   positions of a tile of keys
//   tile_k  positions of a tile of keys  0                      0
//   stages  0                            of a warp's ring       0
//   cluster_n  0                         2, 4 or 8, or 0        0
//   param0  head dimension               the same               the same
//   param1  0                            1: foresees            0
//   param2  0                            1: turns               0
//   param3  0
//
// attention_split and attention_decode run on a grid of (AttentionSplitGridX, splits, 1) CTAs,
// attention_mma on one of (AttentionMmaGridX, kv_heads, 1) and leaves `splits`, `partials` and
// `arrivals` alone. The splits of attention_decode are of no fixed length: whatever a row sees is
// dealt to them evenly, in tiles of 16 positions. With a cluster_n (sm_90 and newer) there are as many
// splits, which are a cluster, and `partials` and `arrivals` are left alone too. A kernel that
// foresees reads `positions`, `slots` and `pages` before it waits for the kernels in front of it, to
// prefetch from the caches into L2, and again behind the wait: what these kernels write counts.
// A kernel that turns has a RopeAttentionParams in place of the AttentionParams, and as much more
// shared memory as AttentionNewRowSmem says.

namespace tilewright::cuda {

/// out[r, h, :] = sum over the positions p that row r sees of softmax(scale * q[r, h, :] . k[p]) *
/// v[p], for key and value head h / (heads / kv_heads): positions max(0, positions[r] - window + 1)
/// to positions[r] of sequence slots[r], from 0 where window is 0. A row with position -1 becomes
/// zeros and reads no cache. With `softcap` c, scaled scores s become c tanh(s / c) before the
/// softmax. A kernel cannot refuse a launch: a row whose position, slot or page
/// does not exist becomes NaN, and nothing outside of the caches is read.
///
/// Strides are in elements; elements of a head are adjacent. Both caches have the same layout. With
/// `pages`, position p lies in row p % page_size of physical page pages[slot * pages_slot + p /
/// page_size]; without, in row p of page `slot`. 16-byte loads of the caches when their addresses
/// and strides are multiples of 16 bytes; single elements else.
struct AttentionParams {
  const void* q;            ///< type_a
  const void* k_cache;      ///< type_b
  const void* v_cache;      ///< type_b
  void* out;                ///< type_d
  const int* positions;     ///< [rows]
  const int* slots;         ///< [rows]
  const int* pages;         ///< null: the caches are contiguous
  float* partials;          ///< AttentionPartialBytes; not read where splits is 1
  unsigned int* arrivals;   ///< [AttentionSplitGridX], zero; every launch leaves them zero
  long long q_head, q_row;  ///< strides
  long long out_row;
  long long kv_head, kv_position, kv_page;
  long long pages_slot;
  int rows, heads, kv_heads;
  int context;         ///< positions of a sequence
  int sequences;       ///< slots that exist
  int page_size;       ///< positions of a page
  int physical_pages;  ///< that the caches have memory for
  int window;          ///< 0: all
  int splits;          ///< CTAs that share a row; 1: one computes it all (attention_split: with the
                       ///< same bits)
  float scale;
  float softcap;       ///< 0: scores stay as they are
  float capped_scale;  ///< scale / softcap; not read without a soft cap
};

/// The same, with all that comes before it: `attention.q` is not turned yet, and the rows' own keys
/// and values are in no cache. For every row r: pairs of the first `dims` elements of each head of
/// q and k turn by the angle of the row's position, and are rounded to their type; k and v go to
/// the row's place in the caches of `attention`, which are written for that; and then the row
/// attends, to itself too. No two rows are of one sequence. Padding, and a row without a place in
/// the caches, write nothing.
///
/// k and v [head_dim, kv_heads, rows] of type_a; elements of a head are adjacent, other strides are
/// free. Nothing overlaps what is written.
struct RopeAttentionParams {
  AttentionParams attention;
  const void* k;
  const void* v;
  /// [dims / 2], fractions of a turn a position in units of 2^-64, whole turns dropped. No queued
  /// work writes them: a kernel that foresees reads them before it waits.
  const unsigned long long* turns;
  long long k_head, k_row, v_head, v_row;
  int dims;        ///< even, 2 to head_dim; the rest of a head passes through
  int half_split;  ///< 0: adjacent elements are a pair; 1: elements dims / 2 apart are
};

/// CTAs that share the query heads of one key and value head.
constexpr int AttentionHeadBlocks(int heads, int kv_heads, int tile_m) {
  return (heads / kv_heads + tile_m - 1) / tile_m;
}
/// A CTA for each row, key and value head, and block of at most tile_m query heads.
constexpr unsigned int AttentionSplitGridX(int rows, int heads, int kv_heads, int tile_m) {
  return static_cast<unsigned int>(rows) * static_cast<unsigned int>(kv_heads) *
         static_cast<unsigned int>(AttentionHeadBlocks(heads, kv_heads, tile_m));
}
/// Splits that a row can reach into: of all positions, or of a window that starts anywhere.
constexpr int AttentionMostSplits(int context, int window, int tile_n) {
  const int all = (context + tile_n - 1) / tile_n;
  if (window <= 0) return all;
  const int windowed = (window - 1) / tile_n + 2;
  return windowed < all ? windowed : all;
}
/// Query heads of a CTA: all of a key and value head, if tile_m allows.
constexpr int AttentionCtaHeads(int heads, int kv_heads, int tile_m) {
  return heads / kv_heads < tile_m ? heads / kv_heads : tile_m;
}
/// Maximum, sum and head_dim sums for each row, query head and split.
constexpr unsigned long long AttentionPartialBytes(unsigned int grid_x, int splits, int cta_heads,
                                                   int head_dim) {
  return 4ull * grid_x * static_cast<unsigned long long>(splits) *
         static_cast<unsigned long long>(cta_heads) * static_cast<unsigned long long>(head_dim + 2);
}
/// Dynamic shared memory of attention_split: a tile of keys and one of values, and what each of
/// `cta_heads` query heads needs. `element`: bytes of a cache's element.
constexpr unsigned int AttentionSplitSmem(int head_dim, int tile_k, int element, int threads,
                                          int cta_heads) {
  const int floats = 2 * head_dim + tile_k + threads * (16 / element) + 5;
  return static_cast<unsigned int>(2 * tile_k * head_dim * element + 4 * cta_heads * floats + 16);
}

/// Positions that a CTA of attention_decode computes at a time: 16 for each warp.
constexpr int AttentionDecodeRound(int warps) { return 16 * warps; }
/// CTAs of attention_decode that a multiprocessor has registers for, of heads of any size. `turns`:
/// of a kernel that turns the row.
constexpr int AttentionDecodeCtas(int warps, int stages, int cluster, bool turns) {
  if (turns) return (cluster > 0 || warps > 4 ? 16 : 8) / warps;
  if (warps <= 4) return 12 / warps;
  return stages == 1 && cluster == 0 ? 2 : 1;
}
/// Dynamic shared memory of attention_decode, 16-bit elements: a ring of tiles of keys and values
/// for each warp, the maxima and sums of its heads, a counter, and what a CTA of a cluster of
/// `cluster` (0: none) merges.
constexpr unsigned int AttentionDecodeSmem(int head_dim, int warps, int stages, int cluster) {
  const int units_each = cluster > 1 ? (8 * (head_dim / 4) + cluster - 1) / cluster : 0;
  return static_cast<unsigned int>(warps * (2 * stages * 16 * head_dim * 2 + 8 * 8) + 16 +
                                   cluster * units_each * (4 + 2) * 4);
}

/// What attention_decode needs beside that to turn a row: eight queries, a key and a value.
constexpr unsigned int AttentionNewRowSmem(int head_dim) {
  return static_cast<unsigned int>(10 * head_dim * 2);
}

/// A CTA for each tile of tile_m query vectors, each of a row and one of the query heads of a key
/// and value head; there are at most tile_m such heads. Grid y: kv_heads.
constexpr unsigned int AttentionMmaGridX(int rows, int heads, int kv_heads, int tile_m) {
  const int rows_each = tile_m / (heads / kv_heads);
  return static_cast<unsigned int>((rows + rows_each - 1) / rows_each);
}
/// Dynamic shared memory of attention_mma: a tile of keys and one of values, of 16-bit elements,
/// both parts of queries of f32, and what each row sees.
constexpr unsigned int AttentionMmaSmem(int head_dim, int tile_n, int tile_m, bool f32_queries) {
  const int parts = f32_queries ? 2 * 2 * tile_m * head_dim : 0;
  return static_cast<unsigned int>(4 * tile_n * head_dim + parts + 12 * tile_m);
}

/// attention_hopper (sm_90a): as attention_mma, with fields of the spec of its own: tile_m vectors of
/// a CTA at a time, 64 for each of its warpgroups that multiply; tile_n positions of a tile of keys;
/// stages of such tiles; param0 head dimension; param1 parts of the cache's type that a weight is
/// multiplied in; param2 1 where the warpgroups take turns. CTAs stay and take one tile of vectors
/// after the other: a grid of (AttentionHopperGridX, 1, 1). Its scale is positive.
///
/// The maps describe the caches: rank 4, elements of a head, KV heads, positions of a page, pages
/// (without pages: positions of a sequence, slots); box 64, 1, box_positions, 1; interleave none,
/// element strides 1, swizzle 128B, zeros outside.
struct AttentionHopperParams {
  struct alignas(128) Map {
    unsigned long long opaque[16];
  };
  Map keys, values;
  AttentionParams attention;
  /// That one copy brings: a divisor of tile_n and, with pages, of page_size. 0: the copy engine
  /// cannot address the caches, and the bytes of the maps are ignored.
  int box_positions;
};
static_assert(sizeof(AttentionHopperParams) == 512, "layout");

/// Tiles of all KV heads.
constexpr long long AttentionHopperTiles(int rows, int heads, int kv_heads, int tile_m) {
  return static_cast<long long>(AttentionMmaGridX(rows, heads, kv_heads, tile_m)) * kv_heads;
}
constexpr unsigned int AttentionHopperGridX(int rows, int heads, int kv_heads, int tile_m,
                                            int sm_count) {
  const long long tiles = AttentionHopperTiles(rows, heads, kv_heads, tile_m);
  return static_cast<unsigned int>(tiles < sm_count ? tiles : sm_count);
}
/// Dynamic shared memory: two places for queries, which results leave through, and for what their
/// rows see; `stages` tiles of keys and as many of values; barriers; what aligning it all to 1024
/// may skip.
constexpr unsigned int AttentionHopperSmem(int head_dim, int tile_m, int tile_n, int stages) {
  return static_cast<unsigned int>(2 * tile_m * (2 * head_dim + 12 + 28) +
                                   4 * stages * tile_n * head_dim + 48 + 32 * stages + 16 + 1024);
}

}  // namespace tilewright::cuda
