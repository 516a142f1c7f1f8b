#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/async_copy.cuh"
#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/mma.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/gemm/cuda/gemm_q/layout.h"
#include "ops/gemm/cuda/gemm_q/output.cuh"
#include "ops/gemm/cuda/gemm_q/quarter.cuh"
#include "ops/gemm/cuda/gemv/gemv_codes.cuh"
#include "tilewright/cuda/gemm_q_params.h"
#include "tilewright/cuda/gemv_params.h"

// Up to a few hundred rows of x times a matrix of weights in blocks: gemv_q's arithmetic on tiles.
// Codes of 16 rows of W are the A of mma.sync, exact in bf16; x, eight rows at a time, is B; f32
// sums of 32 (or 16) products are scaled and added up. W is read once for kTileM rows of x.
//
// A CTA owns kTileN rows of W. Its warps are kWarps / kParts groups, each with whole strips of 16
// rows; the kParts warps of a group share its rows and take quarters of every k-tile, so that x is read from shared memory once for all strips of a group. A ring of
// kStages k-tiles of W and x in shared memory is filled by cp.async, kStages - 1 ahead of use.
//
// Each sum is added up in an order that depends on the spec and the number of splits: k-tiles in
// turn by each warp, then warps, then splits. An infinity or NaN in a row of x makes that row of y
// NaN.

namespace tw {

using tilewright::cuda::GemmQParams;

/// kNamed: rows of x are those that a table names.
template <Type kTypeW, int kTileM, int kTileN, int kWarps, int kParts, int kStages,
          bool kNamed = false>
struct GemmQCta {
  using F = Codes<kTypeW>;
  using Tile = GemmQTile<F::kBytes, F::kBlock, kTileM, kTileN>;
  static constexpr int kAlign = GemvRowAlignment(F::kBytes);
  static constexpr int kMaxSkip = 16 - kAlign;
  static constexpr int kSpanBytes = kGemvSpan / F::kBlock * F::kBytes;
  static constexpr int kStrips = kTileN / (kWarps / kParts) / 16;  // of 16 rows of a warp
  static constexpr int kColumns = kTileM / 8;                      // of eight rows of x
  static constexpr int kCopyRows = kTileN / kWarps;                // that a warp copies
  // Lanes beside each other on the chunks of a row; what is left of a warp takes another row.
  static constexpr int kChunks = (kSpanBytes + kMaxSkip + 15) / 16;
  static constexpr int kRowLanes = kChunks > 16 ? 32 : 16;
  static constexpr int kAtOnce = 32 / kRowLanes;
  static_assert(kChunks <= 32 && kCopyRows % kAtOnce == 0 && kStrips >= 1, "copies");
  static_assert(kTileN % (16 * kWarps / kParts) == 0 && kTileM % 8 == 0, "whole strips");
  static_assert(kParts == 1 || kParts == 2 || kParts == 4, "parts of two sub-blocks or more");

  const u8* w_begin;  // of the matrix
  const u8* w;        // the first row that this lane copies
  i64 w_row_bytes;    // from row to row
  int row_bytes, k;   // of what is multiplied
  int rows_left;      // of W, from this lane's first on
  // K-tiles to `simple_end` are copied the simplest way; those from `whole_begin` to `whole_end` are
  // whole, with the bytes beside them that their chunks hold.
  int simple_end, whole_begin, whole_end;
  int row_low;        // address of row g, modulo 16, and of every eighth row from there
  int w_at, x_at;     // of row g of W, and of element 4 t of row g of x, in a stage
  u32 to_w, to_x;     // where in the first stage this lane's first copies go
  const u8* x;        // this lane's chunk of the warp's first row; kNamed: of row 0
  i64 x_step;         // bytes from one row of the warp to the next; kNamed: of x
  int x_rows_left;    // from the warp's first on
  const int* x_rows;  // kNamed: shared, [kTileM], of each row of the tile; -1: there is none
  int warp, lane, g, t, part;       // lane = 4 g + t
  u8* ring;                         // [kStages] of { W [kTileN][kWPitch], x [kTileM][kXPitch] }
  float acc[kStrips][kColumns][4];  // rows g, g and g + 8, g + 8 by columns 2 t, 2 t + 1

