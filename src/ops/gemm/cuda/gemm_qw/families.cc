#include "ops/gemm/cuda/gemm_qw/families.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemm_qw/layout.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "tilewright/cuda/gemm_qw_params.h"

namespace tilewright {
namespace {

constexpr int kRegistersOfSm = 65536;

int PartsOf(const KernelSpec& spec) { return spec.params[0]; }
int CtasOf(const KernelSpec& spec) { return spec.params[1]; }
/// Warpgroups that multiply, and the one that fills the ring.
int WarpsFor(const KernelSpec& spec) { return 4 * (spec.tile_n / 64 * PartsOf(spec) + 1); }

int TileBytes(DataType weight) {
  const TypeInfo& type = GetTypeInfo(weight);
  return cuda::GemmQwTileBytes(type.block_bytes, type.block_elements);
}
/// Whether there is a ScaledLine for its k-tiles. The copy engine begins at multiples of 16 bytes of a row only:
/// elsewhere it raises an illegal instruction (H200, driver 580.159), whatever the type of the map. Of q6_k it brings
/// some bytes in front of a k-tile.
bool HasKTiles(DataType weight) {
  return TileBytes(weight) % cuda::kGemmQwBoxAlignment == 0 || weight == DataType::kQ6_K;
}

std::uint32_t SmemBytes(const KernelSpec& s) {
  const TypeInfo& weight = GetTypeInfo(s.type_b);
  return static_cast<std::uint32_t>(tw::GemmQwLayout::Of({.block_bytes = weight.block_bytes,
                                                          .block_elements = weight.block_elements,
                                                          .tile_m = s.tile_m,
                                                          .tile_n = s.tile_n,
                                                          .parts = PartsOf(s),
                                                          .stages = s.stages})
                                        .bytes);
}

std::optional<Rejection> CheckTile(const KernelSpec& s) {
  constexpr std::array kRows{16, 32, 64};
  constexpr std::array kColumns{64, 128, 192, 256};
  constexpr std::array kParts{1, 2, 4};
  if (auto no = CheckOneOf("tile_m", s.tile_m, kRows)) return no;
  if (auto no = CheckOneOf("tile_n", s.tile_n, kColumns)) return no;
  if (auto no = CheckRange("tile_k", s.tile_k, cuda::kGemmQTileK, cuda::kGemmQTileK)) return no;
  if (auto no = CheckOneOf("param0", PartsOf(s), kParts)) return no;
  if (auto no = CheckRange("stages", s.stages, 2, 8)) return no;
  if (auto no = CheckRange("warps", s.warps, WarpsFor(s), WarpsFor(s))) return no;
  if (auto no = CheckRange("param1", CtasOf(s), 1, 2)) return no;
  constexpr int kMostWarps = 32;
  if (s.warps > kMostWarps) {
    return Reject(Reason::kShape, Format("{} warps", s.warps), Format("at most {}", kMostWarps));
  }
  if (s.split_k != 0 || s.cluster_m != 0 || s.cluster_n != 0 || s.params[2] != 0 ||
      s.params[3] != 0) {
    return Reject(Reason::kShape, "a field that gemm_qw does not use is set",
                  "split_k, cluster_m, cluster_n, param2, param3 = 0");
  }
  return std::nullopt;
}

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckGemmQwTypes(s)) return no;
  if (auto no = CheckTile(s)) return no;
  // Of each CTA that a multiprocessor is to hold 1 KiB is taken.
  const std::uint32_t most =
      CtasOf(s) == 1 ? MaxSmemBytes(s.arch) : (MaxSmemBytes(s.arch) - 1024) / 2;
  if (SmemBytes(s) > most) {
    return Reject(Reason::kWorkspace, Format("{} bytes of shared memory", SmemBytes(s)),
                  Format("at most {} for {} CTAs on {}", most, CtasOf(s), s.arch.ToString()));
  }
  return std::nullopt;
}

KernelLaunchShape Launch(const KernelSpec& spec) {
  return {.threads = spec.warps * 32u, .dynamic_smem_bytes = SmemBytes(spec)};
}

