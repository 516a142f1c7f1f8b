#include "ops/gemm/cpu/amx/gemm_amx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "core/fingerprint.h"
#include "core/parallel.h"
#include "core/shrinking_tasks.h"
#include "ops/gemm/base/packs.h"
#include "ops/gemm/cpu/amx/register.h"
#include "ops/gemm/cpu/common.h"
#include "ops/gemm/cpu/int8/gemm_int8.h"
#include "ops/gemm/cpu/int8/pack.h"
#include "ops/gemm/cpu/panel_layout.h"
#include "ops/gemm/cpu/panel_pack.h"
#include "ops/gemm/formats.h"

namespace tilewright::gemm_amx {
namespace {

/// Rows that are packed at a time, in bytes of packed activations.
constexpr std::size_t kStageBytes = 16 << 20;
/// Steps of a chunk at most: a pair of panels takes 36 KB of the L1 unpacked. (The tile unit's share
/// with 512 rows, weights unpacked before: 71 % with chunks of 16 or 18 steps, 70 with 20, 68 with 12,
/// 47 with 24, 56 with 128 and 128 rows at a time.)
constexpr int kMostChunkSteps = 18;
/// What a task holds in an L2 of 2 MB: the activations of its rows over this chunk and the next, and
/// sums. The rows come first, since every block of them unpacks all weights. (Sums that stream from and to
/// the last level between chunks took 0.95 us a group of 32 rows, these 0.57; 8 MB of them for 512 rows.)
constexpr int kMostBlockTiles = 16, kMostRunPanels = 32;
/// Of bf16 weights with few rows (one thread, 4096 x 4096, 64 and 128 rows: 3.3 and 5.2 ms as above,
/// 2.9 and 4.1 as here; 256 rows 6.8 and 8.2).
constexpr int kFewTiles = 8, kStreamedSteps = 64, kStreamedPanels = 256;
/// Steps ahead of which a single group of rows fetches weights: what it unpacks, and tiles of bf16.
constexpr int kStepsAhead = 40, kTileStepsAhead = 2;

/// Of a tile, by Operand, as 8 rows take (16 threads of a shared Xeon, 4096 x 4096, us: pairs of q5_k 220, rows of
/// q4_k 180, quads of q4_0 160, of q6_k 200, of q8_0 212).
constexpr double kUnpackCycles[kOperands] = {125, 85, 90};

/// Words of the launch configuration, behind the number of threads.
enum Word : std::size_t {
  kRowsWord = 1,
  kRunWord = 2,
  kChunkWord = 3,
  kAheadWord = 4,
  kTasksWord = 5
};
constexpr ConfigField kFields[] = {
    kThreadsField[0],
    {.name = "rows", .least = kTileRowCount, .most = 1 << 16, .optional = true},  ///< of a block
    {.name = "run", .least = kGroupPanels, .most = 1 << 16, .optional = true},    ///< in panels
    {.name = "chunk", .least = 1, .most = 1 << 16, .optional = true},  ///< of k, in steps
    {.name = "ahead", .least = 1, .most = 4096, .optional = true},     ///< in steps
    {.name = "tasks", .least = 1, .most = 64, .optional = true},       ///< pieces of a lane
};

/// What is cut into tasks: row tiles by pairs of panels, over `steps` of k.
struct Sheet {
  int tiles = 0, pairs = 0, steps = 0;
};
struct Cut {
  int blocks = 1;        ///< of row tiles
  ShrinkingTasks pairs;  ///< of panels, for each block
  double cycles = 0;     ///< CyclesOf
};

/// Whether each of `blocks` has one lane, so that what is packed of it is read by the worker that packed it.
bool OwnsBlocks(const ShrinkingTasks& pairs, int blocks, int workers) {
  return pairs.lanes() == 1 && KeepsBlocks(workers, blocks);
}

/// How long `workers` take, in cycles. Tasks go by blocks first, so that a worker stays with its block
/// of rows where the workers are a multiple of the blocks.
double CyclesOf(const Sheet& sheet, const Cut& cut, int workers) {
  // Of a tile: unpacked, multiplied by one of activations, one of activations from another core's
  // cache or the last level, and 16 rows of D stored, which costs the same for one panel and for
  // kStoredPanels. Half of the last task is waited for.
  constexpr double kUnpack = 100, kProduct = 45, kFetch = 100, kStore = 1800, kTask = 3000;
  constexpr double kLate = 0.5;
  // Of a line of packed activations or of D, for each of the other workers: where blocks are not owned, one worker writes what
  // another has in its cache. (16 threads of a shared host, SmolLM2's prompt in turn, tokens a second: 16,960, and 19,750 with
  // blocks of their own for the three products of a layer below 2^20 weights.)
  constexpr double kSharedLine = 2;
  constexpr std::size_t kStays = 768 << 10;  // bytes of a block in the L2 that the next task finds
  const int tiles = CeilDiv(sheet.tiles, cut.blocks), pieces = cut.pairs.pieces();
  const double panel = 1.0 * sheet.steps * (kUnpack + kProduct * tiles);
  const bool stays = static_cast<std::size_t>(tiles * sheet.steps) * kStepBytes <= kStays;
  const int most_fetched = !stays ? pieces : workers % cut.blocks == 0 ? 1 : cut.blocks;
  const double fetched = 1.0 * std::min(pieces, most_fetched) * tiles * sheet.steps * kFetch;
  const auto tasks = [&](int pairs, int count) {
    const int panels = kGroupPanels * pairs;
    const int stores = std::max(count, CeilDiv(panels, kStoredPanels));
    return count * kTask + panels * panel + kStore * tiles * stores;
  };
  const auto [first, end] = cut.pairs[cut.pairs.count() - 1];  // the last lane is as long as any
  const double lanes = cut.blocks * cut.pairs.lanes();
  const double lines =
      1.0 * sheet.tiles * kTileRowCount * (sheet.steps + kGroupPanels * sheet.pairs);
  const bool owns = OwnsBlocks(cut.pairs, cut.blocks, workers);
  const double shared = owns ? 0 : kSharedLine * (workers - 1) * lines / workers;
  return shared + (tasks(cut.pairs.longest(), pieces) + fetched) * std::max(1.0, lanes / workers) +
         kLate * tasks(end - first, 1);
}

/// The best of a few cuts, of lanes in some `pieces` (0: 1 to 6) with at most so many pairs, in blocks of
/// so many row tiles (0: what is best). One worker takes the fewest.
Cut BestCut(const Sheet& sheet, int workers, int pieces, int tiles, int most_pairs) {
  constexpr int kMostPieces = 6;
  const int least = CeilDiv(sheet.tiles, tiles != 0 ? tiles : kMostBlockTiles);
  const int most = tiles != 0 ? least : std::max(least, CeilDiv(sheet.tiles, kGroupTiles));
  Cut best;
  for (int blocks = least; blocks <= most; blocks = std::min(2 * blocks, most)) {
    const int lanes = std::max(1, workers / blocks);
    int each = pieces != 0 ? pieces : workers == 1 ? 1 : kMostPieces;
    for (const int fewest = pieces != 0 ? pieces : 1; each >= fewest; --each) {
      Cut cut{blocks, ShrinkingTasks::InPieces(sheet.pairs, lanes, each, most_pairs)};
      cut.cycles = CyclesOf(sheet, cut, workers);
      if (best.cycles == 0 || cut.cycles < best.cycles) best = cut;
    }
    if (blocks == most || workers == 1) break;
  }
  return best;
}

KernelInfo InfoOf(const AmxConfig& config) {
  const BlockFormat* format = FindFormat(config.type_b);
  KernelInfo info;
  info.name = fmt::format("gemm.f32_{}_f32.tn.amx.{}x{}x{}.{}{}{}", DataTypeName(config.type_b),
                          kGroupTiles * kTileRowCount, kGroupPanels * kColumns, kStepK,
                          PackName(config.pack), ".abf16", config.flag);
  info.fingerprint = TuFingerprint(config.ops->tu).substr(0, 16);
  info.fingerprint +=
      TuFingerprint(format != nullptr ? "ops/gemm/cpu/int8/pack.cc" : gemm::PanelPackTu())
          .substr(0, 16);
  info.features = config.features;
  info.batch_invariant = false;  // see the class
  return info;
}

KernelDesc DescOf(const AmxConfig& config) {
  KernelDesc desc;
  desc.type_a = desc.type_c = Bit(DataType::kF32);
  desc.type_b = Bit(config.type_b);
  desc.epilogue = Bit(Epilogue::kNone) | Bit(Epilogue::kGatedSilu);
  desc.pack_b = config.pack;
  // Weights in blocks are rounded as well. Both together are off by half of what int8 activations are,
  // but by more than what bf16 activations alone would be.
  desc.activations = FindFormat(config.type_b) == nullptr ? Precision::kBF16 : Precision::kI8;
  desc.align_k = gemm::BlockElements(config.type_b);
  desc.tile_m = kGroupTiles * kTileRowCount;
  desc.tile_n = kGroupPanels * kColumns;
  desc.tile_k = kStepK;
  return desc;
}

}  // namespace

/// How a launch is cut.
struct GemmAmx::Plan {
  int m = 0, steps = 0, panels = 0;
  int stage_tiles = 0;   ///< row tiles packed at a time
  int block_tiles = 0;   ///< row tiles of a task
  ShrinkingTasks pairs;  ///< pairs of panels of a task
  double cycles = 0;     ///< that the cut is expected to take
  int most_panels = 0;   ///< of a task
  int chunk_steps = 0;   ///< of unpacked weights
  int steps_each = 1;    ///< that one of k takes unpacked
  int steps_ahead = 0;   ///< of which one group of rows fetches weights
  std::size_t panel_bytes = 0;
  std::size_t staged_bytes = 0, scratch_bytes = 0;  ///< scratch_bytes: one worker's

