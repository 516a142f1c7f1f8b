#include "ops/attention/cuda/kernels.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "engine/compiled/compiled_kernel.h"
#include "engine/compiled/launch_cost.h"
#include "ops/attention/checks.h"
#include "ops/attention/cuda/attention_launch.h"
#include "ops/attention/cuda/families.h"
#include "tilewright/cuda/attention_simt_params.h"

namespace tilewright::attention {
namespace {

/// Extents up to here leave room for the kernels' own arithmetic.
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 30;

std::optional<Rejection> WrongType(const char* field, DataType have, DataType need) {
  return Rejection{Reason::kType, Format("{} = {}", field, DataTypeName(have)),
                   std::string(DataTypeName(need))};
}

/// Whether a kernel of attention_decode turns its row: param2 is another thing in other families.
bool Turns(const KernelSpec& spec) {
  return spec.family == AttentionDecodeFamily().name && spec.params[2] != 0;
}

std::optional<Rejection> CheckProblem(const KernelSpec& spec, const Desc& desc) {
  if (!Turns(spec)) {
    if (auto no = RejectNewRows(desc)) return no;
  }
  if (desc.type_q != spec.type_a) return WrongType("type_q", desc.type_q, spec.type_a);
  if (desc.type_kv != spec.type_b) return WrongType("type_kv", desc.type_kv, spec.type_b);
  if (desc.sinks && spec.family != AttentionSimtFamily().name)
    return Rejection{Reason::kShape, "sinks", "none"};
  if (desc.context > kMaxExtent || desc.window > kMaxExtent) {
    return Rejection{Reason::kShape, Format("context = {}, window = {}", desc.context, desc.window),
                     Format("at most {}", kMaxExtent)};
  }
  if (std::int64_t{desc.rows} * desc.heads > kMaxExtent) {
    return Rejection{Reason::kShape, Format("{} rows of {} heads", desc.rows, desc.heads),
                     Format("at most {} heads", kMaxExtent)};
  }
  return std::nullopt;
}

std::optional<Rejection> CheckHeadDim(const KernelSpec& spec, const Desc& desc) {
  if (desc.head_dim == spec.params[0]) return std::nullopt;
  return Rejection{Reason::kShape, Format("head_dim = {}", desc.head_dim),
                   Format("{}", spec.params[0])};
}

/// What a problem reads and computes, as far as it can be known: lengths are content. Sequences are
/// taken to hold about as much as a conversation does, or all that there are places for.
struct Load {
  explicit Load(const Desc& desc)
      : sequences(std::min(desc.sequences, desc.rows)),
        rows_each(static_cast<double>(desc.rows) / sequences),
        filled(std::min<double>(desc.context, std::max(1024.0, rows_each))) {
    const double seen_by_middle = filled - (rows_each - 1) / 2;
    seen = desc.window > 0 ? std::min<double>(desc.window, seen_by_middle) : seen_by_middle;
    held = desc.window > 0 ? std::min(filled, desc.window + rows_each) : filled;
    const double kv_bytes =
        2.0 * desc.kv_heads * desc.head_dim * static_cast<double>(BytesOf(desc.type_kv, 1));
    cache_bytes = sequences * held * kv_bytes;
    row_bytes = seen * kv_bytes;
    q_bytes =
        2.0 * desc.rows * desc.heads * desc.head_dim * static_cast<double>(BytesOf(desc.type_q, 1));
  }
  double sequences, rows_each;
  double filled;       ///< positions of a sequence
  double seen;         ///< by a row, on average
  double held;         ///< positions of a sequence that some row sees
  double cache_bytes;  ///< of all that is seen
  double row_bytes;    ///< of what one row sees
  double q_bytes;      ///< q and out
};

/// Of a score, for its soft cap: 20 instructions, counted and not measured.
double CapOperations(const Desc& desc) { return desc.soft_capped ? 2.0 * 20 : 0; }

std::optional<Rejection> SplitFeasible(const KernelSpec& spec, const Desc& desc) {
  if (auto no = CheckHeadDim(spec, desc)) return no;
  return CheckProblem(spec, desc);
}

/// Rows of one sequence each read its cache, one of them from memory.
double SplitEstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const Load load(desc);
  const int splits = SplitsOf(spec, desc, device);
  const double rows = desc.rows;
  const int heads = cuda::AttentionCtaHeads(desc.heads, desc.kv_heads, spec.tile_m);
  const auto blocks = cuda::AttentionHeadBlocks(desc.heads, desc.kv_heads, spec.tile_m);
  const double used = std::min<double>(splits, load.seen / spec.tile_n + 1);
  const double partials = splits == 1 ? 0 : 4.0 * rows * desc.heads * used * (desc.head_dim + 2);
  LaunchCost cost;
  cost.memory_bytes = load.cache_bytes + load.q_bytes;
  cost.cache_bytes = rows * blocks * load.row_bytes - load.cache_bytes + 2 * partials;
  const std::uint32_t smem =
      cuda::AttentionSplitSmem(desc.head_dim, spec.tile_k,
                               static_cast<int>(BytesOf(spec.type_b, 1)), 32 * spec.warps, heads);
  const auto smem_of_sm = static_cast<int>(227 * 1024 / (smem + 1024));
  cost.ctas_per_sm = std::clamp(smem_of_sm, 1, 4);
  cost.in_flight_bytes =
      2.0 * spec.tile_k * desc.head_dim * static_cast<double>(BytesOf(spec.type_b, 1));
  cost.ctas =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(rows * desc.kv_heads * blocks * used));
  cost.warps = spec.warps;
  // A product takes about two instructions with its conversion and load, and a tile waits for six
  // barriers; the partial results are folded eight splits at a time.
  constexpr double kTileUs = 0.7, kFoldUs = 0.8, kArriveUs = 1.5;
  const double positions = splits == 1 ? load.seen : std::min<double>(load.seen, spec.tile_n);
  const double tiles = std::max(1.0, positions / spec.tile_k);
  const double operations = positions * heads * (2 * 4.0 * desc.head_dim + CapOperations(desc));
  cost.cta_us = SmUs(operations, device.f32_gflop_s, device) + tiles * kTileUs / cost.ctas_per_sm;
  const double merging = splits == 1 ? 0 : kArriveUs + kFoldUs * used / 8;
  // CTAs behind the end of a sequence leave at once, a few in a nanosecond.
  const double idle = (splits - used) * rows * desc.kv_heads * blocks;
  return PredictUs(cost, device) + merging + 5e-4 * std::max(0.0, idle);
}

