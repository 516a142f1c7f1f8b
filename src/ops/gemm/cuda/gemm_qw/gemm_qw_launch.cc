#include "ops/gemm/cuda/gemm_qw/gemm_qw_launch.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "engine/workspace.h"
#include "ops/gemm/cuda/gemm_args.h"
#include "ops/gemm/cuda/gemm_qw/families.h"
#include "tilewright/cuda/gemm_qw_params.h"

namespace tilewright {
namespace {

std::int64_t Units(const KernelSpec& spec, const GemmShape& shape) {
  return cuda::GemmQwUnits(shape.m, shape.n, shape.k, spec.tile_m, spec.tile_n);
}

/// Whether the run of a CTA begins within an output tile.
bool SharesTiles(const KernelSpec& spec, const GemmShape& shape, int ctas) {
  const std::int64_t units = Units(spec, shape);
  const int k_tiles = cuda::GemmQKTiles(shape.k);
  for (int cta = 1; cta < ctas; ++cta)
    if (cuda::GemmQwBegin(units, cta, ctas) % k_tiles != 0) return true;
  return false;
}

/// Why the k-tiles of all output tiles are too many to be counted.
std::optional<Rejection> CheckUnits(const KernelSpec& spec, const GemmShape& shape) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::int64_t units = Units(spec, shape);
  if (units <= kMost) return std::nullopt;
  return Reject(Reason::kShape, Format("{} k-tiles", units), Format("at most {}", kMost));
}

}  // namespace

std::optional<Rejection> CheckGemmQwOperands(const KernelSpec& spec, const GemmArgs& args) {
  if (auto no = CheckGemmArgs(spec, args)) return no;
  const TypeInfo& weight = GetTypeInfo(spec.type_b);
  const std::int32_t k = args.a_layout.cols;
  if (k % weight.block_elements != 0) {
    return Reject(Reason::kShape, Format("k = {}", k),
                  Format("a multiple of {} for {}", weight.block_elements, weight.name));
  }
  const std::uint64_t x_bits = reinterpret_cast<std::uintptr_t>(args.a) |
                               static_cast<std::uint64_t>(BytesOf(spec.type_a, args.a_layout.ld));
  if (x_bits % 16 != 0) {
    return Reject(Reason::kAlignment, Format("A at {}, ld = {}", args.a, args.a_layout.ld),
                  "rows aligned to 16 bytes");
  }
  return std::nullopt;
}

std::optional<Rejection> CheckGemmQw(const KernelSpec& spec, const GemmArgs& args) {
  if (auto no = CheckFamily(spec, GemmQwFamily())) return no;
  if (auto no = CheckGemmQwOperands(spec, args)) return no;
  return CheckUnits(spec, ShapeOf(args));
}

cuda::TensorMapDesc GemmQwWeights(const KernelSpec& spec, const GemmArgs& args, int rows) {
  const TypeInfo& weight = GetTypeInfo(spec.type_b);
  const int unit = cuda::GemmQwUnitBytes(weight.block_bytes);
  const auto u64 = [](auto value) { return static_cast<std::uint64_t>(value); };
  cuda::TensorMapDesc desc{.type = unit == 2 ? DataType::kBF16 : DataType::kI8,
                           .swizzled = false,
                           .address = reinterpret_cast<std::uintptr_t>(args.b)};
  desc.dims = {u64(BytesOf(spec.type_b, args.a_layout.cols)) / u64(unit), u64(args.b_layout.cols)};
  desc.strides = {u64(BytesOf(spec.type_b, args.b_layout.ld))};
  const int line = cuda::GemmQwLineBytes(weight.block_bytes, weight.block_elements);
  desc.box = {static_cast<std::uint32_t>(line / unit), static_cast<std::uint32_t>(rows)};
  return desc;
}

int GemmQwCtas(const KernelSpec& spec, const GemmShape& shape, const DeviceSpec& device) {
  return static_cast<int>(cuda::GemmQwGridX(Units(spec, shape), device.sm_count, spec.params[1]));
}

WorkspaceSize GemmQwWorkspace(const KernelSpec& spec, const GemmShape& shape,
                              const DeviceSpec& device) {
  const int ctas = GemmQwCtas(spec, shape, device);
  if (!SharesTiles(spec, shape, ctas)) return {};
  const auto tiles =
      static_cast<std::size_t>(cuda::GemmQTiles(shape.m, shape.n, spec.tile_m, spec.tile_n));
  const std::size_t sums = std::size_t{4} * spec.tile_m * spec.tile_n;
  return {.barriers = tiles * sizeof(std::uint32_t),
          .partials = static_cast<std::size_t>(ctas) * sums};
}

cuda::LaunchResult GemmQwLaunch(const KernelSpec& spec, const GemmArgs& args,
                                const DeviceSpec& device, const Workspace& workspace) {
  if (auto no = CheckGemmQw(spec, args)) return tl::unexpected(*std::move(no));
  const GemmShape shape = ShapeOf(args);
  const WorkspaceSize needed = GemmQwWorkspace(spec, shape, device);
  if (auto no = CheckWorkspace(workspace, needed)) return tl::unexpected(*std::move(no));
  const KernelLaunchShape compiled = GemmQwFamily().launch(spec);
  cuda::CudaLaunch launch;
  launch.grid = {static_cast<std::uint32_t>(GemmQwCtas(spec, shape, device)), 1, 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(cuda::GemmQwParams{
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
      .alpha = args.alpha,
      .beta = args.beta,
      .w_constant = args.constant_b ? 1 : 0,
  });
  launch.map_slots[launch.map_count++] = {offsetof(cuda::GemmQwParams, w), "B",
                                          GemmQwWeights(spec, args, spec.tile_n)};
  if (needed.partials != 0)
    launch.workspace = {needed.partials + needed.barriers, cuda::Zeroing::kOnce};
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
