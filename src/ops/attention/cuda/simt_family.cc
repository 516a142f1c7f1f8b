#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/attention/cuda/family_checks.h"
#include "tilewright/cuda/attention_simt_params.h"

namespace tilewright {
namespace {

constexpr int kTile = 32;  // positions: one of each lane
constexpr int kHeads =
    4;  // of a CTA: of more, the registers of a thread leave no room for a second
constexpr int kWarps = 8;

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (auto no = CheckPlainFloat("type_a", s.type_a)) return no;
  if (auto no = CheckPlainFloat("type_b", s.type_b)) return no;
  if (auto no = CheckRange("tile_m", s.tile_m, kHeads, kHeads)) return no;
  if (auto no = CheckRange("tile_n", s.tile_n, kTile, kTile)) return no;
  if (auto no = CheckRange("tile_k", s.tile_k, 0, 0)) return no;
  if (auto no = CheckRange("warps", s.warps, 1, kWarps)) return no;
  if (auto no = CheckRange("param0", s.params[0], 0, 0)) return no;
  return CheckAttentionRest(s);
}

KernelLaunchShape LaunchShape(const KernelSpec& s) {
  return {.threads = s.warps * 32u,
          .dynamic_smem_bytes =
              cuda::AttentionSimtSmem(cuda::kMaxAttentionHeadDim, s.tile_n, s.tile_m, s.warps)};
}

/// One kernel for every size of heads.
std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  for (const DataType q : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    for (const DataType cache : {DataType::kBF16, DataType::kF16, DataType::kF32}) {
      KernelSpec spec;
      spec.family = "attention_simt";
      spec.arch = arch;
      spec.type_a = spec.type_d = q;
      spec.type_b = cache;
      spec.order_a = spec.order_b = Order::kRowMajor;
      spec.tile_m = kHeads;
      spec.tile_n = kTile;
      spec.warps = kWarps;
      specs.push_back(spec);
    }
  }
  return specs;
}

}  // namespace

KernelFamily AttentionSimtFamily() {
  return {.name = "attention_simt",
          .launch_abi = 2,
          .source = "ops/attention/cuda/attention_simt.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchShape,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

}  // namespace tilewright