  TW_DEVICE static int Low(const u8* p) {
    return static_cast<int>(static_cast<u32>(reinterpret_cast<u64>(p)) % 16);
  }

  TW_DEVICE GemmQCta(const GemmQParams& p, int m0, int n0, u8* ring_in,
                     const int* x_rows_in = nullptr) {
    const int thread = static_cast<int>(threadIdx.x);
    warp = thread / 32;
    lane = thread % 32;
    g = lane / 4;
    t = lane % 4;
    part = warp % kParts;
    ring = ring_in;
    k = p.k;
    row_bytes = p.k / F::kBlock * F::kBytes;
    w_begin = static_cast<const u8*>(p.w);
    w_row_bytes = p.w_row_bytes;
    const int first = n0 + warp * kCopyRows + lane / kRowLanes;
    w = w_begin + first * w_row_bytes;
    rows_left = p.n - first;
    // A chunk may hold bytes of the row before; the first of the matrix has none before it.
    const bool aligned = (reinterpret_cast<u64>(p.w) | static_cast<u64>(p.w_row_bytes)) % 16 == 0;
    const int slack = aligned && kSpanBytes % 16 == 0 ? 0 : kMaxSkip;
    whole_begin = slack == 0 ? 0 : 1;
    whole_end = (row_bytes - slack) / kSpanBytes;
    simple_end = slack == 0 && n0 + kTileN <= p.n ? whole_end : 0;
    w_at = (FirstRow() + g) * Tile::kWPitch;
    x_at = Tile::kWBytes + g * Tile::kXPitch + 8 * t;
    to_w =
        SmemAddress(ring) + static_cast<u32>((warp * kCopyRows + lane / kRowLanes) * Tile::kWPitch +
                                             16 * (lane % kRowLanes));
    to_x = SmemAddress(ring) + static_cast<u32>(Tile::kWBytes + warp * Tile::kXPitch + 16 * lane);
    KeepValue(w_at);
    KeepValue(x_at);
    row_low = Low(w_begin + (n0 + FirstRow() + g) * w_row_bytes);
    x = static_cast<const u8*>(p.x) + ((kNamed ? 0 : m0 + warp) * p.ldx + 8 * lane) * 2;
    x_step = (kNamed ? 2 : 2 * kWarps) * p.ldx;
    x_rows_left = p.m - m0 - warp;
    x_rows = x_rows_in;
    KeepAddress(w);
    KeepAddress(x);
    TW_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      TW_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        TW_UNROLL
        for (int j = 0; j < 4; ++j) acc[i][c][j] = 0.0f;
      }
    }
  }

  /// Of the warp's group, in the CTA's tile.
  TW_DEVICE int FirstRow() const { return warp / kParts * (16 * kStrips); }
  /// Bytes before k-tile `tile` in its first chunk, of a row at `address`.
  TW_DEVICE static int Skip(int address, int tile) {
    return kAlign == 16 ? 0 : (address + tile * (kSpanBytes % 16)) % 16;
  }

  /// Starts the copies of this warp's rows of W of k-tile `tile` to the stage at `offset` of the ring.
  /// Behind a row come zeros. Rows behind the matrix are left as they are: what they give is not
  /// stored.
  TW_DEVICE void CopyW(int tile, int offset) const {
    const u8* from = w + tile * kSpanBytes;
    const int at = 16 * (lane % kRowLanes);
    u32 smem = to_w + static_cast<u32>(offset);
    if (tile < simple_end) {
      // Whole chunks at the same place in every row.
      if (at >= kSpanBytes) return;
      from += at;
      TW_UNROLL
      for (int i = 0; i < kCopyRows; i += kAtOnce) {
        CpAsync16(smem + static_cast<u32>(i * Tile::kWPitch), from);
        from += kAtOnce * w_row_bytes;
        KeepAddress(from);  // else multiples of the row are kept in registers
      }
    } else if (tile >= whole_begin && tile < whole_end) {
      TW_NO_UNROLL
      for (int i = 0; i < kCopyRows && i < rows_left; i += kAtOnce) {
        const int skip = kAlign == 16 ? 0 : Low(from);
        if (at < kSpanBytes + skip) CpAsync16(smem, from + (at - skip));
        from += kAtOnce * w_row_bytes;
        smem += kAtOnce * Tile::kWPitch;
      }
    } else {
      CopyGuarded(tile * kSpanBytes,
                  ring + (offset + (warp * kCopyRows + lane / kRowLanes) * Tile::kWPitch));
    }
  }

  /// The same, reading no byte outside of the matrix.
  TW_DEVICE void CopyGuarded(int begin, u8* to_row) const {
    const u8* from = w + begin;
    TW_NO_UNROLL
    for (int i = 0; i < kCopyRows && i < rows_left; i += kAtOnce) {
      const int skip = kAlign == 16 ? 0 : Low(from);
      const int at = 16 * (lane % kRowLanes) - skip;
      u8* to = to_row + (skip + at);
      if (kAlign < 16 && from + at < w_begin) {
        TW_NO_UNROLL
        for (int unit = 0; unit < 16 + at; unit += 2)
          *reinterpret_cast<u16*>(to - at + unit) = static_cast<u16>(Load16Bits(from + unit));
      } else if (at < kSpanBytes) {
        const int left = row_bytes - begin - at;
        CpAsync16(SmemAddress(to), from + at, left < 0 ? 0 : left > 16 ? 16 : left);
      }
      from += kAtOnce * w_row_bytes;
      to_row += kAtOnce * Tile::kWPitch;
    }
  }

  /// Starts the copies of this warp's rows of x, a chunk a lane; zeros outside of x.
  TW_DEVICE void CopyX(int tile, int offset) const {
    const bool inside = tile * kGemvSpan + 8 * lane < k;
    const u8* from = x + tile * (2 * kGemvSpan);
    const u32 smem = to_x + static_cast<u32>(offset);
    if constexpr (kNamed) {
      TW_UNROLL
      for (int i = 0; i < kTileM; i += kWarps) {
        if (kTileM % kWarps != 0 && i + warp >= kTileM) continue;
        const int row = x_rows[i + warp];
        CpAsync16(smem + static_cast<u32>(i * Tile::kXPitch), from + (row < 0 ? 0 : row) * x_step,
                  inside && row >= 0 ? 16 : 0);
      }
    } else {
      TW_UNROLL
      for (int i = 0; i < (kTileM + kWarps - 1) / kWarps; ++i) {
        if (kTileM % kWarps == 0 || i * kWarps + warp < kTileM)
          CpAsync16(smem + static_cast<u32>(i * kWarps * Tile::kXPitch), from,
                    inside && i * kWarps < x_rows_left ? 16 : 0);
        from += x_step;
        KeepAddress(from);
      }
    }
  }

  /// Sub-blocks kI to 1 of a quarter. `x_row`: element 4 t of row g of x in the quarter.
  template <int kI>
  TW_DEVICE void MultiplySubBlocks(const Quarter<kTypeW> (&rows)[2 * kStrips], const u8* x_row) {
    u32 a[kStrips][2][4];
    CodeScale scale[2 * kStrips][F::kScales];
    TW_UNROLL
    for (int i = 0; i < 2 * kStrips; ++i) {
      u32 pairs[2][2];
      rows[i].template Pairs<kI>(t, pairs);
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        a[i / 2][h][i % 2] = pairs[h][0];
        a[i / 2][h][i % 2 + 2] = pairs[h][1];
      }
      TW_UNROLL
      for (int h = 0; h < F::kScales; ++h) scale[i][h] = rows[i].template ScaleOf<kI>(h);
    }
    TW_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const u8* at = x_row + (8 * c * Tile::kXPitch + 64 * kI);
      U32x2 b[2];  // elements 16 h + 4 t + {0, 1} and {2, 3}
      b[0] = *reinterpret_cast<const U32x2*>(at);
      b[1] = *reinterpret_cast<const U32x2*>(at + 32);
      float x_sums[F::kScales][4];  // of what shares a scale, of rows 2 t and 2 t + 1 of x
      if constexpr (F::kHasOffset) {
        const u32 ones[4] = {kOneBF16x2, kOneBF16x2, kOneBF16x2, kOneBF16x2};
        Mma16816Zero<Type::kBF16>(x_sums[0], ones, b[0].v[0], b[0].v[1]);
        if constexpr (F::kScales == 2) {
          Mma16816Zero<Type::kBF16>(x_sums[1], ones, b[1].v[0], b[1].v[1]);
        } else {
          Mma16816<Type::kBF16>(x_sums[0], ones, b[1].v[0], b[1].v[1]);
        }
      }
      TW_UNROLL
      for (int i = 0; i < kStrips; ++i) {
        float sums[F::kScales][4];
        Mma16816Zero<Type::kBF16>(sums[0], a[i][0], b[0].v[0], b[0].v[1]);
        if constexpr (F::kScales == 2) {
          Mma16816Zero<Type::kBF16>(sums[1], a[i][1], b[1].v[0], b[1].v[1]);
        } else {
          Mma16816<Type::kBF16>(sums[0], a[i][1], b[1].v[0], b[1].v[1]);
        }
        TW_UNROLL
        for (int j = 0; j < 4; ++j) {
          float& out = acc[i][c][j];
          TW_UNROLL
          for (int h = 0; h < F::kScales; ++h) {
            const CodeScale& own = scale[2 * i + j / 2][h];
            out = Fma(own.scale, sums[h][j], out);
            if constexpr (F::kHasOffset) out = Fma(own.offset, x_sums[h][j % 2], out);
          }
        }
      }
    }
    if constexpr (kI == 0) MultiplySubBlocks<1>(rows, x_row);
  }

  /// This warp's part of k-tile `tile`, which lies at `stage`.
  TW_DEVICE void Multiply(int tile, const u8* stage) {
    // Rows are whole 16-bit units: eight of them are a multiple of 16 bytes.
    const auto row = F::Row::At(stage + w_at, Skip(row_low, tile));
    TW_NO_UNROLL
    for (int q = part; q < 4; q += kParts) {
      Quarter<kTypeW> rows[2 * kStrips];
      TW_UNROLL
      for (int i = 0; i < 2 * kStrips; ++i)
        rows[i] = Quarter<kTypeW>::At(row.Plus(8 * i * Tile::kWPitch), q);
      MultiplySubBlocks<0>(rows, stage + (x_at + 128 * q));
    }
  }

  /// Fills the ring as far as it is read ahead: W in front of the wait for x, if it is constant.
  TW_DEVICE void Fill(int begin, int end, bool w_constant) const {
    if (!w_constant) WaitForPrerequisites();
    TW_NO_UNROLL
    for (int i = 0; i < kStages - 1 && begin + i < end; ++i)
      CopyW(begin + i, i * Tile::kStageBytes);
    WaitForPrerequisites();
    TW_NO_UNROLL
    for (int i = 0; i < kStages - 1; ++i) {
      if (begin + i < end) CopyX(begin + i, i * Tile::kStageBytes);
      CpAsyncCommit();  // the first with all of W
    }
  }

  /// K-tiles `begin` to `end` - 1.
  TW_DEVICE void Run(int begin, int end, bool w_constant) {
    Fill(begin, end, w_constant);
    int read = 0, write = (kStages - 1) * Tile::kStageBytes;  // bytes from the ring to a stage
    TW_NO_UNROLL
    for (int tile = begin; tile < end; ++tile) {
      CpAsyncWait<kStages - 2>();  // this thread's part of the k-tile has landed
      // Everyone's has, and everyone has read the stage that is written next.
      __syncthreads();
      if (tile + kStages - 1 < end) {
        CopyX(tile + kStages - 1, write);
        CopyW(tile + kStages - 1, write);
      }
      CpAsyncCommit();
      write = write == (kStages - 1) * Tile::kStageBytes ? 0 : write + Tile::kStageBytes;
      Multiply(tile, ring + read);
      read = read == (kStages - 1) * Tile::kStageBytes ? 0 : read + Tile::kStageBytes;
    }
  }

  /// Puts the sums of this warp in the ring's place, [kParts][kTileM][kSumPitch].
  TW_DEVICE void Stage() const {
    float* sums = reinterpret_cast<float*>(ring) + part * (kTileM * Tile::kSumPitch);
    TW_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      TW_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        TW_UNROLL
        for (int j = 0; j < 4; ++j)
          sums[(8 * c + 2 * t + j % 2) * Tile::kSumPitch + FirstRow() + 16 * i + g + j / 2 * 8] =
              acc[i][c][j];
      }
    }
  }
};

