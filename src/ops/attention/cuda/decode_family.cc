#include <array>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/attention/cuda/family_checks.h"
#include "tilewright/cuda/attention_params.h"

namespace tilewright {
namespace {

constexpr int kMaxHeads = 8;  // the columns of a product

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (s.type_a != DataType::kBF16 && s.type_a != DataType::kF16) {
    return Reject(Reason::kType, Format("type_a = {}", DataTypeName(s.type_a)), "bf16 or f16");
  }
  if (s.type_b != s.type_a) {
    return Reject(Reason::kType, Format("type_b = {}", DataTypeName(s.type_b)),
                  Format("{}, as type_a", DataTypeName(s.type_a)));
  }
  if (auto no = CheckHeadDim(s)) return no;
  constexpr std::array kWarps{2, 4, 8};
  if (auto no = CheckOneOf("warps", s.warps, kWarps)) return no;
  if (auto no = CheckRange("tile_m", s.tile_m, kMaxHeads, kMaxHeads)) return no;
  const int round = cuda::AttentionDecodeRound(s.warps);
  if (auto no = CheckRange("tile_n", s.tile_n, round, round)) return no;
  if (auto no = CheckRange("tile_k", s.tile_k, 0, 0)) return no;
  if (auto no = CheckRange("stages", s.stages, 1, 4)) return no;
  KernelSpec rest = s;
  rest.stages = 0;  // which no other family of this room has
  return CheckAttentionRest(rest);
}

KernelLaunchShape LaunchShape(const KernelSpec& s) {
  return {.threads = s.warps * 32u,
          .dynamic_smem_bytes = cuda::AttentionDecodeSmem(s.params[0], s.warps, s.stages)};
}

/// Two stages of four warps are three CTAs to a multiprocessor of an H100, each with half of its
/// ring on the way.
std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  for (const DataType type : {DataType::kBF16, DataType::kF16}) {
    for (const int head_dim : {64, 128}) {
      for (const int warps : {4, 8}) {
        KernelSpec spec;
        spec.family = "attention_decode";
        spec.arch = arch;
        spec.type_a = spec.type_b = spec.type_d = type;
        spec.order_a = spec.order_b = Order::kRowMajor;
        spec.tile_m = kMaxHeads;
        spec.tile_n = static_cast<std::uint16_t>(cuda::AttentionDecodeRound(warps));
        spec.stages = 2;
        spec.warps = static_cast<std::uint8_t>(warps);
        spec.params[0] = head_dim;
        specs.push_back(spec);
      }
    }
  }
  return specs;
}

}  // namespace

KernelFamily AttentionDecodeFamily() {
  return {.name = "attention_decode",
          .source = "ops/attention/cuda/attention_decode.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchShape,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

}  // namespace tilewright
