#include <array>
#include <utility>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/attention/cuda/family_checks.h"
#include "tilewright/cuda/attention_params.h"

namespace tilewright {
namespace {

constexpr int kTile = 64;  // positions of a tile of keys

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (s.type_b != DataType::kBF16 && s.type_b != DataType::kF16) {
    return Reject(Reason::kType, Format("type_b = {}", DataTypeName(s.type_b)), "bf16 or f16");
  }
  // The exponents of f32 do not fit f16.
  if (s.type_a != s.type_b && (s.type_a != DataType::kF32 || s.type_b != DataType::kBF16)) {
    return Reject(Reason::kType,
                  Format("{} over {}", DataTypeName(s.type_a), DataTypeName(s.type_b)),
                  "q of the cache's type, or f32 over bf16");
  }
  constexpr std::array kWarps{4, 8};
  if (auto no = CheckOneOf("warps", s.warps, kWarps)) return no;
  if (auto no = CheckRange("tile_m", s.tile_m, 16 * s.warps, 16 * s.warps)) return no;
  if (auto no = CheckRange("tile_n", s.tile_n, kTile, kTile)) return no;
  if (auto no = CheckRange("tile_k", s.tile_k, 0, 0)) return no;
  if (auto no = CheckHeadDim(s)) return no;
  return CheckAttentionRest(s);
}

KernelLaunchShape LaunchShape(const KernelSpec& s) {
  return {.threads = s.warps * 32u,
          .dynamic_smem_bytes =
              cuda::AttentionMmaSmem(s.params[0], s.tile_n, s.tile_m, s.type_a == DataType::kF32)};
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  constexpr std::pair<DataType, DataType> kTypes[] = {{DataType::kBF16, DataType::kBF16},
                                                      {DataType::kF16, DataType::kF16},
                                                      {DataType::kF32, DataType::kBF16}};
  for (const auto& [q, cache] : kTypes) {
    for (const int head_dim : {64, 128}) {
      KernelSpec spec;
      spec.family = "attention_mma";
      spec.arch = arch;
      spec.type_a = spec.type_d = q;
      spec.type_b = cache;
      spec.order_a = spec.order_b = Order::kRowMajor;
      spec.warps = 4;
      spec.tile_m = static_cast<std::uint16_t>(16 * spec.warps);
      spec.tile_n = kTile;
      spec.params[0] = head_dim;
      specs.push_back(spec);
    }
  }
  return specs;
}

}  // namespace

KernelFamily AttentionMmaFamily() {
  return {.name = "attention_mma",
          .source = "ops/attention/cuda/attention_mma.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchShape,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

}  // namespace tilewright