std::optional<Rejection> DecodeFeasible(const KernelSpec& spec, const Desc& desc) {
  if (Turns(spec) && desc.rope_dims == 0)
    return Rejection{Reason::kShape, "rope_dims = 0", "queries and keys to be turned"};
  // A row would read what another writes.
  if (Turns(spec) && desc.rows > 1) {
    return Rejection{Reason::kShape, Format("rows = {}", desc.rows),
                     "one row: several may be of one sequence"};
  }
  if (auto no = CheckHeadDim(spec, desc)) return no;
  return CheckProblem(spec, desc);
}

/// CTAs of a decode kernel that a multiprocessor holds.
int DecodeCtasHeld(const KernelSpec& spec, const Desc& desc) {
  const unsigned int smem = AttentionDecodeFamily().launch(spec).dynamic_smem_bytes;
  const auto by_smem = static_cast<int>(227 * 1024 / (smem + 1024));
  constexpr int kWarpsOfSmallHeads = 20;
  const int by_registers =
      std::max(cuda::AttentionDecodeCtas(spec.warps, spec.stages, spec.cluster_n, Turns(spec)),
               desc.head_dim > 64 ? 1 : kWarpsOfSmallHeads / spec.warps);
  return std::clamp(by_smem, 1, by_registers);
}

