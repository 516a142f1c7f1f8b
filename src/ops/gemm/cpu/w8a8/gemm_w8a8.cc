#include "ops/gemm/cpu/w8a8/gemm_w8a8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/block_format.h"
#include "core/fingerprint.h"
#include "core/parallel.h"
#include "core/shrinking_tasks.h"
#include "ops/gemm/base/packs.h"
#include "ops/gemm/cpu/common.h"
#include "ops/gemm/cpu/w8a8/pack.h"
#include "ops/gemm/formats.h"

namespace tilewright::gemm_w8a8 {
namespace {

/// Rows that are rounded at a time, in bytes.
constexpr std::size_t kStageBytes = 16 << 20;
/// Rounded rows of a task: half of an L2 of 2 MB.
constexpr std::size_t kBlockBytes = 1 << 20;
/// Panels whose products wait for the epilogue, an even number.
constexpr int kPiecePanels = 8;
/// Tasks of a worker that smaller blocks of rows make possible, and pieces of its lane of panels.
constexpr int kTasksPerWorker = 4, kPiecesOfLane = 6;
constexpr double kRegionUs = 1.0;   ///< a parallel region on spinning workers
constexpr double kRoundUs = 1e-4;   ///< time of an element
constexpr double kFinishUs = 4e-4;  ///< time of an element of D that has an epilogue

/// Words of the launch configuration, behind the number of threads.
enum Word : std::size_t { kRowsWord = 1, kRunWord = 2 };
constexpr ConfigField kFields[] = {
    kThreadsField[0],
    {.name = "rows", .least = kTileRowCount, .most = 1 << 16, .optional = true},  ///< of a block
    {.name = "run", .least = 2, .most = 1 << 16, .optional = true},               ///< in panels
};

KernelInfo InfoOf(const IsaConfig& isa, DataType type_b) {
  KernelInfo info;
  info.name = gemm::FormatKernelId(
      {.a = "f32",
       .b = DataTypeName(type_b),
       .c = "f32",
       .isa = isa.word,
       .tile = fmt::format("{}x{}x{}", isa.tile_rows, isa.tile_columns, kStepK),
       .pack = PackName(kPackI8x16x4),
       .flag = "w8a8"});
  info.name += isa.flag;
  info.fingerprint = gemm::JoinFingerprints({isa.ops->tu, OpsScalar().tu});
  info.features = isa.features;
  info.batch_invariant = false;  // see the class
  return info;
}

KernelDesc DescOf(const IsaConfig& isa, DataType type_b) {
  KernelDesc desc;
  desc.type_a = desc.type_c = Bit(DataType::kF32);
  desc.type_b = Bit(type_b);
  desc.epilogue = Bit(Epilogue::kNone) | Bit(Epilogue::kGatedSilu);
  desc.pack_b = kPackI8x16x4;
  desc.activations = Precision::kW8A8;
  desc.align_k = gemm::BlockElements(type_b);
  desc.tile_m = isa.tile_rows;
  desc.tile_n = isa.tile_columns;
  desc.tile_k = kStepK;
  return desc;
}

}  // namespace

/// How a launch is cut.
struct GemmW8A8::Plan {
  int panels = 0;
  int stage_tiles = 0;   ///< row tiles rounded at a time
  int block_tiles = 0;   ///< row tiles of a task
  ShrinkingTasks pairs;  ///< of panels, of a task
  std::size_t tile_bytes = 0, panel_bytes = 0;

