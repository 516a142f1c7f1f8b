#include <algorithm>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/gemv/gemv_checks.h"
#include "tilewright/cuda/gemv_params.h"

namespace tilewright {
namespace {

constexpr int kMaxK = 16384;  ///< of x in f32 beside a ring; twice as many in 16 bits
constexpr int kMaxWarps = 16, kMaxSpans = 8, kMaxStages = 8;

int SpansOf(const KernelSpec& s) { return s.params[0]; }

bool IsStreamed(DataType type) { return type == DataType::kBF16 || type == DataType::kF16; }

std::uint32_t SmemOf(const KernelSpec& s, int k) {
  return cuda::GemvStreamSmem(k, static_cast<int>(BytesOf(s.type_a, 1)), s.warps, SpansOf(s),
                              s.stages, GemvNormalises(s));
}

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckGemvTypes(s, &IsStreamed, "bf16 or f16")) return no;
  if (auto no = CheckRange("tile_m", s.tile_m, 1, 1)) return no;
  if (auto no = CheckRange("warps", s.warps, 1, kMaxWarps)) return no;
  if (auto no = CheckRange("tile_n", s.tile_n, s.warps, s.warps)) return no;
  if (auto no = CheckRange("stages", s.stages, 2, kMaxStages)) return no;
  if (auto no = CheckRange("param0", SpansOf(s), 1, kMaxSpans)) return no;
  if (auto no = CheckRange("param1", s.params[1], 1, 2)) return no;
  if (auto no = CheckRange("param2", s.params[2], 0, 1)) return no;
  if (s.tile_k != 0 || s.split_k != 0 || s.cluster_m != 0 || s.cluster_n != 0 || s.params[3] != 0) {
    return Reject(Reason::kShape, "a field that gemv_stream does not use is set",
                  "tile_k, split_k, cluster_m, cluster_n, param3 = 0");
  }
  const std::uint32_t smem = SmemOf(s, GemvStreamMaxK(s)) * s.params[1];
  if (smem > MaxSmemBytes(s.arch)) {
    return Reject(Reason::kWorkspace, Format("{} bytes of shared memory", smem),
                  Format("at most {} on {}", MaxSmemBytes(s.arch), s.arch.ToString()));
  }
  return std::nullopt;
}

KernelLaunchShape LaunchShape(const KernelSpec& s) {
  return {.threads = s.warps * 32u, .dynamic_smem_bytes = SmemOf(s, GemvStreamMaxK(s))};
}

ResourceLimits Limits(const KernelSpec& s) {
  const int fit = 65536 / (s.warps * 32 * s.params[1]) / 8 * 8;
  return {.max_registers = static_cast<std::uint32_t>(std::min(fit, 255))};
}

KernelSpec MakeSpec(CudaArch arch, DataType x, DataType weight) {
  KernelSpec spec;
  spec.family = "gemv_stream";
  spec.arch = arch;
  spec.type_a = spec.type_d = x;
  spec.type_b = weight;
  spec.order_a = Order::kRowMajor;
  spec.order_b = Order::kColMajor;
  spec.tile_m = 1;
  // Three of four stages of 2 KB for each warp keep 96 KB on their way on an SM: three times what
  // hides the latency of an H200's memory. Smaller rings where there is less shared memory.
  spec.warps = spec.tile_n = 16;
  const std::uint32_t smem = MaxSmemBytes(arch);
  spec.stages = smem < 200 * 1024 && smem > 100 * 1024 ? 3 : 4;
  spec.params = {smem > 100 * 1024 ? 4 : 1, 1, 0, 0};
  return spec;
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  for (const DataType weight : {DataType::kBF16, DataType::kF16}) {
    const std::vector<KernelSpec> own = GemvStreamSpecs(weight, arch);
    specs.insert(specs.end(), own.begin(), own.end());
  }
  return specs;
}

}  // namespace

int GemvStreamMaxK(const KernelSpec& spec) {
  return spec.type_a == DataType::kF32 || GemvNormalises(spec) ? kMaxK : 2 * kMaxK;
}

KernelFamily GemvStreamFamily() {
  return {.name = "gemv_stream",
          .source = "ops/gemm/cuda/gemv/gemv_stream.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchShape,
          .limits = &Limits,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

std::vector<KernelSpec> GemvStreamSpecs(DataType weight, CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80 || !IsStreamed(weight)) return specs;
  for (const DataType x : {DataType::kF32, DataType::kBF16}) {
    const KernelSpec plain = MakeSpec(arch, x, weight);
    KernelSpec add = plain, gated = plain, logits = plain;
    add.epilogue = SpecEpilogue::kAdd;
    add.type_c = x;
    gated.epilogue = SpecEpilogue::kSwiGlu;
    logits.type_d = DataType::kF32;
    specs.insert(specs.end(), {plain, add, gated});
    if (x == DataType::kF32) continue;
    specs.push_back(logits);
    for (KernelSpec spec : {plain, gated, logits}) {
      spec.params[2] = 1;  // of rows that are normalised first
      if (!Check(spec)) specs.push_back(spec);
    }
  }
  return specs;
}

}  // namespace tilewright
