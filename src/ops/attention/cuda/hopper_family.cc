#include <algorithm>
#include <array>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/attention/cuda/family_checks.h"
#include "tilewright/cuda/attention_params.h"

namespace tilewright {
namespace {

constexpr CudaArch kHopper{90, 'a'};

std::uint32_t SmemBytes(const KernelSpec& s) {
  return cuda::AttentionHopperSmem(s.params[0], s.tile_m, s.tile_n, s.stages);
}

std::optional<Rejection> Check(const KernelSpec& s) {
  if (s.arch != kHopper) return Reject(Reason::kDevice, s.arch.ToString(), "sm_90a (wgmma)");
  if (auto no = CheckRowKernel(s)) return no;
  if (s.type_b != DataType::kBF16 && s.type_b != DataType::kF16)
    return Reject(Reason::kType, Format("type_b = {}", DataTypeName(s.type_b)), "bf16 or f16");
  if (s.type_a != s.type_b) {
    return Reject(Reason::kType,
                  Format("{} over {}", DataTypeName(s.type_a), DataTypeName(s.type_b)),
                  "q of the cache's type");
  }
  if (auto no = CheckHeadDim(s)) return no;
  constexpr std::array kWarps{12, 16};
  constexpr std::array kTiles{64, 128};
  if (auto no = CheckOneOf("warps", s.warps, kWarps)) return no;
  const int vectors = 16 * (s.warps - 4);
  if (auto no = CheckRange("tile_m", s.tile_m, vectors, vectors)) return no;
  if (auto no = CheckOneOf("tile_n", s.tile_n, kTiles)) return no;
  if (auto no = CheckRange("tile_k", s.tile_k, 0, 0)) return no;
  if (auto no = CheckRange("stages", s.stages, 2, 8)) return no;
  if (auto no = CheckRange("param1", s.params[1], 1, 2)) return no;
  if (auto no = CheckRange("param2", s.params[2], 0, 1)) return no;
  KernelSpec rest = s;
  rest.stages = 0;
  rest.params[1] = rest.params[2] = 0;
  if (auto no = CheckAttentionRest(rest)) return no;
  // Of three warpgroups, each thread has 160 registers.
  const int accumulators = (s.tile_n + s.params[0]) / 2;
  if (s.warps == 16 && accumulators > 64) {
    return Reject(Reason::kShape, Format("{} accumulators a thread", accumulators),
                  "at most 64 with 16 warps");
  }
  const std::uint32_t most = MaxSmemBytes(s.arch);
  if (SmemBytes(s) <= most) return std::nullopt;
  return Reject(Reason::kWorkspace, Format("{} bytes of shared memory", SmemBytes(s)),
                Format("at most {}", most));
}

KernelLaunchShape LaunchShape(const KernelSpec& s) {
  return {.threads = s.warps * 32u, .dynamic_smem_bytes = SmemBytes(s)};
}

// Registers at entry; a spill serialises wgmma and costs most of the speed.
ResourceLimits Limits(const KernelSpec& s) {
  return {.max_registers = std::min(255u, 65536u / (32u * s.warps) / 8u * 8u)};
}

/// As timed on an H200: with heads of 64 elements, where exponentials take longer than products,
/// taking turns gained 5 %; with 128 it lost 3 %. Tiles of 64 keys lost 2 to 10 %.
std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch != kHopper) return specs;
  for (const DataType type : {DataType::kBF16, DataType::kF16}) {
    for (const int head_dim : {64, 128}) {
      KernelSpec spec;
      spec.family = "attention_hopper";
      spec.arch = arch;
      spec.type_a = spec.type_b = spec.type_d = type;
      spec.order_a = spec.order_b = Order::kRowMajor;
      spec.warps = 12;
      spec.tile_m = spec.tile_n = 128;
      spec.stages = 2;
      spec.params = {head_dim, 2, head_dim == 64 ? 1 : 0, 0};
      specs.push_back(spec);
    }
  }
  return specs;
}

}  // namespace

KernelFamily AttentionHopperFamily() {
  return {.name = "attention_hopper",
          .source = "ops/attention/cuda/attention_hopper.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchShape,
          .limits = &Limits,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

}  // namespace tilewright
