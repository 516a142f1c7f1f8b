// gemm_mma and gemm_hopper against float64.
#include <cstring>

#include "core/text.h"
#include "gpu/product.h"
#include "gpu/runners.h"
#include "ops/gemm/cuda/gemm_launch.h"
#include "ops/gemm/cuda/gemm_params.h"

namespace tilewright::gpu_check {
namespace {

ProductTypes TypesOf(const KernelSpec& spec) {
  return {spec.type_a,
          spec.type_b,
          spec.type_c,
          spec.type_d,
          spec.order_a == Order::kRowMajor,
          spec.order_b == Order::kColMajor};
}

tw::GemmOutput Output(const ProductView& view) {
  tw::GemmOutput out{};
  out.c = view.c;
  out.d = view.d;
  out.ldc = view.ldc;
  out.ldd = view.ldd;
  out.m = view.m;
  out.n = view.n;
  out.k = view.k;
  out.alpha = view.alpha;
  out.beta = view.beta;
  return out;
}

GemmLaunch LaunchOf(const KernelSpec& spec, const ProductView& view) {
  const auto address = [](const void* p) { return reinterpret_cast<std::uint64_t>(p); };
  const GemmLaunch launch{view.m,   view.n,          view.k,          view.lda,       view.ldb,
                          view.ldd, address(view.a), address(view.b), address(view.d)};
  if (const auto no = CheckGemmLaunch(spec, launch)) {
    throw CheckError(Format("the family refuses the launch: {}, needs {}", no->have, no->need));
  }
  return launch;
}

tw::TensorMap Encode(const Gpu& gpu, const TmaDesc& desc) {
  cuda::TensorMapDesc map;
  map.type = desc.type == DataType::kF32   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
             : desc.type == DataType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                           : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  map.address = desc.address;
  map.dims = {desc.size[0], desc.size[1]};
  map.strides = {desc.stride_bytes};
  map.box = {desc.box[0], desc.box[1]};
  const CUtensorMap encoded = Must(cuda::EncodeTensorMap(gpu.driver, map), "tensor map");
  tw::TensorMap bytes;
  static_assert(sizeof bytes == sizeof encoded);
  std::memcpy(&bytes, &encoded, sizeof bytes);
  return bytes;
}

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
  if (spec.tile_m <= 32) return {{spec.tile_m, 4096, 4096}, {spec.tile_m, 14336, 4096}};
  return {kLarge[0], kLarge[1]};
}

}  // namespace

void RunGemmMma(const Job& job, KernelReport& report) {
  const KernelSpec& spec = job.kernel.spec();
  const int m = spec.tile_m, n = spec.tile_n, k = spec.tile_k;
  const LaunchProduct launch = [&](const ProductView& view) {
    const GemmLaunch checked = LaunchOf(spec, view);
    const tw::GemmMmaParams params{view.a, view.b, view.lda, view.ldb, Output(view)};
    job.kernel.Launch(params, {GemmGrid(spec, checked.m, checked.n, job.gpu.spec.sm_count), 1, 1});
  };
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
      {1024, 4096, 4096}};
  AddAddends(spec, {.m = m + 17, .n = 2 * n + 3, .k = 520, .pad_d = 5}, shapes);
  AddAddends(spec, {.m = 2 * m, .n = 2 * n, .k = 512, .pad_d = 8}, shapes);
  const ProductTypes types = TypesOf(spec);
  if (job.check) CheckProducts(job, types, m, shapes, launch, report);
  if (job.time) TimeProducts(job, types, Timed(spec), spec.tile_m <= 32, launch, report);
}

void RunGemmHopper(const Job& job, KernelReport& report) {
  const KernelSpec& spec = job.kernel.spec();
  const int m = spec.tile_m * (spec.cluster_m > 1 ? spec.cluster_m : 1), n = spec.tile_n;
  constexpr int kDepth = 64;
  const int sm_count = job.gpu.spec.sm_count;
  const LaunchProduct launch = [&](const ProductView& view) {
    const GemmLaunch checked = LaunchOf(spec, view);
    const GemmTensorMaps maps = GemmHopperMaps(spec, checked);
    tw::GemmHopperParams params{};
    params.a = Encode(job.gpu, maps.a);
    params.b = Encode(job.gpu, maps.b);
    if (maps.d) params.d = Encode(job.gpu, *maps.d);
    params.out = Output(view);
    job.kernel.Launch(params, {GemmGrid(spec, view.m, view.n, sm_count), 1, 1});
  };
  const ProductTypes types = TypesOf(spec);
  // Lines must be multiples of 16 bytes: what is missing becomes padding, which holds NaN.
  const auto aligned = [&](ProductShape shape) {
    const auto fill = [](int extent) { return (8 - extent % 8) % 8; };
    shape.pad_a += fill(types.a_k_contiguous ? shape.k : shape.m);
    shape.pad_b += fill(types.b_k_contiguous ? shape.k : shape.n);
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
  if (job.check) CheckProducts(job, types, spec.tile_m, shapes, launch, report);
  if (job.time) {
    TimeProducts(job, types, {kLarge[0], kLarge[1]}, false, launch, report);
  }
}

}  // namespace tilewright::gpu_check
