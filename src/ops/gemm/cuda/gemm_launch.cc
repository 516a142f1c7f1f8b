#include "ops/gemm/cuda/gemm_launch.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "engine/workspace.h"
#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/family_checks.h"
#include "ops/gemm/cuda/gemm_args.h"
#include "ops/gemm/cuda/gemm_hopper_shares.h"
#include "ops/gemm/cuda/gemm_mma_splits.h"
#include "tilewright/cuda/gemm_params.h"

namespace tilewright {
namespace {

std::uint64_t Address(const void* p) { return reinterpret_cast<std::uint64_t>(p); }

/// The kernels count output tiles, and the CTAs that share them, in an int.
std::optional<Rejection> CheckTiles(const KernelSpec& spec, const GemmShape& shape,
                                    int splits = 1) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max() - 1024;
  const int cluster = std::max<int>(spec.cluster_m, 1);
  const std::int64_t tiles =
      cuda::GemmTiles(shape.m, shape.n, spec.tile_m * cluster, spec.tile_n) * cluster;
  if (tiles > kMax / splits) {
    return Reject(Reason::kShape, Format("{} output tiles", tiles), Format("at most {}", kMax));
  }
  return std::nullopt;
}

cuda::GemmOutput OutputOf(const GemmArgs& args) {
  const GemmShape shape = ShapeOf(args);
  return {.c = args.c,
          .d = args.d,
          .ldc = args.c_layout.ld,
          .ldd = args.d_layout.ld,
          .m = shape.m,
          .n = shape.n,
          .k = shape.k,
          .alpha = args.alpha,
          .beta = args.beta,
          .reserved = 0};
}

/// Threads and shared memory as the family compiles the kernel for.
cuda::CudaLaunch LaunchOf(const KernelFamily& family, const KernelSpec& spec) {
  const KernelLaunchShape shape = family.launch(spec);
  cuda::CudaLaunch launch;
  launch.block = {shape.threads, 1, 1};
  launch.dynamic_smem_bytes = shape.dynamic_smem_bytes;
  return launch;
}

/// An operand with k contiguous if `k_major`, else with its `rows` (m or n) contiguous; `box_rows`
/// of the rows go into one copy.
cuda::TensorMapDesc Describe(const void* data, const MatrixLayout& layout, bool k_major,
                             std::int32_t rows, std::int32_t k, std::uint32_t box_rows) {
  const auto u64 = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  cuda::TensorMapDesc desc{.type = layout.type, .address = Address(data)};
  desc.strides[0] = BytesOf(layout.type, layout.ld);
  if (k_major) {
    desc.dims = {u64(k), u64(rows)};
    desc.box = {kHopperTileK, box_rows};
  } else {
    // A line of the 128-byte swizzle holds 64 rows, whatever the tile.
    desc.dims = {u64(rows), u64(k)};
    desc.box = {kHopperTileK, kHopperTileK};
  }
  return desc;
}

/// D, where it can be stored by TMA: in pieces of 64 rows and 128 bytes. TMA writes whole chunks of
/// 16 bytes, also where only part of one is inside of the size.
std::optional<cuda::TensorMapDesc> DescribeResult(const GemmArgs& args) {
  const MatrixLayout& d = args.d_layout;
  const std::uint64_t stride = BytesOf(d.type, d.ld);
  if (Address(args.d) % 16 != 0 || stride % 16 != 0 || BytesOf(d.type, d.cols) % 16 != 0) {
    return std::nullopt;
  }
  cuda::TensorMapDesc desc{.type = d.type, .address = Address(args.d)};
  desc.dims = {static_cast<std::uint64_t>(d.cols), static_cast<std::uint64_t>(d.rows)};
  desc.strides = {stride};
  desc.box = {static_cast<std::uint32_t>(128 / BytesOf(d.type, 1)), 64};
  return desc;
}

void AddMap(cuda::CudaLaunch& launch, std::size_t offset, const char* operand,
            const cuda::TensorMapDesc& desc) {
  launch.map_slots[launch.map_count++] = {offset, operand, desc};
}

}  // namespace

namespace {

/// `splits` CTAs for each output tile.
cuda::CudaLaunch TilesLaunch(const KernelFamily& family, const KernelSpec& spec,
                             const GemmArgs& args, int splits, const Workspace& workspace) {
  const GemmShape shape = ShapeOf(args);
  cuda::CudaLaunch launch = LaunchOf(family, spec);
  launch.grid = {cuda::GemmMmaGridX(shape.m, shape.n, spec.tile_m, spec.tile_n, splits), 1, 1};
  launch.params = cuda::KernelParams(cuda::GemmMmaParams{
      .a = args.a,
      .b = args.b,
      .lda = args.a_layout.ld,
      .ldb = args.b_layout.ld,
      .out = OutputOf(args),
      .partials = static_cast<float*>(workspace.partials),
      .arrivals = static_cast<unsigned int*>(workspace.barriers),
      .splits = splits,
      .reserved = 0,
  });
  return launch;
}

}  // namespace

