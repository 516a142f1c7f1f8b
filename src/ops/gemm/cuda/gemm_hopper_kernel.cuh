#pragma once

#include "device/cuda/kernels/cluster.cuh"
#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/tma.cuh"
#include "device/cuda/kernels/wgmma.cuh"
#include "ops/gemm/cuda/epilogue.cuh"
#include "ops/gemm/cuda/split_tile.cuh"
#include "ops/gemm/cuda/tile_layout.h"
#include "ops/gemm/cuda/tile_parts.cuh"
#include "tilewright/cuda/gemm_params.h"

// GEMM on TMA and wgmma (sm_90a). A CTA is one warpgroup that loads and one or two that multiply;
// CTAs stay and take one output tile after the other, and loading runs ahead into the next tile. A
// ring of kStages k-tiles in shared memory with two barriers a stage, full and empty, connects
// them. CTAs of a cluster work on tiles one below the other and fetch a part of their common tile of B each,
// for all; on tiles beside each other, with a common tile of A; or both. CTAs share tiles, with a
// part of k each: those of a cluster one tile (split_tile.cuh), all of them the tiles that would be left
// over for the last round (tile_parts.cuh). Or the two warpgroups take a tile each, in turn.

namespace tw {

using tilewright::cuda::GemmHopperBoxRows;
using tilewright::cuda::GemmHopperParams;
using tilewright::cuda::GemmHopperPartsOfB;

// One CTA. Spec has the constants of spec.cuh under better names (gemm_hopper.cu).
template <class Spec>
struct GemmHopper {
  static constexpr int kStages = Spec::kStages;
  static constexpr int kTileM = Spec::kTileM;
  static constexpr int kTileN = Spec::kTileN;
  static constexpr int kTileK = 64;                        // 128 bytes, one swizzle line
  static constexpr int kConsumers = Spec::kWarps / 4 - 1;  // warpgroups that multiply
  static constexpr int kThreads = 32 * Spec::kWarps;
  static constexpr int kBand = Spec::kBand;
  static constexpr int kCluster = Spec::kCluster;
  static constexpr int kClusterN = Spec::kClusterN;
  static constexpr int kSplits = Spec::kSplits;
  static constexpr int kPeers =
      kCluster * kClusterN;  // CTAs with tiles of their own or parts of them
  // CTAs that fetch parts of a stage, this one too: those beside it of A, those below and above it of B.
  static constexpr int kFetching = kCluster + kClusterN - 1;
  static constexpr bool kShares = Spec::kWalk == tilewright::cuda::kGemmHopperByShares;
  static constexpr bool kPingPong = Spec::kWalk == tilewright::cuda::kGemmHopperPingPong;
  static constexpr int kTogether = kPingPong ? 1 : kConsumers;  // consumers of a tile
  static constexpr int kStrips = kTileM / kTogether / 64;       // of 64 rows of a consumer
  // Registers that the loading warpgroup gives to two others: what 1 or 2 CTAs have at entry, 168 or 80
  // a thread, is 40 of it and this much of those.
  static constexpr int kRaised = Spec::kCtasPerSm == 1 ? 232 : 96;
  static constexpr bool kKMajorA = Spec::kRowMajorA;
  static constexpr bool kKMajorB = !Spec::kRowMajorB;

  static_assert(kStrips * kTogether * 64 == kTileM, "tile");
  static_assert(!kPingPong || kConsumers == 2, "two that take turns");
  static_assert(kSplits == 1 || !(kShares || kPingPong), "CTAs of shared tiles take one each");
  static_assert(kCluster == 1 || kSplits == 1, "tiles below each other or shared");
  static_assert(kClusterN == 1 || kKMajorA, "rows of A can be divided");
  static_assert(kKMajorB || kTileN % (64 * kCluster) == 0, "boxes of B are 64 columns wide");
  static_assert(kTileN % 32 == 0 || !(kShares || kSplits > 1), "parts of sums are 32 columns wide");

  // Shared memory, from a multiple of 1024: ring [kStages] of { A: [kTileM][64], B: [kTileN][64] },
  // in 128-byte swizzle; K-major as written, else in boxes of 64 rows, [kTileM / 64][64 k][64].
  static constexpr int kBytesA = kTileM * kTileK * 2;
  static constexpr int kBytesB = kTileN * kTileK * 2;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static constexpr int kBoxBytes = 64 * kTileK * 2;
  static_assert(kBytesA % 1024 == 0 && kBytesB % 1024 == 0, "whole swizzle atoms");

