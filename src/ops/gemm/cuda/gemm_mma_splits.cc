#include "ops/gemm/cuda/gemm_mma_splits.h"

#include <algorithm>
#include <limits>

#include "ops/gemm/cuda/families.h"
#include "tilewright/cuda/gemm_params.h"

namespace tilewright {
namespace {

std::int64_t Tiles(const KernelSpec& spec, const GemmShape& shape) {
  return cuda::GemmTiles(shape.m, shape.n, spec.tile_m, spec.tile_n);
}

/// What each part of k adds to the time, as far as it depends on their number. By the rates of an H200
/// and not by those measured of `device`: the bits of a sum must not follow a measurement, nor may a
/// launch need another workspace than its plan said.
double SplitUs(const KernelSpec& spec, std::int64_t tiles, int k_tiles, int splits,
               const DeviceSpec& device) {
  constexpr double kFillUs = 1.5;                                    // to fill and drain the ring
  constexpr double kMergeEachUs = 0.1;                               // to read the sums of one more
  constexpr double kSmOperationsAUs = 3.24e6, kSmBytesAUs = 36.5e3;  // mma.sync; from memory
  const std::int64_t sms = std::max(device.sm_count, 1), ctas = tiles * splits;
  const std::int64_t held = GemmMmaCtasPerSm(spec, device);
  const auto rounds = static_cast<double>((ctas - 1) / (sms * held) + 1);
  const auto beside = static_cast<double>(std::min(held, (ctas - 1) / sms + 1));
  const auto running = static_cast<double>(std::min(ctas, sms * held));
  const double operations = 2.0 * spec.tile_m * spec.tile_n * spec.tile_k;
  const double products = operations / kSmOperationsAUs;
  const double weights = 2.0 * spec.tile_n * spec.tile_k;
  const double loads = running / static_cast<double>(sms) * weights / kSmBytesAUs;
  const double step = std::max({kGemmMmaStepUs, beside * products, loads});
  const double depth = (k_tiles - 1) / splits + 1;
  return rounds * (kFillUs + depth * step) +
         (splits == 1 ? 0 : kGemmMmaMergeUs + kMergeEachUs * splits);
}

}  // namespace

int GemmMmaCtasPerSm(const KernelSpec& spec, const DeviceSpec& device) {
  const std::int64_t smem = GemmMmaFamily().launch(spec).dynamic_smem_bytes;
  return static_cast<int>(
      std::max<std::int64_t>(device.smem_bytes / std::max<std::int64_t>(smem, 1), 1));
}

int GemmMmaSplits(const KernelSpec& spec, const GemmShape& shape, const DeviceSpec& device) {
  constexpr int kMostSplits = 16;
  constexpr std::int64_t kMostPartialBytes = 16 << 20;
  if (!cuda::GemmMmaSplitsK(spec.tile_m, spec.tile_n, spec.warps)) return 1;
  const std::int64_t tiles = Tiles(spec, shape);
  const std::int64_t partial_bytes = tiles * spec.tile_m * spec.tile_n * 4;
  const int k_tiles = (shape.k - 1) / spec.tile_k + 1;
  int best = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int splits = 1; splits <= std::min(k_tiles, kMostSplits); ++splits) {
    if (splits > 1 && partial_bytes * splits > kMostPartialBytes) break;
    const double us = SplitUs(spec, tiles, k_tiles, splits, device);
    if (us < least) best = splits, least = us;
  }
  return best;
}

WorkspaceSize GemmMmaWorkspace(const KernelSpec& spec, const GemmShape& shape,
                               const DeviceSpec& device) {
  const int splits = GemmMmaSplits(spec, shape, device);
  if (splits == 1) return {};
  const auto tiles = static_cast<std::size_t>(Tiles(spec, shape));
  return {.barriers = tiles * sizeof(std::uint32_t),
          .partials = tiles * static_cast<std::size_t>(splits) * spec.tile_m * spec.tile_n * 4};
}

}  // namespace tilewright