/// A chain of latencies, behind its first round the longer of two (all bytes that CTAs read, at the
/// rate of memory: from the L2 they come no faster; or the rounds of a warp, which follow each
/// other), and a start for every further wave of CTAs; clusters gain nothing by a second one to a
/// multiprocessor. Fitted to times of eight problems on an H200, from 2.7 to 38 us.
double DecodeEstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  constexpr double kStartUs = 1.15, kDepthUs = 0.018;   // of an element of a head
  constexpr double kUnforeseenUs = 0.45;                // positions and pages, then the caches
  constexpr double kArriveUs = 1.0, kMergeUs = 0.06;    // of a part
  constexpr double kSendUs = 0.04, kIdleWarpUs = 0.01;  // of a CTA and a warp of a cluster
  constexpr double kAloneUs = 1.5, kRoundUs = 0.5;      // of a round with one stage, and with more
  // The same of clusters, whose rounds nothing else hides: a part, and one for 128 elements.
  constexpr double kClusterAloneUs = 0.6, kClusterRoundUs = 0.65, kOfDepthUs = 0.9,
                   kRoundOfDepthUs = 0.25;
  constexpr double kWaveUs = 2.8, kClusterWaveUs = 4;
  constexpr double kTurnUs = 0.2;                          // a row
  constexpr double kLateUs = 0.8;                          // of looking ahead for nothing
  constexpr double kReached = 0.95, kReachedByFew = 0.93;  // of memory, by 16 warps and by fewer
  constexpr double kFirstBytesUs = 0.5;                    // the start has them
  const Load load(desc);
  const double blocks = cuda::AttentionHeadBlocks(desc.heads, desc.kv_heads, spec.tile_m);
  const double tiles = std::ceil(std::max(1.0, load.seen) / cuda::AttentionDecodeRound(1));
  const bool clustered = spec.cluster_n > 1;
  const double parts = clustered ? spec.cluster_n
                                 : std::min<double>(DecodeSplitsOf(spec, desc, device),
                                                    std::ceil(tiles / spec.warps));
  const double rounds = std::ceil(tiles / (parts * spec.warps));
  const bool through_memory = parts > 1 && !clustered;
  const double partials =
      through_memory ? 8.0 * desc.rows * desc.heads * parts * (desc.head_dim + 2) : 0;
  const double bytes =
      std::max(desc.rows * blocks * load.row_bytes, load.cache_bytes) + load.q_bytes + partials;

  const double sms = std::max(device.sm_count, 1);
  const double of_sm = std::ceil(desc.rows * desc.kv_heads * blocks * parts / sms);  // CTAs
  const double held = clustered ? 1 : DecodeCtasHeld(spec, desc);
  const double waves = std::ceil(of_sm / held);
  const double reached = std::min(of_sm, held) * spec.warps >= 16 ? kReached : kReachedByFew;
  const double memory_us = bytes / (reached * std::max(device.read_gb_s, 1.0) * 1e3);

  double us = kStartUs + kDepthUs * desc.head_dim;
  const bool foresees = spec.params[1] != 0;
  if (!foresees) us += kUnforeseenUs;
  if (Turns(spec)) us += kTurnUs;
  // As measured in passes, where a product is in front, and not alone (decode_family.cc has both).
  // Likely its CTAs leave those of large heads, 65 KiB and half of the registers, no room to start
  // early: they have what others have unforeseen, and the look-ups before.
  if (Turns(spec) && foresees && desc.head_dim > 64) us += kUnforeseenUs + kLateUs;
  if (through_memory) us += kArriveUs + kMergeUs * parts;
  if (clustered) us += spec.cluster_n * (kSendUs + kIdleWarpUs * spec.warps);
  us += (waves - 1) * (clustered ? kClusterWaveUs : kWaveUs);
  const bool alone = spec.stages == 1;
  const double depth = desc.head_dim / 128.0;
  const double round_us = !clustered ? (alone ? kAloneUs : kRoundUs) * depth
                          : alone    ? kClusterAloneUs + kOfDepthUs * depth
                                     : kClusterRoundUs + kRoundOfDepthUs * depth;
  return us + std::max({memory_us - kFirstBytesUs, (waves * rounds - 1) * round_us, 0.0});
}

