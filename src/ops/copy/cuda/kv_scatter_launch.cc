#include "ops/copy/cuda/kv_scatter_launch.h"

#include <limits>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "device/cuda/kv_cache.h"
#include "device/cuda/row_views.h"
#include "ops/copy/cuda/families.h"
#include "tilewright/cuda/kv_scatter_params.h"

namespace tilewright {
namespace {

cuda::KvCacheViews CacheOf(const kv_scatter::Args& args) {
  return {args.cache, args.positions, args.slots, args.pages};
}

std::optional<Rejection> CheckArgs(const KernelSpec& spec, const kv_scatter::Args& args) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  const TensorView& x = args.x;
  const std::int64_t head_dim = x.shape[0], heads = x.shape[1], rows = x.shape[2];
  if (head_dim < 1 || heads < 1 || rows < 1 || rows > kMax || heads > kMaxKvScatterRow / head_dim) {
    return Reject(Reason::kShape, Format("{} rows of {} heads of {}", rows, heads, head_dim),
                  Format("1 to {} rows of up to {} elements", kMax, kMaxKvScatterRow));
  }
  if (auto no = cuda::CheckOperand("x", x, spec.type_a, {head_dim, heads, rows, 1})) return no;
  if (head_dim > 1 && x.stride[0] != 1)
    return Reject(Reason::kStriding, "x: elements apart", "adjacent elements");
  return cuda::CheckKvCache(CacheOf(args), spec.type_c, x);
}

bool IsWide(const kv_scatter::Args& args) {
  cuda::RowStrides strides;
  for (std::size_t d = 1; d < 3; ++d) strides.rows[d] = args.x.shape[d] > 1 ? args.x.stride[d] : 0;
  return args.x.shape[0] % 8 == 0 && cuda::AlignedTo16(args.x, strides) &&
         cuda::AlignedTo(CacheOf(args), 16);
}

}  // namespace

cuda::LaunchResult KvScatterLaunch(const KernelSpec& spec, const kv_scatter::Args& args) {
  const KernelFamily family = KvScatterFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckArgs(spec, args)) return tl::unexpected(*std::move(no));
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::KvScatterParams p{};
  p.x = args.x.data;
  p.x_head = args.x.stride[1];
  p.x_row = args.x.stride[2];
  p.cache = cuda::KvCacheRowsOf(CacheOf(args));
  p.rows = static_cast<int>(args.x.shape[2]);
  p.heads = static_cast<int>(args.x.shape[1]);
  p.head_dim = static_cast<int>(args.x.shape[0]);
  p.wide = IsWide(args) ? 1 : 0;
  cuda::CudaLaunch launch;
  launch.grid = {
      static_cast<std::uint32_t>(p.rows),
      cuda::KvScatterGridY(p.heads, p.head_dim, p.wide, static_cast<int>(compiled.threads)), 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(p);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
