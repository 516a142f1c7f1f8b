#pragma once

#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/mma.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/predicated.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/tma.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "device/cuda/kernels/wgmma.cuh"
#include "ops/gemm/cuda/gemm_qr/finish.cuh"
#include "ops/gemm/cuda/gemm_qr/layout.h"
#include "ops/gemm/cuda/gemm_qw/scaled_rows.cuh"
#include "tilewright/cuda/gemm_qr_params.h"

// Some rows of x times a matrix of weights in blocks. x stays where it is and W streams past: each of the eight warps
// that multiply has one k-tile of all rows of x, as f16 in registers, for as long as the kernel runs, and takes the same
// k-tile of one output tile after another through a ring of its own, which the copy engine fills. Rows of W become f16 in
// registers too (scaled.cuh), so that mma.sync reads no shared memory, and a warp waits for nobody but the memory.
// What eight warps have summed up, and what the CTAs that have other parts of k have, four more warps add and store
// (finish.cuh).

namespace tw {

template <Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM, int kTileN,
          int kStages>
struct GemmQr {
  using F = Codes<kTypeW>;
  static constexpr int kWarps = tilewright::cuda::kGemmQrWarps;
  static constexpr int kTileK = tilewright::cuda::kGemmQTileK;
  static constexpr int kSteps = kTileK / 16;  // of mma
  static constexpr int kColumns = kTileM / 8;
  static constexpr int kStrips = kTileN / 16;
  static_assert(kTileM % 8 == 0 && kTileM <= 16 && kTileN % 16 == 0, "shapes of mma");
  static_assert(kStages >= 2, "a ring");
  static constexpr GemmQrLayout kLayout =
      GemmQrLayout::Of({F::kBytes, F::kBlock, kTileM, kTileN, kStages});
  using Boxes = KTileBoxes<F>;
  using Work = GemmQrWork<kTileM, kTileN>;
  using TwoRows = ScaledRows<kTypeW, 1, kLayout.line_bytes>;
  using Raw = typename TwoRows::Raw;

  // Stages that are on their way in front of x, whose loads would have to wait for more of them.
  static constexpr int kInFrontOfX = 2;

  // Of 64 K registers, 168 a thread at the start.
  static constexpr int kRegistersToMultiply = 200, kRegistersToStore = 104;

  // The whole kernel. `smem`: shared, aligned to 128 bytes.
  TW_DEVICE static void Run(const GemmQrParams& params, u8* smem) {
    LaunchDependents();
    // The same in all lanes, and the compiler is to know.
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Work work(params);
    const bool multiplies = warp < work.warps;
    const GemmQr kernel{params, smem, SmemAddress(smem), work, warp, lane};
    if (multiplies && lane == 0) {
      for (int i = 0; i < kStages; ++i) MbarrierInit(kernel.Full(i), 1);
      FenceBarrierInit();
      if (params.w_constant == 0) WaitForPrerequisites();
      for (int i = 0; i < kInFrontOfX; ++i) kernel.Fetch(i, i);
    }
    const u32 barriers = SmemAddress(smem) + static_cast<u32>(kLayout.barriers);
    const GemmQrBarriers sums{barriers + 8 * kWarps * kStages};
    if (threadIdx.x == 32 * kWarps) {
      sums.Init(static_cast<u32>(work.warps));
      FenceBarrierInit();
    }
    __syncthreads();         // the barriers of the sums are ready
    WaitForPrerequisites();  // x, the addend, and y, which others may still read
    if (warp >= kWarps) {
      RegistersLower<kRegistersToStore>();
      GemmQrFinish<kTypeC, kTypeY, kEpilogue, kTileM, kTileN>::Run(
          params, work, sums, reinterpret_cast<const float*>(smem + kLayout.sums), warp - kWarps,
          lane);
    } else {
      RegistersRaise<kRegistersToMultiply>();
      if (multiplies) kernel.Multiply(sums);
    }
  }

  const GemmQrParams& p;
  u8* smem;
  u32 smem_address;
  Work work;
  int warp, lane;

  TW_DEVICE u32 Full(int stage) const {
    return smem_address + static_cast<u32>(kLayout.barriers + 8 * (warp * kStages + stage));
  }
  TW_DEVICE int StageAt(int stage) const { return (warp * kStages + stage) * kLayout.stage_bytes; }

