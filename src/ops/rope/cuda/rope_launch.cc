#include "ops/rope/cuda/rope_launch.h"

#include <limits>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "device/cuda/kv_cache.h"
#include "device/cuda/row_views.h"
#include "ops/rope/angles.h"
#include "ops/rope/cuda/families.h"
#include "tilewright/cuda/rope_params.h"

namespace tilewright {
namespace {

cuda::KvCacheViews CacheOf(const rope::Args& args) {
  return {args.cache, args.positions, args.slots, args.pages};
}

std::optional<Rejection> CheckRotation(const rope::Args& args) {
  const std::int64_t head_dim = args.qk.shape[0];
  const std::int32_t dims = args.params.dims;
  if (dims < 2 || dims % 2 != 0 || dims > cuda::kMaxRopeDims || dims > head_dim) {
    return Reject(Reason::kShape, Format("dims = {}", dims),
                  Format("even, 2 to the head dimension {} and {}", head_dim, cuda::kMaxRopeDims));
  }
  if (args.table == nullptr || args.table->turns() == nullptr) {
    return Reject(Reason::kShape, "no table of rotations", "one in the memory of the device");
  }
  if (args.table->params() != args.params) {
    return Reject(Reason::kShape, "a table of other parameters", "one of these");
  }
  return std::nullopt;
}

std::optional<Rejection> CheckArgs(const KernelSpec& spec, const rope::Args& args) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max() - 1024;
  constexpr std::int64_t kMaxElements = 1 << 26;  // of a row: the grid has room for their CTAs
  const TensorView& in = args.qk;
  const std::int64_t head_dim = in.shape[0], heads = in.shape[1], rows = in.shape[2];
  if (head_dim < 2 || head_dim % 2 != 0 || heads < 1 || rows < 1 || rows > kMax ||
      heads > kMaxElements / head_dim) {
    return Reject(
        Reason::kShape, Format("{} rows of {} heads of {}", rows, heads, head_dim),
        Format("1 to {} rows of up to {} elements, an even head dimension", kMax, kMaxElements));
  }
  if (auto no = cuda::CheckOperand("qk", in, spec.type_a, {head_dim, heads, rows, 1})) return no;
  if (in.stride[0] != 1)
    return Reject(Reason::kStriding, "qk: elements apart", "adjacent elements");
  if (auto no = CheckRotation(args)) return no;
  if (rope::IntoCache(args)) return cuda::CheckKvCache(CacheOf(args), spec.type_d, in);
  if (auto no = cuda::CheckOperand("out", args.out, spec.type_d, in.shape)) return no;
  if (args.out.stride[0] != 1)
    return Reject(Reason::kStriding, "out: elements apart", "adjacent elements");
  if (auto no = cuda::CheckOperand("positions", args.positions, DataType::kI32)) return no;
  if (args.positions.shape[0] < rows || args.positions.stride[0] != 1) {
    return Reject(Reason::kShape, Format("positions of {} elements", args.positions.shape[0]),
                  Format("{} adjacent elements", rows));
  }
  return std::nullopt;
}

bool IsWide(const rope::Args& args) {
  if (args.qk.shape[0] % 8 != 0 || args.params.dims % 8 != 0 || !FoursAligned(args.qk))
    return false;
  if (!rope::IntoCache(args)) return FoursAligned(args.out);
  return cuda::AlignedTo(CacheOf(args), static_cast<std::int64_t>(BytesOf(args.cache.dtype, 4)));
}

}  // namespace

bool FoursAligned(const TensorView& heads) {
  const auto bytes = static_cast<std::int64_t>(BytesOf(heads.dtype, 4));
  auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(heads.data));
  for (std::size_t d = 1; d < 3; ++d) {
    if (heads.shape[d] > 1)
      address |= static_cast<std::int64_t>(BytesOf(heads.dtype, heads.stride[d]));
  }
  return address % bytes == 0;
}

cuda::LaunchResult RopeLaunch(const KernelSpec& spec, const rope::Args& args) {
  const KernelFamily family = RopeFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckArgs(spec, args)) return tl::unexpected(*std::move(no));
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::RopeHeadsParams p{};
  p.in = args.qk.data;
  p.out = args.out.data;
  p.positions = args.positions.as<const int>();
  p.turns = reinterpret_cast<const unsigned long long*>(args.table->turns());
  if (rope::IntoCache(args)) p.cache = cuda::KvCacheRowsOf(CacheOf(args));
  p.in_head = args.qk.stride[1], p.in_row = args.qk.stride[2];
  p.out_head = args.out.stride[1], p.out_row = args.out.stride[2];
  p.rows = static_cast<int>(args.qk.shape[2]);
  p.heads = static_cast<int>(args.qk.shape[1]);
  p.head_dim = static_cast<int>(args.qk.shape[0]);
  p.dims = args.params.dims;
  p.half_split = args.params.mode == RopeMode::kHalfSplit ? 1 : 0;
  p.wide = IsWide(args) ? 1 : 0;
  p.cta_heads = cuda::RopeCtaHeads(p.head_dim, p.wide, static_cast<int>(compiled.threads));
  cuda::CudaLaunch launch;
  launch.grid = {static_cast<std::uint32_t>(p.rows), cuda::RopeGridY(p.heads, p.cta_heads), 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(p);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