  bool operator==(const Plan&) const = default;
  std::size_t TotalBytes(int workers) const {
    return staged_bytes + scratch_bytes * static_cast<std::size_t>(workers);
  }
};

GemmAmx::GemmAmx(const AmxConfig& config)
    : CpuKernel(InfoOf(config), DescOf(config)),
      config_(config),
      format_(FindFormat(config.type_b)) {}

std::optional<Rejection> GemmAmx::IsFeasible(const GemmDesc& problem) const {
  if (auto no = Kernel::IsFeasible(problem)) return no;
  return gemm::CheckDense(problem);
}

std::span<const ConfigField> GemmAmx::ConfigFields() const { return kFields; }

const TileOps::Weights& GemmAmx::WeightOps() const {
  return config_.ops->weights[IndexOf(config_.type_b)];
}

std::vector<LaunchSpec> GemmAmx::Specs(const GemmDesc& problem, const DeviceSpec& device,
                                       const LaunchLimits& limits) const {
  std::vector<LaunchSpec> specs = CpuKernel::Specs(problem, device, limits);
  const GemmShape shape{problem.m, problem.n, problem.k, problem.num};
  std::vector<Plan> plans = {MakePlan(shape, device.cores, {})};
  const auto add = [&](std::initializer_list<std::pair<Word, int>> words) {
    LaunchSpec spec = specs.front();
    for (const auto& [word, value] : words) spec.config.words[word] = value;
    const Plan plan = MakePlan(shape, device.cores, spec.config);
    if (std::find(plans.begin(), plans.end(), plan) != plans.end()) return;
    plans.push_back(plan);
    specs.push_back(spec);
  };
  constexpr int kRuns[] = {16, 32, 64, 256};
  for (const int run : kRuns) add({{kRunWord, run}});
  add({{kRowsWord, 256}});
  for (const int rows : {128, 512}) {
    add({{kRowsWord, rows}});
    for (const int run : kRuns) add({{kRowsWord, rows}, {kRunWord, run}});
  }
  // With cores of unequal speed, smaller tasks (16 threads of a shared host, 128 rows of q8_0, 2048 x 8192:
  // 1,388 us as above, 1,288 and 1,187 as here).
  add({{kRowsWord, 64}});
  add({{kRowsWord, 64}, {kChunkWord, 64}});
  // Activations that few workers share, which are cheap to pack again (16 threads of a shared host, q4_1, us as above,
  // in 64 and in 32 rows with one task: 512 rows of 576 x 1536 310, 192, 204, of 960 x 576 171, 122, 150; 128 rows of
  // q4_0, 2048 x 8192 858 and in 32 rows with one task 661, with four 674).
  for (const int rows : {32, 64}) {
    for (const int tasks : {1, 4}) add({{kRowsWord, rows}, {kTasksWord, tasks}});
  }
  // The L2 in place of the L1 for unpacked weights: sums are moved less often.
  for (const int chunk : {kMostChunkSteps, 64, 512}) {
    add({{kChunkWord, chunk}});
    for (const int run : {16, 256}) add({{kChunkWord, chunk}, {kRunWord, run}});
  }
  const auto aheads = ReadsTiles() ? std::array{1, 4, 8} : std::array{10, 20, 80};
  for (const int ahead : aheads) add({{kAheadWord, ahead}});
  for (const int tasks : {1, 2, 4}) {
    add({{kTasksWord, tasks}});
    add({{kTasksWord, tasks}, {kRowsWord, 512}});
  }
  return specs;
}

GemmAmx::Plan GemmAmx::MakePlan(const GemmShape& shape, int workers,
                                const LaunchConfig& config) const {
  const auto word = [&](Word at, int otherwise) {
    return config.words[at] > 0 ? static_cast<int>(config.words[at]) : otherwise;
  };
  const int tiles_each = CeilDiv(word(kRowsWord, 0), kTileRowCount);
  Plan plan;
  plan.m = shape.m;
  plan.steps = CeilDiv(shape.k, kStepK);
  plan.panels = CeilDiv(shape.n, kColumns);
  plan.panel_bytes = format_ != nullptr
                         ? gemm_int8::PanelBytes(*format_, plan.steps)
                         : static_cast<std::size_t>(gemm::PanelBytes(config_.type_b, shape.k));
  // Of f16, an unpacked step is half of one.
  plan.steps_each = config_.type_b == DataType::kF16 ? 2 : 1;
  const int tiles = CeilDiv(shape.m, kTileRowCount);
  const std::size_t tile_bytes = static_cast<std::size_t>(plan.steps) * kStepBytes;
  const int stage = std::max(1, static_cast<int>(kStageBytes / tile_bytes));
  plan.stage_tiles = CeilDiv(tiles, CeilDiv(tiles, stage));
  // Tiles of bf16 come from memory, in longer pieces where few rows share them.
  const bool streams = ReadsTiles() && plan.stage_tiles <= kFewTiles;
  const int most = word(kChunkWord, streams ? kStreamedSteps : kMostChunkSteps / plan.steps_each);
  const int chunk = CeilDiv(plan.steps, CeilDiv(plan.steps, most));
  // Blocks of rows as even as they go, each of which stays in the L2 over a chunk of k. A single group
  // of row tiles has no use for unpacked weights that stay.
  const bool single =
      std::min(plan.stage_tiles, tiles_each != 0 ? tiles_each : kMostBlockTiles) <= kGroupTiles;
  const bool whole = single || chunk >= plan.steps;
  const int most_pairs = CeilDiv(word(kRunWord, whole     ? plan.panels
                                                : streams ? kStreamedPanels
                                                          : kMostRunPanels),
                                 kGroupPanels);
  const Cut cut = BestCut({plan.stage_tiles, CeilDiv(plan.panels, kGroupPanels), plan.steps},
                          workers, word(kTasksWord, 0), tiles_each, most_pairs);
  plan.block_tiles = CeilDiv(plan.stage_tiles, cut.blocks);
  plan.pairs = cut.pairs;
  plan.cycles = cut.cycles;
  const auto [first, end] = cut.pairs[cut.pairs.lanes() - 1];
  plan.most_panels = (end - first) * kGroupPanels;
  plan.chunk_steps = (plan.block_tiles <= kGroupTiles ? plan.steps : chunk) * plan.steps_each;
  const bool chunked = plan.chunk_steps < plan.steps * plan.steps_each;
  if (!chunked) plan.steps_ahead = word(kAheadWord, ReadsTiles() ? kTileStepsAhead : kStepsAhead);
  plan.staged_bytes = static_cast<std::size_t>(plan.stage_tiles) * tile_bytes;
  plan.scratch_bytes =
      ScratchBytes(plan.chunk_steps, plan.block_tiles, chunked ? plan.most_panels : kStoredPanels);
  return plan;
}

std::size_t GemmAmx::PartialsBytes(const GemmDesc& p, const LaunchSpec& spec,
                                   const DeviceSpec& device) const {
  return gemm::MostBytes(spec, device, [&](int workers) {
    return MakePlan({p.m, p.n, p.k, p.num}, workers, spec.config).TotalBytes(workers);
  });
}

std::size_t GemmAmx::PackedBytes(const MatrixLayout& b) const {
  return format_ != nullptr ? gemm_int8::PackedSize(*format_, b.cols, b.rows)
                            : gemm::PanelPackBytes(b);
}

Status GemmAmx::PackB(const void* plain, const MatrixLayout& b, void* packed, Stream stream) const {
  if (b.num != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} packs one matrix, got {}", name(), b.num));
  }
  if (format_ == nullptr) return gemm::PackPanels(plain, b, packed, stream);
  if (Status plain_b = gemm_int8::CheckPlain(*format_, b, b.ld, name()); !plain_b) return plain_b;
  gemm_int8::PackPanels(*format_, plain, b.cols, b.rows, BytesOf(format_->type, b.ld), packed,
                        stream);
  return {};
}

