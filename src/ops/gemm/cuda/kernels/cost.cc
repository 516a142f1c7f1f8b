#include "ops/gemm/cuda/kernels/cost.h"

#include <algorithm>
#include <cmath>

#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/family_checks.h"
#include "ops/gemm/cuda/gemm_mma_splits.h"
#include "ops/gemm/cuda/gemm_q/gemm_q_launch.h"
#include "ops/gemm/cuda/gemm_q/layout.h"
#include "ops/gemm/cuda/gemm_qr/gemm_qr_launch.h"
#include "ops/gemm/cuda/gemm_qw/gemm_qw_launch.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/gemv/segment.h"
#include "ops/gemm/cuda/kernels/cost_terms.h"
#include "tilewright/cuda/gemm_params.h"
#include "tilewright/cuda/gemm_q_params.h"
#include "tilewright/cuda/gemm_qr_params.h"
#include "tilewright/cuda/gemm_qw_params.h"

namespace tilewright {
namespace {

constexpr double kReachedOfPeak = 0.8;  // of the memory's rate, by PredictUs

/// As measured on an H200: 0.45 us more for rows of 576 values, 0.8 for 4096.
double NormUs(const KernelSpec& spec, int k) { return GemvNormalises(spec) ? 0.4 + 1e-4 * k : 0; }

}  // namespace

double EstimateMma(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  // What is reached of the board's rate: Hopper's tensor cores give mma.sync, which Ampere's and
  // Ada's were made for, half of what they give wgmma.
  const double reached = device.compute_capability < 90 ? 0.8 : 0.4;
  const int splits = GemmMmaSplits(spec, {.m = desc.m, .n = desc.n, .k = desc.k}, device);
  LaunchCost cost;
  cost.ctas = cuda::GemmTiles(desc.m, desc.n, spec.tile_m, spec.tile_n) * splits;
  cost.ctas_per_sm = GemmMmaCtasPerSm(spec, device);
  const double steps = CeilOf(CeilOf(desc.k, spec.tile_k), splits);
  const double depth = steps * spec.tile_k;
  const double products =
      SmUs(2.0 * spec.tile_m * spec.tile_n * depth, reached * device.bf16_gflop_s, device);
  // A tile is fed from the L2: A and B of it once for every step of k.
  const double fed_bytes = Bytes(spec.type_a, (spec.tile_m + spec.tile_n) * depth);
  cost.cta_us = std::max(products, SmUs(fed_bytes, kCacheOverMemory * device.read_gb_s, device));
  // CTAs beside each other do not wait for one another's latencies.
  const std::int64_t each = (cost.ctas - 1) / std::max(device.sm_count, 1) + 1;
  const auto held = static_cast<double>(std::min<std::int64_t>(cost.ctas_per_sm, each));
  cost.cta_us = std::max(cost.cta_us, steps * kGemmMmaStepUs / held);
  cost.memory_bytes = LeastBytes(spec, desc);
  if (splits > 1) cost.cache_bytes = 8.0 * splits * desc.m * desc.n;  // sums there and back
  // Rows of a tile that the problem does not have are not on their way.
  const int rows = std::min<int>(spec.tile_m, desc.m), cols = std::min<int>(spec.tile_n, desc.n);
  cost.in_flight_bytes = Bytes(spec.type_a, spec.stages * (rows + cols) * spec.tile_k);
  return PredictUs(cost, device) + kMissingRowUs * (spec.tile_m - rows) +
         (splits > 1 ? kGemmMmaMergeUs : 0);
}

double EstimateSimt(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  LaunchCost cost;
  cost.ctas = cuda::GemmTiles(desc.m, desc.n, spec.tile_m, spec.tile_n);
  cost.ctas_per_sm = std::clamp(64 / std::max<int>(spec.warps, 1), 1, 6);
  // For every step of k a thread multiplies what it reads from shared memory: the reads, and the
  // loads that fill it, are instructions beside the products.
  const double rows = spec.params[0], cols = spec.params[1];
  const double threads = 32.0 * spec.warps;
  const double loads = (spec.tile_m + spec.tile_n) / threads;
  constexpr double kLoadInstructions = 12;  // address, bounds, conversion, store
  const double instructions = rows * cols + rows + cols + kLoadInstructions * loads;
  cost.cta_us = SmUs(2 * instructions * threads * desc.k, device.f32_gflop_s, device);
  cost.memory_bytes = LeastBytes(spec, desc);
  const double fed =
      static_cast<double>(cost.ctas) * (Bytes(spec.type_a, double{1} * spec.tile_m * desc.k) +
                                        Bytes(spec.type_b, double{1} * spec.tile_n * desc.k));
  cost.cache_bytes = std::max(fed - cost.memory_bytes, 0.0);
  // One tile on its way at a time.
  cost.in_flight_bytes = Bytes(spec.type_a, double{1} * spec.tile_m * spec.tile_k) +
                         Bytes(spec.type_b, double{1} * spec.tile_n * spec.tile_k);
  cost.warps = spec.warps;
  return PredictUs(cost, device);
}

double EstimateGemv(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  const TypeInfo& weight = GetTypeInfo(spec.type_b);
  const int split = spec.params[0];
  LaunchCost cost;
  const double turns = CeilOf(desc.m, spec.tile_m);
  cost.ctas = static_cast<std::int64_t>(CeilOf(desc.n, spec.tile_n) * turns);
  cost.ctas_per_sm = spec.params[1];
  cost.memory_bytes = LeastBytes(spec, desc);
  // Reads of plain weights straight to registers come closer to the peak rate than what PredictUs
  // was fitted to: 0.84 of it at 4096 x 4096 and more at 14336 x 4096 on an H200.
  if (!weight.block_quantised) cost.memory_bytes *= kReachedOfPeak / 0.84;
  // CTAs of four warps took 0 to 8 % longer than those of eight where all of them had work.
  if (weight.block_quantised && spec.warps < 8) cost.memory_bytes *= 1.02;
  // W again for every tile_m rows of x, and x for every CTA.
  cost.cache_bytes = (turns - 1) * Bytes(spec.type_b, double{1} * desc.n * desc.k) +
                     static_cast<double>(cost.ctas) * spec.tile_m * Bytes(spec.type_a, desc.k);
  cost.in_flight_bytes =
      weight.block_quantised
          ? double{1} * spec.stages * spec.tile_n *
                tw::GemvSegmentBytes(split, weight.block_bytes, weight.block_elements)
          : double{16} * 32 * spec.stages * spec.tile_n * split;
  cost.warps = spec.warps;
  // Instructions a weight: blocks are decoded once for all rows of x, and an x of f32 is multiplied
  // in three parts; plain weights are multiplied for each row.
  const double decoding = spec.type_a == DataType::kF32 ? 8 : 5;
  const double instructions =
      weight.block_quantised ? decoding + 0.75 * spec.tile_m : 2 + 2.0 * spec.tile_m;
  cost.cta_us = SmUs(2 * instructions * spec.tile_n * desc.k, device.f32_gflop_s, device);
  return PredictUs(cost, device);
}

double EstimateStream(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  const double m = desc.m;
  LaunchCost cost;
  cost.ctas_per_sm = spec.params[1];
  const double columns = desc.n / (desc.epilogue == Epilogue::kGatedSilu ? 2.0 : 1.0);
  const double held = std::max(1, device.sm_count * cost.ctas_per_sm);
  const double beside = std::min(columns, held);  // CTAs of one row of x
  cost.ctas = static_cast<std::int64_t>(beside * m);
  // A stream of whole rows reaches more of the peak rate than what PredictUs was fitted to.
  cost.memory_bytes = LeastBytes(spec, desc) * kReachedOfPeak / 0.88;
  // W again for every row of x, and x for every CTA.
  cost.cache_bytes = (m - 1) * Bytes(spec.type_b, double{1} * desc.n * desc.k) +
                     static_cast<double>(cost.ctas) * Bytes(spec.type_a, desc.k);
  const double segment = Bytes(spec.type_b, 256.0 * spec.params[0]);
  cost.in_flight_bytes = (spec.stages - 1) * spec.warps * segment;
  // Two conversions and a multiplication each, and a fifth of that for copies and reads of eight
  // values; warps take whole elements of y.
  constexpr double kInstructions = 3.5;
  const double rounds = std::ceil(columns / beside / spec.warps);
  cost.cta_us = SmUs(2 * kInstructions * rounds * spec.warps * desc.n / columns * desc.k,
                     device.f32_gflop_s, device);
  return PredictUs(cost, device) + NormUs(spec, desc.k);
}

double EstimateInt8(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  LaunchCost cost;
  const int rows = spec.params[0];  // of W that a warp takes at a time
  const double columns = desc.epilogue == Epilogue::kGatedSilu ? rows / 2.0 : rows;
  const double all = desc.epilogue == Epilogue::kGatedSilu ? desc.n / 2.0 : desc.n;
  const double units = std::ceil(all / columns);
  const double beside = std::min(units, std::max(1.0, double{1} * device.sm_count));
  cost.ctas = static_cast<std::int64_t>(beside);
  // Products of a decode step of Llama-3.1-8B reach 0.85 of the peak rate of an H200, and 0.9 where the
  // copy engine fills the rings; q6_k gains nothing by that.
  cost.in_flight_bytes = (spec.stages - 1.0) * spec.warps * rows * Bytes(spec.type_b, spec.tile_k);
  constexpr double kDeep = 64 * 1024;  // shallower rings took 5 to 7 % longer
  const bool bulk = spec.params[3] != 0 && spec.type_b != DataType::kQ6_K;
  const double reached = bulk ? 0.9 : cost.in_flight_bytes < kDeep ? 0.8 : 0.85;
  // Warps that have no rows in the last round leave their rings empty: an eighth to a quarter of their
  // share of the time was lost in a chain at 6144 x 4096, where it is 0.27.
  const double rounds = std::ceil(units / beside / spec.warps);  // of the warps of a CTA
  const double idle = 1 - units / (beside * spec.warps * rounds);
  cost.memory_bytes = LeastBytes(spec, desc) * kReachedOfPeak / reached / (1 - 0.2 * idle);
  cost.cache_bytes = beside * spec.tile_m * Bytes(spec.type_a, desc.k);
  // What an instruction a weight would take, as measured on an H200 with one to eight rows of x: to
  // copy and unpack it, and for each row of x to multiply four at a time, to read x and to apply
  // scales. q6_k puts codes together from two places.
  const double instructions = (spec.type_b == DataType::kQ6_K ? 4 : 2.7) + 0.9 * spec.tile_m;
  cost.cta_us =
      SmUs(2 * instructions * rounds * spec.warps * rows * desc.k, device.f32_gflop_s, device) +
      SmUs(2 * 6.0 * spec.tile_m * desc.k, device.f32_gflop_s, device);  // x to int8
  // Less than the 0.7 us that it was in a chain: what other families lose there is not in theirs. Rings
  // that the copy engine fills hold as much as such a launch would have read ahead.
  constexpr double kAloneUs = 0.1;
  // Rows of x that there are not cost registers.
  constexpr double kMissingRowUs = 0.1;
  return PredictUs(cost, device) + kMissingRowUs * (spec.tile_m - desc.m) + NormUs(spec, desc.k) +
         (bulk || GemvInt8LeavesRoom(spec, desc.n, desc.k, device.sm_count) ? 0 : kAloneUs);
}

double EstimateGemmQ(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  const TypeInfo& weight = GetTypeInfo(spec.type_b);
  const int splits = GemmQSplits(spec, {.m = desc.m, .n = desc.n, .k = desc.k}, device);
  const double tiles_m = CeilOf(desc.m, spec.tile_m), tiles_n = CeilOf(desc.n, spec.tile_n);
  const double depth = CeilOf(cuda::GemmQKTiles(desc.k), splits) * cuda::kGemmQTileK;
  LaunchCost cost;
  cost.ctas = static_cast<std::int64_t>(tiles_m * tiles_n) * splits;
  cost.ctas_per_sm = spec.params[1];
  cost.memory_bytes = LeastBytes(spec, desc);
  // W again for every tile_m rows of x, x for every tile_n rows of W, sums of splits there and back.
  const double sums = splits == 1 ? 0 : 8.0 * splits * desc.m * desc.n;
  cost.cache_bytes = (tiles_m - 1) * Bytes(spec.type_b, double{1} * desc.n * desc.k) +
                     tiles_n * Bytes(spec.type_a, double{1} * desc.m * desc.k) + sums;
  cost.in_flight_bytes = (spec.stages - 1.0) * spec.tile_n *
                         tw::GemvSegmentBytes(1, weight.block_bytes, weight.block_elements);
  cost.warps = spec.warps;
  // What an instruction a weight would take, as measured on an H200 (8 to 64 rows at 14336 x 4096):
  // to decode it, and for each row a part of an mma, of reads of x, and of scales of the sum. A
  // format with offsets adds a second term to the sum; q6_k puts codes together from two places, by what an
  // H100 took for 8 to 64 rows.
  const double decode = spec.type_b == DataType::kQ6_K ? 12.2 : 7.5;
  const double instructions =
      decode + (GemvCodesHaveOffset(spec.type_b) ? 0.26 : 0.21) * spec.tile_m;
  cost.cta_us = SmUs(2 * instructions * spec.tile_n * depth, device.f32_gflop_s, device);
  constexpr double kMergeUs = 2;
  return PredictUs(cost, device) + (splits == 1 ? 0 : kMergeUs);
}

double EstimateGemmQw(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  const TypeInfo& weight = GetTypeInfo(spec.type_b);
  const GemmShape shape{.m = desc.m, .n = desc.n, .k = desc.k};
  const double tiles_m = CeilOf(desc.m, spec.tile_m), tiles_n = CeilOf(desc.n, spec.tile_n);
  const int k_tiles = cuda::GemmQKTiles(desc.k);
  LaunchCost cost;
  cost.ctas = GemmQwCtas(spec, shape, device);
  cost.ctas_per_sm = spec.params[1];
  // The CTAs divide the k-tiles: the longest run, and its weights.
  const double run = CeilOf(tiles_m * tiles_n * k_tiles, static_cast<double>(cost.ctas));
  cost.memory_bytes = LeastBytes(spec, desc);
  // W again for every tile_m rows of x, x for every tile_n rows of W.
  cost.cache_bytes = (tiles_m - 1) * Bytes(spec.type_b, double{1} * desc.n * desc.k) +
                     tiles_n * Bytes(spec.type_a, tiles_m * spec.tile_m * desc.k);
  cost.in_flight_bytes = (spec.stages - 1.0) * spec.tile_n *
                         cuda::GemmQwLineBytes(weight.block_bytes, weight.block_elements);
  // What a k-tile takes, in instructions of a thread for each k: fitted to an H200 with 16 to 64 rows. Formats
  // without a ScaledPart of their own take more for each row of W.
  const bool own_part = spec.type_b == DataType::kQ8_0 || spec.type_b == DataType::kQ4_K ||
                        spec.type_b == DataType::kQ5_K || spec.type_b == DataType::kQ4_1;
  const double of_row = spec.type_b == DataType::kQ6_K ? 6.0 : own_part ? 5.0 : 8.0;
  const double instructions = 500 + 17.0 * spec.tile_m + of_row * spec.tile_n;
  cost.cta_us = SmUs(2 * instructions * run * cuda::kGemmQTileK, device.f32_gflop_s, device);
  // The begin and the end of a run, at which nothing is multiplied; and for each of the CTAs that share an
  // output tile.
  constexpr double kEndUs = 0.5, kEndEachColumnUs = 0.025, kMergeEachUs = 0.1;
  const double sharing = static_cast<double>(cost.ctas) / (tiles_m * tiles_n);
  // Rows of x that there are not.
  constexpr double kMissingRowUs = 0.2;
  const double missing = tiles_m * spec.tile_m - desc.m;
  return PredictUs(cost, device) + kEndUs + kEndEachColumnUs * spec.tile_n +
         kMergeEachUs * std::min(sharing, 1.0 * k_tiles) + kMissingRowUs * missing;
}

double EstimateGemmQr(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  const TypeInfo& weight = GetTypeInfo(spec.type_b);
  const GemmShape shape{.m = desc.m, .n = desc.n, .k = desc.k};
  const auto [slices, groups] = GemmQrCutOf(spec, shape, device);
  const double tiles_m = cuda::GemmQrTilesM(desc.m, spec.tile_m);
  LaunchCost cost;
  cost.ctas = static_cast<std::int64_t>(tiles_m * slices * groups);
  cost.ctas_per_sm = 1;
  // What was reached of the rate on an H100 with 8 and 16 rows; W again for every tile_m rows of x is unpacked again.
  constexpr double kMoreBytes = 1.15, kAgain = 0.8;
  cost.memory_bytes = LeastBytes(spec, desc) * kMoreBytes * (1 + kAgain * (tiles_m - 1));
  // x once for every group, sums of slices there and back.
  cost.cache_bytes = groups * Bytes(spec.type_a, tiles_m * spec.tile_m * desc.k) +
                     (slices == 1 ? 0 : 8.0 * slices * desc.m * desc.n);
  cost.in_flight_bytes = cuda::kGemmQrWarps * (spec.stages - 1.0) * spec.tile_n *
                         cuda::GemmQwLineBytes(weight.block_bytes, weight.block_elements);
  // To have x in registers, and to add up sums: fitted to 8 and 16 rows.
  const double start_us = 0.35 * spec.tile_m - 0.6;
  const double merge_us = slices == 1 ? 0 : 0.6 + 0.03 * spec.tile_m * slices;
  constexpr double kMissingRowUs = 0.05;
  const double missing = tiles_m * spec.tile_m - desc.m;
  return PredictUs(cost, device) + start_us + merge_us + kMissingRowUs * missing;
}

}  // namespace tilewright
