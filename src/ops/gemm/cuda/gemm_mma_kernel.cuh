#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/async_copy.cuh"
#include "device/cuda/kernels/ldmatrix.cuh"
#include "device/cuda/kernels/mma.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/gemm/cuda/epilogue.cuh"
#include "ops/gemm/cuda/sum_tile.cuh"
#include "ops/gemm/cuda/tile_layout.h"
#include "tilewright/cuda/gemm_params.h"

// Tiled GEMM on mma.sync, for sm_80 and newer: one CTA per output tile, or some with a part of k each,
// a ring of kStages tiles of A and B in shared memory filled by cp.async, swizzled against bank
// conflicts and read by ldmatrix. Any m, n, k and leading dimension: what lies outside of A and B is
// filled with zeros.

namespace tw {

using tilewright::cuda::GemmMmaParams;

// Elements [0, count) at `from`, one by one, and zeros up to eight; count <= 0 reads nothing.
TW_DEVICE void CopyElements(u32 smem, const u16* from, int count) {
  u32 word[4];
  TW_UNROLL
  for (int i = 0; i < 4; ++i) {
    const u32 low = 2 * i < count ? from[2 * i] : 0;
    const u32 high = 2 * i + 1 < count ? from[2 * i + 1] : 0;
    word[i] = low | high << 16;
  }
  StoreShared16(smem, word[0], word[1], word[2], word[3]);
}

// One operand: where a thread reads in global memory, and how tiles of it lie in shared memory,
// [kLines][kChunks] chunks of 8 elements by TileOffset. Lines run along the contiguous dimension:
// rows (of m or n) of kTileK elements if kKMajor, else k of kRows elements.
template <bool kKMajor, int kRows, int kTileK, int kThreads>
struct Operand {
  static constexpr int kLines = kKMajor ? kRows : kTileK;
  static constexpr int kChunks = (kKMajor ? kTileK : kRows) / 8;
  static constexpr int kBytes = kLines * kChunks * 16;
  static constexpr int kStep = kThreads / kChunks;              // lines between a thread's chunks
  static constexpr int kCopies = (kLines + kStep - 1) / kStep;  // chunks of a thread
  static_assert(kThreads % kChunks == 0, "a thread keeps its chunk number");

  const u16* from;  // a thread's first chunk of the next tile
  i64 line_step;    // elements from one of its chunks to the next
  i64 tile_step;    // elements from one tile to the next
  int line;         // of its first chunk
  int chunk;
  int lines_left;  // of the matrix, from its first chunk on
  int inner_left;  // elements of its line, from its chunk on
  int aligned;     // for 16-byte copies: not 0

  // k0: where the first tile begins.
  TW_DEVICE Operand(const void* base, i64 ld, int row0, int k0, int rows, int k) {
    line = static_cast<int>(threadIdx.x) / kChunks;
    chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int first_line = (kKMajor ? row0 : k0) + line;
    const int first_inner = (kKMajor ? k0 : row0) + 8 * chunk;
    from = static_cast<const u16*>(base) + (first_line * ld + first_inner);
    line_step = kStep * ld;
    tile_step = kKMajor ? kTileK : kTileK * ld;
    lines_left = (kKMajor ? rows : k) - first_line;
    inner_left = (kKMajor ? k : rows) - first_inner;
    aligned = (reinterpret_cast<u64>(base) % 16 | static_cast<u64>(ld) % 8) == 0;
    // Else parameters are read again for each tile, and waited for.
    KeepValue(aligned);
    KeepValue(line_step);
    KeepValue(lines_left);
  }

