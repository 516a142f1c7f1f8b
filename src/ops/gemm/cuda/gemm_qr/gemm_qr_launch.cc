#include "ops/gemm/cuda/gemm_qr/gemm_qr_launch.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "engine/workspace.h"
#include "ops/gemm/cuda/gemm_args.h"
#include "ops/gemm/cuda/gemm_qr/families.h"
#include "ops/gemm/cuda/gemm_qw/gemm_qw_launch.h"
#include "tilewright/cuda/gemm_qr_params.h"

namespace tilewright {
namespace {

int TilesN(const KernelSpec& spec, const GemmShape& shape) {
  return (shape.n - 1) / spec.tile_n + 1;
}

int GroupsOf(const KernelSpec& spec, const GemmShape& shape, const DeviceSpec& device, int slices) {
  const int others = slices * cuda::GemmQrTilesM(shape.m, spec.tile_m);
  return std::clamp(device.sm_count / others, 1, TilesN(spec, shape));
}

WorkspaceSize WorkspaceOf(const KernelSpec& spec, const GemmShape& shape, const GemmQrCut& cut) {
  if (cut.slices == 1) return {};
  const auto tiles =
      static_cast<std::size_t>(cuda::GemmQTiles(shape.m, shape.n, spec.tile_m, spec.tile_n));
  return {.barriers = tiles * sizeof(std::uint32_t),
          .partials = tiles * static_cast<std::size_t>(cut.slices) * spec.tile_m * spec.tile_n * 4};
}

}  // namespace

GemmQrCut GemmQrCutOf(const KernelSpec& spec, const GemmShape& shape, const DeviceSpec& device) {
  // To add up the sums of slices, in times of a k-tile of an output tile.
  constexpr double kMerge = 2;
  constexpr int kMostMore = 8;
  const int k_tiles = cuda::GemmQKTiles(shape.k);
  const int least = (k_tiles - 1) / cuda::kGemmQrWarps + 1;
  const int tiles = TilesN(spec, shape), rows = cuda::GemmQrTilesM(shape.m, spec.tile_m);
  const int most = std::min(least + kMostMore, k_tiles);
  GemmQrCut best{};
  double shortest = std::numeric_limits<double>::infinity();
  for (int slices = least; slices <= most; ++slices) {
    const int groups = GroupsOf(spec, shape, device, slices);
    const std::int64_t ctas = std::int64_t{1} * groups * slices * rows;
    const auto rounds = static_cast<double>((ctas - 1) / std::max(device.sm_count, 1) + 1);
    const int of_cta = (tiles - 1) / groups + 1, depth = (k_tiles - 1) / slices + 1;
    const double time = rounds * of_cta * depth + (slices > 1 ? kMerge : 0);
    if (time < shortest) best = {slices, groups}, shortest = time;
  }
  return best;
}

WorkspaceSize GemmQrWorkspace(const KernelSpec& spec, const GemmShape& shape,
                              const DeviceSpec& device) {
  return WorkspaceOf(spec, shape, GemmQrCutOf(spec, shape, device));
}

cuda::LaunchResult GemmQrLaunch(const KernelSpec& spec, const GemmArgs& args,
                                const DeviceSpec& device, const Workspace& workspace) {
  if (auto no = CheckFamily(spec, GemmQrFamily())) return tl::unexpected(*std::move(no));
  if (auto no = CheckGemmQwOperands(spec, args)) return tl::unexpected(*std::move(no));
  const GemmShape shape = ShapeOf(args);
  const GemmQrCut cut = GemmQrCutOf(spec, shape, device);
  const WorkspaceSize needed = WorkspaceOf(spec, shape, cut);
  if (auto no = CheckWorkspace(workspace, needed)) return tl::unexpected(*std::move(no));
  const KernelLaunchShape compiled = GemmQrFamily().launch(spec);
  cuda::CudaLaunch launch;
  launch.grid = {static_cast<std::uint32_t>(cut.slices * cut.groups),
                 static_cast<std::uint32_t>(cuda::GemmQrTilesM(shape.m, spec.tile_m)), 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(cuda::GemmQrParams{
      .w = {},
      .x = args.a,
      .c = args.c,
      .y = args.d,
      .partials = static_cast<float*>(workspace.partials),
      .arrivals = static_cast<unsigned int*>(workspace.barriers),
      .ldx = args.a_layout.ld,
      .ldc = args.c_layout.ld,
      .ldy = args.d_layout.ld,
      .m = shape.m,
      .n = shape.n,
      .k = shape.k,
      .slices = cut.slices,
      .alpha = args.alpha,
      .beta = args.beta,
      .w_constant = args.constant_b ? 1 : 0,
      .padding = 0,
  });
  launch.map_slots[launch.map_count++] = {offsetof(cuda::GemmQrParams, w), "B",
                                          GemmQwWeights(spec, args, spec.tile_n)};
  if (needed.partials != 0)
    launch.workspace = {needed.partials + needed.barriers, cuda::Zeroing::kOnce};
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
