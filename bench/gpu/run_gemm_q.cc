// gemm_q against float64.
#include <algorithm>

#include "gpu/product.h"
#include "gpu/runners.h"
#include "ops/gemm/cuda/gemm_q/gemm_q_launch.h"
#include "tilewright/cuda/gemm_q_params.h"
#include "tilewright/cuda/gemv_params.h"

namespace tilewright::gpu_check {
namespace {

/// The tile's number of rows times the matrices of an 8B model; the highest tiles also with several
/// tiles of rows.
std::vector<ProductShape> Timed(const KernelSpec& spec) {
  const int m = spec.tile_m;
  std::vector<ProductShape> shapes{
      {m, 4096, 4096}, {m, 6144, 4096}, {m, 14336, 4096}, {m, 4096, 14336}};
  if (m == 64) {
    shapes.push_back({2 * m, 14336, 4096});
    shapes.push_back({4 * m, 14336, 4096});
  }
  return shapes;
}

std::vector<ProductShape> Checked(const KernelSpec& spec) {
  const TypeInfo& type = GetTypeInfo(spec.type_b);
  const int block = type.block_elements;
  const int m = spec.tile_m, n = spec.tile_n;
  // Bytes that W starts behind a multiple of 16.
  const int skip = cuda::GemvRowAlignment(type.block_bytes);
  if (spec.epilogue == SpecEpilogue::kSwiGlu) {
    return {{1, 32, block},
            {m, n, cuda::kGemmQTileK},
            {m, 576, 5 * block},
            {.m = m, .n = 64, .k = 1024, .pad_b = 3 * block, .skip = std::max(8, skip)},
            {m, 4096, 4096},
            {.m = m, .n = 320, .k = 1280, .pad_d = 3, .alpha = 0.75f}};
  }
  std::vector<ProductShape> shapes{
      {1, 1, block},
      {m, n, cuda::kGemmQTileK},
      {m - 1, n + 1, 3 * block},
      {m, 576, 5 * block},
      {m, 4096, 4096},
      {3 * m + 1, 130, 1024},
      {.m = m, .n = 77, .k = 9 * block, .pad_a = 8, .pad_b = block},
      {.m = m, .n = 64, .k = 1024, .pad_b = 3 * block, .skip = std::max(8, skip)},
      {m, 40000, block},
      {.m = m, .n = 320, .k = 1280, .pad_d = 3, .alpha = 0.75f},
      {.m = m, .n = 320, .k = 4096, .alpha = 0.75f, .addend = Addend::kSeparate},
      {.m = m + 3, .n = 320, .k = 1280, .pad_d = 3, .addend = Addend::kInPlace}};
  return shapes;
}

}  // namespace

void RunGemmQ(const Job& job, KernelReport& report) {
  const std::vector<ProductShape> checked = Checked(job.kernel.spec());
  const std::vector<ProductShape> timed = Timed(job.kernel.spec());
  const ProductWorkspace workspace(job, checked, timed, &GemmQWorkspace);
  const ProductLauncher launcher = [&workspace](const KernelSpec& spec, const GemmArgs& args,
                                                const DeviceSpec& device) {
    return GemmQLaunch(spec, args, device, workspace.view());
  };
  if (job.check) CheckProducts(job, checked, launcher, report);
  if (job.time) TimeProducts(job, timed, true, launcher, report);
  workspace.Report(report);
}

}  // namespace tilewright::gpu_check