  // Starts the copy of the next tile to `smem` and moves on by one tile.
  TW_DEVICE void CopyNext(u32 smem) {
    const int inner = inner_left < 0 ? 0 : inner_left > 8 ? 8 : inner_left;
    const u16* at = from;
    if (aligned != 0) {
      TW_UNROLL
      for (int i = 0; i < kCopies; ++i) {
        if (kLines % kStep == 0 || line + i * kStep < kLines) {
          const int elements = i * kStep < lines_left ? inner : 0;
          CpAsync16(smem + TileOffset(line + i * kStep, chunk, kChunks), at, 2 * elements);
        }
        at += line_step;
      }
    } else {
      TW_NO_UNROLL
      for (int i = 0; i < kCopies; ++i) {
        if (kLines % kStep == 0 || line + i * kStep < kLines) {
          const int elements = i * kStep < lines_left ? inner : 0;
          CopyElements(smem + TileOffset(line + i * kStep, chunk, kChunks), at, elements);
        }
        at += line_step;
      }
    }
    from += tile_step;
    if constexpr (kKMajor) {
      inner_left -= kTileK;
    } else {
      lines_left -= kTileK;
    }
  }
};

// Registers of a 16 (rows) x 16 (k) piece at `row`, `step` (of 16 k) of the tile at `smem`, as four
// 8x8 matrices. Lane l addresses line l % 8 of matrix l / 8. With rows_first matrices 0 and 1 are
// the two halves of the rows (the order of A's fragment), else the two halves of k (B's: matrices 0
// and 1 are b0 and b1 of the first eight columns, 2 and 3 of the next eight). K-major matrices have
// rows as lines and are taken as they are; else lines are k and they are transposed on the way.
template <class Tile, bool kKMajor, bool kRowsFirst>
TW_DEVICE void LoadFragment(u32 (&r)[4], u32 smem, int row, int step, int lane) {
  const int bit3 = lane / 8 % 2;
  const int bit4 = lane / 16;
  const int row_half = kRowsFirst ? bit3 : bit4;
  const int k_half = kRowsFirst ? bit4 : bit3;
  if constexpr (kKMajor) {
    const int line = row + row_half * 8 + lane % 8;
    LdMatrixX4(r, smem + TileOffset(line, step * 2 + k_half, Tile::kChunks));
  } else {
    const int line = step * 16 + k_half * 8 + lane % 8;
    LdMatrixX4Trans(r, smem + TileOffset(line, row / 8 + row_half, Tile::kChunks));
  }
}

// The sums of the CTAs that share output tile `tile`, of which this one is number `split`. Returns
// whether it is the last of them to arrive; then `acc` becomes the sum of all, in the order of k.
// `flag`: shared, one word that no thread uses for anything else.
template <int kThreads, int kStrips, int kCount>
TW_DEVICE bool MergeSplits(const GemmMmaParams& params, int tile, int split,
                           float (&acc)[kStrips][kCount], u32* flag) {
  constexpr int kFours = kStrips * kCount / 4;  // of a thread
  constexpr i64 kSums = i64{4} * kFours * kThreads;
  const int thread = static_cast<int>(threadIdx.x);
  float* const sums = params.partials + static_cast<i64>(tile) * params.splits * kSums;
  const auto place = [thread](int of_split, int four) {
    return of_split * kSums + 4 * (four * kThreads + thread);
  };
  TW_UNROLL
  for (int i = 0; i < kFours; ++i) {
    float four[4];
    TW_UNROLL
    for (int j = 0; j < 4; ++j) four[j] = acc[4 * i / kCount][4 * i % kCount + j];
    StorePack<Type::kF32, 4>(sums, place(split, i), four);
  }
  __syncthreads();  // all of this CTA's sums are written
  if (thread == 0) {
    *flag = Arrive(params.arrivals + tile);
    if (*flag + 1 == static_cast<u32>(params.splits)) params.arrivals[tile] = 0;  // the next launch
  }
  __syncthreads();  // thread 0 knows
  if (*flag + 1 != static_cast<u32>(params.splits)) return false;
  TW_NO_UNROLL
  for (int s = 0; s < params.splits; ++s) {
    TW_UNROLL
    for (int i = 0; i < kFours; ++i) {
      float four[4];
      LoadPack<Type::kF32, 4>(sums, place(s, i), four);
      TW_UNROLL
      for (int j = 0; j < 4; ++j) {
        float& sum = acc[4 * i / kCount][4 * i % kCount + j];
        sum = s == 0 ? four[j] : sum + four[j];
      }
    }
  }
  return true;
}

// One CTA. Spec has the constants of spec.cuh under better names (gemm_mma.cu).
// ring_bytes: shared, [kStages] of { tile of A, tile of B }, a multiple of 128.
template <class Spec>
TW_DEVICE void GemmMma(const GemmMmaParams& params, u8* ring_bytes) {
  constexpr int kStages = Spec::kStages;
  constexpr int kTileM = Spec::kTileM;
  constexpr int kTileN = Spec::kTileN;
  constexpr int kTileK = Spec::kTileK;
  constexpr int kWarpsN = Spec::kWarps / Spec::kWarpsM;
  constexpr int kWarpM = kTileM / Spec::kWarpsM;
  constexpr int kWarpN = kTileN / kWarpsN;
  constexpr int kStrips = kWarpM / 16;  // of 16 rows of a warp
  constexpr int kPairs = kWarpN / 16;   // of two blocks of 8 columns of a warp
  constexpr int kSteps = kTileK / 16;
  // Of the tile as it is staged: rounded, or f32 where C is added later.
  constexpr Type kStaged = Spec::kTypeC == Type::kNone ? Spec::kTypeD : Type::kF32;
  constexpr int kUnitD = 16 / FloatBytes<kStaged>();  // elements of a 16-byte chunk
  constexpr int kChunksD = kTileN / kUnitD;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && kSteps % 2 == 0, "steps");
  static_assert(Spec::kWarpsM * kWarpsN == Spec::kWarps && kStages >= 2, "tile");
  // A [m][k]: row-major has k contiguous. B [k][n]: column-major has.
  using TileA = Operand<Spec::kRowMajorA, kTileM, kTileK, 32 * Spec::kWarps>;
  using TileB = Operand<!Spec::kRowMajorB, kTileN, kTileK, 32 * Spec::kWarps>;
  constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  const u32 ring = SmemAddress(ring_bytes);

