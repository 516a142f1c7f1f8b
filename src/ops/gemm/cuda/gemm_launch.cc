#include "ops/gemm/cuda/gemm_launch.h"

#include <algorithm>
#include <limits>

#include "core/text.h"
#include "ops/gemm/cuda/family_checks.h"
#include "tilewright/types.h"

namespace tilewright {
namespace {

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

int ClusterOf(const KernelSpec& spec) { return std::max<int>(spec.cluster_m, 1); }

/// Output tiles of a cluster.
std::int64_t ClusterTiles(const KernelSpec& spec, std::int32_t m, std::int32_t n) {
  return CeilDiv(m, spec.tile_m * ClusterOf(spec)) * CeilDiv(n, spec.tile_n);
}

std::optional<Rejection> CheckLine(const char* name, std::int64_t ld, std::int64_t extent) {
  if (ld >= extent) return std::nullopt;
  return Rejection{Reason::kShape, Format("{} = {}", name, ld), Format("at least {}", extent)};
}

std::optional<Rejection> CheckTma(const char* name, std::uint64_t address, std::int64_t ld) {
  if (address % 16 != 0) {
    return Rejection{Reason::kAlignment, Format("{} at {:#x}", name, address),
                     "a multiple of 16 bytes"};
  }
  if (ld % 8 != 0) {
    return Rejection{Reason::kAlignment, Format("ld{} = {}", name, ld), "a multiple of 8"};
  }
  return std::nullopt;
}

/// An operand with k contiguous if `k_major`, else with its `rows` (m or n) contiguous; `box_rows`
/// of the rows go into one copy.
TmaDesc Describe(DataType type, bool k_major, std::uint64_t address, std::int64_t ld,
                 std::int32_t rows, std::int32_t k, std::uint32_t box_rows) {
  const auto u64 = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  TmaDesc desc{.type = type, .address = address, .stride_bytes = u64(BytesOf(type, ld))};
  if (k_major) {
    desc.size = {u64(k), u64(rows)};
    desc.box = {kHopperTileK, box_rows};
  } else {
    // A line of the 128-byte swizzle holds 64 rows, whatever the tile.
    desc.size = {u64(rows), u64(k)};
    desc.box = {kHopperTileK, kHopperTileK};
  }
  return desc;
}

/// D, where it can be stored by TMA: in pieces of 64 rows and 128 bytes. TMA writes whole chunks of
/// 16 bytes, also where only part of one is inside of the size.
std::optional<TmaDesc> DescribeResult(DataType type, const GemmLaunch& launch) {
  const std::int64_t element = BytesOf(type, 1);
  if (launch.d % 16 != 0 || launch.ldd * element % 16 != 0 || launch.n * element % 16 != 0) {
    return std::nullopt;
  }
  return TmaDesc{
      .type = type,
      .address = launch.d,
      .size = {static_cast<std::uint64_t>(launch.n), static_cast<std::uint64_t>(launch.m)},
      .stride_bytes = static_cast<std::uint64_t>(launch.ldd * element),
      .box = {static_cast<std::uint32_t>(128 / element), 64}};
}

}  // namespace

std::optional<Rejection> CheckGemmLaunch(const KernelSpec& spec, const GemmLaunch& launch) {
  if (launch.m < 1 || launch.n < 1 || launch.k < 1) {
    return Rejection{Reason::kShape, Format("{} x {} x {}", launch.m, launch.n, launch.k),
                     "m, n and k of at least 1"};
  }
  // The raster counts tiles in an int, and k-tiles start below 2^31.
  constexpr std::int32_t kMaxExtent = std::numeric_limits<std::int32_t>::max() - 1024;
  const std::int32_t longest = std::max({launch.m, launch.n, launch.k});
  if (longest > kMaxExtent) {
    return Rejection{Reason::kShape, Format("an extent of {}", longest),
                     Format("at most {}", kMaxExtent)};
  }
  const std::int64_t tiles = ClusterTiles(spec, launch.m, launch.n) * ClusterOf(spec);
  if (tiles > kMaxExtent) {
    return Rejection{Reason::kShape, Format("{} output tiles", tiles),
                     Format("at most {}", kMaxExtent)};
  }
  const bool a_k_major = spec.order_a == Order::kRowMajor;
  const bool b_k_major = spec.order_b == Order::kColMajor;
  if (auto no = CheckLine("lda", launch.lda, a_k_major ? launch.k : launch.m)) return no;
  if (auto no = CheckLine("ldb", launch.ldb, b_k_major ? launch.k : launch.n)) return no;
  if (auto no = CheckLine("ldd", launch.ldd, launch.n)) return no;
  if (spec.family == FamilyName(kGemmHopper)) {
    if (auto no = CheckTma("a", launch.a, launch.lda)) return no;
    if (auto no = CheckTma("b", launch.b, launch.ldb)) return no;
  }
  return std::nullopt;
}

std::uint32_t GemmGrid(const KernelSpec& spec, std::int32_t m, std::int32_t n, int sm_count) {
  const std::int64_t tiles = ClusterTiles(spec, m, n);
  if (spec.family != FamilyName(kGemmHopper)) return static_cast<std::uint32_t>(tiles);
  const int cluster = ClusterOf(spec);
  const std::int64_t resident = std::max(sm_count * spec.params[1] / cluster, 1);
  return static_cast<std::uint32_t>(std::min(tiles, resident) * cluster);
}

GemmTensorMaps GemmHopperMaps(const KernelSpec& spec, const GemmLaunch& launch) {
  // CTAs of a cluster fetch equal parts of the tile of B.
  const std::uint32_t rows_b = spec.tile_n / static_cast<std::uint32_t>(ClusterOf(spec));
  return {.a = Describe(spec.type_a, spec.order_a == Order::kRowMajor, launch.a, launch.lda,
                        launch.m, launch.k, spec.tile_m),
          .b = Describe(spec.type_b, spec.order_b == Order::kColMajor, launch.b, launch.ldb,
                        launch.n, launch.k, rows_b),
          .d = DescribeResult(spec.type_d, launch)};
}

}  // namespace tilewright
