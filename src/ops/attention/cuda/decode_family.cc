#include <array>
#include <span>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/attention/cuda/family_checks.h"
#include "tilewright/cuda/attention_params.h"

namespace tilewright {
namespace {

constexpr int kMaxHeads = 8;  // the columns of a product

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (s.type_a != DataType::kBF16 && s.type_a != DataType::kF16) {
    return Reject(Reason::kType, Format("type_a = {}", DataTypeName(s.type_a)), "bf16 or f16");
  }
  if (s.type_b != s.type_a) {
    return Reject(Reason::kType, Format("type_b = {}", DataTypeName(s.type_b)),
                  Format("{}, as type_a", DataTypeName(s.type_a)));
  }
  if (auto no = CheckHeadDim(s)) return no;
  constexpr std::array kWarps{2, 4, 8};
  if (auto no = CheckOneOf("warps", s.warps, kWarps)) return no;
  if (auto no = CheckRange("tile_m", s.tile_m, kMaxHeads, kMaxHeads)) return no;
  const int round = cuda::AttentionDecodeRound(s.warps);
  if (auto no = CheckRange("tile_n", s.tile_n, round, round)) return no;
  if (auto no = CheckRange("tile_k", s.tile_k, 0, 0)) return no;
  if (auto no = CheckRange("stages", s.stages, 1, 4)) return no;
  constexpr std::array kClusters{0, 2, 4, 8};
  if (auto no = CheckOneOf("cluster_n", s.cluster_n, kClusters)) return no;
  if (auto no = CheckRange("param1", s.params[1], 0, 1)) return no;
  if (auto no = CheckRange("param2", s.params[2], 0, 1)) return no;
  if (s.arch.number < 90 && (s.cluster_n > 0 || s.params[1] > 0)) {
    return Reject(Reason::kDevice, Format("a cluster or param1 = 1 for {}", s.arch.ToString()),
                  "sm_90 or newer");
  }
  KernelSpec rest = s;
  rest.stages = rest.cluster_n = 0;  // which no other family of this room has
  rest.params[1] = rest.params[2] = 0;
  return CheckAttentionRest(rest);
}

KernelLaunchShape LaunchShape(const KernelSpec& s) {
  const unsigned int new_row = s.params[2] != 0 ? cuda::AttentionNewRowSmem(s.params[0]) : 0;
  return {.threads = s.warps * 32u,
          .dynamic_smem_bytes =
              cuda::AttentionDecodeSmem(s.params[0], s.warps, s.stages, s.cluster_n) + new_row};
}

struct Shape {
  std::uint8_t warps, stages, cluster;
  bool foresees;
};
/// Two stages of four warps are two CTAs to a multiprocessor of an A100.
constexpr Shape kShapes[] = {{4, 2, 0, false}, {8, 2, 0, false}};
/// From sm_90 on: two CTAs to a multiprocessor for many rows; and for few, clusters that foresee what
/// they will read. In us on an H200, with the best of kShapes:
///   pairs of rows and KV heads, size, positions   w8.s1  w4.s3  c4.w8  c8.w4  c8.w8  c2.w8  kShapes
///     8 of 128,    512                              5.42   5.10   3.90   4.01   4.33   4.04    5.00
///     8 of 128,  1,024                              6.32   6.48   5.37   5.44   5.02   5.86    5.69
///     8 of 128, 16,384                             25.94  22.25  41.14  40.63  28.37  52.17   25.02
///     3 of 64,     512                              4.36   4.19   2.83   2.69   2.90   3.21    4.26
///    64 of 128,    512                              8.92   7.99  11.53  12.57  20.71   7.16    8.04
///    96 of 64,     512                              7.52   8.57  10.75  11.16  18.25   8.64    8.05
///   256 of 128,    512                             18.56  18.44  48.91  36.34  88.57  34.88   19.43
///   256 of 128,  4,096                            122.35 124.61 155.79 138.06 184.33 133.45  122.17
/// Foreseeing was worth 0.5 us with few rows and lost with many. Clusters of four warps in two
/// stages, or of two warps, were never the fastest.
constexpr Shape kHopperShapes[] = {{8, 1, 0, false}, {4, 3, 0, false}, {8, 1, 4, true},
                                   {4, 1, 8, true},  {8, 1, 8, true},  {8, 2, 2, true}};

/// Of kernels that turn their row, beside those: behind a product, clusters with heads of 128
/// elements gain nothing by looking ahead. In whole passes on an H200, 512 positions held, in
/// tokens a second:
///                                           foresees  foresees nothing  rope_kv in front
///   Llama-3.1-8B q4_k, 8 KV heads of 128       641.0             651.7             631.4
///   SmolLM2-135M q4_1, 3 KV heads of 64       2376.6            2329.6
/// Alone foreseeing is the faster one for both: 4.76 us against 5.15, 3.12 against 3.45.
constexpr Shape kLateShape = {8, 1, 8, false};

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  const std::span<const Shape> shapes =
      arch.number < 90 ? std::span<const Shape>(kShapes) : std::span<const Shape>(kHopperShapes);
  for (const DataType type : {DataType::kBF16, DataType::kF16}) {
    for (const int head_dim : {64, 128}) {
      const auto add = [&](const Shape& shape, int turns) {
        KernelSpec spec;
        spec.family = "attention_decode";
        spec.arch = arch;
        spec.type_a = spec.type_b = spec.type_d = type;
        spec.order_a = spec.order_b = Order::kRowMajor;
        spec.tile_m = kMaxHeads;
        spec.tile_n = static_cast<std::uint16_t>(cuda::AttentionDecodeRound(shape.warps));
        spec.stages = shape.stages;
        spec.warps = shape.warps;
        spec.cluster_n = shape.cluster;
        spec.params[0] = head_dim;
        spec.params[1] = shape.foresees ? 1 : 0;
        spec.params[2] = turns;
        specs.push_back(spec);
      };
      for (const Shape& shape : shapes)
        for (const int turns : {0, 1}) add(shape, turns);
      if (arch.number >= 90) add(kLateShape, 1);
    }
  }
  return specs;
}

}  // namespace

KernelFamily AttentionDecodeFamily() {
  return {.name = "attention_decode",
          .source = "ops/attention/cuda/attention_decode.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchShape,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

}  // namespace tilewright
