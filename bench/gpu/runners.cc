#include "gpu/runners.h"

#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/norm/cuda/families.h"
#include "ops/rope/cuda/families.h"

namespace tilewright::gpu_check {

// Those with a runner, without the rest of the library: this program is carried to machines. The
// kernels of the other small operations are held to their oracles by tests/device/small_ops_gpu_test.
Result<KernelFamilies> CheckedFamilies() {
  KernelFamilies families;
  for (const auto add : {&AddGemmFamilies, &AddGemvFamilies, &AddGemmQFamily, &AddNormFamilies}) {
    if (Status added = add(families); !added) return Fail(added.error());
  }
  if (Status added = families.Add(RopeKvFamily()); !added) return Fail(added.error());
  return families;
}

RunFamily FindRunner(std::string_view family) {
  struct Row {
    std::string_view family;
    RunFamily run;
  };
  constexpr Row kRows[] = {
      {"gemm_mma", &RunGemmMma},   {"gemm_hopper", &RunGemmHopper}, {"gemm_q", &RunGemmQ},
      {"gemv_bf16", &RunGemvBf16}, {"gemv_q", &RunGemvQuantised},   {"gemv_stream", &RunGemvStream},
      {"gemv_int8", &RunGemvInt8}, {"rmsnorm", &RunRmsNorm},        {"rope_kv", &RunRopeKv}};
  for (const Row& row : kRows) {
    if (row.family == family) return row.run;
  }
  return nullptr;
}

}  // namespace tilewright::gpu_check
