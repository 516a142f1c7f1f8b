#include "ops/gemm/cpu/int8/gemm_int8.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "core/fingerprint.h"
#include "core/parallel.h"
#include "core/shrinking_tasks.h"
#include "ops/gemm/base/packs.h"
#include "ops/gemm/cpu/int8/arrange.h"
#include "ops/gemm/cpu/int8/gemm_int8_grouped.h"
#include "ops/gemm/cpu/int8/pack.h"
#include "ops/gemm/cpu/int8/register.h"

namespace tilewright::gemm_int8 {

namespace {

constexpr double kPeakAvx512 = 0.34, kPeakAvx2 = 0.24;  // of a Xeon: 246 and 175 of 715 Gop/s

/// What BlockCost leaves of the peak of VNNI where all vector instructions share two ports, as on the
/// processors that have AMX: 512 rows reach 41 to 46 % of the peak for q4_0, q4_1 and q8_0, and 34 %
/// for q6_k, where Zen 4 reaches 66 to 72 %.
constexpr double kTwoPorts = 0.65;

/// Time of a quad without VNNI over that of the three instructions which measure the peak. Sums of
/// small codes stay in int16 for a block; signed values need their sign moved. The best of many runs
/// in the L2 cache on a Xeon, one thread, 128 rows, gop/s of the peak with BlockCost counted: q4_k
/// 1.29 with AVX2 and 1.37 with AVX-512, q4_0 1.26 and 1.28, q5_k 1.06 and 1.24, q6_k 0.98 and 1.18,
/// q8_0 0.74 and 0.56, iq4_nl 0.57 and 0.72.
double QuadCost(const BlockFormat& format) {
  const int quads = 32767 / (2 * 127 * LargestCode(format));  // that fit into int16
  if (quads == 0) return 1.5;
  return quads >= 8 && format.sub_block == kBlock ? 0.77 : 0.92;
}

/// Time to read weights from memory by any but the best instruction set of the device, over that by the best: enough to
/// decide where the model finds that memory takes the time. One row, AVX2 over VNNI, two cores of a Zen 5 that share a
/// last-level cache and two that do not, 16384 x 2048, 2048 x 8192 and 3072 x 2048 of q4_0: 1.04, 0.94 and 1.03, 1.05,
/// 1.25 and 0.99; 49152 x 2048 of q6_k: 1.06 and 1.10; 16384 x 2048 of q8_0: 1.35 and 2.07. Not of mxfp4, whose codes
/// of a table take VNNI as long (16384 x 2048: 0.97 and 0.77).
constexpr double kLesser = 1.04;

/// Tasks of a worker where there are several row tiles; pieces of its lane where there is one.
constexpr int kTasksOfWorker = 8, kPiecesOfLane = 8;

/// Blocks of a row, at least, of a task that quantises.
constexpr int kFillBlocks = 4;

/// From so many row tiles a worker on, each worker has rows of its own.
constexpr int kTilesOfWorker = 8;

/// Words of the launch configuration, behind the number of threads.
enum Word : std::size_t { kChunkWord = 1, kTasksWord = 2, kPanelsWord = 3 };
constexpr ConfigField kFields[] = {
    kThreadsField[0],
    {.name = "chunk", .least = 1, .most = 1 << 16, .optional = true},  ///< of packed weights, KiB
    {.name = "tasks", .least = 1, .most = 64, .optional = true},       ///< of a worker
    {.name = "panels", .least = 1, .most = 1, .optional = true},  ///< at a time, else side by side
};

/// Whether no other instruction set of the catalog is faster on the device.
bool IsBest(const IsaConfig& isa, const DeviceSpec& device) {
  for (const std::uint32_t better : {kFeatureAvx512Vnni, kFeatureAvx512, kFeatureAvx2}) {
    if (device.Has(better)) return (isa.features & better) != 0;
  }
  return false;
}

}  // namespace

double BlockCost(const IsaConfig& isa, const BlockFormat& format) {
  const double quad = isa.vnni ? 1 : QuadCost(format);
  if (format.sub_block < kBlock) return 1.52 * quad;
  if (format.min != Factor::kNone) return 1.42 * quad;
  return (PanelCodeBits(format) == 8 ? 1.30 : 1.28) * quad;
}

double PeakOn(const IsaConfig& isa, const DeviceSpec& device) {
  const bool by_vnni = (isa.features & kFeatureAvx512Vnni) != 0;
  if (by_vnni && device.Has(kFeatureAmxTile)) return device.i8_gop_s * isa.peak * kTwoPorts;
  // Without any of them the rate is a default, which is that of a processor with VNNI.
  double best = 1;
  if (!device.Has(kFeatureAvx512Vnni)) {
    if (device.Has(kFeatureAvx2)) best = kPeakAvx2;
    if (device.Has(kFeatureAvx512)) best = kPeakAvx512;
  }
  return device.i8_gop_s * isa.peak / best;
}

KernelInfo InfoOf(const IsaConfig& isa, DataType activations, const BlockFormat& format,
                  bool grouped) {
  KernelInfo info;
  info.name = fmt::format("gemm.{}_{}_f32.tn.{}.{}x16x{}.{}.i8{}", DataTypeName(activations),
                          format.name, isa.word, isa.ops->tile_rows[IndexOf(format)], kBlock,
                          PackName(Int8Pack(format)), grouped ? ".grouped" : "");
  info.fingerprint = fmt::format("{}{}", TuFingerprint(isa.tu).substr(0, 16),
                                 TuFingerprint("ops/gemm/cpu/int8/pack.cc").substr(0, 16));
  if (activations == DataType::kI8X32)
    info.fingerprint += TuFingerprint("ops/gemm/cpu/int8/arrange.cc").substr(0, 16);
  info.features = isa.features;
  info.deterministic = true;
  info.batch_invariant = true;
  return info;
}

KernelDesc DescOf(const IsaConfig& isa, DataType activations, const BlockFormat& format) {
  KernelDesc desc;
  desc.type_a = Bit(activations), desc.type_c = Bit(DataType::kF32);
  desc.type_b = Bit(format.type);
  desc.epilogue = Bit(Epilogue::kNone) | Bit(Epilogue::kGatedSilu);
  desc.pack_b = Int8Pack(format);
  // What was rounded before is multiplied as it is.
  desc.activations = activations == DataType::kI8X32 ? Precision::kF32 : Precision::kI8;
  desc.tile_m = isa.ops->tile_rows[IndexOf(format)];
  desc.tile_n = kPanelColumns;
  desc.tile_k = kBlock;
  desc.align_k = format.elements;
  return desc;
}

Status CheckPlain(const BlockFormat& format, const MatrixLayout& b, std::int64_t ld,
                  std::string_view kernel) {
  if (b.type != format.type || b.order != Order::kColMajor || b.pack != kPackPlain) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} packs plain column-major {}, got {}, pack {}", kernel,
                            DataTypeName(format.type), DataTypeName(b.type), PackName(b.pack)));
  }
  if (b.rows <= 0 || b.rows % format.elements != 0 || b.cols <= 0 || ld < b.rows ||
      ld % format.elements != 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{}: k = {}, ld = {}, n = {}: k and ld >= k must be multiples of {}, n positive",
            kernel, b.rows, ld, b.cols, format.elements));
  }
  return {};
}