  bool operator==(const Plan&) const = default;
  std::size_t staged_bytes() const { return static_cast<std::size_t>(stage_tiles) * tile_bytes; }
  std::size_t scales_bytes() const {
    return static_cast<std::size_t>(stage_tiles) * kTileRowCount * sizeof(float);
  }
  std::size_t scratch_bytes() const {  // one worker's
    return static_cast<std::size_t>(block_tiles * kTileRowCount * kPiecePanels * kColumns) *
           sizeof(float);
  }
  std::size_t TotalBytes(int workers) const {
    return staged_bytes() + scales_bytes() + scratch_bytes() * static_cast<std::size_t>(workers);
  }
};

GemmW8A8::GemmW8A8(const IsaConfig& isa, DataType type_b)
    : CpuKernel(InfoOf(isa, type_b), DescOf(isa, type_b)), isa_(isa), type_b_(type_b) {}

std::span<const ConfigField> GemmW8A8::ConfigFields() const { return kFields; }

std::optional<Rejection> GemmW8A8::IsFeasible(const GemmDesc& problem) const {
  if (auto no = Kernel::IsFeasible(problem)) return no;
  if (auto no = CheckDepth(problem.k)) return no;
  return gemm::CheckDense(problem);
}

GemmW8A8::Plan GemmW8A8::MakePlan(const GemmShape& shape, int workers, const LaunchConfig& config) {
  const auto word = [&](Word at, int otherwise) {
    return config.words[at] > 0 ? static_cast<int>(config.words[at]) : otherwise;
  };
  Plan plan;
  plan.panels = CeilDiv(shape.n, kColumns);
  plan.tile_bytes = TileBytes(shape.k);
  plan.panel_bytes = PanelBytes(shape.k);
  const int tiles = CeilDiv(shape.m, kTileRowCount);
  const int stage = std::max(1, static_cast<int>(kStageBytes / plan.tile_bytes));
  plan.stage_tiles = CeilDiv(tiles, CeilDiv(tiles, stage));
  const int most = std::max(2, static_cast<int>(kBlockBytes / plan.tile_bytes));
  const int most_tiles = CeilDiv(word(kRowsWord, most * kTileRowCount), kTileRowCount);
  // Where there are fewer runs of panels than workers need, more and smaller blocks of rows.
  const int pairs = CeilDiv(plan.panels, 2);
  const int wanted = workers == 1 ? 1 : kTasksPerWorker * workers;
  int blocks = CeilDiv(plan.stage_tiles, most_tiles);
  blocks =
      std::clamp(CeilDiv(wanted, pairs), blocks, std::max(blocks, CeilDiv(plan.stage_tiles, 2)));
  plan.block_tiles = CeilDiv(plan.stage_tiles, blocks);
  blocks = CeilDiv(plan.stage_tiles, plan.block_tiles);
  const int most_pairs = CeilDiv(word(kRunWord, plan.panels), 2);
  const int lanes = std::max(1, workers / blocks), pieces = workers == 1 ? 1 : kPiecesOfLane;
  plan.pairs = ShrinkingTasks::InPieces(pairs, lanes, pieces, most_pairs);
  return plan;
}

std::vector<LaunchSpec> GemmW8A8::Specs(const GemmDesc& problem, const DeviceSpec& device,
                                        const LaunchLimits& limits) const {
  std::vector<LaunchSpec> specs = CpuKernel::Specs(problem, device, limits);
  const GemmShape shape{problem.m, problem.n, problem.k, problem.num};
  std::vector<Plan> plans = {MakePlan(shape, device.cores, {})};
  for (const int rows : {0, 64, 128, 512}) {
    for (const int run : {0, 8, 32, 128}) {
      LaunchSpec spec = specs.front();
      spec.config.words[kRowsWord] = rows;
      spec.config.words[kRunWord] = run;
      const Plan plan = MakePlan(shape, device.cores, spec.config);
      if (std::find(plans.begin(), plans.end(), plan) != plans.end()) continue;
      plans.push_back(plan);
      specs.push_back(spec);
    }
  }
  return specs;
}

std::size_t GemmW8A8::PartialsBytes(const GemmDesc& p, const LaunchSpec& spec,
                                    const DeviceSpec& device) const {
  return gemm::MostBytes(spec, device, [&](int workers) {
    return MakePlan({p.m, p.n, p.k, p.num}, workers, spec.config).TotalBytes(workers);
  });
}

std::size_t GemmW8A8::PackedBytes(const MatrixLayout& b) const {
  return static_cast<std::size_t>(CeilDiv(b.cols, kColumns)) * PanelBytes(b.rows);
}

Status GemmW8A8::PackB(const void* plain, const MatrixLayout& b, void* packed,
                       Stream stream) const {
  if (Status ok = CheckPlainWeights(name(), type_b_, b); !ok) return ok;
  stream.exec().Run(CeilDiv(b.cols, kColumns), [&](int panel, int) {
    PackPanelOf(
        type_b_, plain, b, panel,
        static_cast<std::uint8_t*>(packed) + static_cast<std::size_t>(panel) * PanelBytes(b.rows));
  });
  return {};
}

double GemmW8A8::EstimateUs(const GemmDesc& p, const LaunchSpec& spec,
                            const DeviceSpec& device) const {
  const int workers = WorkersOf(spec.config, device.cores);
  const Plan plan = MakePlan({p.m, p.n, p.k, p.num}, workers, spec.config);
  const double rate = isa_.amx && device.amx_i8_gop_s > 0 ? device.amx_i8_gop_s : device.i8_gop_s;
  // Tiles have all rows; vectors next to none that does not exist.
  const double rows = isa_.amx ? CeilDiv(p.m, kTileRowCount) * kTileRowCount : p.m;
  const double compute_us = 2e-3 * rows * plan.panels * kColumns * p.k / (rate * isa_.share);
  const double blocks = CeilDiv(CeilDiv(p.m, kTileRowCount), plan.block_tiles);
  const double pairs = blocks * CeilDiv(plan.panels, 2);
  const double rounds = std::ceil(pairs / workers) * workers / pairs;
  const double bytes = static_cast<double>(plan.panels) * static_cast<double>(plan.panel_bytes);
  const double memory_us = bytes / gemm::ReadRate(device, bytes) * 1e-3;
  const bool finishes = p.epilogue != Epilogue::kNone || p.scaling != Scaling::kOneZero;
  const double beside_us =
      (kRoundUs * p.m * p.k + (finishes ? kFinishUs * p.m * p.n : 0)) / workers;
  return std::max(compute_us / workers * rounds, memory_us) + beside_us + 2 * kRegionUs;
}

Status GemmW8A8::LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                          Stream stream) {
  const GemmShape shape = gemm::ShapeOf(args);
  const bool gated = gemm::IsGated(args);
  const int workers = gemm::Workers(stream);
  const Plan plan = MakePlan(shape, workers, spec.config);
  if (Status ok = gemm::CheckLaunch(*this, spec, shape, workspace, plan.TotalBytes(workers)); !ok)
    return ok;
  if (args.b_layout.pack != kPackI8x16x4) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: B is packed as {}, must be {}", name(),
                            PackName(args.b_layout.pack), PackName(kPackI8x16x4)));
  }
  auto* staged = static_cast<std::uint8_t*>(workspace.partials);
  auto* row_scales = reinterpret_cast<float*>(staged + plan.staged_bytes());
  std::uint8_t* scratch = staged + plan.staged_bytes() + plan.scales_bytes();
  const bool direct = !gated && args.alpha == 1.0f && args.beta == 0.0f;
  Executor& executor = stream.exec();
  const auto* a = static_cast<const float*>(args.a);
  const std::int64_t lda = args.a_layout.ld, ldc = args.c_layout.ld, ldd = args.d_layout.ld;
  const int stage_rows = plan.stage_tiles * kTileRowCount;
  for (int first_row = 0; first_row < shape.m; first_row += stage_rows) {
    const int rows = std::min(stage_rows, shape.m - first_row);
    RunInLanes(executor, CeilDiv(rows, kTileRowCount), [&](int tile, int) {
      const int row = tile * kTileRowCount;
      isa_.ops->pack_rows(a + (first_row + row) * lda, lda, std::min(kTileRowCount, rows - row),
                          shape.k, staged + static_cast<std::size_t>(tile) * plan.tile_bytes,
                          row_scales + row);
    });
    const int block_rows = plan.block_tiles * kTileRowCount;
    const int blocks = CeilDiv(rows, block_rows);
    executor.Run(blocks * plan.pairs.count(), [&](int index, int worker) {
      const ShrinkingTasks::Range pairs = plan.pairs[index / blocks];
      if (pairs.empty()) return;
      const int row = index % blocks * block_rows;
      const auto [first, last] = pairs.InParts(2, plan.panels);
      const int step = direct ? last - first : kPiecePanels;
      for (int panel = first; panel < last; panel += step) {
        const int column = panel * kColumns;
        Task task;
        task.a = staged + static_cast<std::size_t>(row / kTileRowCount) * plan.tile_bytes;
        task.row_scales = row_scales + row;
        task.rows = std::min(block_rows, rows - row);
        task.k = shape.k;
        task.b = static_cast<const std::uint8_t*>(args.b) +
                 static_cast<std::size_t>(panel) * plan.panel_bytes;
        task.columns = std::min(std::min(step, last - panel) * kColumns, shape.n - column);
        const std::int64_t to = column / (gated ? 2 : 1);
        float* d = static_cast<float*>(args.d) + (first_row + row) * ldd + to;
        if (direct) {
          task.d = d, task.ldd = ldd;
          isa_.ops->multiply(task);
          continue;
        }
        auto* products = reinterpret_cast<float*>(scratch + static_cast<std::size_t>(worker) *
                                                                plan.scratch_bytes());
        task.d = products, task.ldd = kPiecePanels * kColumns;
        isa_.ops->multiply(task);
        Finish finish;
        finish.products = products, finish.ld = task.ldd;
        finish.rows = task.rows, finish.columns = task.columns / (gated ? 2 : 1);
        finish.gated = gated;
        finish.alpha = args.alpha, finish.beta = args.beta;
        if (args.beta != 0.0f)
          finish.c = static_cast<const float*>(args.c) + (first_row + row) * ldc + to;
        finish.ldc = ldc;
        finish.d = d, finish.ldd = ldd;
        isa_.ops->finish(finish);
      }
    });
  }
  return {};
}

}  // namespace tilewright::gemm_w8a8

namespace tilewright {

void AddGemmW8A8(Registry& registry, const gemm_w8a8::IsaConfig& isa) {
  // Names are distinct by construction; a registry that already has them keeps its own.
  const auto add = [&](DataType type) {
    static_cast<void>(registry.Add(std::make_unique<gemm_w8a8::GemmW8A8>(isa, type)));
  };
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBF16}) add(type);
  for (const BlockFormat& format : kFormats) add(format.type);
}

void AddGemmW8A8(Registry& registry) {
  AddGemmW8A8(registry, {.word = "amx",
                         .ops = &gemm_w8a8::OpsAmx(),
                         .features = kFeatureAvx512 | kFeatureAmxTile | kFeatureAmxInt8,
                         .tile_rows = 32,
                         .tile_columns = 32,
                         .amx = true,
                         .share = 0.3});
  AddGemmW8A8(registry, {.word = "avx512vnni",
                         .ops = &gemm_w8a8::OpsAvx512Vnni(),
                         .features = kFeatureAvx512 | kFeatureAvx512Vnni,
                         .share = 0.39});
  AddGemmW8A8(registry, {.word = "scalar", .ops = &gemm_w8a8::OpsScalar(), .share = 0.07});
}

}  // namespace tilewright
