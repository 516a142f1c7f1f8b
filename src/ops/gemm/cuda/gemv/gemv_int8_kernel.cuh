#pragma once

#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/silu.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemv/int8_product.cuh"
#include "ops/gemm/cuda/gemv/int8_ring.cuh"
#include "tilewright/cuda/gemv_params.h"

// Few rows of x, rounded to int8 in blocks of 32, times a matrix of weights in blocks, at the rate
// of memory. As many CTAs as multiprocessors, each with a contiguous part of the rows of W and all
// of x in shared memory, which it rounds itself. A warp takes kRows rows of W at a time and reads
// them as one stream of segments through a ring of its own (int8_ring.cuh). Lanes multiply chunks side
// by side (int8_codes.cuh): about one instruction a weight, where tensor cores with bf16 of gemv_q take
// three.

namespace tw {

using tilewright::cuda::GemvParams;

template <Type kTypeX, Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM,
          int kRows, int kWarps, int kSegmentValues, int kStages, bool kNorm, bool kBulk>
struct GemvInt8 {
  static constexpr bool kGated = kEpilogue == Epilogue::kSwiGlu;
  using Ring = GemvInt8Ring<kTypeW, kGated, kRows, kWarps, kSegmentValues, kStages, kBulk>;
  using Product = Int8Product<kTypeW, kTileM, kRows, kWarps, kSegmentValues, Ring::kRowBytes>;
  static constexpr int kColumns = Ring::kColumns;
  static constexpr int kSums = Product::kSums;

  const GemvParams& p;
  const Ring& ring;
  Product product;
  int lane, warp;
  int begin, end;  // units of this CTA

  /// Which element of y the lane stores of a unit; column -1: none.
  struct Element {
    int row, column;
  };
  TW_DEVICE Element ElementOf(int unit) const {
    constexpr int kLanes = 32 / kSums;
    const int i = lane / kLanes, m = i % kTileM, r = i / kTileM;
    const int column = unit * kColumns + r;
    const bool mine = lane % kLanes == 0 && r < kColumns && m < p.m && unit < end &&
                      column < (kGated ? p.n / 2 : p.n);
    return {m, mine ? column : -1};
  }

  TW_DEVICE void Run() const {
    const PlainRows<kTypeX> x{p.x, p.ldx};
    auto copied = ring.Start(begin + warp);
    if constexpr (kNorm) {
      float weights[8] = {};
      product.LoadWeights(p.norm, weights);
      WaitForPrerequisites();  // the kernels before this one write x, and c
      product.NormAndRoundX(x, p.norm, p.epsilon, weights);
    } else {
      WaitForPrerequisites();  // the same
      product.RoundX(x);
    }
    __syncthreads();  // all of x is there before any warp multiplies
    auto stage = ring.FirstStage();
    // All warps of a CTA make the same number of rounds, so that they meet the same shuffles.
    TW_NO_UNROLL
    for (int round = begin; round < end; round += kWarps) {
      const int unit = round + warp;
      const Element element = ElementOf(unit);
      float addend = 0.0f;  // asked for ahead of the products
      if constexpr (kTypeC != Type::kNone) {
        if (p.beta != 0.0f && element.column >= 0)
          addend = LoadElement<kTypeC>(p.c, element.row * p.ldc + element.column);
      }
      int skips[kRows];
      ring.SkipsOf(unit, skips);
      float sums[kSums] = {};
      TW_NO_UNROLL
      for (int segment = 0; segment < ring.segments; ++segment) {
        ring.Take(stage, unit < end, copied);
        if (unit < end) product.Multiply(segment, ring.ring + stage.at, skips, sums);
        ring.Advance(stage);
      }
      float value = p.alpha * ReduceSums<kSums, 16>(lane, sums);
      if constexpr (kGated) {
        const float up = __shfl_xor_sync(kAllLanes, value, 16);
        value = SiluOf(value) * up;
      }
      if (element.column < 0) continue;
      if constexpr (kTypeC != Type::kNone) {
        if (p.beta != 0.0f) value = Fma(p.beta, addend, value);
      }
      StoreElement<kTypeY>(p.y, element.row * p.ldy + element.column, value);
    }
  }
};

/// The whole kernel. `smem`: shared, GemvInt8Smem bytes, aligned to 16.
template <Type kTypeX, Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM,
          int kRows, int kWarps, int kSegmentValues, int kStages, bool kNorm = false,
          bool kBulk = false>
TW_DEVICE void GemvInt8Run(const GemvParams& p, u8* smem) {
  using Kernel = GemvInt8<kTypeX, kTypeW, kTypeC, kTypeY, kEpilogue, kTileM, kRows, kWarps,
                          kSegmentValues, kStages, kNorm, kBulk>;
  using Ring = typename Kernel::Ring;
  using Product = typename Kernel::Product;
  using F = typename Product::F;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int columns = Kernel::kGated ? p.n / 2 : p.n;
  const int units = (columns + Kernel::kColumns - 1) / Kernel::kColumns;
  const auto border = [&](unsigned int cta) {
    return static_cast<int>(static_cast<i64>(units) * cta / gridDim.x);
  };
  const int segments = (p.k + kSegmentValues - 1) / kSegmentValues;
  const bool whole = p.k == segments * kSegmentValues &&
                     (reinterpret_cast<u64>(p.w) | static_cast<u64>(p.w_row_bytes)) % 16 == 0;
  const int x_values = segments * Product::kTurns * Product::kTurnValues;
  const int x_bytes = tilewright::cuda::GemvInt8XBytes(x_values, kNorm);
  u8* x = smem + kWarps * kStages * Ring::kStageBytes;
  const u32 landed = SmemAddress(x) + static_cast<u32>(kTileM * x_bytes + warp * kStages * 8);
  const int begin = border(blockIdx.x), end = border(blockIdx.x + 1);
  const Ring ring{p,
                  smem + warp * (kStages * Ring::kStageBytes),
                  landed,
                  ReadOncePolicy(),
                  lane,
                  segments,
                  p.k / F::kBlock * F::kBytes,
                  end,
                  whole};
  const Product product{x,        lane,   p.k, p.m < kTileM ? p.m : kTileM, p.k / F::kChunk,
                        x_values, x_bytes};
  const Kernel kernel{p, ring, product, lane, warp, begin, end};
  LaunchDependentsIfSparse();
  if (p.w_constant == 0) WaitForPrerequisites();
  kernel.Run();
  LaunchDependents();
}

}  // namespace tw