Status CheckCall(const Kernel& kernel, const BlockFormat& format, const GemmArgs& args,
                 const LaunchSpec& spec, const Workspace& workspace, std::size_t needed) {
  const auto invalid = [&](std::string what) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", kernel.name(), what));
  };
  if (spec.splits != 1 || spec.swizzle != 0) {
    return invalid(
        fmt::format("splits = {}, swizzle = {}: must be 1 and 0", spec.splits, spec.swizzle));
  }
  const Pack pack = kernel.desc().pack_b;
  if (args.b_layout.pack != pack) {
    return invalid(
        fmt::format("B is packed as {}, must be {}", PackName(args.b_layout.pack), PackName(pack)));
  }
  if (args.a_layout.cols <= 0 || args.a_layout.cols % format.elements != 0) {
    return invalid(
        fmt::format("k = {}: must be a multiple of {}", args.a_layout.cols, format.elements));
  }
  if (workspace.partials_size < needed ||
      reinterpret_cast<std::uintptr_t>(workspace.partials) % 64 != 0) {
    return invalid(fmt::format("{} bytes of partials at {}: needs {}, aligned to 64 bytes",
                               workspace.partials_size, workspace.partials, needed));
  }
  return {};
}

/// How a launch is cut. Row tiles are as even as they go; a task is a run of panels by `tile_chunk`
/// tiles.
struct GemmInt8::Plan {
  int m, blocks, panels;
  int tiles, tile_chunk;
  int step;  ///< panels that stay together
  /// Of `step` panels. With one row tile in lanes, so that what a worker fetches beyond its task is what
  /// it reads next. With more all of a size, chunks of rows innermost: workers side by side read the
  /// same panels. With `by_rows` chunks of rows outermost: each worker has rows of its own.
  ShrinkingTasks runs;
  std::size_t panel_bytes, row_bytes;
  bool abreast;  ///< one row times panels side by side
  bool by_rows;