  // Behind the ring, two pieces of D for each consumer: 64 lines of 128 bytes in the same swizzle.
  // None where tiles are shared: what is sent and stored then takes the place of the ring.
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kPieceBytes = 64 * 128;
  static constexpr int kPieceCols = 128 / FloatBytes<Spec::kTypeD>();
  // Of a strip; the last one may be narrower, and is stored by the threads: TMA would write beyond it.
  static constexpr int kPieces = (kTileN + kPieceCols - 1) / kPieceCols;
  static constexpr int kLastCols = kTileN - (kPieces - 1) * kPieceCols;
  TW_DEVICE static u32 Staging(u32 ring, int consumer) {
    return ring + kRingBytes + consumer * 2 * kPieceBytes;
  }

  // Last, full[kStages], empty[kStages], and the two of a shared tile, or 16 bytes of each consumer
  // where tiles are divided.
  static constexpr int kBarriers = kRingBytes + (kSplits > 1 ? 0 : kConsumers * 2 * kPieceBytes);
  TW_DEVICE static u32 FullBarrier(u32 ring, int stage) { return ring + kBarriers + 8 * stage; }
  TW_DEVICE static u32 EmptyBarrier(u32 ring, int stage) {
    return ring + kBarriers + 8 * (kStages + stage);
  }

  TW_DEVICE static u32 Flag(u32 ring, int consumer) {
    return FullBarrier(ring, 2 * kStages) + 16 * consumer;
  }

  using Parts = PartialSums<Spec, kTogether, kPeers>;
  using Shared = SplitTile<Spec, kSplits, kConsumers>;
  TW_DEVICE static Shared SharedTile(u32 ring, int rank) {
    return {ring, FullBarrier(ring, 2 * kStages), FullBarrier(ring, 2 * kStages + 1),
            rank / kClusterN, rank % kClusterN};
  }

  // A place in the ring: a stage, and the parity of the phase of its barriers.
  struct RingPosition {
    int stage = 0;
    u32 parity = 0;

    TW_DEVICE void Advance() {
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
    TW_DEVICE void Skip(int k_tiles) {
      stage += k_tiles;
      parity ^= static_cast<u32>(stage / kStages) & 1;
      stage %= kStages;
    }
  };

  // The output tiles of this CTA, and of each the k-tiles, `count` from `first` on: tile `index` of the
  // cluster's raster, in steps of all clusters. A tile shared by the CTAs of a cluster is the only one
  // of them. Where tiles are divided, first those that this CTA's share has parts of.
  struct TileLoop {
    int index = static_cast<int>(blockIdx.x) / kCluster;
    int step = static_cast<int>(gridDim.x) / kCluster;
    int tiles_m;  // of kCluster * kTileM rows
    int tiles_n;  // of kClusterN * kTileN columns
    int rank;     // of this CTA in its cluster
    int k_tiles;  // of a whole tile
    int first = 0;
    int count;
    int done = 0,
        end = 0;    // k-tiles of the divided tiles up to those of this step, and of the share
    int whole = 0;  // the next tile behind the divided ones

    TW_DEVICE TileLoop(const GemmHopperParams& params, int cta_rank)
        : tiles_m((params.out.m + kCluster * kTileM - 1) / (kCluster * kTileM)),
          tiles_n((params.out.n + kClusterN * kTileN - 1) / (kClusterN * kTileN)),
          rank(cta_rank),
          k_tiles((params.out.k + kTileK - 1) / kTileK),
          count(k_tiles) {
      if constexpr (kSplits > 1) {
        // Where there are fewer k-tiles than CTAs, one behind the end of k, which comes as zeros.
        const int each = (k_tiles + kSplits - 1) / kSplits;
        first = rank / kClusterN * each;
        const int left = k_tiles - first;
        count = left < 1 ? 1 : left < each ? left : each;
      }
      if constexpr (kShares) {
        const auto& shares = params.shares;
        if (index < shares.count) {
          done = GemmHopperShareBegin(shares, k_tiles, index);
          end = GemmHopperShareBegin(shares, k_tiles, index + 1);
        }
        whole = shares.tiles + index;
        Next();
      }
    }
    TW_DEVICE bool Done() const { return index >= tiles_m * tiles_n; }
    TW_DEVICE bool More() const { return index + step < tiles_m * tiles_n; }
    TW_DEVICE void Next() {
      if constexpr (!kShares) {
        index += step;
      } else if (done < end) {
        index = done / k_tiles;
        first = done - index * k_tiles;
        count = k_tiles - first < end - done ? k_tiles - first : end - done;
        done += count;
      } else {
        index = whole;
        first = 0;
        count = k_tiles;
        whole += step;
      }
    }
    TW_DEVICE TileIndex Tile() const {
      const TileIndex tile = RasterTile(index, tiles_m, tiles_n, kBand);
      return {tile.m * kCluster + Below(rank), tile.n * kClusterN + Beside(rank)};
    }
  };

