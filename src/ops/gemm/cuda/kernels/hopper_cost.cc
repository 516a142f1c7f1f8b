// The predicted time of gemm_hopper.
#include <algorithm>
#include <cmath>

#include "ops/gemm/cuda/gemm_hopper_shares.h"
#include "ops/gemm/cuda/kernels/cost.h"
#include "ops/gemm/cuda/kernels/cost_terms.h"
#include "tilewright/cuda/gemm_params.h"

namespace tilewright {
namespace {

/// How a kernel divides a problem. Tiles and CTAs of a cluster that take tiles beside or below each other
/// count as one.
struct Division {
  cuda::GemmHopperTile tile;
  cuda::GemmHopperShares shares;
  int splits;  // CTAs of a cluster that share a tile
  int peers;   // CTAs of a cluster with tiles of their own
  std::int64_t tiles;
  std::int64_t resident;  // tiles that are computed at once
  int k_tiles;            // of a tile

  Division(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device)
      : tile(GemmHopperTileOf(spec)),
        shares(GemmHopperSharesOf(spec, {.m = desc.m, .n = desc.n, .k = desc.k}, device)),
        splits(std::max<int>(spec.split_k, 1)),
        peers(cuda::GemmHopperPeers(tile)),
        tiles(cuda::GemmHopperTiles(desc.m, desc.n, tile)),
        resident(cuda::GemmHopperResident(tile, device.sm_count)),
        k_tiles((desc.k - 1) / static_cast<int>(spec.tile_k) + 1) {}

