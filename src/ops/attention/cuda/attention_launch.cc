#include "ops/attention/cuda/attention_launch.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/paged_cache.h"
#include "core/text.h"
#include "engine/workspace.h"
#include "ops/attention/checks.h"
#include "ops/attention/cuda/families.h"
#include "tilewright/cuda/attention_simt_params.h"

namespace tilewright::attention {
namespace {

using cuda::AttentionParams;

std::optional<Rejection> CheckView(const char* name, const TensorView& view, DataType type) {
  if (view.dtype != type) {
    return Reject(Reason::kType, Format("{} {}", name, DataTypeName(view.dtype)),
                  std::string(DataTypeName(type)));
  }
  if (view.stride[0] != 1) {
    return Reject(Reason::kStriding, Format("{}: elements {} apart", name, view.stride[0]),
                  "adjacent elements");
  }
  if (view.data == nullptr)
    return Reject(Reason::kShape, Format("{} is null", name), "device memory");
  if (reinterpret_cast<std::uintptr_t>(view.data) % BytesOf(type, 1) != 0) {
    return Reject(Reason::kAlignment, Format("{} at {}", name, view.data),
                  Format("a multiple of its element, {} bytes", BytesOf(type, 1)));
  }
  return std::nullopt;
}

std::optional<Rejection> CheckHeadDim(const KernelSpec& spec, const Args& args) {
  const std::int64_t have = args.q.shape[0];
  if (spec.family == AttentionSimtFamily().name) {
    if (have <= cuda::kMaxAttentionHeadDim) return std::nullopt;
    return Reject(Reason::kShape, Format("head_dim = {}", have),
                  Format("at most {}", cuda::kMaxAttentionHeadDim));
  }
  if (have == spec.params[0]) return std::nullopt;
  return Reject(Reason::kShape, Format("head_dim = {}", have), Format("{}", spec.params[0]));
}

std::optional<Rejection> CheckArgs(const KernelSpec& spec, const KernelFamily& family,
                                   const Args& args) {
  if (auto no = CheckFamily(spec, family)) return no;
  if (args.sinks.data != nullptr) {
    if (spec.family != AttentionSimtFamily().name) return Reject(Reason::kShape, "sinks", "none");
    if (auto no = CheckView("sinks", args.sinks, DataType::kF32)) return no;
  }
  const bool turns = spec.family == AttentionDecodeFamily().name && spec.params[2] != 0;
  if (turns != HasKeys(args)) {
    return Reject(Reason::kShape, turns ? "no k" : "k",
                  turns ? "new keys and values" : "keys and values in the caches");
  }
  if (auto no = CheckHeadDim(spec, args)) return no;
  if (auto no = CheckView("q", args.q, spec.type_a)) return no;
  if (auto no = CheckView("k_cache", args.k_cache, spec.type_b)) return no;
  if (auto no = CheckView("v_cache", args.v_cache, spec.type_b)) return no;
  if (auto no = CheckView("positions", args.positions, DataType::kI32)) return no;
  if (auto no = CheckView("slots", args.slots, DataType::kI32)) return no;
  return CheckView("out", args.out, spec.type_d);
}

AttentionParams ParamsOf(const Args& args) {
  const CachePlaces places(args.k_cache, args.pages);
  AttentionParams p{};
  p.q = args.q.data;
  p.k_cache = args.k_cache.data;
  p.v_cache = args.v_cache.data;
  p.out = args.out.data;
  p.positions = args.positions.as<const int>();
  p.slots = args.slots.as<const int>();
  p.pages = args.pages.as<const int>();
  p.q_head = args.q.stride[1], p.q_row = args.q.stride[2];
  p.out_row = args.out.stride[1];
  p.kv_head = args.k_cache.stride[1];
  p.kv_position = args.k_cache.stride[2];
  p.kv_page = args.k_cache.stride[3];
  p.pages_slot = args.pages.stride[1];
  p.rows = static_cast<int>(args.q.shape[2]);
  p.heads = static_cast<int>(args.q.shape[1]);
  p.kv_heads = static_cast<int>(args.k_cache.shape[1]);
  p.context = static_cast<int>(places.context());
  p.sequences = static_cast<int>(places.slots());
  p.page_size = static_cast<int>(args.k_cache.shape[2]);
  p.physical_pages = static_cast<int>(places.physical_pages());
  p.window = args.window;
  p.splits = 1;
  p.scale = args.scale;
  p.softcap = args.softcap;
  if (args.softcap > 0) p.capped_scale = args.scale / args.softcap;
  return p;
}

std::optional<Rejection> CheckNewRows(const KernelSpec& spec, const Args& args) {
  if (auto no = CheckView("k", args.k, spec.type_a)) return no;
  if (auto no = CheckView("v", args.v, spec.type_a)) return no;
  const std::int32_t dims = args.rope.dims;
  if (dims < 2 || dims % 2 != 0 || dims > args.q.shape[0]) {
    return Reject(Reason::kShape, Format("rope.dims = {}", dims),
                  Format("even, 2 to the head dimension {}", args.q.shape[0]));
  }
  if (args.table == nullptr)
    return Reject(Reason::kShape, "no table of frequencies", "one in device memory");
  return std::nullopt;
}

cuda::RopeAttentionParams WithNewRows(const Args& args, const AttentionParams& attention) {
  cuda::RopeAttentionParams p{};
  p.attention = attention;
  p.k = args.k.data, p.v = args.v.data;
  p.turns = reinterpret_cast<const unsigned long long*>(args.table->turns());
  p.k_head = args.k.stride[1], p.k_row = args.k.stride[2];
  p.v_head = args.v.stride[1], p.v_row = args.v.stride[2];
  p.dims = args.rope.dims;
  p.half_split = args.rope.mode == RopeMode::kHalfSplit ? 1 : 0;
  return p;
}

std::optional<Rejection> CheckHeads(const KernelSpec& spec, int heads, int kv_heads) {
  if (heads / kv_heads <= spec.tile_m) return std::nullopt;
  return Reject(Reason::kShape, Format("{} heads over {}", heads, kv_heads),
                Format("at most {} heads for each key and value head", spec.tile_m));
}

/// That the copy engine brings at a time: a tile, or half of one; 0 where a page is not whole boxes.
int BoxPositions(const KernelSpec& spec, const Args& args) {
  constexpr int kLeast = 64;
  if (args.pages.data == nullptr) return spec.tile_n;
  for (const int box : {int{spec.tile_n}, kLeast})
    if (args.k_cache.shape[2] % box == 0) return box;
  return 0;
}

cuda::TensorMapDesc DescribeCache(const TensorView& cache, int box) {
  constexpr std::uint32_t kLine = 64;  // elements of a line of the swizzle
  cuda::TensorMapDesc desc;
  desc.type = cache.dtype;
  desc.rank = 4;
  desc.address = reinterpret_cast<std::uint64_t>(cache.data);
  for (std::size_t i = 0; i < 4; ++i) {
    desc.dims[i] = static_cast<std::uint64_t>(cache.shape[i]);
    if (i > 0)
      desc.strides[i - 1] = static_cast<std::uint64_t>(BytesOf(cache.dtype, cache.stride[i]));
  }
  desc.box = {kLine, 1, static_cast<std::uint32_t>(box), 1};
  return desc;
}

unsigned int GridX(const KernelSpec& spec, const Desc& desc) {
  return cuda::AttentionSplitGridX(desc.rows, desc.heads, desc.kv_heads, spec.tile_m);
}

unsigned long long PartialBytes(const KernelSpec& spec, const Desc& desc, int splits) {
  return cuda::AttentionPartialBytes(
      GridX(spec, desc), splits, cuda::AttentionCtaHeads(desc.heads, desc.kv_heads, spec.tile_m),
      desc.head_dim);
}

WorkspaceSize WorkspaceOf(const KernelSpec& spec, const Desc& desc, int splits) {
  if (splits == 1 || spec.cluster_n > 1) return {};
  return {.barriers = GridX(spec, desc) * sizeof(std::uint32_t),
          .partials = PartialBytes(spec, desc, splits)};
}

/// A launch of `splits` CTAs for each row, of either family that divides rows; without its shared
/// memory.
cuda::LaunchResult DividedLaunch(const KernelSpec& spec, const KernelFamily& family,
                                 const Args& args, int splits, const Workspace& workspace) {
  if (auto no = CheckArgs(spec, family, args)) return tl::unexpected(*std::move(no));
  const Desc desc = ShapeOf(args, {});
  AttentionParams params = ParamsOf(args);
  params.splits = splits;
  // A position has no memory beyond what all pages hold: as long as a cache that grows is small,
  // the launch is too.
  const long long held = static_cast<long long>(params.physical_pages) * params.page_size;
  params.context = static_cast<int>(std::min<long long>(params.context, held));
  const int held_splits = (params.context + spec.tile_n - 1) / spec.tile_n;
  const WorkspaceSize needed = WorkspaceOf(spec, desc, splits);
  if (auto no = CheckWorkspace(workspace, needed)) return tl::unexpected(*std::move(no));
  params.partials = static_cast<float*>(workspace.partials);
  params.arrivals = static_cast<unsigned int*>(workspace.barriers);
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::CudaLaunch launch;
  launch.grid = {GridX(spec, desc),
                 static_cast<std::uint32_t>(
                     spec.cluster_n > 1 ? splits : std::clamp(held_splits, 1, params.splits)),
                 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(params);
  launch.workspace = {needed.partials + needed.barriers, cuda::Zeroing::kOnce};
  return launch;
}

}  // namespace

int SplitsOf(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  constexpr unsigned int kEnoughCtas = 4;  // of each multiprocessor
  constexpr unsigned long long kMostPartialBytes = 16 << 20;
  const int most = cuda::AttentionMostSplits(desc.context, desc.window, spec.tile_n);
  const auto sms = static_cast<unsigned int>(std::max(device.sm_count, 1));
  if (GridX(spec, desc) >= kEnoughCtas * sms) return 1;
  return PartialBytes(spec, desc, most) <= kMostPartialBytes ? most : 1;
}

int DecodeSplitsOf(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  // Of each multiprocessor of an H200: 8 hide the latencies of a short sequence, 12 keep the memory
  // busy with long ones, where a CTA has some rounds to do.
  constexpr int kWarps = 8, kWarpsOfLong = 16, kLongRounds = 8;
  if (spec.cluster_n > 1) return spec.cluster_n;
  const int most = cuda::AttentionMostSplits(desc.context, desc.window, spec.tile_n);
  const int rows = static_cast<int>(GridX(spec, desc));
  const auto splits_for = [&](int warps) {
    const int ctas = std::max(device.sm_count, 1) * warps / spec.warps;
    // An eighth too few is near enough.
    return std::max(1, (ctas - rows / 8 + rows - 1) / rows);
  };
  int splits = splits_for(kWarps);
  if (rows > device.sm_count)
    splits = std::max(splits, std::min(splits_for(kWarpsOfLong), most / kLongRounds));
  return std::clamp(splits, 1, most);
}

WorkspaceSize SplitWorkspace(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  return WorkspaceOf(spec, desc, SplitsOf(spec, desc, device));
}

WorkspaceSize DecodeWorkspace(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  return WorkspaceOf(spec, desc, DecodeSplitsOf(spec, desc, device));
}

cuda::LaunchResult AttentionSplitLaunch(const KernelSpec& spec, const Args& args,
                                        const DeviceSpec& device, const Workspace& workspace) {
  const Desc desc = ShapeOf(args, {});
  cuda::LaunchResult launch =
      DividedLaunch(spec, AttentionSplitFamily(), args, SplitsOf(spec, desc, device), workspace);
  if (!launch) return launch;
  // Fewer heads than a CTA may have need less.
  launch->dynamic_smem_bytes = cuda::AttentionSplitSmem(
      desc.head_dim, spec.tile_k, static_cast<int>(BytesOf(spec.type_b, 1)), 32 * spec.warps,
      cuda::AttentionCtaHeads(desc.heads, desc.kv_heads, spec.tile_m));
  return cuda::CheckedLaunch(*launch);
}

cuda::LaunchResult AttentionDecodeLaunch(const KernelSpec& spec, const Args& args,
                                         const DeviceSpec& device, const Workspace& workspace) {
  cuda::LaunchResult launch =
      DividedLaunch(spec, AttentionDecodeFamily(), args,
                    DecodeSplitsOf(spec, ShapeOf(args, {}), device), workspace);
  if (!launch) return launch;
  if (HasKeys(args)) {
    if (auto no = CheckNewRows(spec, args)) return tl::unexpected(*std::move(no));
    launch->params = cuda::KernelParams(WithNewRows(args, *launch->params.As<AttentionParams>()));
  }
  return cuda::CheckedLaunch(*launch);
}

cuda::LaunchResult AttentionMmaLaunch(const KernelSpec& spec, const Args& args) {
  const KernelFamily family = AttentionMmaFamily();
  if (auto no = CheckArgs(spec, family, args)) return tl::unexpected(*std::move(no));
  const AttentionParams params = ParamsOf(args);
  if (auto no = CheckHeads(spec, params.heads, params.kv_heads))
    return tl::unexpected(*std::move(no));
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::CudaLaunch launch;
  launch.grid = {cuda::AttentionMmaGridX(params.rows, params.heads, params.kv_heads, spec.tile_m),
                 static_cast<std::uint32_t>(params.kv_heads), 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(params);
  return cuda::CheckedLaunch(launch);
}

cuda::LaunchResult AttentionSimtLaunch(const KernelSpec& spec, const Args& args) {
  const KernelFamily family = AttentionSimtFamily();
  if (auto no = CheckArgs(spec, family, args)) return tl::unexpected(*std::move(no));
  const cuda::AttentionSimtParams params{.attention = ParamsOf(args),
                                         .sinks = args.sinks.as<const float>(),
                                         .head_dim = static_cast<int>(args.q.shape[0])};
  const AttentionParams& rows = params.attention;
  cuda::CudaLaunch launch;
  launch.grid = {cuda::AttentionSimtGridX(rows.rows, rows.heads, rows.kv_heads, spec.tile_m), 1, 1};
  launch.block = {family.launch(spec).threads, 1, 1};
  launch.dynamic_smem_bytes =
      cuda::AttentionSimtSmem(params.head_dim, spec.tile_n, spec.tile_m, spec.warps);
  launch.params = cuda::KernelParams(params);
  return cuda::CheckedLaunch(launch);
}

cuda::LaunchResult AttentionHopperLaunch(const KernelSpec& spec, const Args& args,
                                         const DeviceSpec& device) {
  const KernelFamily family = AttentionHopperFamily();
  if (auto no = CheckArgs(spec, family, args)) return tl::unexpected(*std::move(no));
  cuda::AttentionHopperParams params{};
  params.attention = ParamsOf(args);
  const AttentionParams& p = params.attention;
  if (auto no = CheckHeads(spec, p.heads, p.kv_heads)) return tl::unexpected(*std::move(no));
  if (!(p.scale > 0)) {
    return tl::unexpected(
        *Reject(Reason::kShape, Format("scale = {}", p.scale), "a positive scale"));
  }
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::CudaLaunch launch;
  launch.grid = {cuda::AttentionHopperGridX(p.rows, p.heads, p.kv_heads, spec.tile_m,
                                            std::max(device.sm_count, 1)),
                 1, 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  const int box = BoxPositions(spec, args);
  const cuda::TensorMapDesc keys = DescribeCache(args.k_cache, box);
  const cuda::TensorMapDesc values = DescribeCache(args.v_cache, box);
  if (box > 0 && !cuda::CheckTensorMap("k_cache", keys) &&
      !cuda::CheckTensorMap("v_cache", values)) {
    params.box_positions = box;
    launch.map_slots[0] = {offsetof(cuda::AttentionHopperParams, keys), "k_cache", keys};
    launch.map_slots[1] = {offsetof(cuda::AttentionHopperParams, values), "v_cache", values};
    launch.map_count = 2;
  }
  launch.params = cuda::KernelParams(params);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright::attention