double GemmAmx::EstimateUs(const GemmDesc& p, const LaunchSpec& spec,
                           const DeviceSpec& device) const {
  const int workers = WorkersOf(spec.config, device.cores);
  const GemmShape shape{p.m, p.n, p.k, p.num};
  const Plan plan = MakePlan(shape, workers, {});
  // Of a task. The first group of rows waits for what unpacks, the others have one operand from the L1
  // and one from the L2. Sapphire Rapids class, one thread, 4096 x 4096, 2026-11-26, ms: 16, 32, 128, 512
  // rows of q4_0 in 1.3, 1.4, 3.9, 15.4, of q8_0 in 1.9, 2.0, 4.9, 17.7.
  constexpr double kVectorFlops = 64;
  // Tiles of bf16 have to come from memory in their place.
  const double unpack_cycles =
      ReadsTiles() ? 85 : kUnpackCycles[static_cast<std::size_t>(WeightOps().activations)];
  const double unpack_us = unpack_cycles * kVectorFlops * 1e-3 / device.f32_gflop_s;
  const double rate = device.amx_bf16_gflop_s > 0 ? device.amx_bf16_gflop_s
                                                  : device.f32_gflop_s;  // emulated, in tests
  const double tile_us = 2e-3 * kSumsOfTile * kStepK / rate;
  const double row_tiles = CeilDiv(p.m, kTileRowCount);
  constexpr double kRestShare = 0.45;
  const double blocks = CeilDiv(static_cast<int>(row_tiles), plan.block_tiles);
  const double first = std::min<double>(kGroupTiles, row_tiles / blocks);
  const double weights = static_cast<double>(plan.panels) * plan.steps;
  const double compute_us =
      weights * blocks *
      (unpack_us + first * tile_us / 0.8 + (row_tiles / blocks - first) * tile_us / kRestShare);
  const double pairs = blocks * CeilDiv(plan.panels, kGroupPanels);
  const double rounds = std::ceil(pairs / workers) * workers / pairs;
  const double bytes = static_cast<double>(plan.panels) * static_cast<double>(plan.panel_bytes);
  // Where memory takes the time, up to 12 rows of weights in blocks, one tile of the int8 kernels, are theirs: those read as fast.
  constexpr double kLesser = 1.05;
  const bool one_tile = format_ != nullptr && p.m <= 12;
  const double memory_us = (one_tile ? kLesser : 1) * bytes / gemm::ReadRate(device, bytes) * 1e-3;
  const double pack_us = 1e-4 * p.m * p.k / workers;
  // Another configuration takes longer by what its cut does (16 threads of a shared host, 512 rows of q4_1,
  // 3072 x 576: 518 us, lanes in one piece 796), and is behind where the cuts are alike: such were up to a
  // third slower where they lost and 4 % faster where they won, which the tuner finds out.
  constexpr double kOther = 1.1;
  const bool other = std::any_of(spec.config.words.begin() + kRowsWord, spec.config.words.end(),
                                 [](std::int64_t word) { return word != 0; });
  const double slower =
      other ? kOther * std::max(1.0, MakePlan(shape, workers, spec.config).cycles / plan.cycles)
            : 1.0;
  return std::max(slower * compute_us / workers * rounds, memory_us) + pack_us +
         2 * gemm_int8::kRegionUs;
}

