#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/predicated.cuh"
#include "device/cuda/kernels/tma.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemm_chain/chain_output.cuh"
#include "ops/gemm/cuda/gemm_qw/qw_finish.cuh"
#include "ops/gemm/cuda/gemm_qw/qw_product.cuh"
#include "tilewright/cuda/gemm_chain_params.h"

// Products one after the other in one launch, each of what the one in front of it has left: a CTA on every
// multiprocessor computes its run of each (qw_product.cuh). When all CTAs have ended one, each makes a part of x
// of the next ready for all, once, as it lies in shared memory; when all have, the copy engine brings it. W does not
// wait: the ring of a CTA runs on across the borders, so that while sums of shared tiles are added, y is
// written and CTAs wait for each other, the memory brings weights of the next product.

namespace tw {

using tilewright::cuda::GemmChainParams;
using tilewright::cuda::kChainFailed;
using tilewright::cuda::kMostChainProducts;

template <Type kTypeW, int kTileM, int kTileN, int kParts, int kStages>
struct GemmChain {
  using Product = QwProduct<kTypeW, kTileM, kTileN, kParts, kStages, GemmChainProduct, true>;
  // As many loads as there are registers for; beside those of q6_k addends would be spilled.
  static constexpr int kLoads = Product::kThreads <= 384 && kTypeW != Type::kQ6_K ? 20 : 8;
  using Finish = QwFinish<Product, ChainOutput<kTileM, kTileN, Product::kThreads, kLoads>>;
  using RingPosition = typename Product::RingPosition;
  static constexpr int kThreads = Product::kThreads;

  const GemmChainParams& p;
  u8* smem;
  int lane, warp;

  TW_DEVICE u32* Ready(int i) const { return p.words + 2 * i; }
  TW_DEVICE u32* Ended(int i) const { return p.words + 2 * i + 1; }

  /// Until all CTAs have arrived at a counter, or one has given up.
  TW_DEVICE void WaitForAll(const u32* counter) const {
    constexpr u32 kLooks = 64;  // between looks at the clock
    u32* const failed = p.words + kChainFailed;
    const auto ctas = static_cast<u32>(Product::Ctas());
    u64 since = 0;
    TW_NO_UNROLL
    for (u32 looks = 1; ReadArrivals(counter) != ctas; ++looks) {
      PauseInWait();
      if (looks % kLooks != 0) continue;
      const u64 now = NanosecondsNow();
      if (since == 0) since = now;
      if (now - since <= p.wait_ns && ReadArrivals(failed) == 0) continue;
      *static_cast<volatile u32*>(failed) = 1;
      *static_cast<volatile u32*>(p.alarm) = 1;
      return;
    }
  }
  /// By all threads that multiply: what they have written is there for who sees the counter.
  TW_DEVICE static u32 ArriveTogether(u32* counter) {
    NamedBarrier(1, kThreads);
    return threadIdx.x == 0 ? Arrive(counter) : 0;
  }

  /// The part of x of a product that this CTA makes ready.
  TW_DEVICE void PrepareX(const Product& product) const {
    const GemmChainProduct& own = product.p;
    product.PrepareX(p.x, warp, lane, [&](int row, int k, u32(&pairs)[4]) {
      const bool exists = row < own.m && k < own.k;
      LoadGlobal16If(pairs, static_cast<const u8*>(own.x) + (row * own.ldx + k) * 2, exists);
      if (own.gain == nullptr) return;
      u32 gain[2][4];
      TW_UNROLL
      for (int j = 0; j < 2; ++j) LoadGlobal16If(gain[j], own.gain + k + 4 * j, exists);
      float squares = 0.0f;
      TW_NO_UNROLL
      for (int tile = lane; tile < own.squares_of; tile += 32)
        squares += row < own.m ? LoadElement<Type::kF32>(own.squares, tile * kTileM + row) : 0.0f;
      const float inverse = InverseRoot(WarpSum(squares) / static_cast<float>(own.k) + own.epsilon);
      TW_UNROLL
      for (int j = 0; j < 4; ++j) {
        pairs[j] =
            PackBF16(LowBF16ToF32(pairs[j]) * inverse * FloatOf(gain[j / 2][j % 2 * 2]),
                     HighBF16ToF32(pairs[j]) * inverse * FloatOf(gain[j / 2][j % 2 * 2 + 1]));
      }
    });
  }

  /// The warps that multiply.
  TW_DEVICE void Multiply() const {
    WaitForPrerequisites();  // x, the addends, and y, which others may still read
    RingPosition at;
    TW_NO_UNROLL
    for (int i = 0; i < p.count; ++i) {
      const Product product(p.products[i], smem);
      PrepareX(product);
      FenceGlobalBeforeTma();
      ArriveTogether(Ready(i));
      product.Consume(warp, lane, at, Finish(product));
      const u32 before = ArriveTogether(Ended(i));
      if (i + 1 < p.count) {
        if (threadIdx.x == 0) WaitForAll(Ended(i));
        NamedBarrier(1, kThreads);  // what others have written is there for all threads
      } else if (threadIdx.x == 0 && before + 1 == static_cast<u32>(Product::Ctas())) {
        // Who comes last to the end of the last product knows that nobody waits any more.
        for (int j = 0; j < kChainFailed; ++j) p.words[j] = 0;
      }
    }
  }

  /// The thread that fills the ring.
  TW_DEVICE void Fetch() const {
    RingPosition at;
    int i = 0;
    do {
      Product(p.products[i], smem).Fetch(p.x, at, [&] {
        WaitForPrerequisites();  // of the first: the counters too are those of the launch in front
        WaitForAll(Ready(i));
        FenceGlobalBeforeTma();
      });
    } while (++i < p.count);
  }

  /// The whole kernel. `smem`: shared, aligned to 128 bytes.
  TW_DEVICE static void Run(const GemmChainParams& params, u8* smem) {
    LaunchDependents();
    // The warp is the same in all lanes, and the compiler is to know.
    const GemmChain cta{params, smem, static_cast<int>(threadIdx.x) % 32,
                        __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0)};
    if (threadIdx.x == kThreads) {
      Product::InitRing(smem, 2);
      for (int i = 0; i < params.count; ++i) TmaPrefetchMap(&params.products[i].w);
    }
    __syncthreads();  // the barriers are ready
    if (cta.warp < 4 * Product::kConsumers) {
      cta.Multiply();
    } else if (cta.lane == 0) {
      cta.Fetch();
    } else {
      WaitForPrerequisites();  // so that no thread ends before it
    }
  }
};

}  // namespace tw