  // One thread: W of the i-th output tile of this CTA on its way, if there is one.
  TW_DEVICE void Fetch(int i, int stage) const {
    const int tile = work.TileOf(i);
    if (tile >= work.tiles_n) return;
    MbarrierArriveExpectTx(Full(stage), static_cast<u32>(kLayout.stage_bytes));
    TmaLoad2D(smem_address + static_cast<u32>(StageAt(stage)), &p.w, Full(stage),
              Boxes::UnitOf(work.first_k_tile + warp, work.k_tiles), tile * kTileN);
  }

  // x of a warp: step s of 16 k, rows 8 j to 8 j + 7. A lane has of row g the values 4 t .. 4 t + 3, the even ones in the
  // first word: as ScaledPart has those of W.
  struct Rows {
    u32 v[kSteps][kColumns][2];
  };
  TW_DEVICE void LoadX(Rows& x) const {
    const int g = lane / 4, t = lane % 4;
    const int k0 = (work.first_k_tile + warp) * kTileK + 4 * t;
    TW_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      const int row = work.m0 + 8 * j + g;
      const u8* from = static_cast<const u8*>(p.x) + (row * p.ldx + k0) * 2;
      TW_UNROLL
      for (int s = 0; s < kSteps; ++s)
        LoadGlobal8If(x.v[s][j], from + 32 * s, row < p.m && k0 + 16 * s < p.k);
    }
  }
  template <class Scale>
  TW_DEVICE static void ConvertColumn(Rows& x, int j, Scale scaled) {
    TW_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      u32(&pairs)[2] = x.v[s][j];
      SplitFour(pairs[0], pairs[1], scaled, pairs[0], pairs[1]);
    }
  }
  // bf16 to f16. Where f16 does not hold a row of the k-tile as it is, it is divided by a power of two, which is left in
  // `divisors`. Returns whether none was.
  TW_DEVICE bool ConvertX(Rows& x, float* divisors) const {
    bool all_plain = true;
    TW_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      u32 largest = 0;
      TW_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        largest = MaxMagnitudeBF16x2(largest, x.v[s][j][0]);
        largest = MaxMagnitudeBF16x2(largest, x.v[s][j][1]);
      }
      TW_UNROLL
      for (int step = 1; step <= 2; step *= 2)
        largest = MaxMagnitudeBF16x2(largest, OfPartner(largest, step));
      const float bound = LargerOfPair(largest);
      const bool plain = !InAnyLane(!FitsAsX(bound));
      const PowerOfTwo power = plain ? PowerOfTwo{1.0f, 1.0f} : PowerOfTwo::For(bound);
      if (lane % 4 == 0) divisors[8 * j + lane / 4] = power.inverse;
      if (plain) {
        ConvertColumn(x, j, [](float value) { return value; });
      } else {
        all_plain = false;
        ConvertColumn(x, j, [&](float value) { return value * power.factor; });
      }
    }
    __syncwarp();  // the divisors are there for all lanes
    return all_plain;
  }

  // A k-tile of the rows of an output tile that has landed, its first sub-block, and whether f16 holds all of it.
  struct Opened {
    TwoRows rows[kStrips];
    Raw raw[kStrips][2];
    bool plain;
  };
  TW_DEVICE Opened Open(int stage, u32 parity) const {
    MbarrierWait(Full(stage), parity);
    Opened tile;
    bool fits = true;
    TW_UNROLL
    for (int s = 0; s < kStrips; ++s) {
      const int row = 16 * s + lane / 4;
      tile.rows[s].first =
          TwoRows::Line::At(smem + (StageAt(stage) + row * kLayout.line_bytes),
                            Boxes::SkipOf(work.first_k_tile + warp, work.k_tiles), 0);
      tile.rows[s].SetPlain(lane, fits);
    }
    tile.plain = !InAnyLane(!fits);
    TW_UNROLL
    for (int s = 0; s < kStrips; ++s) tile.rows[s].LoadFirst(lane, tile.raw[s]);
    return tile;
  }

  using Sums = float[kStrips][kColumns][4];

  // Sub-block kJ of a k-tile and those behind it, of all strips side by side, so that a warp has something to do while
  // products are under way; `raw`: of sub-block kJ.
  template <int kJ>
  TW_DEVICE void MultiplyFrom(const Opened& tile, const Raw (&raw)[kStrips][2], const Rows& x,
                              Sums& acc) const {
    if constexpr (kJ < kTileK / 32) {
      Raw next[kStrips][2];
      u32 a[kStrips][2][4];
      TW_UNROLL
      for (int i = 0; i < kStrips; ++i) {
        if constexpr (kJ + 1 < kTileK / 32)
          tile.rows[i].template LoadNext<kJ + 1>(lane, raw[i], next[i]);
        TwoRows::template WordsOfA<kJ>(raw[i], a[i]);
      }
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        TW_UNROLL
        for (int j = 0; j < kColumns; ++j) {
          TW_UNROLL
          for (int i = 0; i < kStrips; ++i)
            MultiplyStep<kJ>(h, a[i], x.v[2 * TwoRows::Line::template kOffset<kJ> + h][j],
                             acc[i][j]);
        }
      }
      MultiplyFrom<kJ + 1>(tile, next, x, acc);
    }
  }
  template <int kJ>
  TW_DEVICE static void MultiplyStep(int h, const u32 (&a)[2][4], const u32 (&b)[2],
                                     float (&acc)[4]) {
    if (kJ == 0 && h == 0) {
      Mma16816Zero<Type::kF16>(acc, a[h], b[0], b[1]);
    } else {
      Mma16816<Type::kF16>(acc, a[h], b[0], b[1]);
    }
  }

  // A warp that multiplies.
  TW_DEVICE void Multiply(const GemmQrBarriers& sums) const {
    float* const divisors = reinterpret_cast<float*>(smem + kLayout.divisors) + warp * kTileM;
    Rows x;
    LoadX(x);
    if (lane == 0) {
      for (int i = kInFrontOfX; i < kStages; ++i) Fetch(i, i);
    }
    const bool x_plain = ConvertX(x, divisors);
    const int count = work.OwnTiles();
    if (count == 0) return;
    int stage = 0;
    u32 parity = 0;
    Opened tile = Open(0, 0);
    TW_NO_UNROLL
    for (int i = 0; i < count; ++i) {
      if (!tile.plain) {
        TW_UNROLL
        for (int s = 0; s < kStrips; ++s) {
          PowerOfTwo powers[2];
          tile.rows[s].SetDivided(lane, powers);
          tile.rows[s].LoadFirst(lane, tile.raw[s]);
        }
      }
      Sums acc;
      MultiplyFrom<0>(tile, tile.raw, x, acc);
      if (!tile.plain || !x_plain) MakeWhole(tile, divisors, acc);
      __syncwarp();  // all lanes have read the stage
      if (lane == 0) Fetch(i + kStages, stage);
      if (++stage == kStages) stage = 0, parity ^= 1;
      if (i + 1 < count) tile = Open(stage, parity);
      LeaveSums(sums, i, acc);
    }
  }

  // Sums of a k-tile times what its rows of W and of x were divided by. The powers are found again, since they would take
  // registers.
  TW_DEVICE void MakeWhole(Opened& tile, const float* divisors, Sums& acc) const {
    TW_UNROLL
    for (int s = 0; s < kStrips; ++s) {
      PowerOfTwo powers[2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};
      if (!tile.plain) tile.rows[s].SetDivided(lane, powers);
      TW_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        TW_UNROLL
        for (int e = 0; e < 4; ++e)
          acc[s][j][e] *= powers[e / 2].inverse * divisors[8 * j + lane % 4 * 2 + e % 2];
      }
    }
  }

  // Puts the sums of the `of_cta`-th output tile of this CTA in place: [kTileM][sum_pitch].
  TW_DEVICE void LeaveSums(const GemmQrBarriers& sums, int of_cta, const Sums& acc) const {
    constexpr int kPitch = kLayout.sum_pitch;
    const int buffer = of_cta % GemmQrLayout::kSumBuffers;
    MbarrierWait(sums.Taken(of_cta), GemmQrBarriers::TakenParity(of_cta) ^ 1);
    float* const own = reinterpret_cast<float*>(
                           smem + (kLayout.sums + (buffer * kWarps + warp) * kLayout.sum_bytes)) +
                       (lane % 4 * 2 * kPitch + lane / 4);
    TW_UNROLL
    for (int s = 0; s < kStrips; ++s) {
      TW_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        TW_UNROLL
        for (int e = 0; e < 4; ++e)
          own[(8 * j + e % 2) * kPitch + 16 * s + e / 2 * 8] = acc[s][j][e];
      }
    }
    __syncwarp();
    if (lane == 0) MbarrierArrive(sums.Summed(of_cta));
  }
};

}  // namespace tw
