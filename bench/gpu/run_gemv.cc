// gemv_bf16, gemv_q, gemv_stream and gemv_int8 against float64.
#include "gpu/product.h"
#include "gpu/runners.h"
#include "ops/gemm/cuda/gemv/gemv_launch.h"
#include "tilewright/cuda/gemv_params.h"

namespace tilewright::gpu_check {
namespace {

cuda::LaunchResult Launch(const KernelSpec& spec, const GemmArgs& args, const DeviceSpec& device) {
  if (spec.family == FamilyName("gemv_stream"))
    return GemvStreamLaunch(spec, args, device.sm_count);
  if (spec.family == FamilyName("gemv_int8")) return GemvInt8Launch(spec, args, device.sm_count);
  return GemvLaunch(spec, args);
}

/// The kernel's own number of rows; with one, the products of a decode step of SmolLM2-135M and of
/// Llama-3.1-8B where k is whole blocks.
std::vector<ProductShape> Timed(const KernelSpec& spec) {
  const bool gated = spec.epilogue == SpecEpilogue::kSwiGlu, one = spec.tile_m == 1;
  std::vector<ProductShape> shapes;
  if (one && !gated) {
    shapes = {{1, 576, 576}, {1, 960, 576}, {1, 576, 1536}, {1, 49152, 576}, {1, 6144, 4096}};
  }
  if (one) shapes.insert(shapes.end(), {{1, 3072, 576}, {1, 28672, 4096}});
  std::erase_if(shapes, [&](const ProductShape& shape) {
    return shape.k % GetTypeInfo(spec.type_b).block_elements != 0;
  });
  if (gated) return shapes;
  for (const auto& [n, k] : {std::pair{4096, 4096}, {14336, 4096}, {4096, 14336}})
    shapes.push_back({spec.tile_m, n, k});
  return shapes;
}

/// What a kernel of gate and up takes: whole pairs of blocks of rows, no addend.
void KeepGated(const KernelSpec& spec, std::vector<ProductShape>& shapes) {
  if (spec.epilogue != SpecEpilogue::kSwiGlu) return;
  std::erase_if(shapes, [&](const ProductShape& s) { return s.n % 32 != 0 || s.m > spec.tile_m; });
  shapes.push_back({.m = spec.tile_m, .n = 96, .k = 1024, .pad_d = 3});
}

void Run(const Job& job, std::vector<ProductShape> shapes, KernelReport& report) {
  KeepGated(job.kernel.spec(), shapes);
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

void RunGemvInt8(const Job& job, KernelReport& report) {
  const KernelSpec& spec = job.kernel.spec();
  const TypeInfo& type = GetTypeInfo(spec.type_b);
  const int block = type.block_elements;
  const int align = cuda::GemvRowAlignment(type.block_bytes);
  const int m = spec.tile_m;
  std::vector<ProductShape> shapes{{m, 1, block},
                                   {m, 17, 3 * block},
                                   {m, 576, 5 * block},
                                   {m, 4096, 4096},
                                   {(m + 1) / 2, 130, 1024},
                                   {m, 65, 7 * block},
                                   {.m = m, .n = 77, .k = 9 * block, .pad_a = 8, .pad_b = block},
                                   {m, 40000, block},
                                   {m, 96, 14336}};
  // Eight elements of x, of which rows are aligned to 16 bytes, and eight bytes of W.
  if (align < 16) shapes.push_back({.m = m, .n = 64, .k = 1024, .pad_b = 3 * block, .skip = 8});
  AddAddends(spec, 320, 1280, shapes);
  Run(job, shapes, report);
}

void RunGemvStream(const Job& job, KernelReport& report) {
  std::vector<ProductShape> shapes{
      {1, 1, 8},       {1, 17, 24},    {1, 576, 576},
      {1, 6144, 4096}, {3, 130, 1032}, {.m = 2, .n = 64, .k = 1024, .pad_a = 8, .pad_b = 8},
      {1, 40000, 96},  {1, 96, 16384}};
  AddAddends(job.kernel.spec(), 320, 1000, shapes);
  Run(job, shapes, report);
}

}  // namespace tilewright::gpu_check
