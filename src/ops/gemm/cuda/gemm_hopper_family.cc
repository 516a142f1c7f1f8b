#include <algorithm>
#include <array>
#include <bit>

#include "core/text.h"
#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/family_checks.h"
#include "tilewright/cuda/gemm_params.h"
#include "tilewright/types.h"

namespace tilewright {
namespace {

constexpr CudaArch kHopper{90, 'a'};

int Consumers(const KernelSpec& spec) { return spec.warps / 4 - 1; }

/// Warpgroups that multiply the same tile.
int Together(const KernelSpec& spec) {
  return spec.params[2] == cuda::kGemmHopperPingPong ? 1 : Consumers(spec);
}

bool SharesTiles(const KernelSpec& spec) { return spec.split_k > 1; }

std::uint32_t RingBytes(const KernelSpec& spec) {
  return spec.stages * (spec.tile_m + spec.tile_n) * kHopperTileK * 2u;
}

// Ring, two barriers a stage, what aligning the ring to 1024 may skip, and two pieces of 64 lines of D
// and the flag of divided tiles a consumer, or two barriers of a shared tile.
std::uint32_t SmemBytes(const KernelSpec& spec) {
  constexpr std::uint32_t kPieceBytes = 64 * 128;
  return RingBytes(spec) + spec.stages * 16u + 1024u +
         (SharesTiles(spec) ? 16u
                            : static_cast<std::uint32_t>(Consumers(spec)) * (2 * kPieceBytes + 16));
}

// Of a shared tile: eights of columns for every CTA, whose sums of f32 and elements of D take the
// place of the ring.
std::optional<Rejection> CheckSplits(const KernelSpec& spec) {
  constexpr std::array kSplits{0, 2, 4, 8};
  if (auto no = CheckOneOf("split_k", spec.split_k, kSplits)) return no;
  if (!SharesTiles(spec)) return std::nullopt;
  if (auto no = CheckRange("cluster_m", spec.cluster_m, 0, 0)) return no;
  const int columns = 8 * spec.split_k;
  if (spec.tile_n % columns != 0 || !std::has_single_bit(1u * spec.tile_n / columns)) {
    return Rejection{Reason::kShape, Format("tile_n = {} for {} CTAs", spec.tile_n, spec.split_k),
                     Format("a power of two times {}", columns)};
  }
  const std::int64_t sums = std::int64_t{spec.tile_m} * spec.tile_n * 4;
  const std::int64_t taken =
      sums + BytesOf(spec.type_d, std::int64_t{spec.tile_m} * spec.tile_n / spec.split_k);
  if (taken > RingBytes(spec)) {
    return Rejection{Reason::kWorkspace, Format("a ring of {} bytes", RingBytes(spec)),
                     Format("at least {} for the sums of a tile", taken)};
  }
  return std::nullopt;
}

// Tiles beside each other: CTAs fetch eights of rows of A, in lines of k.
std::optional<Rejection> CheckClusterN(const KernelSpec& spec) {
  constexpr std::array kClusters{0, 2, 4};
  if (auto no = CheckOneOf("cluster_n", spec.cluster_n, kClusters)) return no;
  if (spec.cluster_n == 0) return std::nullopt;
  if (spec.order_a != Order::kRowMajor) {
    return Rejection{Reason::kShape, "A column-major in a cluster of columns", "row-major"};
  }
  constexpr int kMostCtas = 8;  // of a cluster
  const int ctas =
      spec.cluster_n * std::max<int>(spec.split_k, 1) * std::max<int>(spec.cluster_m, 1);
  if (ctas <= kMostCtas) return std::nullopt;
  return Rejection{Reason::kShape, Format("{} CTAs in a cluster", ctas),
                   Format("at most {}", kMostCtas)};
}

// How tiles are divided among CTAs and warpgroups.
std::optional<Rejection> CheckWalk(const KernelSpec& spec) {
  if (auto no = CheckRange("param2", spec.params[2], cuda::kGemmHopperInTurn,
                           cuda::kGemmHopperPingPong)) {
    return no;
  }
  if (spec.params[2] == cuda::kGemmHopperInTurn) return std::nullopt;
  if (auto no = CheckRange("split_k", spec.split_k, 0, 0)) return no;
  if (spec.params[2] == cuda::kGemmHopperByShares || Consumers(spec) == 2) return std::nullopt;
  return Rejection{Reason::kShape, Format("{} warps", spec.warps),
                   "12: two warpgroups that multiply"};
}

std::optional<Rejection> CheckTile(const KernelSpec& spec) {
  constexpr std::array kWarps{8, 12};
  constexpr std::array kCtas{1, 2};
  constexpr std::array kClusters{0, 2, 4};
  if (auto no = CheckOneOf("warps", spec.warps, kWarps)) return no;
  const int rows = 64 * Together(spec);
  const std::array tiles_m{rows, 2 * rows};
  if (auto no = CheckOneOf("tile_m", spec.tile_m, tiles_m)) return no;
  if (auto no = CheckRange("tile_n", spec.tile_n, 32, 256)) return no;
  if (auto no = CheckRange("tile_k", spec.tile_k, kHopperTileK, kHopperTileK)) return no;
  if (auto no = CheckOneOf("cluster_m", spec.cluster_m, kClusters)) return no;
  if (auto no = CheckClusterN(spec)) return no;
  if (auto no = CheckOneOf("param1", spec.params[1], kCtas)) return no;
  // Parts of sums are 32 columns wide.
  const bool parts = SharesTiles(spec) || spec.params[2] == cuda::kGemmHopperByShares;
  const int box_b = spec.order_b != Order::kColMajor ? 64 * std::max<int>(spec.cluster_m, 1)
                    : parts || spec.tile_n > 208     ? 32
                                                     : 16;
  if (auto no = CheckSplits(spec)) return no;
  if (spec.tile_n % box_b != 0) {
    return Rejection{Reason::kShape, Format("tile_n = {}", spec.tile_n),
                     Format("a multiple of {}", box_b)};
  }
  const int accumulators = spec.tile_m * spec.tile_n / (128 * Together(spec));
  // Two warpgroups that multiply get 232 registers a thread of one CTA; the register file has 128 for two
  // CTAs of 8 warps, 80 for two of 12.
  const int most = spec.params[1] == 1 ? (spec.warps == 12 ? 192 : 128) : spec.warps == 8 ? 64 : 32;
  if (accumulators > most) {
    return Rejection{Reason::kShape, Format("{} accumulators a thread", accumulators),
                     Format("at most {}", most)};
  }
  return std::nullopt;
}

std::optional<Rejection> Check(const KernelSpec& spec) {
  if (spec.arch != kHopper) {
    return Rejection{Reason::kDevice, spec.arch.ToString(), "sm_90a (wgmma)"};
  }
  if (auto no = CheckGemmTypes(spec)) return no;
  if (auto no = CheckTile(spec)) return no;
  if (auto no = CheckRange("stages", spec.stages, 2, 12)) return no;
  if (auto no = CheckRange("param0", spec.params[0], 1, 64)) return no;
  if (auto no = CheckWalk(spec)) return no;
  if (auto no = CheckRange("param3", spec.params[3], 0, 0)) return no;
  // The system takes 1 KiB of each CTA out of the 228 of a multiprocessor.
  const std::uint32_t most = MaxSmemBytes(spec.arch) / spec.params[1] - (spec.params[1] - 1) * 512u;
  if (SmemBytes(spec) > most) {
    return Rejection{Reason::kWorkspace, Format("{} bytes of shared memory", SmemBytes(spec)),
                     Format("at most {} for {} CTAs a multiprocessor", most, spec.params[1])};
  }
  return std::nullopt;
}

KernelLaunchShape Launch(const KernelSpec& spec) {
  return {.threads = 32u * spec.warps, .dynamic_smem_bytes = SmemBytes(spec)};
}

// Registers at entry: what the register file has for the CTAs of a multiprocessor. A spill in the
// main loop serialises wgmma and costs most of the speed.
ResourceLimits Limits(const KernelSpec& spec) {
  const std::uint32_t threads = 32u * spec.warps * static_cast<std::uint32_t>(spec.params[1]);
  return {.max_registers = std::min(255u, 65536u / threads / 8u * 8u)};
}

struct Tile {
  std::uint16_t m, n, warps;
  std::uint8_t stages, cluster_m;
  std::int32_t band, ctas;
  std::uint16_t splits = 0;
  std::uint8_t cluster_n = 0;
  std::int32_t walk = cuda::kGemmHopperInTurn;
};
// As timed on an H200: the first three lead on large outputs, the next two where those leave
// multiprocessors idle in the last round; the last is for up to 64 rows. Bands are chosen so that
// the rows and the columns that 132 CTAs work on at a time are about as many.
constexpr Tile kWide{128, 256, 12, 4, 0, 16, 1};
constexpr Tile kWidePair{128, 256, 12, 4, 2, 8, 1};
constexpr Tile kHigh{256, 128, 12, 4, 0, 8, 1};
constexpr Tile kSquare{128, 128, 12, 6, 0, 16, 1};
constexpr Tile kWide192{128, 192, 12, 4, 0, 16, 1};
constexpr Tile kLowTwice{64, 128, 8, 3, 0, 16, 2};
constexpr Tile kLow64{64, 64, 8, 5, 0, 16, 2};
// Tiles that CTAs share, which lead up to 256 rows where tiles are few.
constexpr Tile kLow64Split2{64, 64, 8, 12, 0, 16, 1, 2};
constexpr Tile kLow64TwiceSplit2{64, 64, 8, 6, 0, 16, 2, 2};
constexpr Tile kLow64TwiceSplit4{64, 64, 8, 6, 0, 16, 2, 4};
constexpr Tile kNarrowTwiceSplit2{128, 64, 12, 4, 0, 16, 2, 2};
constexpr Tile kSquareSplit2{128, 128, 12, 6, 0, 16, 1, 2};
constexpr Tile kSquareSplit4{128, 128, 12, 6, 0, 16, 1, 4};
constexpr std::array kShared{kLow64Split2,       kLow64TwiceSplit2, kLow64TwiceSplit4,
                             kNarrowTwiceSplit2, kSquareSplit2,     kSquareSplit4};
// Tiles beside each other that have A in common.
constexpr Tile kSquareBeside4{128, 128, 12, 6, 0, 16, 1, 0, 4};

constexpr Tile Walk(Tile tile, cuda::GemmHopperWalk walk) {
  tile.walk = walk;
  return tile;
}
constexpr Tile Divided(const Tile& tile) { return Walk(tile, cuda::kGemmHopperByShares); }

// As timed on an H100 beside those above, 16 shapes of public models at 16 to 2048 rows: each of these is
// the fastest of all at several of the 128 products, and gone the rest is slower. 128 x 64 alone on a
// multiprocessor leads at 32 to 512 rows, pairs with a common tile of B from 256 rows on, odd widths where
// others fill the last round badly, divided tiles at 64 rows and where k is long, a tile for each warpgroup
// where it is short.
constexpr Tile kNarrow{128, 64, 12, 8, 0, 16, 1};
constexpr Tile kNarrowSplit2{128, 64, 12, 8, 0, 16, 1, 2};
constexpr Tile kNarrowPair{128, 64, 12, 8, 2, 16, 1};
constexpr Tile kLow{64, 128, 8, 8, 0, 16, 1};
constexpr Tile k96{128, 96, 12, 6, 0, 16, 1};
constexpr Tile kSquarePair{128, 128, 12, 6, 2, 16, 1};
constexpr Tile k160{128, 160, 12, 5, 0, 16, 1};
constexpr Tile k160Pair{128, 160, 12, 5, 2, 16, 1};
constexpr Tile k224Pair{128, 224, 12, 4, 2, 16, 1};
constexpr Tile kLow64Divided = Divided({64, 64, 8, 12, 0, 16, 1});
constexpr Tile kWide192Divided = Divided(kWide192);
constexpr Tile kWide192PairDivided = Divided({128, 192, 12, 4, 2, 16, 1});
constexpr std::array kFilling{kNarrow,
                              kNarrowSplit2,
                              kNarrowPair,
                              kLow,
                              k96,
                              k160,
                              k160Pair,
                              k224Pair,
                              kLow64Divided,
                              Divided(kSquarePair),
                              kWide192Divided,
                              kWide192PairDivided,
                              Divided(kWide),
                              Walk(kSquarePair, cuda::kGemmHopperPingPong)};

// As timed on an H100 beside all of those, 48 products of 16 to 4096 rows: each of these makes several of them
// faster. Clusters in both directions lead where 100 to 120 CTAs have a tile each, and the width of the tile
// is what gives as many; pairs of wide tiles in turn where k is short or the output large.
constexpr std::array kGrids{
    Tile{64, 48, 8, 12, 2, 16, 1, 0, 2},  Tile{64, 80, 8, 11, 4, 16, 1, 0, 2},
    Tile{64, 96, 8, 10, 4, 16, 1, 0, 2},  Tile{64, 160, 8, 7, 4, 16, 1, 0, 2},
    Tile{128, 96, 12, 6, 4, 16, 1, 0, 2}, Tile{128, 112, 12, 6, 4, 16, 1, 0, 2}};
constexpr std::array kPairs{Tile{64, 96, 8, 10, 2, 16, 1},
                            Tile{128, 80, 12, 7, 2, 16, 1},
                            Tile{128, 96, 12, 6, 2, 16, 1},
                            Tile{128, 112, 12, 6, 2, 16, 1},
                            Tile{128, 176, 12, 5, 2, 16, 1},
                            Tile{256, 128, 12, 4, 0, 16, 1, 0, 2},
                            Walk({128, 176, 12, 5, 2, 16, 1}, cuda::kGemmHopperPingPong),
                            Walk({128, 176, 12, 5, 0, 16, 1, 0, 2}, cuda::kGemmHopperPingPong),
                            Walk({128, 192, 12, 4, 0, 16, 1, 0, 2}, cuda::kGemmHopperPingPong)};
constexpr std::array kAlone{Tile{64, 80, 8, 11, 0, 16, 1}, Tile{64, 96, 8, 10, 0, 16, 1}};

struct Types {
  DataType operands, c, d;
};

KernelSpec MakeSpec(const Types& types, Order a, Order b, const Tile& tile) {
  return {.family = kGemmHopper,
          .arch = kHopper,
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
          .tile_k = kHopperTileK,
          .warps = tile.warps,
          .split_k = tile.splits,
          .cluster_m = tile.cluster_m,
          .cluster_n = tile.cluster_n,
          .params = {tile.band, tile.ctas, tile.walk, 0}};
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  constexpr Types kBF16{DataType::kBF16, DataType::kNone, DataType::kBF16};
  constexpr Types kF16{DataType::kF16, DataType::kNone, DataType::kF16};
  constexpr Types kBF16ToF32{DataType::kBF16, DataType::kNone, DataType::kF32};
  constexpr Types kBF16Add{DataType::kBF16, DataType::kBF16, DataType::kBF16};
  constexpr auto kT = Order::kRowMajor;
  constexpr auto kN = Order::kColMajor;
  if (arch != kHopper) return {};
  std::vector<KernelSpec> specs;
  for (const Tile& tile : {kWide, kWidePair, kHigh, kSquare, kWide192, kLowTwice}) {
    specs.push_back(MakeSpec(kBF16, kT, kN, tile));
  }
  for (const Tile& tile : {kLow64, kSquareBeside4}) {
    specs.push_back(MakeSpec(kBF16, kT, kN, tile));
  }
  for (const Tile& tile : kShared) specs.push_back(MakeSpec(kBF16, kT, kN, tile));
  for (const Tile& tile : kFilling) specs.push_back(MakeSpec(kBF16, kT, kN, tile));
  for (const Tile& tile : kGrids) specs.push_back(MakeSpec(kBF16, kT, kN, tile));
  for (const Tile& tile : kPairs) specs.push_back(MakeSpec(kBF16, kT, kN, tile));
  for (const Tile& tile : kAlone) specs.push_back(MakeSpec(kBF16, kT, kN, tile));
  for (const auto& [a, b] : {std::pair{kN, kT}, {kN, kN}, {kT, kT}}) {
    for (const Tile& tile : {kWide, kSquare}) specs.push_back(MakeSpec(kBF16, a, b, tile));
  }
  for (const Tile& tile : {kWide, kSquare}) specs.push_back(MakeSpec(kF16, kT, kN, tile));
  for (const Tile& tile : {kSquare, kLowTwice}) {
    specs.push_back(MakeSpec(kBF16ToF32, kT, kN, tile));
    specs.push_back(MakeSpec(kBF16Add, kT, kN, tile));
  }
  for (const Tile& tile : {kLow64Split2, kSquareSplit2, kLow64Divided, kNarrow}) {
    specs.push_back(MakeSpec(kF16, kT, kN, tile));
    specs.push_back(MakeSpec(kBF16Add, kT, kN, tile));
  }
  return specs;
}

}  // namespace

KernelFamily GemmHopperFamily() {
  return {.name = kGemmHopper,
          .revision = 1,
          .launch_abi = 3,
          .source = "ops/gemm/cuda/gemm_hopper.cu",
          .files = {},
          .options = {},
          .check = Check,
          .launch = Launch,
          .limits = Limits,
          .catalog = Catalog,
          .waits_for_prerequisites = true};
}

}  // namespace tilewright
