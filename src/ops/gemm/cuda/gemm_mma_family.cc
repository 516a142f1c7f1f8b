#include <algorithm>
#include <array>
#include <bit>

#include "core/text.h"
#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/family_checks.h"
#include "tilewright/types.h"

namespace tilewright {
namespace {

// The ring, and in its place at the end the tile of D, or of f32 where C is added.
std::uint32_t SmemBytes(const KernelSpec& spec) {
  const std::uint32_t ring = spec.stages * (spec.tile_m + spec.tile_n) * spec.tile_k * 2u;
  const DataType staged = spec.epilogue == SpecEpilogue::kAdd ? DataType::kF32 : spec.type_d;
  const auto element = static_cast<std::uint32_t>(BytesOf(staged, 1));
  return std::max(ring, spec.tile_m * spec.tile_n * element);
}

std::optional<Rejection> CheckTile(const KernelSpec& spec) {
  constexpr std::array kExtents{16, 32, 64, 128, 256};
  constexpr std::array kDepths{32, 64, 128};
  constexpr std::array kWarps{1, 2, 4, 8};
  if (auto no = CheckOneOf("tile_m", spec.tile_m, kExtents)) return no;
  if (auto no = CheckOneOf("tile_n", spec.tile_n, kExtents)) return no;
  if (auto no = CheckOneOf("tile_k", spec.tile_k, kDepths)) return no;
  if (auto no = CheckOneOf("warps", spec.warps, kWarps)) return no;
  const int rows = spec.params[0];
  if (auto no = CheckOneOf("param0", rows, kWarps)) return no;
  if (rows > spec.warps || spec.tile_m % (16 * rows) != 0 ||
      spec.tile_n % (16 * (spec.warps / rows)) != 0) {
    return Rejection{Reason::kShape,
                     Format("{} warps, {} over the rows, of a tile of {} x {}", spec.warps, rows,
                            spec.tile_m, spec.tile_n),
                     "a multiple of 16 x 16 for each warp"};
  }
  // More accumulators leave no registers for the fragments.
  const int accumulators = spec.tile_m * spec.tile_n / (32 * spec.warps);
  if (accumulators > 128) {
    return Rejection{Reason::kShape, Format("{} accumulators a thread", accumulators),
                     "at most 128"};
  }
  // Each thread copies chunks of one number: a line has at most as many as there are threads.
  const int chunks = std::max({spec.tile_k, spec.tile_m, spec.tile_n}) / 8;
  if (chunks > 32 * spec.warps) {
    return Rejection{Reason::kShape,
                     Format("lines of {} chunks, {} threads", chunks, 32 * spec.warps),
                     "a thread for each chunk of a line"};
  }
  return std::nullopt;
}

std::optional<Rejection> Check(const KernelSpec& spec) {
  if (spec.arch.number < 80) {
    return Rejection{Reason::kDevice, spec.arch.ToString(), "sm_80 or newer"};
  }
  if (auto no = CheckGemmTypes(spec)) return no;
  if (auto no = CheckTile(spec)) return no;
  if (auto no = CheckRange("stages", spec.stages, 2, 8)) return no;
  if (auto no = CheckRange("split_k", spec.split_k, 0, 0)) return no;
  if (auto no = CheckRange("cluster_m", spec.cluster_m, 0, 0)) return no;
  if (auto no = CheckRange("cluster_n", spec.cluster_n, 0, 0)) return no;
  if (auto no = CheckRange("param1", spec.params[1], 1, 64)) return no;
  if (auto no = CheckRange("param2", spec.params[2], 0, 0)) return no;
  if (auto no = CheckRange("param3", spec.params[3], 0, 0)) return no;
  if (SmemBytes(spec) > MaxSmemBytes(spec.arch)) {
    return Rejection{Reason::kWorkspace, Format("{} bytes of shared memory", SmemBytes(spec)),
                     Format("at most {} on {}", MaxSmemBytes(spec.arch), spec.arch.ToString())};
  }
  return std::nullopt;
}

KernelLaunchShape Launch(const KernelSpec& spec) {
  return {.threads = 32u * spec.warps, .dynamic_smem_bytes = SmemBytes(spec)};
}

ResourceLimits Limits(const KernelSpec&) { return {.max_registers = 255}; }

struct Tile {
  std::uint16_t m, n, k, warps;
  std::uint8_t stages;
  std::int32_t warps_m;
};
// By shape: two for large outputs (64 x 64 a warp; on an H200 the first is faster, where shared
// memory is short two CTAs of the second fit a multiprocessor), then one for medium ones, and two
// that waste little on a few rows.
constexpr Tile kLarge{128, 128, 64, 4, 3, 2};
constexpr Tile kLargeLean{128, 128, 32, 4, 4, 2};
constexpr Tile kMedium{64, 64, 64, 4, 4, 2};
constexpr Tile kRows32{32, 128, 64, 4, 4, 1};
constexpr Tile kRows16{16, 64, 64, 4, 6, 1};
constexpr std::array kTiles{kLarge, kLargeLean, kMedium, kRows32, kRows16};

struct Types {
  DataType operands, c, d;
};

KernelSpec MakeSpec(CudaArch arch, const Types& types, Order a, Order b, const Tile& tile) {
  return {.family = kGemmMma,
          .arch = arch,
          .type_a = types.operands,
          .type_b = types.operands,
          .type_c = types.c,
          .type_d = types.d,
          .order_a = a,
          .order_b = b,
          .epilogue = types.c == DataType::kNone ? SpecEpilogue::kNone : SpecEpilogue::kAdd,
          .stages = tile.stages,
          .tile_m = tile.m,
          .tile_n = tile.n,
          .tile_k = tile.k,
          .warps = tile.warps,
          .params = {tile.warps_m, 8, 0, 0}};
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  constexpr Types kBF16{DataType::kBF16, DataType::kNone, DataType::kBF16};
  constexpr Types kF16{DataType::kF16, DataType::kNone, DataType::kF16};
  constexpr Types kBF16ToF32{DataType::kBF16, DataType::kNone, DataType::kF32};
  constexpr Types kBF16Add{DataType::kBF16, DataType::kBF16, DataType::kBF16};
  constexpr auto kT = Order::kRowMajor;
  constexpr auto kN = Order::kColMajor;
  std::vector<KernelSpec> specs;
  for (const auto& [a, b] : {std::pair{kT, kN}, {kN, kT}, {kN, kN}, {kT, kT}}) {
    for (const Tile& tile : kTiles) specs.push_back(MakeSpec(arch, kBF16, a, b, tile));
    specs.push_back(MakeSpec(arch, kF16, a, b, kLarge));
  }
  for (const Tile& tile : {kMedium, kRows16}) {
    specs.push_back(MakeSpec(arch, kF16, kT, kN, tile));
  }
  for (const Tile& tile : {kLarge, kMedium, kRows16}) {
    specs.push_back(MakeSpec(arch, kBF16ToF32, kT, kN, tile));
    specs.push_back(MakeSpec(arch, kBF16Add, kT, kN, tile));
  }
  std::erase_if(specs, [](const KernelSpec& spec) { return Check(spec).has_value(); });
  return specs;
}

}  // namespace

KernelFamily GemmMmaFamily() {
  return {.name = kGemmMma,
          .revision = 2,
          .launch_abi = 2,
          .source = "ops/gemm/cuda/gemm_mma.cu",
          .files = {},
          .options = {},
          .check = Check,
          .launch = Launch,
          .limits = Limits,
          .catalog = Catalog,
          .waits_for_prerequisites = true};
}

}  // namespace tilewright