/// The whole kernel. `ring`: shared, aligned to 16 bytes.
template <Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM, int kTileN,
          int kWarps, int kParts, int kStages>
TW_DEVICE void GemmQ(const GemmQParams& p, u8* ring) {
  using Cta = GemmQCta<kTypeW, kTileM, kTileN, kWarps, kParts, kStages>;
  constexpr int kFours = kTileN / 4;
  const int tiles_m = (p.m + kTileM - 1) / kTileM;
  const int index = static_cast<int>(blockIdx.x);
  const int tile_m = index % tiles_m;
  const int split = index / tiles_m % p.splits;
  const int tile_n = index / tiles_m / p.splits;
  const int m0 = tile_m * kTileM, n0 = tile_n * kTileN;
  const int k_tiles = tilewright::cuda::GemmQKTiles(p.k);
  Cta cta(p, m0, n0, ring);
  cta.Run(static_cast<int>(i64{k_tiles} * split / p.splits),
          static_cast<int>(i64{k_tiles} * (split + 1) / p.splits), p.w_constant != 0);
  __syncthreads();  // nobody reads the ring any more
  cta.Stage();
  __syncthreads();  // every warp's sums are there

  const bool packs = OutputInPacks<kTypeC, kTypeY>(p);
  const int tile = tile_n * tiles_m + tile_m;
  const StagedSums<kTileM, kParts, Cta::Tile::kSumPitch> of_cta{
      reinterpret_cast<const float*>(ring)};
  if (p.splits == 1) {
    OutputTile<kTypeC, kTypeY, kEpilogue, kTileM, kTileN, 32 * kWarps>(p, m0, n0, packs, of_cta);
    return;
  }
  float* partials = p.partials + i64{tile} * p.splits * (kTileM * kTileN);
  TW_NO_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < kTileM * kFours; i += 32 * kWarps) {
    const int m = i / kFours, n = i % kFours * 4;
    if (m0 + m >= p.m) break;
    float sum[4];
    of_cta(m, n, sum);
    StorePack<Type::kF32, 4>(partials, (split * kTileM + m) * kTileN + n, sum);
  }

  // The last of the CTAs that share a tile adds up what all have left, in the order of k.
  __shared__ u32 arrived;
  __syncthreads();  // all of this CTA's sums are written
  if (threadIdx.x == 0) {
    arrived = Arrive(p.arrivals + tile);
    if (arrived + 1 == static_cast<u32>(p.splits)) p.arrivals[tile] = 0;  // for the next launch
  }
  __syncthreads();  // thread 0 knows
  if (arrived + 1 != static_cast<u32>(p.splits)) return;
  OutputTile<kTypeC, kTypeY, kEpilogue, kTileM, kTileN, 32 * kWarps>(
      p, m0, n0, packs, [&](int m, int n, float(&sum)[4]) {
        TW_UNROLL
        for (int j = 0; j < 4; ++j) sum[j] = 0.0f;
        for (int s = 0; s < p.splits; ++s) {
          float more[4];
          LoadPack<Type::kF32, 4>(partials, (s * kTileM + m) * kTileN + n, more);
          TW_UNROLL
          for (int j = 0; j < 4; ++j) sum[j] += more[j];
        }
      });
}

}  // namespace tw