/// Rows of a launch whose activations are packed at a time, over all of k.
struct GemmAmx::Stage {
  const Plan& plan;
  const GemmArgs& args;
  const TileOps::Weights& ops;
  PackTile* pack;
  GemmShape shape;
  std::uint8_t *staged, *scratch;
  int first_row, rows;
  int tiles = CeilDiv(rows, kTileRowCount);
  int blocks = CeilDiv(tiles, plan.block_tiles);
  int steps_each = plan.chunk_steps / plan.steps_each;  ///< of a chunk
  int chunks = CeilDiv(plan.steps, steps_each);

  std::uint8_t* Packed(int tile, int step) const {
    return staged + static_cast<std::size_t>(tile * plan.steps + step) * kStepBytes;
  }

  /// Chunks [first, end) of a row tile.
  void Pack(int tile, int first, int end) const {
    const int row = tile * kTileRowCount;
    const int first_tile = tile / plan.block_tiles * plan.block_tiles;
    const int block_tiles = std::min(plan.block_tiles, tiles - first_tile);
    const std::int64_t lda = args.a_layout.ld;
    const float* from = static_cast<const float*>(args.a) + (first_row + row) * lda;
    for (int chunk = first; chunk < end; ++chunk) {
      const int step = chunk * steps_each, k = step * kStepK;
      const int steps = std::min(steps_each, plan.steps - step);
      pack(from + k, lda, std::min(kTileRowCount, rows - row),
           std::min(steps * kStepK, shape.k - k),
           Packed(first_tile, step * block_tiles + (tile - first_tile) * steps));
    }
  }

