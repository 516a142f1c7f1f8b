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

/// What a multiprocessor takes in, of any kind, in KB/us: 64 bytes a clock, by the clock that belongs to the
/// board's rate of products. On an H100 34 CTAs with a multiprocessor each got 117 KB/us.
double IngestKbUs(const DeviceSpec& device) {
  constexpr double kProductsAByte = 64;  // as many operations in the same clock
  return device.bf16_gflop_s / std::max(device.sm_count, 1) / kProductsAByte;
}

/// Time in which `bytes` come to a multiprocessor that has all it can take in.
double ComeUs(double bytes, const DeviceSpec& device) { return bytes * 1e-3 / IngestKbUs(device); }

/// CTAs of a cluster wait for each other, send their sums of `rows` rows, and wait for those of others.
double SplitMergeUs(const KernelSpec& spec, int rows, const DeviceSpec& device) {
  constexpr double kWaitsUs = 1, kSlower = 5;
  return kWaitsUs + kSlower * ComeUs(4.0 * rows * spec.tile_n, device);
}

/// All CTAs of a divided tile but one leave their sums in memory, and that one reads them, which is slower
/// than copies are: a warpgroup has few of them under way.
double ShareMergeUs(const KernelSpec& spec, const Division& division, int rows,
                    const DeviceSpec& device) {
  constexpr double kWaitsUs = 2, kSlower = 1.5;
  const double parts = std::ceil(double{1} * division.shares.count / division.shares.tiles);
  return kWaitsUs + kSlower * ComeUs(4.0 * rows * spec.tile_n * parts, device);
}

/// How many times as long clusters take because they do not fit: a cluster lies in one group of
/// multiprocessors, whose number need not be a multiple of it. On an H200 and an H100 128 CTAs in clusters of
/// 2 ran at once; in clusters of 4 and 8, one CTA a multiprocessor, they took two rounds, and 120 took
/// one.
double ClusterRounds(double ctas, int cluster, const LaunchCost& cost, const DeviceSpec& device) {
  if (cluster <= 2) return 1;
  const double sms = std::max(device.sm_count, 1), held = std::max(cost.ctas_per_sm, 1);
  const double reached = std::max(std::floor(0.91 * sms / cluster), 1.0);
  constexpr double kSlower = 1.03;
  return kSlower * std::ceil(ctas / (reached * cluster * held)) / std::ceil(ctas / (sms * held));
}

/// Rows of A that a CTA fetches, of a tile that `cluster_n` CTAs have in common its part.
int FetchedRows(const KernelSpec& spec, const GemmDesc& desc) {
  if (spec.order_a != Order::kRowMajor) return spec.tile_m;
  return cuda::GemmHopperBoxRows(desc.m, spec.tile_m, std::max<int>(spec.cluster_n, 1));
}

/// A k-tile of a CTA that has `beside` - 1 others on its multiprocessor, `ctas` in all: the longest of its
/// products, what the multiprocessor takes in, what all take from the L2, and a chain of latencies.
double KTileUs(const KernelSpec& spec, const GemmDesc& desc, const Division& division, double ctas,
               double beside, const DeviceSpec& device) {
  constexpr double kReached = 0.95;     // of the board's rate of products, before its power ends
  constexpr double kL2OfIngest = 0.65;  // what the L2 gives all of them
  constexpr double kLatencyUs = 0.12;
  const double products =
      SmUs(2.0 * spec.tile_m * spec.tile_n * spec.tile_k, kReached * device.bf16_gflop_s, device);
  const int fetched = FetchedRows(spec, desc), common_a = std::max<int>(spec.cluster_n, 1);
  const double row_bytes = Bytes(spec.type_a, spec.tile_k);
  const double come = ComeUs((fetched * common_a + spec.tile_n) * row_bytes, device);
  // What a cluster has in common the L2 gives once. So it does lines that CTAs ask for at the same time,
  // which those do not that each are somewhere else in k.
  const bool together = division.shares.count % std::max(division.shares.tiles, 1) == 0;
  const double once = fetched + double{1} * spec.tile_n / std::max<int>(spec.cluster_m, 1);
  const double given = ComeUs(once * row_bytes, device) * (together ? 1 : 1.6) / kL2OfIngest *
                       ctas / std::max(device.sm_count, 1);
  // Pairs that fetch for each other wait for each other too.
  constexpr double kPair = 1.06;
  return (division.peers > 1 ? kPair : 1) *
         std::max({beside * products, beside * come, given, kLatencyUs}) / beside;
}