Status DecodeLaunch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel,
                    const Workspace& workspace, Stream stream) {
  return kernel.Launch(AttentionDecodeLaunch(spec, args, kernel.device(), workspace), stream);
}

Status SplitLaunch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel,
                   const Workspace& workspace, Stream stream) {
  return kernel.Launch(AttentionSplitLaunch(spec, args, kernel.device(), workspace), stream);
}

std::optional<Rejection> MmaFeasible(const KernelSpec& spec, const Desc& desc) {
  if (auto no = CheckHeadDim(spec, desc)) return no;
  if (auto no = CheckProblem(spec, desc)) return no;
  if (desc.heads / desc.kv_heads > spec.tile_m) {
    return Rejection{Reason::kShape, Format("{} heads over {}", desc.heads, desc.kv_heads),
                     Format("at most {} heads for each key and value head", spec.tile_m)};
  }
  constexpr int kMaxGridY = 65535;
  if (desc.kv_heads > kMaxGridY) {
    return Rejection{Reason::kShape, Format("kv_heads = {}", desc.kv_heads),
                     Format("at most {}", kMaxGridY)};
  }
  return std::nullopt;
}

std::optional<Rejection> HopperFeasible(const KernelSpec& spec, const Desc& desc) {
  if (auto no = MmaFeasible(spec, desc)) return no;
  constexpr int kBox = 64;  // positions that the copy engine brings at least
  if (desc.page_size % kBox != 0) {
    return Rejection{Reason::kShape, Format("page_size = {}", desc.page_size),
                     Format("a multiple of {}, or no pages", kBox)};
  }
  return std::nullopt;
}

/// The rows of a tile share what they read if they are of one sequence; else the tile walks over
/// the positions of each.
double MmaEstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const Load load(desc);
  const int rows_each = spec.tile_m / (desc.heads / desc.kv_heads);
  const double sequences = std::max(1.0, std::min<double>(rows_each, desc.rows) / load.rows_each);
  const double positions = sequences * (load.seen + spec.tile_n);
  LaunchCost cost;
  cost.ctas = std::int64_t{desc.kv_heads} *
              cuda::AttentionMmaGridX(desc.rows, desc.heads, desc.kv_heads, spec.tile_m);
  cost.ctas_per_sm = 2;
  cost.memory_bytes = load.cache_bytes + load.q_bytes;
  const double line_bytes = 2.0 * desc.head_dim * static_cast<double>(BytesOf(spec.type_b, 1));
  cost.cache_bytes =
      std::max(0.0, static_cast<double>(cost.ctas) * positions * line_bytes - load.cache_bytes);
  cost.in_flight_bytes = spec.tile_n * line_bytes;
  // Queries of f32 are two factors, weights always. Hopper's tensor cores give mma.sync half of
  // what they give wgmma, and exponentials take as long again as the products.
  const double factors = (spec.type_a == DataType::kF32 ? 2 : 1) + 2;
  const double reached = device.compute_capability < 90 ? 0.5 : 0.25;
  const double operations = 2.0 * factors * spec.tile_m * positions * desc.head_dim;
  constexpr double kTileUs = 0.6;  // the barriers of a tile of keys
  cost.cta_us = SmUs(operations, reached * device.bf16_gflop_s, device) +
                SmUs(CapOperations(desc) * spec.tile_m * positions, device.f32_gflop_s, device) +
                positions / spec.tile_n * kTileUs / cost.ctas_per_sm;
  return PredictUs(cost, device);
}

Status MmaLaunch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel,
                 Stream stream) {
  return kernel.Launch(AttentionMmaLaunch(spec, args), stream);
}

