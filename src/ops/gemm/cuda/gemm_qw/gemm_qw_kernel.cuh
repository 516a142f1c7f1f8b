#pragma once

#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/tma.cuh"
#include "device/cuda/kernels/types.cuh"
#include "ops/gemm/cuda/gemm_q/output.cuh"
#include "ops/gemm/cuda/gemm_qw/qw_finish.cuh"
#include "ops/gemm/cuda/gemm_qw/qw_product.cuh"
#include "tilewright/cuda/gemm_qw_params.h"

// One product of qw_product.cuh.

namespace tw {

using tilewright::cuda::GemmQwParams;

/// As QwFinish asks for it. More loads at once, or addends loaded ahead, take registers that the kernel in front may
/// still have: the CTA would start later than it could.
template <Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM, int kTileN, int kThreads>
struct GemmQwOutput {
  static constexpr int kLoads = 8;
  TW_DEVICE void Load(const GemmQwParams&, int, int) {}
  template <class SumsAt>
  TW_DEVICE void Store(const GemmQwParams& p, int m0, int n0, SumsAt sums_at, float*) const {
    OutputTile<kTypeC, kTypeY, kEpilogue, kTileM, kTileN, kThreads>(
        p, m0, n0, OutputInPacks<kTypeC, kTypeY>(p), sums_at);
  }
};

template <Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM, int kTileN,
          int kParts, int kStages>
struct GemmQw {
  using Product = QwProduct<kTypeW, kTileM, kTileN, kParts, kStages, GemmQwParams, false>;
  using Finish =
      QwFinish<Product, GemmQwOutput<kTypeC, kTypeY, kEpilogue, kTileM, kTileN, Product::kThreads>>;

  // The whole kernel. `smem`: shared, aligned to 128 bytes.
  TW_DEVICE static void Run(const GemmQwParams& params, u8* smem) {
    LaunchDependents();
    const Product product(params, smem);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    // The same in all lanes, and the compiler is to know.
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    if (threadIdx.x == Product::kThreads) {
      Product::InitRing(smem, 1 + 4);
      TmaPrefetchMap(&params.w);
      if (params.w_constant == 0) WaitForPrerequisites();
      product.FetchFirst({}, Product::kInFrontOfX);
    }
    __syncthreads();         // the barriers are ready
    WaitForPrerequisites();  // x, the addend, and y, which others may still read
    if (warp >= 4 * Product::kConsumers) {
      product.Produce(warp - 4 * Product::kConsumers, lane);
    } else {
      typename Product::RingPosition at;
      product.Consume(warp, lane, at, Finish(product));
    }
  }
};

}  // namespace tw
