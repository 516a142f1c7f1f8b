#include "ops/gemm/cuda/gemm_q/gemm_q_launch.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "engine/workspace.h"
#include "ops/gemm/cuda/gemm_args.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "tilewright/cuda/gemm_q_params.h"
#include "tilewright/cuda/gemv_params.h"

namespace tilewright {
namespace {

std::int64_t Tiles(const KernelSpec& spec, const GemmShape& shape) {
  return cuda::GemmQTiles(shape.m, shape.n, spec.tile_m, spec.tile_n);
}

bool Misaligned(const void* base, std::int64_t stride_bytes, std::int64_t alignment) {
  const auto bits =
      reinterpret_cast<std::uintptr_t>(base) | static_cast<std::uint64_t>(stride_bytes);
  return bits % static_cast<std::uint64_t>(alignment) != 0;
}

/// What the kernel needs beyond CheckGemmArgs.
std::optional<Rejection> CheckOperands(const KernelSpec& spec, const GemmArgs& args) {
  const TypeInfo& weight = GetTypeInfo(spec.type_b);
  const std::int32_t k = args.a_layout.cols;
  if (k % weight.block_elements != 0) {
    return Reject(Reason::kShape, Format("k = {}", k),
                  Format("a multiple of {} for {}", weight.block_elements, weight.name));
  }
  if (k > cuda::kGemvMaxLdx) {
    return Reject(Reason::kShape, Format("k = {}", k), Format("at most {}", cuda::kGemvMaxLdx));
  }
  const auto row_bytes = static_cast<std::int64_t>(BytesOf(spec.type_b, args.b_layout.ld));
  const int align_w = cuda::GemvRowAlignment(weight.block_bytes);
  if (Misaligned(args.b, row_bytes, align_w)) {
    return Reject(Reason::kAlignment, Format("B at {}, rows of {} bytes", args.b, row_bytes),
                  Format("multiples of {}", align_w));
  }
  const auto x_bytes = static_cast<std::int64_t>(BytesOf(spec.type_a, args.a_layout.ld));
  if (Misaligned(args.a, x_bytes, 16)) {
    return Reject(Reason::kAlignment, Format("A at {}, ld = {}", args.a, args.a_layout.ld),
                  "rows aligned to 16 bytes");
  }
  return std::nullopt;
}

}  // namespace

int GemmQSplits(const KernelSpec& spec, const GemmShape& shape, const DeviceSpec& device) {
  // In times of a k-tile: to fill and drain the ring, to leave sums and to add them up.
  constexpr double kFill = 1.5, kMerge = 2, kMergeEach = 0.1;
  constexpr int kMostSplits = 16;
  constexpr std::int64_t kMostPartialBytes = 16 << 20;
  const std::int64_t slots = std::max(device.sm_count, 1) * std::max(spec.params[1], 1);
  const std::int64_t tiles = Tiles(spec, shape);
  const std::int64_t partial_bytes = tiles * spec.tile_m * spec.tile_n * 4;
  const int k_tiles = cuda::GemmQKTiles(shape.k);
  int best = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int splits = 1; splits <= std::min(k_tiles, kMostSplits); ++splits) {
    if (splits > 1 && partial_bytes * splits > kMostPartialBytes) break;
    const auto rounds = static_cast<double>((tiles * splits - 1) / slots + 1);
    const int depth = (k_tiles - 1) / splits + 1;
    const double merge = splits == 1 ? 0 : kMerge + kMergeEach * splits;
    const double time = rounds * (depth + kFill) + merge;
    if (time < least) best = splits, least = time;
  }
  return best;
}

WorkspaceSize GemmQWorkspace(const KernelSpec& spec, const GemmShape& shape,
                             const DeviceSpec& device) {
  const int splits = GemmQSplits(spec, shape, device);
  if (splits == 1) return {};
  const auto tiles = static_cast<std::size_t>(Tiles(spec, shape));
  return {.barriers = tiles * sizeof(std::uint32_t),
          .partials = tiles * static_cast<std::size_t>(splits) * spec.tile_m * spec.tile_n * 4};
}

namespace {

/// `splits` CTAs for each output tile.
cuda::LaunchResult SplitLaunch(const KernelSpec& spec, const GemmArgs& args, int splits,
                               const Workspace& workspace) {
  if (auto no = CheckFamily(spec, GemmQFamily())) return tl::unexpected(*std::move(no));
  if (auto no = CheckGemmArgs(spec, args)) return tl::unexpected(*std::move(no));
  if (auto no = CheckOperands(spec, args)) return tl::unexpected(*std::move(no));
  const GemmShape shape = ShapeOf(args);
  const std::int64_t ctas = Tiles(spec, shape) * splits;
  if (ctas > std::numeric_limits<std::int32_t>::max()) {
    return tl::unexpected(*Reject(Reason::kShape, Format("{} CTAs", ctas),
                                  Format("at most {}", std::numeric_limits<std::int32_t>::max())));
  }
  const KernelLaunchShape compiled = GemmQFamily().launch(spec);
  cuda::CudaLaunch launch;
  launch.grid = {cuda::GemmQGridX(shape.m, shape.n, spec.tile_m, spec.tile_n, splits), 1, 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(cuda::GemmQParams{
      .x = args.a,
      .w = args.b,
      .c = args.c,
      .y = args.d,
      .partials = static_cast<float*>(workspace.partials),
      .arrivals = static_cast<unsigned int*>(workspace.barriers),
      .ldx = args.a_layout.ld,
      .ldc = args.c_layout.ld,
      .ldy = args.d_layout.ld,
      .w_row_bytes = static_cast<long long>(BytesOf(spec.type_b, args.b_layout.ld)),
      .m = shape.m,
      .n = shape.n,
      .k = shape.k,
      .splits = splits,
      .alpha = args.alpha,
      .beta = args.beta,
      .w_constant = args.constant_b ? 1 : 0,
  });
  return cuda::CheckedLaunch(launch);
}

}  // namespace

cuda::LaunchResult GemmQLaunch(const KernelSpec& spec, const GemmArgs& args,
                               const DeviceSpec& device, const Workspace& workspace) {
  cuda::LaunchResult launch =
      SplitLaunch(spec, args, GemmQSplits(spec, ShapeOf(args), device), workspace);
  if (!launch) return launch;
  const WorkspaceSize needed = GemmQWorkspace(spec, ShapeOf(args), device);
  if (auto no = CheckWorkspace(workspace, needed)) return tl::unexpected(*std::move(no));
  launch->workspace = {needed.partials + needed.barriers, cuda::Zeroing::kOnce};
  return launch;
}

cuda::LaunchResult GemmQWholeLaunch(const KernelSpec& spec, const GemmArgs& args) {
  return SplitLaunch(spec, args, 1, {});
}

}  // namespace tilewright