/// Under its power limit a board does about three quarters of the products of its clocks, fewer the more
/// bytes a multiprocessor takes in beside them: on an H100 4096^3 took 177 us in tiles of 256x128, and 217
/// in tiles of 128x128, which take in 64 bytes in the clocks of their products.
double PowerUs(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  constexpr double kOfPower = 0.76, kCheap = 0.75, kPrice = 3.6, kFromL2 = 0.04;
  // Clocks of the bytes that come over those of the products, which wait where that is more than 1; the part
  // of the bytes that is not common to a cluster.
  const double come =
      std::min(64.0 * (spec.tile_m + spec.tile_n) / (spec.tile_m * spec.tile_n), 1.0);
  const double given = (double{1} * spec.tile_m / std::max<int>(spec.cluster_n, 1) +
                        double{1} * spec.tile_n / std::max<int>(spec.cluster_m, 1)) /
                       (spec.tile_m + spec.tile_n);
  const double above = std::max(come - kCheap, 0.0);
  return (1 + kPrice * above * above + kFromL2 * given) * 2e-3 * desc.m * desc.n * desc.k /
         (kOfPower * device.bf16_gflop_s);
}

/// The copy engine writes rows that there are not as zeros. One row by 28672 x 4096 took 80 us on tiles of
/// 64 rows, and by 128256 x 4096 400 us on tiles of 128, where an H200's memory takes 60 and 270: as if
/// every second of those zeros had been read.
double MissingRowsBytes(const KernelSpec& spec, const GemmDesc& desc) {
  const int beside = std::max<int>(spec.cluster_n, 1);
  const double missing = CeilOf(desc.m, spec.tile_m) * FetchedRows(spec, desc) * beside - desc.m;
  return 0.5 * Bytes(spec.type_a, missing * desc.k) * CeilOf(desc.n, spec.tile_n * beside);
}

}  // namespace

double EstimateHopper(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  constexpr double kBetweenTilesUs = 0.8;  // to store a tile and to begin the next
  const Division division(spec, desc, device);
  const int splits = division.splits;
  const int rows = std::min<int>(spec.tile_m, desc.m), cols = std::min<int>(spec.tile_n, desc.n);
  LaunchCost cost;
  cost.ctas_per_sm = spec.params[1];
  const double sms = std::max(device.sm_count, 1), held = sms * cost.ctas_per_sm;
  const auto all = static_cast<double>(division.tiles * division.peers * splits);
  const double at_once = splits > 1 ? std::min(all, held) : static_cast<double>(division.Ctas());
  cost.ctas = static_cast<std::int64_t>(at_once);
  const double beside = std::min<double>(cost.ctas_per_sm, std::ceil(at_once / sms));
  const double k_tile_us = KTileUs(spec, desc, division, at_once, beside, device);
  const double rounds = splits > 1 ? std::ceil(all / held) : static_cast<double>(division.Rounds());
  const double between = spec.params[2] == cuda::kGemmHopperPingPong ? 0 : kBetweenTilesUs;
  // Those of a cluster meet before the first copy, and wait for each other in the end.
  constexpr double kMeetUs = 0.6;
  cost.cta_us = (division.peers > 1 ? kMeetUs : 0) +
                rounds * (CeilOf(division.k_tiles, splits) * k_tile_us + between / beside) +
                division.ShareKTiles() * k_tile_us;
  // Of clusters that leave multiprocessors idle, two CTAs lie on one all the same: 66 CTAs took 12.7 us
  // where as many that need one each took 10.0.
  constexpr double kPacked = 1.4;
  if (splits > 1 && cost.ctas_per_sm > 1 && cost.ctas <= device.sm_count) cost.cta_us *= kPacked;
  // Only B comes from memory, and 96 CTAs with 40 KiB of it on its way read 3.2 TB/s of an H200.
  constexpr double kLatency = 1.5;
  cost.in_flight_bytes = Bytes(spec.type_b, spec.stages * cols * spec.tile_k) / kLatency;
  // CTAs below each other wait for the same lines of B.
  if (desc.m > spec.tile_m) cost.in_flight_bytes /= 2;
  cost.memory_bytes = LeastBytes(spec, desc) + MissingRowsBytes(spec, desc);
  double merge_us = 0;
  // Two CTAs of a multiprocessor do not wait at the same time.
  if (splits > 1) {
    merge_us = (cost.ctas_per_sm > 1 ? 1 : rounds) * SplitMergeUs(spec, rows, device);
  }
  if (division.shares.count > 0) merge_us = ShareMergeUs(spec, division, rows, device);
  const double us = std::max(PredictUs(cost, device), PowerUs(spec, desc, device));
  return ClusterRounds(all, division.peers * splits, cost, device) * us + merge_us +
         kMissingRowUs * (spec.tile_m - rows);
}

}  // namespace tilewright