  int FirstRow(int tile) const {
    return static_cast<int>(static_cast<std::int64_t>(tile) * m / tiles);
  }
  int tile_chunks() const { return CeilDiv(tiles, tile_chunk); }
  int tasks() const { return tile_chunks() * runs.count(); }
  int FirstTile(int task) const {
    return (by_rows ? task / runs.count() : task % tile_chunks()) * tile_chunk;
  }
  ShrinkingTasks::Range Run(int task) const {
    return runs[by_rows ? task % runs.count() : task / tile_chunks()];
  }

  bool operator==(const Plan&) const = default;
};

GemmInt8::GemmInt8(const IsaConfig& isa, DataType activations, const BlockFormat& format)
    : CpuKernel(InfoOf(isa, activations, format, false), DescOf(isa, activations, format)),
      isa_(isa),
      format_(format) {}

std::span<const ConfigField> GemmInt8::ConfigFields() const { return kFields; }

std::vector<LaunchSpec> GemmInt8::Specs(const GemmDesc& problem, const DeviceSpec& device,
                                        const LaunchLimits& limits) const {
  std::vector<LaunchSpec> specs = CpuKernel::Specs(problem, device, limits);
  if (!IsBest(isa_, device)) return specs;
  const GemmShape shape{problem.m, problem.n, problem.k, problem.num};
  const bool gated = problem.epilogue == Epilogue::kGatedSilu;
  std::vector<Plan> plans = {MakePlan(shape, gated, device.cores, {})};
  for (const int chunk : {0, 64, 512}) {
    for (const int tasks : {0, 1, 2, 4, 8, 16, 32}) {
      LaunchSpec spec = specs.front();
      spec.config.words[kChunkWord] = chunk;
      spec.config.words[kTasksWord] = tasks;
      const Plan plan = MakePlan(shape, gated, device.cores, spec.config);
      if (std::find(plans.begin(), plans.end(), plan) != plans.end()) continue;
      plans.push_back(plan);
      specs.push_back(spec);
    }
  }
  if (plans.front().abreast) {
    specs.push_back(specs.front());
    specs.back().config.words[kPanelsWord] = 1;
  }
  return specs;
}

std::optional<Rejection> GemmInt8::IsFeasible(const GemmDesc& problem) const {
  if (auto no = Kernel::IsFeasible(problem)) return no;
  if (problem.num != 1) {
    return Rejection{Reason::kStriding, fmt::format("num = {}", problem.num), "one group"};
  }
  if (problem.epilogue == Epilogue::kGatedSilu && problem.n % (2 * kGatedBlock) != 0) {
    return Rejection{Reason::kShape, fmt::format("n = {}", problem.n),
                     fmt::format("n a multiple of {} for gated_silu", 2 * kGatedBlock)};
  }
  return std::nullopt;
}

std::size_t GemmInt8::PartialsBytes(const GemmDesc& problem, const LaunchSpec&,
                                    const DeviceSpec&) const {
  return static_cast<std::size_t>(problem.m) * static_cast<std::size_t>(problem.k / kBlock) *
         static_cast<std::size_t>(RecordBytes(format_));
}

std::size_t GemmInt8::PackedBytes(const MatrixLayout& b) const {
  return PackedSize(format_, b.cols, b.rows);
}

Status GemmInt8::PackB(const void* plain, const MatrixLayout& b, void* packed,
                       Stream stream) const {
  if (b.num != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} packs one matrix, got {}", name(), b.num));
  }
  if (Status plain_b = CheckPlain(format_, b, b.ld, name()); !plain_b) return plain_b;
  PackPanels(format_, plain, b.cols, b.rows, BytesOf(format_.type, b.ld), packed, stream);
  return {};
}

double GemmInt8::EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                            const DeviceSpec& device) const {
  const double workers = WorkersOf(spec.config, device.cores);
  const int tile_rows = desc_.tile_m;
  const int tiles = CeilDiv(problem.m, tile_rows);
  const double rows = static_cast<double>(problem.m) / tiles;
  // Unpacking a block costs about as much as half a row of it, once for all rows of a tile.
  const double cost = BlockCost(isa_, format_) * (rows + 0.6) / rows;
  const double gop = 2e-9 * problem.m * problem.n * problem.k * cost;
  const double compute_us = gop / (PeakOn(isa_, device) * workers) * 1e6;
  const double bytes = static_cast<double>(PackedSize(format_, problem.n, problem.k));
  const bool lesser = !IsBest(isa_, device) && format_.scale != Factor::kPowerOfTwo;
  const double memory_us = (lesser ? kLesser : 1) * bytes / gemm::ReadRate(device, bytes) * 1e-3;
  const std::int64_t elements = static_cast<std::int64_t>(problem.m) * problem.k;
  const bool serial = elements <= kSerialQuantise;
  const double element_us = problem.type_a == DataType::kI8X32 ? kArrangeUs : kQuantiseUs;
  const double quantise_us = static_cast<double>(elements) * element_us / (serial ? 1 : workers);
  return std::max(compute_us, memory_us) + quantise_us + (serial ? 1 : 2) * kRegionUs;
}

