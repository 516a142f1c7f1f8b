#include "ops/gemm/cuda/gemm_qr/families.h"

#include <array>
#include <cstdint>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemm_qr/layout.h"
#include "ops/gemm/cuda/gemm_qw/families.h"
#include "tilewright/cuda/gemm_qr_params.h"

namespace tilewright {
namespace {

constexpr int kWarps = cuda::kGemmQrWarps + cuda::kGemmQrStoringWarps;
constexpr std::uint32_t kRegistersOfSm = 65536;

std::uint32_t SmemBytes(const KernelSpec& s) {
  const TypeInfo& weight = GetTypeInfo(s.type_b);
  return static_cast<std::uint32_t>(tw::GemmQrLayout::Of({.block_bytes = weight.block_bytes,
                                                          .block_elements = weight.block_elements,
                                                          .tile_m = s.tile_m,
                                                          .tile_n = s.tile_n,
                                                          .stages = s.stages})
                                        .bytes);
}

std::optional<Rejection> CheckTile(const KernelSpec& s) {
  constexpr std::array kRows{8, 16};
  constexpr std::array kColumns{16, 32};
  if (auto no = CheckOneOf("tile_m", s.tile_m, kRows)) return no;
  if (auto no = CheckOneOf("tile_n", s.tile_n, kColumns)) return no;
  if (auto no = CheckRange("tile_k", s.tile_k, cuda::kGemmQTileK, cuda::kGemmQTileK)) return no;
  if (auto no = CheckRange("stages", s.stages, 2, 8)) return no;
  if (auto no = CheckRange("warps", s.warps, kWarps, kWarps)) return no;
  if (s.epilogue == SpecEpilogue::kSwiGlu && s.tile_n < 32) {
    return Reject(Reason::kShape, Format("tile_n = {}", s.tile_n), "32 with the epilogue swiglu");
  }
  if (s.split_k != 0 || s.cluster_m != 0 || s.cluster_n != 0 || s.params != decltype(s.params){}) {
    return Reject(Reason::kShape, "a field that gemm_qr does not use is set",
                  "split_k, cluster_m, cluster_n, param0 to param3 = 0");
  }
  return std::nullopt;
}

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckGemmQwTypes(s)) return no;
  if (auto no = CheckTile(s)) return no;
  if (SmemBytes(s) > MaxSmemBytes(s.arch)) {
    return Reject(Reason::kWorkspace, Format("{} bytes of shared memory", SmemBytes(s)),
                  Format("at most {} on {}", MaxSmemBytes(s.arch), s.arch.ToString()));
  }
  return std::nullopt;
}

KernelLaunchShape Launch(const KernelSpec& spec) {
  return {.threads = spec.warps * 32u, .dynamic_smem_bytes = SmemBytes(spec)};
}

ResourceLimits Limits(const KernelSpec& spec) {
  return {.max_registers = kRegistersOfSm / (spec.warps * 32u) / 8 * 8};
}

/// Those of others took as long as, or longer than, kernels of gemm_q. Those of q6_k, which have not been timed, are as
/// many instructions as those of q5_k.
constexpr bool InCatalog(DataType weight) {
  return weight == DataType::kQ4_K || weight == DataType::kQ5_K || weight == DataType::kQ6_K;
}

std::vector<KernelSpec> Catalog(CudaArch arch) { return GemmQCatalog(arch, &GemmQrSpecsForWeight); }

}  // namespace

KernelFamily GemmQrFamily() {
  return {.name = kGemmQr,
          .launch_abi = 1,
          .source = "ops/gemm/cuda/gemm_qr/gemm_qr.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &Launch,
          .limits = &Limits,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

Status AddGemmQrFamily(KernelFamilies& families) { return families.Add(GemmQrFamily()); }

std::vector<KernelSpec> GemmQrSpecsForWeight(DataType weight, CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (!InCatalog(weight)) return specs;
  const auto add = [&](DataType result, std::uint16_t tile_m, SpecEpilogue epilogue) {
    KernelSpec spec = GemmQSpecOf(kGemmQr, weight, result, arch, epilogue);
    spec.tile_m = tile_m;
    spec.tile_n = 32;
    spec.warps = kWarps;
    // As many as there is room for.
    for (spec.stages = 8; spec.stages > 2 && Check(spec); --spec.stages) {
    }
    if (!Check(spec)) specs.push_back(spec);
  };
  for (const std::uint16_t tile_m : {std::uint16_t{8}, std::uint16_t{16}}) {
    add(DataType::kBF16, tile_m, SpecEpilogue::kAdd);
    add(DataType::kBF16, tile_m, SpecEpilogue::kSwiGlu);
    add(DataType::kF32, tile_m, SpecEpilogue::kAdd);  // logits
  }
  return specs;
}

}  // namespace tilewright
