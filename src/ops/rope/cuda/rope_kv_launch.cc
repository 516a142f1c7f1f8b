#include "ops/rope/cuda/rope_kv_launch.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/rope/cuda/families.h"
#include "tilewright/cuda/rope_kv_params.h"

namespace tilewright {
namespace {

constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max() - 1024;

using Shape = std::array<std::int64_t, 4>;

std::optional<Rejection> CheckView(const char* name, const TensorView& view, DataType type,
                                   const Shape& shape) {
  if (view.dtype != type) {
    return Reject(Reason::kType, Format("{} {}", name, DataTypeName(view.dtype)),
                  std::string(DataTypeName(type)));
  }
  if (view.shape != shape) {
    const auto words = [](const Shape& s) {
      return Format("[{}, {}, {}, {}]", s[0], s[1], s[2], s[3]);
    };
    return Reject(Reason::kShape, Format("{} {}", name, words(view.shape)), words(shape));
  }
  if (view.stride[0] != 1) {
    return Reject(Reason::kStriding, Format("{}: elements {} apart", name, view.stride[0]),
                  "adjacent elements");
  }
  if (view.data == nullptr) {
    return Reject(Reason::kShape, Format("{} is null", name), "device memory");
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % BytesOf(type, 1) != 0) {
    return Reject(Reason::kAlignment, Format("{} at {}", name, view.data),
                  Format("a multiple of its element, {} bytes", BytesOf(type, 1)));
  }
  return std::nullopt;
}

std::int64_t HeadsOf(const TensorView& view) { return view.data != nullptr ? view.shape[1] : 0; }

std::optional<Rejection> CheckRotation(const KernelSpec& spec, const RopeParams& params) {
  const RopeMode mode = spec.params[1] != 0 ? RopeMode::kHalfSplit : RopeMode::kInterleaved;
  if (params.mode != mode) {
    return Reject(Reason::kOrder, "pairs of the other mode",
                  mode == RopeMode::kHalfSplit ? "half-split pairs" : "adjacent pairs");
  }
  if (params.dims < 2 || params.dims % 2 != 0 || params.dims > spec.params[0]) {
    return Reject(Reason::kShape, Format("dims = {}", params.dims),
                  Format("even, 2 to the head dimension {}", spec.params[0]));
  }
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
  if (auto no = CheckRotation(spec, args.params)) return no;
  if (args.turns == nullptr) return Reject(Reason::kShape, "turns is null", "device memory");
  if (auto no = CheckView("positions", args.positions, DataType::kI32, {rows, 1, 1, 1})) return no;
  const std::int64_t dim = spec.params[0];
  if (heads > 0) {
    if (auto no = CheckView("q", args.q, spec.type_a, {dim, heads, rows, 1})) return no;
    if (auto no = CheckView("q_out", args.q_out, spec.type_d, {dim, heads, rows, 1})) return no;
  }
  if (kv_heads == 0) return std::nullopt;
  if (auto no = CheckView("slots", args.slots, DataType::kI32, {rows, 1, 1, 1})) return no;
  if (auto no = CheckView("k", args.k, spec.type_a, {dim, kv_heads, rows, 1})) return no;
  if (auto no = CheckView("v", args.v, spec.type_a, {dim, kv_heads, rows, 1})) return no;
  const std::int64_t context = args.k_cache.shape[2], slots = args.k_cache.shape[3];
  if (context < 1 || context > kMaxExtent || slots < 1 || slots > kMaxExtent) {
    return Reject(Reason::kShape, Format("a cache of {} positions, {} slots", context, slots),
                  Format("1 to {} of each", kMaxExtent));
  }
  const Shape cache{dim, kv_heads, context, slots};
  if (auto no = CheckView("k_cache", args.k_cache, spec.type_c, cache)) return no;
  return CheckView("v_cache", args.v_cache, spec.type_c, cache);
}

cuda::RopeKvParams ParamsOf(const RopeKvArgs& args) {
  cuda::RopeKvParams p{};
  p.q = args.q.data;
  p.q_out = args.q_out.data;
  p.k = args.k.data;
  p.v = args.v.data;
  p.k_cache = args.k_cache.data;
  p.v_cache = args.v_cache.data;
  p.positions = args.positions.as<const int>();
  p.slots = args.slots.as<const int>();
  p.turns = reinterpret_cast<const unsigned long long*>(args.turns);
  p.fault = args.fault;
  p.q_head = args.q.stride[1], p.q_row = args.q.stride[2];
  p.q_out_head = args.q_out.stride[1], p.q_out_row = args.q_out.stride[2];
  p.k_head = args.k.stride[1], p.k_row = args.k.stride[2];
  p.v_head = args.v.stride[1], p.v_row = args.v.stride[2];
  p.k_cache_head = args.k_cache.stride[1];
  p.k_cache_position = args.k_cache.stride[2];
  p.k_cache_slot = args.k_cache.stride[3];
  p.v_cache_head = args.v_cache.stride[1];
  p.v_cache_position = args.v_cache.stride[2];
  p.v_cache_slot = args.v_cache.stride[3];
  p.rows = static_cast<int>(args.positions.shape[0]);
  p.heads = static_cast<int>(HeadsOf(args.q));
  p.kv_heads = static_cast<int>(HeadsOf(args.k));
  p.dims = args.params.dims;
  p.context = static_cast<int>(args.k_cache.shape[2]);
  p.slot_count = static_cast<int>(args.k_cache.shape[3]);
  return p;
}

}  // namespace

cuda::LaunchResult RopeKvLaunch(const KernelSpec& spec, const RopeKvArgs& args) {
  const KernelFamily family = RopeKvFamily();
  if (spec.family != family.name) {
    return tl::unexpected(*Reject(Reason::kDevice, Format("a kernel of {}", spec.family.view()),
                                  Format("one of {}", family.name.view())));
  }
  if (auto no = CheckArgs(spec, args)) return tl::unexpected(*std::move(no));
  const cuda::RopeKvParams params = ParamsOf(args);
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::CudaLaunch launch;
  launch.grid = {static_cast<std::uint32_t>(params.rows),
                 cuda::RopeKvGridY(params.heads, params.kv_heads, spec.tile_n), 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(params);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