GemmInt8::Plan GemmInt8::MakePlan(const GemmShape& shape, bool gated, int workers,
                                  const LaunchConfig& config) const {
  const auto word = [&config](Word which, int otherwise) {
    return config.words[which] > 0 ? static_cast<int>(config.words[which]) : otherwise;
  };
  Plan plan;
  plan.m = shape.m;
  plan.blocks = shape.k / kBlock;
  plan.panels = CeilDiv(shape.n, kPanelColumns);
  plan.panel_bytes = PanelBytes(format_, plan.blocks);
  plan.row_bytes =
      static_cast<std::size_t>(plan.blocks) * static_cast<std::size_t>(RecordBytes(format_));
  const int abreast = isa_.ops->abreast[IndexOf(format_)];
  plan.abreast =
      shape.m == 1 && abreast > 1 && plan.panels >= abreast && config.words[kPanelsWord] == 0;
  plan.tiles = CeilDiv(shape.m, desc_.tile_m);
  plan.by_rows = workers > 1 && plan.tiles >= kTilesOfWorker * workers;
  plan.step = gated ? 2 : 1;
  plan.tile_chunk = plan.tiles;
  const int units = CeilDiv(plan.panels, plan.step);
  if (plan.tiles == 1) {
    // Tasks only stream weights.
    const int pieces = workers == 1 ? 1 : word(kTasksWord, kPiecesOfLane);
    const auto unit_bytes = static_cast<std::int64_t>(plan.panel_bytes) * plan.step;
    plan.runs = config.words[kTasksWord] > 0
                    ? ShrinkingTasks::InPieces(units, workers, pieces)
                    : ShrinkingTasks::OfStream(units, workers, pieces, unit_bytes);
    return plan;
  }
  const int target = word(kTasksWord, kTasksOfWorker) * workers;
  const std::size_t chunk_bytes = static_cast<std::size_t>(word(kChunkWord, kChunkBytes >> 10))
                                  << 10;
  const int fitting = std::max<int>(1, static_cast<int>(chunk_bytes / plan.panel_bytes));
  int chunks = workers == 1 ? 1 : std::min(plan.panels / plan.step, CeilDiv(target, plan.tiles));
  chunks = std::max({chunks, CeilDiv(plan.panels, fitting), 1});
  const int chunk = CeilDiv(CeilDiv(plan.panels, chunks), plan.step);
  plan.runs = ShrinkingTasks(units, 1, chunk, chunk);
  int down = workers == 1 ? 1 : std::clamp(CeilDiv(target, plan.runs.count()), 1, plan.tiles);
  if (plan.by_rows) down = CeilDiv(down, workers) * workers;
  plan.tile_chunk = CeilDiv(plan.tiles, down);
  return plan;
}

void GemmInt8::FillTiles(const Plan& plan, const GemmArgs& args, std::uint8_t* scratch,
                         Executor& executor) const {
  const bool rounded = args.a_layout.type == DataType::kI8X32;
  const auto quantise = isa_.ops->quantise[IndexOf(format_)];
  const ArrangeFunction arrange = rounded ? ArrangeFunctionOf(format_.type) : nullptr;
  const std::int64_t lda = args.a_layout.ld;
  const std::size_t row_bytes = BytesOf(args.a_layout.type, lda);
  const bool serial = static_cast<std::int64_t>(plan.m) * plan.blocks * kBlock <= kSerialQuantise;
  const int units = CeilDiv(plan.blocks, kFillBlocks);
  const auto fill = [&](int tile, int first_unit, int end_unit) {
    const int row = plan.FirstRow(tile), rows = plan.FirstRow(tile + 1) - row;
    const int first = first_unit * kFillBlocks;
    const int blocks = std::min(end_unit * kFillBlocks, plan.blocks) - first;
    std::uint8_t* to = scratch + static_cast<std::size_t>(row) * plan.row_bytes +
                       static_cast<std::size_t>(first * rows * RecordBytes(format_));
    if (rounded) {
      const auto* a = static_cast<const BlockI8x32*>(args.a) + first;
      arrange(reinterpret_cast<const std::uint8_t*>(a) + static_cast<std::size_t>(row) * row_bytes,
              row_bytes, rows, blocks, to);
    } else {
      quantise(static_cast<const float*>(args.a) + row * lda + first * kBlock, lda, rows, blocks,
               to);
    }
  };
  if (serial) {
    for (int tile = 0; tile < plan.tiles; ++tile) fill(tile, 0, units);
  } else {
    RunPartsInLanes(executor, plan.tiles, units, fill);
  }
}

