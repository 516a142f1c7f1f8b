#include "ops/gemm/cuda/gemm_chain/families.h"

#include <algorithm>
#include <cstdint>

#include "artifact/spec_checks.h"
#include "core/formats/formats.h"
#include "core/text.h"
#include "ops/gemm/cuda/gemm_qw/families.h"
#include "tilewright/cuda/gemm_q_params.h"

namespace tilewright {
namespace {

constexpr int kRegistersOfSm = 65536, kSchedulersOfSm = 4;
constexpr int kMostTileRows = 64;

int PartsOf(const KernelSpec& spec) { return spec.params[0]; }
/// Warpgroups that multiply, and the warp that fills the ring.
int WarpsFor(const KernelSpec& spec) { return 4 * (spec.tile_n / 64 * PartsOf(spec)) + 1; }

/// A ring as that of gemm_qw: with another way to fill it.
std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRange("warps", s.warps, WarpsFor(s), WarpsFor(s))) return no;
  if (s.params[1] != 0) {
    return Reject(Reason::kShape, "a field that gemm_chain does not use is set", "param1 = 0");
  }
  if (s.type_d != DataType::kBF16) {
    return Reject(Reason::kType, Format("type_d = {}", DataTypeName(s.type_d)), "bf16");
  }
  if (s.epilogue != SpecEpilogue::kAdd) {
    return Reject(Reason::kEpilogue, std::string(SpecEpilogueName(s.epilogue)), "add");
  }
  return GemmQwFamily().check(GemmQwSpecOf(s, s.epilogue));
}

KernelLaunchShape Launch(const KernelSpec& spec) {
  return {.threads = spec.warps * 32u,
          .dynamic_smem_bytes =
              GemmQwFamily().launch(GemmQwSpecOf(spec, spec.epilogue)).dynamic_smem_bytes};
}

/// Each scheduler has a quarter of the registers and its share of the warps, of which one has one more. Some formats
/// spill a register or two between products.
ResourceLimits Limits(const KernelSpec& spec) {
  const int warps = (spec.warps + kSchedulersOfSm - 1) / kSchedulersOfSm;
  const int fit = kRegistersOfSm / kSchedulersOfSm / (warps * 32) / 8 * 8;
  return {.max_registers = static_cast<std::uint32_t>(std::min(fit, 255)),
          .max_spill_bytes = 128,
          .max_stack_bytes = 64};
}

/// The kernel of chains that computes each product as a kernel of gemm_qw with the epilogue add does.
KernelSpec ChainSpecOf(const KernelSpec& product) {
  KernelSpec spec = product;
  spec.family = kGemmChain;
  spec.params[1] = 0;
  spec.warps = static_cast<std::uint16_t>(WarpsFor(spec));
  return spec;
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  for (const BlockFormat& format : kFormats) {
    for (const int rows : {32, 64}) {
      const std::vector<KernelSpec> own = GemmChainSpecs(format.type, arch, rows);
      specs.insert(specs.end(), own.begin(), own.end());
    }
  }
  return specs;
}

}  // namespace

KernelSpec GemmQwSpecOf(const KernelSpec& chain, SpecEpilogue epilogue) {
  KernelSpec spec = chain;
  spec.family = kGemmQw;
  spec.epilogue = epilogue;
  spec.type_c = epilogue == SpecEpilogue::kAdd ? chain.type_d : DataType::kNone;
  spec.params[1] = 1;
  spec.warps = static_cast<std::uint16_t>(4 * (chain.tile_n / 64 * PartsOf(chain) + 1));
  return spec;
}

KernelFamily GemmChainFamily() {
  return {.name = kGemmChain,
          .launch_abi = 1,
          .source = "ops/gemm/cuda/gemm_chain/gemm_chain.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &Launch,
          .limits = &Limits,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

Status AddGemmChainFamily(KernelFamilies& families) { return families.Add(GemmChainFamily()); }

std::vector<KernelSpec> GemmChainSpecs(DataType weight, CudaArch arch, int rows) {
  if (rows < 1 || rows > kMostTileRows) return {};
  // Weights of 4 to 5 bits leave room for more stages, so that a k-tile need not be large. The 96 registers of the
  // kernel with two parts are too few for the others.
  const GemmQwTile tile = rows > 32                   ? GemmQwTile{kMostTileRows, 128, 1}
                          : weight == DataType::kQ4_K ? GemmQwTile{32, 128, 2}
                                                      : GemmQwTile{32, 192, 1};
  const auto product = GemmQwSpec(weight, DataType::kBF16, arch, tile, SpecEpilogue::kAdd);
  if (!product) return {};
  return {ChainSpecOf(*product)};
}

}  // namespace tilewright