  // Where a CTA is among those that fetch for each other, which are kPeers in a row of the cluster's,
  // kCluster below each other first: `rank` is its number in the cluster.
  TW_DEVICE static int Below(int rank) { return rank % kCluster; }
  TW_DEVICE static int Beside(int rank) { return rank / kCluster % kClusterN; }
  TW_DEVICE static int FirstPeer(int rank) { return rank / kPeers * kPeers; }
  // A bit for each of those that have the tile of A, or of B, in common with this one.
  TW_DEVICE static u16 PeersOfA(int rank) {
    int bits = 0;
    TW_UNROLL
    for (int i = 0; i < kClusterN; ++i) bits |= 1 << (i * kCluster);
    return static_cast<u16>(bits << (FirstPeer(rank) + Below(rank)));
  }
  TW_DEVICE static u16 PeersOfB(int rank) {
    return static_cast<u16>(((1 << kCluster) - 1) << (rank - Below(rank)));
  }
  // Number `i` of the kFetching CTAs.
  TW_DEVICE static int Fetching(int rank, int i) {
    if (i < kCluster) return rank - Below(rank) + i;
    const int beside = i - kCluster;
    return FirstPeer(rank) + Below(rank) + kCluster * (beside + (beside >= Beside(rank) ? 1 : 0));
  }

  // One thread: brings k-tile `k0` of the tile of A to `smem`, in a cluster a part of it to all that have
  // it in common.
  TW_DEVICE static void FetchA(const GemmHopperParams& params, u32 smem, u32 full, int k0, int row0,
                               int rows, int rank) {
    if constexpr (!kKMajorA) {
      TW_UNROLL
      for (int i = 0; i < kTileM / 64; ++i) {
        TmaLoad2D(smem + i * kBoxBytes, &params.a, full, row0 + 64 * i, k0);
      }
    } else if constexpr (kClusterN == 1) {
      TmaLoad2D(smem, &params.a, full, k0, row0);
    } else {
      const int first = Beside(rank) * rows;
      TmaLoad2DMulticast(smem + first * 128, &params.a, full, k0, row0 + first, PeersOfA(rank));
    }
  }

  // The same of B.
  TW_DEVICE static void FetchB(const GemmHopperParams& params, u32 smem, u32 full, int k0, int col0,
                               int rank) {
    if constexpr (kKMajorB) {
      // In whole eights of rows, which need not be one part for each.
      constexpr int kParts = GemmHopperPartsOfB(kTileN, kCluster);
      const int first = Below(rank) * (kTileN / kParts);
      if constexpr (kCluster == 1) {
        TmaLoad2D(smem, &params.b, full, k0, col0);
      } else if (kParts == kCluster || Below(rank) < kParts) {
        TmaLoad2DMulticast(smem + first * 128, &params.b, full, k0, col0 + first, PeersOfB(rank));
      }
    } else {
      constexpr int kBoxes = kTileN / 64 / kCluster;
      const int first = Below(rank) * kBoxes;
      TW_UNROLL
      for (int i = 0; i < kBoxes; ++i) {
        const int box = first + i;
        if constexpr (kCluster == 1) {
          TmaLoad2D(smem + box * kBoxBytes, &params.b, full, col0 + 64 * box, k0);
        } else {
          TmaLoad2DMulticast(smem + box * kBoxBytes, &params.b, full, col0 + 64 * box, k0,
                             PeersOfB(rank));
        }
      }
    }
  }