ResourceLimits Limits(const KernelSpec& spec) {
  const int fit = kRegistersOfSm / (spec.warps * 32 * CtasOf(spec)) / 8 * 8;
  return {.max_registers = static_cast<std::uint32_t>(std::min(fit, 255))};
}

/// Alone on a multiprocessor, with as many stages as there is room for: with two, one is read while the
/// other is multiplied, and nothing is ahead. Of 64 rows two warpgroups multiply: four have no registers
/// for their sums and for what they unpack.
constexpr int kLeastStages = 3, kMostStages = 8;
constexpr std::array kShapes = {GemmQwTile{16, 128, 2}, GemmQwTile{32, 128, 2},
                                GemmQwTile{64, 128, 1}};
/// Of formats of which files are made: x is read from the L2 for more rows of W at a time.
constexpr std::array kHigh = {GemmQwTile{32, 192, 1}, GemmQwTile{32, 256, 1}};

bool HasHigh(DataType weight) {
  return weight == DataType::kQ8_0 || weight == DataType::kQ4_K || weight == DataType::kQ6_K;
}

std::vector<KernelSpec> Catalog(CudaArch arch) { return GemmQCatalog(arch, &GemmQwSpecsForWeight); }

}  // namespace

std::optional<Rejection> CheckGemmQwTypes(const KernelSpec& s) {
  if (s.arch != CudaArch{90, 'a'}) return Reject(Reason::kDevice, s.arch.ToString(), "sm_90a");
  if (auto no = CheckGemmQTypes(s)) return no;
  if (HasKTiles(s.type_b)) return std::nullopt;
  return Reject(Reason::kType,
                Format("type_b = {}, {} values of {} bytes", DataTypeName(s.type_b),
                       cuda::kGemmQTileK, TileBytes(s.type_b)),
                Format("a multiple of {} bytes, or q6_k", cuda::kGemmQwBoxAlignment));
}

KernelFamily GemmQwFamily() {
  return {.name = kGemmQw,
          .launch_abi = 1,
          .source = "ops/gemm/cuda/gemm_qw/gemm_qw.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &Launch,
          .limits = &Limits,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

Status AddGemmQwFamily(KernelFamilies& families) { return families.Add(GemmQwFamily()); }

std::optional<KernelSpec> GemmQwSpec(DataType weight, DataType result, CudaArch arch,
                                     const GemmQwTile& tile, SpecEpilogue epilogue) {
  KernelSpec spec = GemmQSpecOf(kGemmQw, weight, result, arch, epilogue);
  spec.tile_m = static_cast<std::uint16_t>(tile.m);
  spec.tile_n = static_cast<std::uint16_t>(tile.n);
  spec.params = {tile.parts, 1, 0, 0};
  spec.warps = static_cast<std::uint16_t>(WarpsFor(spec));
  for (int stages = kMostStages; stages >= kLeastStages; --stages) {
    spec.stages = static_cast<std::uint8_t>(stages);
    if (!Check(spec)) return spec;
  }
  return std::nullopt;
}

std::vector<KernelSpec> GemmQwSpecsForWeight(DataType weight, CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch != CudaArch{90, 'a'} || !HasGemvCodes(weight)) return specs;
  if (!HasKTiles(weight)) return specs;
  const auto add = [&](DataType result, const GemmQwTile& tile, SpecEpilogue epilogue) {
    if (const auto spec = GemmQwSpec(weight, result, arch, tile, epilogue)) specs.push_back(*spec);
  };
  std::vector<GemmQwTile> shapes(kShapes.begin(), kShapes.end());
  if (HasHigh(weight)) shapes.insert(shapes.end(), kHigh.begin(), kHigh.end());
  for (const GemmQwTile& tile : shapes) {
    add(DataType::kBF16, tile, SpecEpilogue::kAdd);
    add(DataType::kBF16, tile, SpecEpilogue::kSwiGlu);
    // Logits.
    if (tile.m == 32) add(DataType::kF32, tile, SpecEpilogue::kAdd);
  }
  return specs;
}

}  // namespace tilewright