/// CTAs take tiles of rows in an order that gives each of them about as much; none takes less than
/// the longest tile does. The constants are those of ten times on an H200 (README.md), which they
/// meet within 9 %.
double HopperEstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const Load load(desc);
  const int rows_each = spec.tile_m / (desc.heads / desc.kv_heads);
  const double sequences = std::max(1.0, std::min<double>(rows_each, desc.rows) / load.rows_each);
  const auto tiles = static_cast<double>(
      cuda::AttentionHopperTiles(desc.rows, desc.heads, desc.kv_heads, spec.tile_m));
  const double sms = std::max(device.sm_count, 1);
  // Products and exponentials overlap. A tile of rows has no keys at its begin and none at its end,
  // and a launch finds rows, pages, queries and keys one after the other.
  constexpr double kReached = 0.89, kOperationsOfAWeight = 46, kRowsUs = 1.9, kStartUs = 6;
  const double weights = static_cast<double>(spec.tile_m) * spec.tile_n;
  const double step_us = std::max(
      SmUs(2 * (1 + spec.params[1]) * weights * desc.head_dim, kReached * device.bf16_gflop_s,
           device),
      SmUs((kOperationsOfAWeight + CapOperations(desc)) * weights, device.f32_gflop_s, device));
  const auto tile_us = [&](double steps) { return kRowsUs + sequences * steps * step_us; };
  const double longest = desc.window > 0 ? std::min<double>(desc.window, load.filled) : load.filled;
  LaunchCost cost;
  cost.ctas = static_cast<std::int64_t>(std::min(tiles, sms));
  cost.memory_bytes = load.cache_bytes + load.q_bytes;
  const double line_bytes = 2.0 * desc.head_dim * static_cast<double>(BytesOf(spec.type_b, 1));
  cost.cache_bytes =
      std::max(0.0, tiles * sequences * (load.seen + spec.tile_n) * line_bytes - load.cache_bytes);
  cost.in_flight_bytes = spec.stages * spec.tile_n * line_bytes;
  cost.cta_us = kStartUs + std::max(tiles / sms * tile_us(load.seen / spec.tile_n + 0.6),
                                    tile_us(std::ceil(longest / spec.tile_n)));
  return PredictUs(cost, device);
}

Status HopperLaunch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel,
                    Stream stream) {
  return kernel.Launch(AttentionHopperLaunch(spec, args, kernel.device()), stream);
}

std::optional<Rejection> SimtFeasible(const KernelSpec& spec, const Desc& desc) {
  if (desc.head_dim > cuda::kMaxAttentionHeadDim) {
    return Rejection{Reason::kShape, Format("head_dim = {}", desc.head_dim),
                     Format("at most {}", cuda::kMaxAttentionHeadDim)};
  }
  // All rows of a model are to have one summation, whichever of two kernels is the faster for some.
  if (desc.guarantee == Guarantee::kBatchInvariant && IsAttentionHeadDim(desc.head_dim) &&
      !desc.sinks) {
    return Rejection{Reason::kGuarantee, Format("batch invariance, head_dim = {}", desc.head_dim),
                     "a head dimension for which attention_split does not keep it"};
  }
  return CheckProblem(spec, desc);
}