  void PackBlock(int block) const {
    const int first = block * plan.block_tiles, end = std::min(tiles, first + plan.block_tiles);
    for (int tile = first; tile < end; ++tile) Pack(tile, 0, chunks);
  }

  /// A block by a piece of the panels.
  void Multiply(int block, int piece, int worker) const {
    const ShrinkingTasks::Range pairs = plan.pairs[piece];
    if (pairs.empty()) return;
    const auto [first_panel, end_panel] = pairs.InParts(kGroupPanels, plan.panels);
    const int first_tile = block * plan.block_tiles, of_stage = first_tile * kTileRowCount;
    const int row = first_row + of_stage;
    const bool gated = gemm::IsGated(args);
    const std::int64_t column = first_panel * kColumns / (gated ? 2 : 1);
    PanelTask task;
    task.a = Packed(first_tile, 0);
    task.rows = std::min(plan.block_tiles * kTileRowCount, rows - of_stage);
    task.k = shape.k, task.steps = plan.steps;
    task.b = static_cast<const std::uint8_t*>(args.b) +
             static_cast<std::size_t>(first_panel) * plan.panel_bytes;
    task.panel_bytes = plan.panel_bytes;
    task.panels = end_panel - first_panel;
    task.chunk_steps = plan.chunk_steps;
    task.steps_ahead = plan.steps_ahead;
    task.gated = gated;
    task.alpha = args.alpha, task.beta = args.beta;
    task.ldc = args.c_layout.ld, task.ldd = args.d_layout.ld;
    if (args.beta != 0.0f) task.c = static_cast<const float*>(args.c) + row * task.ldc + column;
    task.d = static_cast<float*>(args.d) + row * task.ldd + column;
    task.columns = args.d_layout.cols - static_cast<int>(column);
    task.scratch = scratch + static_cast<std::size_t>(worker) * plan.scratch_bytes;
    ops.multiply(task);
  }

