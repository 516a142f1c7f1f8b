// gemv_bf16 and gemv_q against float64.
#include "gpu/product.h"
#include "gpu/runners.h"
#include "ops/gemm/cuda/gemv/gemv_launch.h"
#include "tilewright/cuda/gemv_params.h"

namespace tilewright::gpu_check {
namespace {

cuda::LaunchResult Launch(const KernelSpec& spec, const GemmArgs& args, const DeviceSpec&) {
  return GemvLaunch(spec, args);
}

/// The kernel's own number of rows, and with an addend where it has one.
std::vector<ProductShape> Timed(const KernelSpec& spec) {
  return {{spec.tile_m, 4096, 4096}, {spec.tile_m, 14336, 4096}, {spec.tile_m, 4096, 14336}};
}

void Run(const Job& job, const std::vector<ProductShape>& shapes, KernelReport& report) {
  if (job.check) CheckProducts(job, shapes, &Launch, report);
  if (job.time) TimeProducts(job, Timed(job.kernel.spec()), true, &Launch, report);
}

void AddAddends(const KernelSpec& spec, int n, int k, std::vector<ProductShape>& shapes) {
  const int m = spec.tile_m;
  shapes.push_back({.m = m, .n = n, .k = k, .pad_d = 3, .alpha = 0.75f});
  if (spec.type_c == DataType::kNone) return;
  shapes.push_back({.m = m, .n = n, .k = k, .alpha = 0.75f, .addend = Addend::kSeparate});
  if (spec.type_c != spec.type_d) return;
  shapes.push_back({.m = m, .n = n, .k = k, .pad_d = 3, .addend = Addend::kInPlace});
}

}  // namespace

void RunGemvBf16(const Job& job, KernelReport& report) {
  const KernelSpec& spec = job.kernel.spec();
  const int m = spec.tile_m;
  std::vector<ProductShape> shapes{{m, 1, 1},
                                   {m, 17, 7},
                                   {m, 33, 8},
                                   {m, 576, 576},
                                   {m, 100, 261},
                                   {m, 4096, 4096},
                                   {m + 1, 130, 1032},
                                   {3 * m + 1, 65, 520},
                                   {.m = m, .n = 77, .k = 515, .pad_a = 5, .pad_b = 3},
                                   {.m = m, .n = 64, .k = 1024, .pad_a = 8, .pad_b = 8},
                                   {.m = m, .n = 64, .k = 1024, .skip = 1},
                                   {m, 40000, 96}};
  AddAddends(spec, 320, 1000, shapes);
  Run(job, shapes, report);
}

void RunGemvQuantised(const Job& job, KernelReport& report) {
  const KernelSpec& spec = job.kernel.spec();
  const TypeInfo& type = GetTypeInfo(spec.type_b);
  const int block = type.block_elements;
  const int align = cuda::GemvRowAlignment(type.block_bytes);
  const int m = spec.tile_m;
  std::vector<ProductShape> shapes{{m, 1, block},
                                   {m, 17, 3 * block},
                                   {m, 576, 5 * block},
                                   {m, 4096, 4096},
                                   {m + 1, 130, 1024},
                                   {3 * m + 1, 65, 7 * block},
                                   {.m = m, .n = 77, .k = 9 * block, .pad_a = 8, .pad_b = block},
                                   {.m = m, .n = 64, .k = 1024, .pad_b = 3 * block, .skip = 4},
                                   {m, 40000, block}};
  if (align > 4) shapes[shapes.size() - 2].skip = align;
  AddAddends(spec, 320, 1280, shapes);
  Run(job, shapes, report);
}

}  // namespace tilewright::gpu_check