  const GemmOutput& out = params.out;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp / kWarpsN * kWarpM;
  const int warp_col = warp % kWarpsN * kWarpN;
  constexpr bool kSplits = tilewright::cuda::GemmMmaSplitsK(kTileM, kTileN, Spec::kWarps);
  const int splits = kSplits && params.splits > 1 ? params.splits : 1;
  const int number = static_cast<int>(blockIdx.x) / splits;  // of the output tile
  const int split = static_cast<int>(blockIdx.x) - number * splits;
  const TileIndex tile =
      RasterTile(number, (out.m + kTileM - 1) / kTileM, (out.n + kTileN - 1) / kTileN, Spec::kBand);
  const int row0 = tile.m * kTileM;
  const int col0 = tile.n * kTileN;
  const int all_k_tiles = (out.k + kTileK - 1) / kTileK;
  const int first_k_tile = static_cast<int>(i64{all_k_tiles} * split / splits);
  const int k_tiles = static_cast<int>(i64{all_k_tiles} * (split + 1) / splits) - first_k_tile;

  TileA a(params.a, params.lda, row0, first_k_tile * kTileK, out.m, out.k);
  TileB b(params.b, params.ldb, col0, first_k_tile * kTileK, out.n, out.k);

  float acc[kStrips][8 * kPairs];  // strips of 16 rows, then 4 accumulators for every 8 columns
  TW_UNROLL
  for (int i = 0; i < kStrips; ++i) {
    TW_UNROLL
    for (int j = 0; j < 8 * kPairs; ++j) acc[i][j] = 0.0f;
  }

