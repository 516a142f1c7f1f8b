#include "ops/rope/cuda/rope_kv_launch.h"

#include <limits>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "device/cuda/kv_cache.h"
#include "device/cuda/row_views.h"
#include "ops/rope/cuda/families.h"
#include "ops/rope/cuda/rope_launch.h"
#include "tilewright/cuda/rope_kv_params.h"

namespace tilewright {
namespace {

constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max() - 1024;

using Shape = std::array<std::int64_t, 4>;

/// Adjacent elements of this type and shape.
std::optional<Rejection> CheckHeads(const char* name, const TensorView& view, DataType type,
                                    const Shape& shape) {
  if (auto no = cuda::CheckOperand(name, view, type, shape)) return no;
  if (view.stride[0] != 1) {
    return Reject(Reason::kStriding, Format("{}: elements {} apart", name, view.stride[0]),
                  "adjacent elements");
  }
  return std::nullopt;
}

std::int64_t HeadsOf(const TensorView& view) { return view.data != nullptr ? view.shape[1] : 0; }

/// Of q, or of k where there is no q.
std::int64_t HeadDimOf(const RopeKvArgs& args) {
  return HeadsOf(args.q) > 0 ? args.q.shape[0] : args.k.shape[0];
}

cuda::KvCacheViews CacheOf(const RopeKvArgs& args) {
  return {args.k_cache, args.positions, args.slots, args.pages};
}

std::optional<Rejection> CheckRotation(const RopeKvArgs& args) {
  const std::int64_t head_dim = HeadDimOf(args);
  const std::int32_t dims = args.params.dims;
  if (head_dim < 2 || head_dim % 2 != 0 || head_dim > kMaxExtent)
    return Reject(Reason::kShape, Format("heads of {}", head_dim), "an even head dimension");
  if (dims < 2 || dims % 2 != 0 || dims > head_dim || dims > cuda::kMaxRopeDims) {
    return Reject(Reason::kShape, Format("dims = {}", dims),
                  Format("even, 2 to the head dimension {} and {}", head_dim, cuda::kMaxRopeDims));
  }
  if (args.turns == nullptr) return Reject(Reason::kShape, "turns is null", "device memory");
  return std::nullopt;
}

std::optional<Rejection> CheckArgs(const KernelSpec& spec, const RopeKvArgs& args) {
  const std::int64_t rows = args.positions.shape[0];
  const std::int64_t heads = HeadsOf(args.q), kv_heads = HeadsOf(args.k);
  if (rows < 1 || rows > kMaxExtent || heads + 2 * kv_heads < 1 || heads > kMaxExtent / 4 ||
      kv_heads > kMaxExtent / 4) {
    return Reject(Reason::kShape, Format("{} rows, {} and {} heads", rows, heads, kv_heads),
                  "a row and a head or more, and fewer than 2^29");
  }
  if (auto no = CheckRotation(args)) return no;
  if (auto no = CheckHeads("positions", args.positions, DataType::kI32, {rows, 1, 1, 1})) return no;
  const std::int64_t dim = HeadDimOf(args);
  if (heads > 0) {
    if (auto no = CheckHeads("q", args.q, spec.type_a, {dim, heads, rows, 1})) return no;
    if (auto no = CheckHeads("q_out", args.q_out, spec.type_d, {dim, heads, rows, 1})) return no;
  }
  if (kv_heads == 0) return std::nullopt;
  if (auto no = CheckHeads("k", args.k, spec.type_a, {dim, kv_heads, rows, 1})) return no;
  if (auto no = CheckHeads("v", args.v, spec.type_a, {dim, kv_heads, rows, 1})) return no;
  if (auto no = cuda::CheckKvCache(CacheOf(args), spec.type_c, args.k)) return no;
  return CheckHeads("v_cache", args.v_cache, spec.type_c, args.k_cache.shape);
}

bool IsWide(const RopeKvArgs& args) {
  if (HeadDimOf(args) % 8 != 0 || args.params.dims % 8 != 0) return false;
  if (HeadsOf(args.q) > 0 && !(FoursAligned(args.q) && FoursAligned(args.q_out))) return false;
  if (HeadsOf(args.k) == 0) return true;
  const auto fours = static_cast<std::int64_t>(BytesOf(args.k_cache.dtype, 4));
  cuda::KvCacheViews values = CacheOf(args);
  values.cache = args.v_cache;
  return FoursAligned(args.k) && FoursAligned(args.v) && cuda::AlignedTo(CacheOf(args), fours) &&
         cuda::AlignedTo(values, fours);
}

cuda::RopeKvParams ParamsOf(const RopeKvArgs& args) {
  cuda::RopeKvParams p{};
  p.rows = static_cast<int>(args.positions.shape[0]);
  p.heads = static_cast<int>(HeadsOf(args.q));
  p.kv_heads = static_cast<int>(HeadsOf(args.k));
  p.head_dim = static_cast<int>(HeadDimOf(args));
  p.dims = args.params.dims;
  p.half_split = args.params.mode == RopeMode::kHalfSplit ? 1 : 0;
  p.wide = IsWide(args) ? 1 : 0;
  p.turns = reinterpret_cast<const unsigned long long*>(args.turns);
  p.fault = args.fault;
  p.cache.positions = args.positions.as<const int>();
  p.q = args.q.data, p.q_out = args.q_out.data;
  p.q_head = args.q.stride[1], p.q_row = args.q.stride[2];
  p.q_out_head = args.q_out.stride[1], p.q_out_row = args.q_out.stride[2];
  if (p.kv_heads == 0) return p;
  p.k = args.k.data, p.v = args.v.data;
  p.k_head = args.k.stride[1], p.k_row = args.k.stride[2];
  p.v_head = args.v.stride[1], p.v_row = args.v.stride[2];
  p.cache = cuda::KvCacheRowsOf(CacheOf(args));
  p.v_cache = args.v_cache.data;
  p.v_cache_head = args.v_cache.stride[1];
  p.v_cache_position = args.v_cache.stride[2];
  p.v_cache_page = args.v_cache.stride[3];
  return p;
}

}  // namespace

RopeKvArgs RopeKvArgsOf(const rope::Args& args) {
  return {.q = args.qk,
          .q_out = args.out,
          .k = args.k,
          .v = args.v,
          .k_cache = args.cache,
          .v_cache = args.v_cache,
          .positions = args.positions,
          .slots = args.slots,
          .pages = args.pages,
          .turns = args.table != nullptr ? args.table->turns() : nullptr,
          .params = args.params};
}

cuda::LaunchResult RopeKvLaunch(const KernelSpec& spec, const RopeKvArgs& args) {
  const KernelFamily family = RopeKvFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckArgs(spec, args)) return tl::unexpected(*std::move(no));
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::RopeKvParams params = ParamsOf(args);
  params.cta_heads =
      cuda::RopeCtaHeads(params.head_dim, params.wide, static_cast<int>(compiled.threads));
  cuda::CudaLaunch launch;
  launch.grid = {static_cast<std::uint32_t>(params.rows),
                 cuda::RopeKvGridY(params.heads, params.kv_heads, params.cta_heads), 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(params);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