  void Run(Executor& executor) const {
    const auto multiply = [&](int block, int piece, int worker) { Multiply(block, piece, worker); };
    if (OwnsBlocks(plan.pairs, blocks, executor.workers())) {
      const auto pack_block = [&](int block) { PackBlock(block); };
      return RunBlocksInLanes(executor, blocks, plan.pairs.count(), pack_block, multiply);
    }
    RunPartsInLanes(executor, tiles, chunks,
                    [&](int tile, int first, int end) { Pack(tile, first, end); });
    executor.Run(blocks * plan.pairs.count(),
                 [&](int task, int worker) { multiply(task % blocks, task / blocks, worker); });
  }
};

Status GemmAmx::LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                         Stream stream) {
  const GemmShape shape = gemm::ShapeOf(args);
  const int workers = gemm::Workers(stream);
  const Plan plan = MakePlan(shape, workers, spec.config);
  if (Status ok = gemm::CheckLaunch(*this, spec, shape, workspace, plan.TotalBytes(workers)); !ok)
    return ok;
  auto* staged = static_cast<std::uint8_t*>(workspace.partials);
  const TileOps::Weights& ops = WeightOps();
  const int stage_rows = plan.stage_tiles * kTileRowCount;
  for (int row = 0; row < shape.m; row += stage_rows) {
    const Stage stage = {.plan = plan,
                         .args = args,
                         .ops = ops,
                         .pack = config_.ops->pack[static_cast<std::size_t>(ops.activations)],
                         .shape = shape,
                         .staged = staged,
                         .scratch = staged + plan.staged_bytes,
                         .first_row = row,
                         .rows = std::min(stage_rows, shape.m - row)};
    stage.Run(stream.exec());
  }
  return {};
}

}  // namespace tilewright::gemm_amx

namespace tilewright {

void AddGemmAmx(Registry& registry, const gemm_amx::TileOps& ops, std::uint32_t features,
                std::string_view flag) {
  // Names are distinct by construction; a registry that already has them keeps its own.
  const auto add = [&](DataType type, Pack pack) {
    if (ops.weights[gemm_amx::IndexOf(type)].multiply == nullptr) return;
    static_cast<void>(registry.Add(std::make_unique<gemm_amx::GemmAmx>(gemm_amx::AmxConfig{
        .ops = &ops, .features = features, .type_b = type, .pack = pack, .flag = flag})));
  };
  add(DataType::kBF16, kPackBF16x16x2);
  add(DataType::kF16, kPackF16x16);
  for (const BlockFormat& format : kFormats) add(format.type, Int8Pack(format));
}

void AddGemmAmx(Registry& registry) {
  AddGemmAmx(registry, gemm_amx::TileOpsAmx(),
             kFeatureAvx512 | kFeatureAvx512Bf16 | kFeatureAmxTile | kFeatureAmxBf16, "");
}

}  // namespace tilewright