  // Fragments of one step of 16 k, from stage `stage`, in two sets: those of a step are loaded
  // while the step before is multiplied.
  u32 frag_a[2][kStrips][4];
  u32 frag_b[2][kPairs][4];
  const auto load = [&](int set, int stage, int step) {
    const u32 smem_a = ring + stage * kStageBytes;
    const u32 smem_b = smem_a + TileA::kBytes;
    TW_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      LoadFragment<TileA, Spec::kRowMajorA, true>(frag_a[set][i], smem_a, warp_row + 16 * i, step,
                                                  lane);
    }
    TW_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      LoadFragment<TileB, !Spec::kRowMajorB, false>(frag_b[set][j], smem_b, warp_col + 16 * j, step,
                                                    lane);
    }
  };
  const auto multiply = [&](int set) {
    TW_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      TW_UNROLL
      for (int j = 0; j < kPairs; ++j) {
        const u32(&b_pair)[4] = frag_b[set][j];
        Mma16816<Spec::kTypeA>(&acc[i][8 * j], frag_a[set][i], b_pair[0], b_pair[1]);
        Mma16816<Spec::kTypeA>(&acc[i][8 * j + 4], frag_a[set][i], b_pair[2], b_pair[3]);
      }
    }
  };

  const auto land = [] {
    CpAsyncWait<kStages - 2>();  // this thread's part of the next k-tile has landed
    // Everyone's part has, and everyone has read the k-tile before, whose stage is written next.
    __syncthreads();
  };

  // The first kStages - 1 rounds only start copies. A group is committed in every round, also an
  // empty one, so that counting groups counts k-tiles.
  int read = 0;   // stage of k-tile kt
  int write = 0;  // stage of k-tile kt + kStages - 1
  TW_NO_UNROLL
  for (int kt = 1 - kStages; kt < k_tiles; ++kt) {
    if (kt + kStages - 1 < k_tiles) {
      a.CopyNext(ring + write * kStageBytes);
      b.CopyNext(ring + write * kStageBytes + TileA::kBytes);
    }
    CpAsyncCommit();
    write = write + 1 == kStages ? 0 : write + 1;
    if (kt < -1) continue;
    // Every step of the k-tile stands for itself (a loop over pairs of them costs 6 %): round -1
    // goes through the end of it, to load the first fragments of k-tile 0.
    if (kt >= 0) {
      TW_UNROLL
      for (int step = 0; step + 1 < kSteps; ++step) {
        load((step + 1) % 2, read, step + 1);
        multiply(step % 2);
      }
      read = read + 1 == kStages ? 0 : read + 1;
    }
    // The first fragments of a k-tile, during the last step of the one before: the barrier is not
    // waited for. Behind the last k-tile nobody uses what is loaded.
    land();
    load(0, read, 0);
    if (kt >= 0) multiply(1);
  }

  __syncthreads();  // nobody reads the ring any more: the tile of D takes its place
  if constexpr (kSplits) {
    if (splits > 1) {
      if (!MergeSplits<32 * Spec::kWarps>(params, number, split, acc,
                                          reinterpret_cast<u32*>(ring_bytes)))
        return;
      __syncthreads();  // everyone has read the flag
    }
  }
  TW_UNROLL
  for (int i = 0; i < kStrips; ++i) {
    StageStrip<Type::kNone, kStaged, kChunksD>(out, acc[i], row0 + warp_row + 16 * i,
                                               col0 + warp_col, ring, warp_row + 16 * i,
                                               warp_col / kUnitD, lane);
  }
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (Spec::kTypeC == Type::kNone) {
    StoreTile<Spec::kTypeD, kTileM, kChunksD, 32 * Spec::kWarps>(out, row0, col0, ring, thread);
  } else {
    StoreSum<Spec::kTypeC, Spec::kTypeD, kTileM, kChunksD, 32 * Spec::kWarps>(out, row0, col0, ring,
                                                                              thread);
  }
}

}  // namespace tw