  // One thread: fills the ring with the k-tiles of all output tiles of this CTA.
  TW_DEVICE static void Produce(const GemmHopperParams& params, u32 ring, int rank) {
    // All of the stage, also what the peers send, and also the part outside of A and B that comes as
    // zeros. Of A in lines of k, rows that no output tile has are left out: they hold anything.
    const int rows_a = kKMajorA ? GemmHopperBoxRows(params.out.m, kTileM, kClusterN) : kTileM;
    const u32 bytes_a = static_cast<u32>(rows_a * kClusterN * kTileK * 2);
    RingPosition at;
    for (TileLoop loop(params, rank); !loop.Done(); loop.Next()) {
      const TileIndex tile = loop.Tile();
      const int row0 = tile.m * kTileM;
      const int col0 = tile.n * kTileN;
      // Of a cluster of rows the last tiles may have none: copies of nothing but zeros take long.
      const bool has_rows = kCluster == 1 || row0 < params.out.m;
      TW_NO_UNROLL
      for (int kt = 0; kt < loop.count; ++kt) {
        const u32 full = FullBarrier(ring, at.stage);
        // The consumers (of all CTAs of a cluster that this one writes to) have read what was here.
        // The first time round nothing was: parity 1 of a fresh barrier passes.
        MbarrierWait(EmptyBarrier(ring, at.stage), at.parity ^ 1);
        MbarrierArriveExpectTx(full, (has_rows ? bytes_a : 0) + kBytesB);
        const u32 smem = ring + at.stage * kStageBytes;
        const int k0 = (loop.first + kt) * kTileK;
        if (has_rows) FetchA(params, smem, full, k0, row0, rows_a, rank);
        FetchB(params, smem + kBytesA, full, k0, col0, rank);
        at.Advance();
      }
    }
  }

  // One warp has read a stage: tells the producers that write to it.
  TW_DEVICE static void Release(u32 ring, int stage, int rank, int lane) {
    if constexpr (kPeers == 1) {
      if (lane == 0) MbarrierArrive(EmptyBarrier(ring, stage));
    } else {
      if (lane < kFetching) MbarrierArriveCluster(EmptyBarrier(ring, stage), Fetching(rank, lane));
    }
  }

  // The strips of a consumer from kStrip on, times the tile of B of one stage.
  template <int kStrip>
  TW_DEVICE static void Multiply(u64 desc_a, u64 desc_b, int accumulate) {
    if constexpr (kStrip < kStrips) {
      Wgmma<Spec::kTypeA, kTileN, kKMajorA ? 0 : 1, kKMajorB ? 0 : 1, kStrip>(
          desc_a + kStrip * (kBoxBytes >> 4), desc_b, accumulate);
      Multiply<kStrip + 1>(desc_a, desc_b, accumulate);
    }
  }

  // Stages piece `piece` of a warpgroup, at least kPiece. Accumulators can be chosen by code only:
  // there is a copy of this for each piece; all around it is there once.
  template <int kPiece>
  TW_DEVICE static void StagePiece(const GemmOutput& out, const Parts& parts, int piece, int row0,
                                   int col0, u32 staged, int warp, int lane) {
    if constexpr (kPiece < kStrips * kPieces) {
      if (piece != kPiece) {
        StagePiece<kPiece + 1>(out, parts, piece, row0, col0, staged, warp, lane);
        return;
      }
      constexpr int kCols = (kPiece + 1) % kPieces == 0 ? kLastCols : kPieceCols;
      constexpr int kStrip = kPiece / kPieces;
      constexpr int kFirst = kPiece % kPieces * (kPieceCols / 2);  // of the strip's accumulators
      const int row = 16 * (warp % 4);
      float acc[kCols / 2];
      if constexpr (kShares) {
        parts.template Add<kStrip, kFirst / 16, kCols / 32>(acc, row0 - 64 * kStrip);
      } else {
        WgmmaRead<kStrip, kFirst, kCols / 2>(acc);
      }
      StageStrip<Spec::kTypeC, Spec::kTypeD, 8>(out, acc, row0 + row, col0, staged, row, 0, lane);
    }
  }

  // TMA writes whole chunks of 16 bytes: the last one of a line must not reach beyond it.
  TW_DEVICE static bool StoresByTma(const GemmOutput& out) {
    return StoresWide<Spec::kTypeD>(out) &&
           static_cast<u64>(out.n) * FloatBytes<Spec::kTypeD>() % 16 == 0;
  }

