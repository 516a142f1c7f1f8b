#include <array>
#include <iterator>

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
  if (s.arch.number < 90 && (s.cluster_n > 0 || s.params[1] > 0)) {
    return Reject(Reason::kDevice, Format("a cluster or param1 = 1 for {}", s.arch.ToString()),
                  "sm_90 or newer");
  }
  KernelSpec rest = s;
  rest.stages = rest.cluster_n = 0;  // which no other family of this room has
  rest.params[1] = 0;
  return CheckAttentionRest(rest);
}

KernelLaunchShape LaunchShape(const KernelSpec& s) {
  return {
      .threads = s.warps * 32u,
      .dynamic_smem_bytes = cuda::AttentionDecodeSmem(s.params[0], s.warps, s.stages, s.cluster_n)};
}

struct Shape {
  std::uint8_t warps, stages, cluster;
  bool foresees;
};
/// For many rows. Two stages of four warps are three CTAs to a multiprocessor of an H100, each with
/// half of its ring on the way.
constexpr Shape kShapes[] = {{4, 2, 0, false}, {8, 2, 0, false}};
/// For few rows, from sm_90 on: CTAs of a row are a cluster, and foresee what they will read. In us
/// on an H200, best of these in the first column, beside the best without a cluster:
///   8 pairs of rows and KV heads of 128, 512 positions     3.93  5.19
///   the same, 1,024 positions                              6.11  6.68 (an earlier state of both)
///   3 pairs of 64, 512 positions                           3.46  5.05 (the same)
///   96 pairs of 64, 512 positions                          7.77  8.44 (the same)
/// Foreseeing was worth 0.5 us; with many rows it lost, as clusters of more than two did. Of two
/// stages, of four, or of two warps nothing was gained.
constexpr Shape kClusterShapes[] = {{8, 1, 4, true}, {4, 1, 8, true},  {8, 1, 8, true},
                                    {8, 2, 2, true}, {4, 3, 0, false}, {8, 1, 0, false}};

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  if (arch.number >= 90)
    shapes.insert(shapes.end(), std::begin(kClusterShapes), std::end(kClusterShapes));
  for (const DataType type : {DataType::kBF16, DataType::kF16}) {
    for (const int head_dim : {64, 128}) {
      for (const Shape& shape : shapes) {
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
        specs.push_back(spec);
      }
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