Status GemmInt8::LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                          Stream stream) {
  const std::size_t needed = static_cast<std::size_t>(args.a_layout.rows) *
                             static_cast<std::size_t>(args.a_layout.cols / kBlock) *
                             static_cast<std::size_t>(RecordBytes(format_));
  if (Status call = CheckCall(*this, format_, args, spec, workspace, needed); !call) return call;
  const int n = args.b_layout.cols;
  // The call is gated if D has n / 2 columns.
  const bool gated = args.d_layout.cols != n;
  Executor& executor = stream.exec();
  const Plan plan = MakePlan({args.a_layout.rows, n, args.a_layout.cols, 1}, gated,
                             std::max(1, executor.workers()), spec.config);
  auto* scratch = static_cast<std::uint8_t*>(workspace.partials);
  FillTiles(plan, args, scratch, executor);

  const auto compute = isa_.ops->compute[IndexOf(format_)];
  const auto multiply = [&](int task, int) {
    const ShrinkingTasks::Range run = plan.Run(task);
    if (run.empty()) return;
    const auto [first_panel, end_panel] = run.InParts(plan.step, plan.panels);
    const int first_tile = plan.FirstTile(task);
    const int last_tile = std::min(first_tile + plan.tile_chunk, plan.tiles);
    const int first_column = first_panel * kPanelColumns / (gated ? 2 : 1);
    TileArgs tile;
    tile.b = static_cast<const std::uint8_t*>(args.b) +
             static_cast<std::size_t>(first_panel) * plan.panel_bytes;
    tile.panel_bytes = plan.panel_bytes;
    tile.panels = end_panel - first_panel;
    tile.blocks = plan.blocks;
    tile.gated = gated;
    tile.abreast = plan.abreast;
    tile.alpha = args.alpha;
    tile.beta = args.beta;
    tile.ldc = args.c_layout.ld;
    tile.ldd = args.d_layout.ld;
    tile.columns = args.d_layout.cols - first_column;
    for (int index = first_tile; index < last_tile; ++index) {
      const int row = plan.FirstRow(index);
      tile.rows = plan.FirstRow(index + 1) - row;
      tile.a = scratch + static_cast<std::size_t>(row) * plan.row_bytes;
      tile.d = static_cast<float*>(args.d) + row * tile.ldd + first_column;
      if (args.beta != 0.0f)
        tile.c = static_cast<const float*>(args.c) + row * tile.ldc + first_column;
      compute(tile);
    }
  };
  if (plan.by_rows) {
    RunInLanes(executor, plan.tasks(), multiply);
  } else {
    executor.Run(plan.tasks(), multiply);
  }
  return {};
}

}  // namespace tilewright::gemm_int8

namespace tilewright {

void AddGemmInt8(Registry& registry) {
  using namespace gemm_int8;  // NOLINT(google-build-using-namespace): the catalog below is this
                              // room's own
  const IsaConfig catalog[] = {
      {"avx512vnni", "ops/gemm/cpu/int8/int8_avx512vnni.cc", kFeatureAvx512 | kFeatureAvx512Vnni, 1,
       true, &OpsAvx512Vnni()},
      {"avx512", "ops/gemm/cpu/int8/int8_avx512.cc", kFeatureAvx512, kPeakAvx512, false,
       &OpsAvx512()},
      {"avx2", "ops/gemm/cpu/int8/int8_avx2.cc", kFeatureAvx2, kPeakAvx2, false, &OpsAvx2()},
      // One product after the other, whatever the codes.
      {"scalar", "ops/gemm/cpu/int8/int8_scalar.cc", 0, 0.008, true, &OpsScalar()},
  };
  for (const IsaConfig& isa : catalog) {
    for (const BlockFormat& format : kFormats) {
      if (!HasInt8(format)) continue;
      // Names are distinct by construction; a registry that already has them keeps its own.
      for (const DataType activations : {DataType::kF32, DataType::kI8X32})
        static_cast<void>(registry.Add(std::make_unique<GemmInt8>(isa, activations, format)));
      static_cast<void>(registry.Add(std::make_unique<GroupedGemmInt8>(isa, format)));
    }
  }
}

}  // namespace tilewright