  /// Whole tiles that the busiest CTA computes one after the other, and what it has of divided ones.
  std::int64_t Rounds() const { return (tiles - shares.tiles + resident - 1) / resident; }
  int ShareKTiles() const {
    return shares.count == 0 ? 0 : (shares.tiles * k_tiles - 1) / shares.count + 1;
  }
  /// CTAs that run.
  std::int64_t Ctas() const {
    const std::int64_t busy = std::max<std::int64_t>(tiles, shares.count);
    return std::min(busy, resident) * peers;
  }
};

/// CTAs of a cluster wait for each other, send their sums of `rows` rows, and wait for those of others.
double SplitMergeUs(const KernelSpec& spec, int rows, const DeviceSpec& device) {
  constexpr double kWaitsUs = 1;
  const double sums = 4.0 * rows * spec.tile_n;  // of a CTA
  return kWaitsUs + SmUs(sums, kCacheOverMemory * device.read_gb_s, device);
}

/// The last CTA of a divided tile waits for one round trip to memory and reads the sums of the others.
double ShareMergeUs(const KernelSpec& spec, const Division& division, int rows,
                    const DeviceSpec& device) {
  constexpr double kRoundTripsUs = 1;
  const double parts = std::ceil(double{1} * division.shares.count / division.shares.tiles);
  const double sums =
      4.0 * rows * spec.tile_n * parts;  // its own are written or those of others read
  return kRoundTripsUs + SmUs(sums, kCacheOverMemory * device.read_gb_s, device);
}

/// How many times as long clusters take because they do not fit: a cluster lies in one group of
/// multiprocessors, whose number need not be a multiple of it. On an H200 128 CTAs in clusters of 2 ran
/// at once; in clusters of 4 and 8, one CTA a multiprocessor, they took two rounds, and 92 took one. More
/// CTAs than that were up to a sixth slower than without clusters.
double ClusterRounds(const LaunchCost& cost, int cluster, const DeviceSpec& device) {
  if (cluster <= 2) return 1;
  const double sms = std::max(device.sm_count, 1), held = std::max(cost.ctas_per_sm, 1);
  const double reached = std::max(std::floor((cluster == 4 ? 0.85 : 0.75) * sms / cluster), 1.0);
  const auto ctas = static_cast<double>(cost.ctas);
  constexpr double kSlower = 1.1;
  return kSlower * std::ceil(ctas / (reached * cluster * held)) / std::ceil(ctas / (sms * held));
}

/// Time in which `fed_bytes` come to a CTA from the L2, `ctas` of them at work. On an H200 128 CTAs got
/// 10.7 TB/s together, and 66 that shared tiles got 1.6 times as much each.
double FedUs(double fed_bytes, std::int64_t ctas, double most_alone, const DeviceSpec& device) {
  constexpr double kOverMemory = 2.2;
  const double sms = std::max(device.sm_count, 1);
  const double alone = std::clamp(sms / static_cast<double>(ctas), 1.0, most_alone);
  return SmUs(fed_bytes, kOverMemory * alone * device.read_gb_s, device);
}

/// Of A and B that a CTA takes from the L2 for a k-tile. What a cluster has in common comes once for all.
double FedBytes(const KernelSpec& spec, const GemmDesc& desc) {
  const int beside = std::max<int>(spec.cluster_n, 1), below = std::max<int>(spec.cluster_m, 1);
  const bool boxed = spec.order_a == Order::kRowMajor;
  const int rows =
      boxed ? cuda::GemmHopperBoxRows(desc.m, spec.tile_m, beside) : static_cast<int>(spec.tile_m);
  return Bytes(spec.type_a, (rows + double{1} * spec.tile_n / below) * spec.tile_k);
}

/// The copy engine writes rows that there are not as zeros. One row by 28672 x 4096 took 80 us on tiles of
/// 64 rows, and by 128256 x 4096 400 us on tiles of 128, where an H200's memory takes 60 and 270: as if
/// every second of those zeros had been read.
double MissingRowsBytes(const KernelSpec& spec, const GemmDesc& desc) {
  const int beside = std::max<int>(spec.cluster_n, 1);
  const bool boxed = spec.order_a == Order::kRowMajor;
  const int fetched =
      boxed ? cuda::GemmHopperBoxRows(desc.m, spec.tile_m, beside) : static_cast<int>(spec.tile_m);
  const double missing = CeilOf(desc.m, spec.tile_m) * fetched * beside - desc.m;
  return 0.5 * Bytes(spec.type_a, missing * desc.k) * CeilOf(desc.n, spec.tile_n * beside);
}

}  // namespace

double EstimateHopper(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  constexpr double kReached = 0.8;       // of the board's rate of products
  constexpr double kBetweenTilesUs = 1;  // to store a tile and to begin the next
  const Division division(spec, desc, device);
  const int splits = division.splits;
  const int rows = std::min<int>(spec.tile_m, desc.m), cols = std::min<int>(spec.tile_n, desc.n);
  LaunchCost cost;
  cost.ctas_per_sm = spec.params[1];
  const bool at_once = spec.params[2] != cuda::kGemmHopperInTurn;
  cost.ctas = at_once ? division.Ctas() : division.tiles * division.peers * splits;
  const double products =
      SmUs(2.0 * spec.tile_m * spec.tile_n * spec.tile_k, kReached * device.bf16_gflop_s, device);
  const double k_tile_us = std::max(
      products, FedUs(FedBytes(spec, desc), cost.ctas, at_once || splits > 1 ? 1.6 : 1, device));
  const double tile_us = CeilOf(division.k_tiles, splits) * k_tile_us;
  cost.cta_us = tile_us;
  double merge_us = 0;
  if (at_once) {
    const auto tiles = static_cast<double>(division.Rounds());
    const double between = spec.params[2] == cuda::kGemmHopperPingPong ? 0 : kBetweenTilesUs;
    cost.cta_us = tiles * (tile_us + between) + division.ShareKTiles() * k_tile_us;
    if (division.shares.count > 0) merge_us = ShareMergeUs(spec, division, rows, device);
  }
  // Of clusters that leave multiprocessors idle, two CTAs lie on one all the same: 66 CTAs took 12.7 us
  // where as many that need one each took 10.0.
  constexpr double kPacked = 1.4;
  if (splits > 1 && cost.ctas_per_sm > 1 && cost.ctas <= device.sm_count) cost.cta_us *= kPacked;
  // Only B comes from memory, and 96 CTAs with 40 KiB of it on its way read 3.2 TB/s.
  constexpr double kLatency = 1.2;
  cost.in_flight_bytes = Bytes(spec.type_b, spec.stages * cols * spec.tile_k) / kLatency;
  cost.memory_bytes = LeastBytes(spec, desc) + MissingRowsBytes(spec, desc);
  if (splits > 1) {
    const double turns =
        CeilOf(static_cast<double>(cost.ctas), std::max(device.sm_count, 1) * cost.ctas_per_sm);
    merge_us = turns * SplitMergeUs(spec, rows, device);
  }
  return ClusterRounds(cost, division.peers * splits, device) * PredictUs(cost, device) + merge_us +
         kMissingRowUs * (spec.tile_m - rows);
}

}  // namespace tilewright