  // Warpgroup `consumer` stores its rows of an output tile, piece by piece: staged in one of its
  // two pieces of shared memory, from there to D by the copy engine, which goes on while the next
  // piece is staged and the next output tile computed. Where D is not aligned for that, by the
  // threads.
  TW_DEVICE static void Store(const GemmHopperParams& params, const Parts& parts,
                              const TileIndex& tile, u32 ring, int consumer, u32& place, int warp,
                              int lane) {
    const bool by_tma = StoresByTma(params.out);
    const bool leader = warp % 4 == 0 && lane == 0;
    TW_NO_UNROLL
    for (int piece = 0; piece < kStrips * kPieces; ++piece) {
      const int row0 = FirstRow(tile, consumer) + piece / kPieces * 64;
      const int col0 = tile.n * kTileN + piece % kPieces * kPieceCols;
      const u32 staged = Staging(ring, consumer) + place;
      place = kPieceBytes - place;
      // What was staged here two pieces ago has been read.
      if (leader) TmaStoreWaitRead<1>();
      NamedBarrier(1 + consumer, 128);
      StagePiece<0>(params.out, parts, piece, row0, col0, staged, warp, lane);
      FenceBeforeTma();
      NamedBarrier(1 + consumer, 128);
      if (kLastCols < kPieceCols && (piece + 1) % kPieces == 0) {
        StoreTile<Spec::kTypeD, 64, 8, 128, 8 * kLastCols / kPieceCols>(
            params.out, row0, col0, staged, warp % 4 * 32 + lane);
        if (leader) TmaStoreCommit();  // none, so that counting groups counts pieces
      } else if (!by_tma) {
        StoreTile<Spec::kTypeD, 64, 8, 128>(params.out, row0, col0, staged, warp % 4 * 32 + lane);
      } else if (leader) {
        TmaStore2D(&params.d, staged, col0, row0);
        TmaStoreCommit();
      }
    }
  }

  // Of the rows of a tile those of warpgroup `consumer`.
  TW_DEVICE static int FirstRow(const TileIndex& tile, int consumer) {
    return tile.m * kTileM + consumer % kTogether * kStrips * 64;
  }

  // Warpgroups that take tiles in turn wait for the full barriers in turn too: a parity tells two phases
  // apart, not three. `consumer`: whose turn it is next.
  TW_DEVICE static void WaitForTurn(int consumer) {
    if constexpr (kPingPong) NamedBarrier(3 + consumer, 256);
  }
  TW_DEVICE static void GiveTurn(int consumer) {
    if constexpr (kPingPong) NamedBarrierArrive(3 + consumer, 256);
  }

  // `k_tiles` k-tiles of one output tile. Behind the last of them, if `more` tiles follow, it is the
  // other warpgroup's turn.
  TW_DEVICE static void MultiplyTile(u32 ring, int k_tiles, RingPosition& at, bool more, int rank,
                                     int consumer, int lane) {
    // Of stage 0; a stage further is kStageBytes further.
    const u64 desc_a = WgmmaDescriptor(ring + consumer % kTogether * kStrips * kBoxBytes,
                                       kKMajorA ? 16 : kBoxBytes, 1024);
    const u64 desc_b = WgmmaDescriptor(ring + kBytesA, kKMajorB ? 16 : kBoxBytes, 1024);
    int previous = 0;
    TW_NO_UNROLL
    for (int kt = 0; kt < k_tiles; ++kt) {
      MbarrierWait(FullBarrier(ring, at.stage), at.parity);  // both tiles have landed
      const u64 stage_offset = static_cast<u64>(at.stage * (kStageBytes >> 4));
      WgmmaFence();
      Multiply<0>(desc_a + stage_offset, desc_b + stage_offset, kt > 0);
      WgmmaCommit();
      // One k-tile may be under way while this warp waits for the next; the one before has been
      // read.
      WgmmaWait<1>();
      if (kt > 0) Release(ring, previous, rank, lane);
      previous = at.stage;
      at.Advance();
    }
    if (more) GiveTurn(1 - consumer);
    WgmmaWait<0>();
    // What CTAs of a cluster send each other takes the place of the ring, and nobody fills it again.
    if constexpr (kSplits == 1) Release(ring, previous, rank, lane);
  }

