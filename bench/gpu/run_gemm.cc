// gemm_mma and gemm_hopper against float64.
#include "gpu/product.h"
#include "gpu/runners.h"
#include "ops/gemm/cuda/gemm_hopper_shares.h"
#include "ops/gemm/cuda/gemm_launch.h"
#include "ops/gemm/cuda/gemm_mma_splits.h"

namespace tilewright::gpu_check {
namespace {

/// With every addend that the kernel has, at a shape with edges in both directions.
void AddAddends(const KernelSpec& spec, ProductShape shape, std::vector<ProductShape>& shapes) {
  shape.alpha = 0.75f;
  shapes.push_back(shape);
  if (spec.type_c == DataType::kNone) return;
  shape.addend = Addend::kSeparate;
  shapes.push_back(shape);
  if (spec.type_c != spec.type_d) return;
  shape.addend = Addend::kInPlace;
  shapes.push_back(shape);
}

constexpr ProductShape kLarge[] = {{4096, 4096, 4096}, {8192, 8192, 8192}};

/// Large outputs, and for low tiles also the few rows they are made for.
std::vector<ProductShape> Timed(const KernelSpec& spec) {
  const int m = spec.tile_m;
  if (m <= 32) return {{m, 4096, 4096}, {m, 14336, 4096}, {m, 4096, 14336}};
  return {kLarge[0], kLarge[1]};
}

}  // namespace

void RunGemmMma(const Job& job, KernelReport& report) {
  const KernelSpec& spec = job.kernel.spec();
  const int m = spec.tile_m, n = spec.tile_n, k = spec.tile_k;
  std::vector<ProductShape> shapes{
      {1, 1, 1},
      {3, 5, 7},
      {m, n, k},
      {m, n, k * spec.stages * 3},
      {m + 1, n - 1, k * spec.stages + 3},
      {m - 1, n + 9, k - 1},
      {5 * m + 8, 3 * n + 16, 264},
      {.m = m + 3, .n = n + 5, .k = 2 * k + 8, .pad_a = 8, .pad_b = 16, .pad_d = 8},
      {.m = m + 8, .n = n + 8, .k = 2 * k + 8, .pad_a = 3, .pad_b = 5, .pad_d = 1},
      {.m = 2 * m, .n = 2 * n, .k = 2 * k, .skip = 1},
      {.m = 2 * m, .n = 2 * n, .k = 2 * k, .skip = 8},
      {2000, 1504, 2056},
      {m + 2, 3 * n - 1, 4100},
      {1024, 4096, 4096}};
  AddAddends(spec, {.m = m + 17, .n = 2 * n + 3, .k = 520, .pad_d = 5}, shapes);
  AddAddends(spec, {.m = 2 * m, .n = 2 * n, .k = 512, .pad_d = 8}, shapes);
  AddAddends(spec, {.m = m, .n = 3 * n, .k = 4096, .pad_d = 8}, shapes);
  const std::vector<ProductShape> timed = Timed(spec);
  const ProductWorkspace workspace(job, shapes, timed, &GemmMmaWorkspace);
  const ProductLauncher launcher = [&workspace](const KernelSpec& of, const GemmArgs& args,
                                                const DeviceSpec& device) {
    return GemmMmaLaunch(of, args, device, workspace.view());
  };
  if (job.check) CheckProducts(job, shapes, launcher, report);
  if (job.time) TimeProducts(job, timed, spec.tile_m <= 32, launcher, report);
  workspace.Report(report);
}

void RunGemmHopper(const Job& job, KernelReport& report) {
  const KernelSpec& spec = job.kernel.spec();
  const int m = spec.tile_m * (spec.cluster_m > 1 ? spec.cluster_m : 1), n = spec.tile_n;
  constexpr int kDepth = 64;
  // Lines must be multiples of 16 bytes: what is missing becomes padding, which holds NaN.
  const auto aligned = [&](ProductShape shape) {
    const auto fill = [](int extent) { return (8 - extent % 8) % 8; };
    shape.pad_a += fill(spec.order_a == Order::kRowMajor ? shape.k : shape.m);
    shape.pad_b += fill(spec.order_b == Order::kColMajor ? shape.k : shape.n);
    return shape;
  };
  std::vector<ProductShape> shapes{
      {1, 1, 1},
      {3, 5, 7},
      {m, n, kDepth},
      {m, n, kDepth * spec.stages * 3},
      {m + 1, n - 1, kDepth * spec.stages + 3},
      {m - 1, n + 9, kDepth - 1},
      {m / 2 + 1, n, 200},
      {5 * m + 8, 3 * n + 16, 264},
      {.m = m + 3, .n = n + 5, .k = 136, .pad_a = 8, .pad_b = 16, .pad_d = 8},
      {.m = m + 8, .n = n + 8, .k = 136, .pad_d = 1},
      {.m = 2 * m, .n = 2 * n, .k = 128, .skip = 8},
      // More output tiles than CTAs, so that CTAs go on to a second and third tile.
      {4000, 3880, 328},
      {2000, 1504, 2056},
      {1024, 4096, 4096}};
  AddAddends(spec, {.m = m + 17, .n = 2 * n + 3, .k = 520, .pad_d = 5}, shapes);
  AddAddends(spec, {.m = 2 * m, .n = 2 * n, .k = 512, .pad_d = 8}, shapes);
  for (ProductShape& shape : shapes) shape = aligned(shape);
  const std::vector<ProductShape> timed{kLarge[0], kLarge[1]};
  const ProductWorkspace workspace(job, shapes, timed, &GemmHopperWorkspace);
  const ProductLauncher launcher = [&workspace](const KernelSpec& of, const GemmArgs& args,
                                                const DeviceSpec& device) {
    return GemmHopperLaunch(of, args, device, workspace.view());
  };
  if (job.check) CheckProducts(job, shapes, launcher, report);
  if (job.time) TimeProducts(job, timed, false, launcher, report);
  workspace.Report(report);
}

}  // namespace tilewright::gpu_check
