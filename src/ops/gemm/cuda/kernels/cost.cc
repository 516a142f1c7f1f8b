#include "ops/gemm/cuda/kernels/cost.h"

#include <algorithm>

#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/family_checks.h"
#include "ops/gemm/cuda/gemv/segment.h"
#include "tilewright/cuda/gemm_params.h"

namespace tilewright {
namespace {

double Bytes(DataType type, double elements) {
  const TypeInfo& info = GetTypeInfo(type);
  return elements * info.block_bytes / info.block_elements;
}

/// Operands and result, each once.
double LeastBytes(const KernelSpec& spec, const GemmDesc& desc) {
  const double m = desc.m, n = desc.n, k = desc.k;
  const bool adds = desc.scaling != Scaling::kOneZero;
  return Bytes(spec.type_a, m * k) + Bytes(spec.type_b, n * k) +
         Bytes(spec.type_d, m * n * (adds ? 2 : 1));
}

double CeilOf(double count, double size) {
  const auto whole = static_cast<std::int64_t>(size);
  return static_cast<double>((static_cast<std::int64_t>(count) + whole - 1) / whole);
}

}  // namespace

double EstimateTiles(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  const bool hopper = spec.family == FamilyName(kGemmHopper);
  const int cluster = std::max<int>(spec.cluster_m, 1);
  // What was reached of the board's rate on large products of an H200: the tensor cores of Hopper
  // give two thirds of it to mma.sync, which Ampere's and Ada's were made for.
  const bool native = hopper || device.compute_capability < 90;
  const double reached = native ? 0.85 : 0.55;
  LaunchCost cost;
  cost.ctas = cuda::GemmTiles(desc.m, desc.n, spec.tile_m * cluster, spec.tile_n) * cluster;
  cost.ctas_per_sm = spec.params[1] > 2 || spec.params[1] < 1 ? 1 : spec.params[1];
  const double depth = CeilOf(desc.k, spec.tile_k) * spec.tile_k;
  const double products = SmUs(2.0 * spec.tile_m * spec.tile_n * depth,
                               reached * device.bf16_gflop_s, device);
  // A tile is fed from the L2: A and B of it once for every step of k.
  const double fed_bytes = Bytes(spec.type_a, (spec.tile_m + spec.tile_n) * depth);
  const double fed_us = SmUs(fed_bytes, 2.2 * device.read_gb_s, device);
  cost.cta_us = std::max(products, fed_us);
  cost.memory_bytes = LeastBytes(spec, desc);
  cost.in_flight_bytes = Bytes(spec.type_a, spec.stages * (spec.tile_m + spec.tile_n) * spec.tile_k);
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
  // W again for every tile_m rows of x, and x for every CTA.
  cost.cache_bytes = (turns - 1) * Bytes(spec.type_b, double{1} * desc.n * desc.k) +
                     static_cast<double>(cost.ctas) * spec.tile_m * Bytes(spec.type_a, desc.k);
  cost.in_flight_bytes =
      weight.block_quantised
          ? double{1} * spec.stages * spec.tile_n *
                tw::GemvSegmentBytes(split, weight.block_bytes, weight.block_elements)
          : double{16} * 32 * spec.stages * spec.tile_n * split;
  // Instructions a weight, four lanes' worth of a float operation each: blocks are decoded once for
  // all rows of x, plain weights are multiplied for each.
  const double instructions = weight.block_quantised ? 4 : 1.5 + spec.tile_m;
  cost.cta_us = SmUs(2.0 * instructions * spec.tile_n * desc.k, device.f32_gflop_s, device);
  return PredictUs(cost, device);
}

}  // namespace tilewright