  // Warpgroup `consumer`: its rows of all output tiles of this CTA, or every second tile.
  TW_DEVICE static void Consume(const GemmHopperParams& params, u32 ring, int rank, int consumer,
                                int warp, int lane) {
    RingPosition at;
    u32 place = 0;  // of the two for pieces of D, the one to stage in next, bytes from the first
    TileLoop loop(params, rank);
    if (kPingPong && consumer == 1) {
      at.Skip(loop.count);
      loop.Next();
    }
    bool turn = consumer == 0;  // the first tile is nobody else's turn
    for (; !loop.Done(); loop.Next()) {
      const TileIndex tile = loop.Tile();
      const int thread = warp % 4 * 32 + lane;
      TileParts divided;
      if constexpr (kShares) {
        if (loop.count < loop.k_tiles) {
          divided = TileParts(params.shares, loop.k_tiles, loop.index, blockIdx.x / kCluster);
        }
      }
      const Parts parts{params, divided, loop.index, rank, consumer % kTogether, thread};
      if (!turn) WaitForTurn(consumer);
      turn = false;
      MultiplyTile(ring, loop.count, at, loop.More(), rank, consumer, lane);
      if constexpr (kSplits > 1) {
        SharedTile(ring, rank)
            .Store(params.out, tile.m * kTileM, tile.n * kTileN, consumer, warp, lane);
      } else if (divided.count == 1 || parts.IsLast(Flag(ring, consumer))) {
        Store(params, parts, tile, ring, consumer, place, warp, lane);
      } else {
        parts.Leave(FirstRow(tile, consumer));
      }
      if constexpr (kPingPong) {
        at.Skip(loop.count);
        loop.Next();
      }
    }
    // Shared memory stays until all of it has been read.
    TmaStoreWaitRead<0>();
  }

  // `smem`: shared, kBarriers + 16 kStages bytes, and 16 more for a shared tile or of each consumer for
  // divided ones, from the next multiple of 1024 on.
  TW_DEVICE static void Run(const GemmHopperParams& params, const u8* smem) {
    LaunchDependents();
    // The launch asks for 1023 bytes more than needed: the alignment of the window is not promised.
    const u32 ring = (SmemAddress(smem) + 1023) & ~1023u;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    // The same in all lanes, and the compiler is to know.
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    int rank = 0;
    if constexpr (kPeers > 1 || kSplits > 1) rank = static_cast<int>(ClusterCtaRank());

    if (threadIdx.x == 0) {
      TmaPrefetchMap(&params.a);
      TmaPrefetchMap(&params.b);
      if (kSplits == 1 && StoresByTma(params.out)) TmaPrefetchMap(&params.d);
      for (int i = 0; i < kStages; ++i) {
        MbarrierInit(FullBarrier(ring, i), 1);  // the producer; copies count bytes
        MbarrierInit(EmptyBarrier(ring, i), 4 * kTogether * kFetching);  // a lane of each warp
      }
      if constexpr (kSplits > 1) {
        SharedTile(ring, rank).Open(params.out, TileLoop(params, rank).Tile().m * kTileM);
      }
      FenceBarrierInit();
    }
    WgmmaDeclareAccumulators();
    // The barriers are ready, in a cluster those of the peer too.
    if constexpr (kPeers > 1) {
      ClusterSync();
    } else {
      __syncthreads();
    }
    // Not before those of the others are needed: a consumer waits in SplitTile::Store.
    if constexpr (kSplits > 1) ClusterArriveRelaxed();
    // Every thread: the producer reads A and B, the others may read C, and write D.
    WaitForPrerequisites();

    if (warp < 4) {
      if constexpr (kConsumers > 1) RegistersLower<40>();
      if (warp == 0 && lane == 0) Produce(params, ring, rank);
      if constexpr (kSplits > 1) ClusterWait();
    } else {
      if constexpr (kConsumers > 1) RegistersRaise<kRaised>();
      Consume(params, ring, rank, warp / 4 - 1, warp, lane);
    }
    // A CTA stays until its peer has sent and signalled for the last time.
    if constexpr (kPeers > 1) {
      __syncwarp();
      ClusterSync();
    }
  }
};

}  // namespace tw