/// Every row reads its cache, all but one of a sequence from the L2. A warp that waits for memory
/// has nothing else to do: what counts are its round trips.
double SimtEstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const Load load(desc);
  const auto blocks = cuda::AttentionHeadBlocks(desc.heads, desc.kv_heads, spec.tile_m);
  const int heads = cuda::AttentionCtaHeads(desc.heads, desc.kv_heads, spec.tile_m);
  const double ctas = static_cast<double>(desc.rows) * desc.kv_heads * blocks;
  LaunchCost cost;
  cost.ctas = static_cast<std::int64_t>(ctas);
  cost.ctas_per_sm = device.compute_capability < 100 ? 2 : 1;  // attention_simt.cu says why
  cost.memory_bytes = load.cache_bytes + load.q_bytes;
  cost.cache_bytes =
      std::max(0.0, static_cast<double>(desc.rows) * blocks * load.row_bytes - load.cache_bytes);
  constexpr double kAtOnceBytes = 4 * 16;  // of a lane
  cost.in_flight_bytes = 32.0 * spec.warps * kAtOnceBytes;
  // Chunks of heads that are no multiple of 8 are read one at a time, by single elements.
  const double chunks = std::ceil(desc.head_dim / 8.0);
  const double at_once = desc.head_dim % 8 == 0 ? 4 : 1;
  const double round = static_cast<double>(spec.tile_n) * spec.warps;  // positions
  const double rounds = std::ceil(load.seen / round);
  // A product takes about two instructions with its conversion and load. The keys of a tile lie in
  // as many lines of the L1 as it has positions, which gives one a cycle.
  constexpr double kLinesAUs = 1700;
  const double busy_us =
      SmUs(rounds * round * heads * (2 * 4.0 * desc.head_dim + CapOperations(desc)),
           device.f32_gflop_s, device) +
      rounds * round * chunks / kLinesAUs;
  // A CTA finds its row, its sequence and its queries, one after the other; then, of each position,
  // its page, and its chunks four at a time, once for the key and again for the values. Each is a
  // way to the memory, or to the L2 where other rows read the same. The CTAs beside it go on
  // meanwhile. Fitted to 16 problems of heads of 64 to 256 on an H200: 0.8 to 1.3 of their times.
  const double trip_us = load.rows_each > 1 ? 0.4 : 0.8;
  const double trips = 3 + rounds * (1 + 2 * std::ceil(chunks / at_once));
  const double beside =
      std::clamp<double>(std::ceil(ctas / std::max(device.sm_count, 1)), 1, cost.ctas_per_sm);
  cost.cta_us = std::max(busy_us, (busy_us + trips * trip_us) / beside);
  return PredictUs(cost, device);
}

Status SimtLaunch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel,
                  Stream stream) {
  return kernel.Launch(AttentionSimtLaunch(spec, args), stream);
}

/// One length of splits for every problem, so that a choice for more rows is no other summation.
bool SplitBatchInvariant(const KernelSpec& spec) { return spec.tile_n == 256; }

}  // namespace

Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch) {
  const CompiledFamily<Op> split{.feasible = &SplitFeasible,
                                 .estimate_us = &SplitEstimateUs,
                                 .launch = nullptr,
                                 .workspace = &SplitWorkspace,
                                 .launch_within = &SplitLaunch,
                                 .batch_invariant = &SplitBatchInvariant};
  const CompiledFamily<Op> decode{.feasible = &DecodeFeasible,
                                  .estimate_us = &DecodeEstimateUs,
                                  .launch = nullptr,
                                  .workspace = &DecodeWorkspace,
                                  .launch_within = &DecodeLaunch};
  const CompiledFamily<Op> mma{
      .feasible = &MmaFeasible, .estimate_us = &MmaEstimateUs, .launch = &MmaLaunch};
  const CompiledFamily<Op> hopper{
      .feasible = &HopperFeasible, .estimate_us = &HopperEstimateUs, .launch = &HopperLaunch};
  const CompiledFamily<Op> simt{.feasible = &SimtFeasible,
                                .estimate_us = &SimtEstimateUs,
                                .launch = &SimtLaunch,
                                .batch_invariant = &AlwaysBatchInvariant};
  const auto add = [&](const KernelFamily& family, const CompiledFamily<Op>& common) {
    return AddCompiledFamily(registry, store, family.name, arch, common);
  };
  if (Status added = add(AttentionSplitFamily(), split); !added) return added;
  if (Status added = add(AttentionDecodeFamily(), decode); !added) return added;
  if (Status added = add(AttentionMmaFamily(), mma); !added) return added;
  if (Status added = add(AttentionHopperFamily(), hopper); !added) return added;
  return add(AttentionSimtFamily(), simt);
}

}  // namespace tilewright::attention
