#include <array>

#include "artifact/spec_checks.h"
#include "ops/attention/cuda/family_checks.h"
#include "tilewright/cuda/attention_params.h"

namespace tilewright {
namespace {

constexpr int kMaxHeads = 8;  // of a CTA: of more, its shared memory leaves no room for a second

std::optional<Rejection> CheckTile(const KernelSpec& s) {
  constexpr std::array kSplits{64, 128, 256, 512};
  if (auto no = CheckRange("tile_m", s.tile_m, 1, kMaxHeads)) return no;
  if (auto no = CheckOneOf("tile_n", s.tile_n, kSplits)) return no;
  // As many threads share a position as make it four warps.
  const int positions = s.type_b == DataType::kF32 ? 32 : 64;
  if (auto no = CheckRange("tile_k", s.tile_k, positions, positions)) return no;
  return CheckRange("warps", s.warps, 4, 4);
}

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (auto no = CheckPlainFloat("type_a", s.type_a)) return no;
  if (auto no = CheckPlainFloat("type_b", s.type_b)) return no;
  if (auto no = CheckTile(s)) return no;
  if (auto no = CheckHeadDim(s)) return no;
  return CheckAttentionRest(s);
}

KernelLaunchShape LaunchShape(const KernelSpec& s) {
  const auto element = static_cast<int>(BytesOf(s.type_b, 1));
  return {.threads = s.warps * 32u,
          .dynamic_smem_bytes =
              cuda::AttentionSplitSmem(s.params[0], s.tile_k, element, 32 * s.warps, s.tile_m)};
}

/// Splits of 64 positions keep a GPU busy with one sequence of a chat; those of 256 leave less to
/// fold, and are those of the guarantee of batch invariance. Caches of f32 are rare.
std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  for (const DataType q : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    for (const DataType cache : {DataType::kBF16, DataType::kF16, DataType::kF32}) {
      for (const int head_dim : {64, 128}) {
        for (const int split : {64, 256}) {
          if (split == 64 && cache == DataType::kF32) continue;
          KernelSpec spec;
          spec.family = "attention_split";
          spec.arch = arch;
          spec.type_a = spec.type_d = q;
          spec.type_b = cache;
          spec.order_a = spec.order_b = Order::kRowMajor;
          spec.tile_m = kMaxHeads;
          spec.tile_n = static_cast<std::uint16_t>(split);
          spec.tile_k = cache == DataType::kF32 ? 32 : 64;
          spec.warps = 4;
          spec.params[0] = head_dim;
          specs.push_back(spec);
        }
      }
    }
  }
  return specs;
}

}  // namespace

KernelFamily AttentionSplitFamily() {
  return {.name = "attention_split",
          .source = "ops/attention/cuda/attention_split.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchShape,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

}  // namespace tilewright