cuda::LaunchResult GemmMmaLaunch(const KernelSpec& spec, const GemmArgs& args,
                                 const DeviceSpec& device, const Workspace& workspace) {
  const KernelFamily family = GemmMmaFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckGemmArgs(spec, args)) return tl::unexpected(*std::move(no));
  const GemmShape shape = ShapeOf(args);
  const int splits = GemmMmaSplits(spec, shape, device);
  if (auto no = CheckTiles(spec, shape, splits)) return tl::unexpected(*std::move(no));
  const WorkspaceSize needed = GemmMmaWorkspace(spec, shape, device);
  if (auto no = CheckWorkspace(workspace, needed)) return tl::unexpected(*std::move(no));
  cuda::CudaLaunch launch = TilesLaunch(family, spec, args, splits, workspace);
  if (splits > 1) launch.workspace = {needed.partials + needed.barriers, cuda::Zeroing::kOnce};
  return cuda::CheckedLaunch(launch);
}

cuda::LaunchResult GemmSimtLaunch(const KernelSpec& spec, const GemmArgs& args) {
  const KernelFamily family = GemmSimtFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckGemmArgs(spec, args)) return tl::unexpected(*std::move(no));
  if (auto no = CheckTiles(spec, ShapeOf(args))) return tl::unexpected(*std::move(no));
  return cuda::CheckedLaunch(TilesLaunch(family, spec, args, 1, {}));
}

namespace {

void AddHopperMaps(const KernelSpec& spec, const GemmArgs& args, cuda::CudaLaunch& launch) {
  const GemmShape shape = ShapeOf(args);
  const std::uint32_t rows_a = static_cast<std::uint32_t>(
      cuda::GemmHopperBoxRows(shape.m, spec.tile_m, std::max<int>(spec.cluster_n, 1)));
  const auto rows_b = static_cast<std::uint32_t>(
      spec.tile_n / cuda::GemmHopperPartsOfB(spec.tile_n, spec.cluster_m));
  AddMap(
      launch, offsetof(cuda::GemmHopperParams, a), "A",
      Describe(args.a, args.a_layout, spec.order_a == Order::kRowMajor, shape.m, shape.k, rows_a));
  AddMap(
      launch, offsetof(cuda::GemmHopperParams, b), "B",
      Describe(args.b, args.b_layout, spec.order_b == Order::kColMajor, shape.n, shape.k, rows_b));
  if (const auto d = DescribeResult(args)) {
    AddMap(launch, offsetof(cuda::GemmHopperParams, d), "D", *d);
  }
}

}  // namespace

cuda::LaunchResult GemmHopperLaunch(const KernelSpec& spec, const GemmArgs& args,
                                    const DeviceSpec& device, const Workspace& workspace) {
  const KernelFamily family = GemmHopperFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckGemmArgs(spec, args)) return tl::unexpected(*std::move(no));
  const GemmShape shape = ShapeOf(args);
  if (auto no = CheckTiles(spec, shape)) return tl::unexpected(*std::move(no));
  const WorkspaceSize needed = GemmHopperWorkspace(spec, shape, device);
  if (auto no = CheckWorkspace(workspace, needed)) return tl::unexpected(*std::move(no));
  cuda::CudaLaunch launch = LaunchOf(family, spec);
  // The cluster is part of the kernel: no launch attribute.
  launch.grid = {
      cuda::GemmHopperGridX(shape.m, shape.n, shape.k, GemmHopperTileOf(spec), device.sm_count),
      std::max<std::uint32_t>(spec.cluster_n, 1) * std::max<std::uint32_t>(spec.split_k, 1), 1};
  cuda::GemmHopperParams params{};
  params.out = OutputOf(args);
  params.shares = GemmHopperSharesOf(spec, shape, device);
  if (params.shares.count > 0) {
    params.partials = static_cast<float*>(workspace.partials);
    params.arrivals = static_cast<unsigned int*>(workspace.barriers);
    launch.workspace = {needed.partials + needed.barriers, cuda::Zeroing::kOnce};
  }
  launch.params = cuda::KernelParams(params);
  AddHopperMaps(spec, args, launch);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
