#include <fmt/format.h>

#include "core/numeric.h"
#include "core/parallel.h"
#include "ops/gemm/base/packs.h"
#include "ops/gemm/cpu/panel_gemm.h"
#include "ops/gemm/cpu/panel_pack.h"
#include "ops/gemm/formats.h"

namespace tilewright::gemm {
namespace {

// Splits are whole multiples of this many k, so that no split is mostly overhead.
constexpr int kSplitUnit = 64;
constexpr int kMaxSplits = 16;
constexpr int kMaxTileRows = 12;
/// k of a row, at least, of a task that stages.
constexpr int kStageUnit = 128;

int Min(int a, int b) { return a < b ? a : b; }
int Max(int a, int b) { return a > b ? a : b; }

int TileRows(const PanelConfig& config) {
  return config.pairs != nullptr ? config.pairs->tile_rows : config.ops->tile_rows;
}

// 16 columns of plain weights to out[k][16]; columns beyond n become zero.
void DecodePlain(const GemmArgs& args, int panel, int k0, int k, float* out) {
  const MatrixLayout& b = args.b_layout;
  const int first = panel * kPanelCols;
  const int cols = Min(kPanelCols, b.cols - first);
  const bool k_contiguous = b.order == Order::kColMajor;
  for (int c = 0; c < kPanelCols; ++c) {
    if (c >= cols) {
      for (int i = 0; i < k; ++i) out[i * kPanelCols + c] = 0;
    } else if (k_contiguous) {
      DecodeRun(b.type, args.b, (first + c) * b.ld + k0, 1, k, out + c, kPanelCols);
    }
  }
  if (k_contiguous) return;
  for (int i = 0; i < k; ++i)
    DecodeRun(b.type, args.b, (k0 + i) * b.ld + first, 1, cols, out + i * kPanelCols, 1);
}

}  // namespace

void StageTile(const Staging& s, int first_row, int rows, int tile, int first_k, int count) {
  const MatrixLayout& a = s.args->a_layout;
  if (s.pairs != nullptr) {
    auto* out = reinterpret_cast<std::uint32_t*>(s.out) +
                (static_cast<std::int64_t>(tile) * CeilDiv(a.cols, 2) + first_k / 2) * s.tile_rows;
    for (int r = 0; r < rows; ++r) {
      const std::int64_t row = a.idxs != nullptr ? a.idxs[first_row + r] : first_row + r;
      s.pairs->stage(static_cast<const float*>(s.args->a) + row * a.ld + first_k, count, out + r);
    }
    return;
  }
  float* out = s.out + (static_cast<std::int64_t>(tile) * a.cols + first_k) * s.tile_rows;
  const bool row_major = a.order == Order::kRowMajor;
  const std::int64_t row_stride = row_major ? a.ld : 1;
  const std::int64_t k_stride = row_major ? 1 : a.ld;
  const auto* base = static_cast<const std::uint8_t*>(s.args->a) + 4 * first_k * k_stride;
  for (int r = 0; r < rows; ++r) {
    const std::int64_t row = a.idxs != nullptr ? a.idxs[first_row + r] : first_row + r;
    const std::uint8_t* source = base + 4 * row * row_stride;
    float* target = out + r;
    if (s.to_bf16) {
      for (int i = 0; i < count; ++i) {
        target[static_cast<std::int64_t>(i) * s.tile_rows] =
            BF16ToF32(F32ToBF16(LoadAs<float>(source + 4 * i * k_stride)));
      }
    } else {
      for (int i = 0; i < count; ++i) {
        target[static_cast<std::int64_t>(i) * s.tile_rows] =
            LoadAs<float>(source + 4 * i * k_stride);
      }
    }
  }
}

KernelInfo PanelInfo(const PanelConfig& config, std::string_view driver_tu, bool grouped) {
  const bool plain = config.pack == kPackPlain;
  const bool block = BlockElements(config.type_b) > 1;
  KernelInfo info;
  info.name = FormatKernelId({.a = "f32",
                              .b = DataTypeName(config.type_b),
                              .c = "f32",
                              .orders = !plain  ? "tn"
                                        : block ? "xn"
                                                : "xx",
                              .isa = config.isa.word,
                              .tile = fmt::format("{}x{}", TileRows(config), kPairCols),
                              .pack = PackName(config.pack),
                              .flag = grouped                                  ? "grouped"
                                      : config.split_k                         ? "splitk"
                                      : config.activations == Precision::kBF16 ? "abf16"
                                                                               : ""});
  info.fingerprint = config.pairs == nullptr
                         ? JoinFingerprints({config.ops->tu, driver_tu, CommonTu(), PanelPackTu()})
                         : JoinFingerprints({config.pairs->tu, config.ops->tu, driver_tu,
                                             CommonTu(), PanelPackTu()});
  info.features = config.isa.features;
  // Split-K is left out of the invariant family, since the number of splits may change with the
  // batch; so is rounding to bf16, since another batch could get the kernel beside it that reads
  // the same layout and does not round.
  info.batch_invariant = !config.split_k && config.activations == Precision::kF32;
  return info;
}

KernelDesc PanelDesc(const PanelConfig& config) {
  KernelDesc desc;
  desc.type_a = desc.type_c = Bit(DataType::kF32);
  desc.type_b = Bit(config.type_b);
  desc.epilogue = Bit(Epilogue::kNone) | Bit(Epilogue::kGatedSilu);
  desc.pack_b = config.pack;
  desc.activations = config.activations;
  desc.align_k = BlockElements(config.type_b);
  desc.tile_m = TileRows(config);
  desc.tile_n = kPairCols;
  desc.tile_k = kChunkK;
  desc.split_k = config.split_k;
  if (config.pack == kPackPlain) {
    const std::uint32_t both = Bit(Order::kRowMajor) | Bit(Order::kColMajor);
    desc.order_a = desc.order_c = both;
    if (desc.align_k == 1) desc.order_b = both;
  }
  return desc;
}

struct PanelGemm::Plan {
  int m = 0, n = 0, k = 0, splits = 1;
  int stage_rows = 0;                                               // rows staged at a time
  int block_rows = 0;                                               // rows of a task
  int pairs = 0;                                                    // panel pairs
  int split_units = 0;                                              // of kSplitUnit k
  std::size_t staged_bytes = 0, decode_bytes = 0, split_bytes = 0;  // decode_bytes: one worker's
  std::size_t total_bytes = 0;
};

PanelGemm::PanelGemm(const PanelConfig& config)
    : CpuKernel(PanelInfo(config, TILEWRIGHT_TU, false), PanelDesc(config)), config_(config) {}

// Everything but `splits` and the workers' scratch depends on the shape alone.
PanelGemm::Plan PanelGemm::MakePlan(const GemmShape& shape, int workers, int splits) const {
  Plan plan;
  plan.m = shape.m, plan.n = shape.n, plan.k = shape.k, plan.splits = splits;
  const int tile_rows = TileRows(config_);
  const int words = config_.pairs != nullptr ? CeilDiv(shape.k, 2) : shape.k;  // of a staged row
  const std::int64_t tile_bytes = static_cast<std::int64_t>(words) * tile_rows * 4;
  const int all_tiles = CeilDiv(shape.m, tile_rows);
  const int stage_tiles =
      static_cast<int>(kStageBytes / tile_bytes > 1 ? kStageBytes / tile_bytes : 1);
  plan.stage_rows = Min(all_tiles, stage_tiles) * tile_rows;
  const int rows = Min(plan.stage_rows, shape.m);
  const int blocks = CeilDiv(rows, kBlockRows);
  plan.block_rows = CeilDiv(CeilDiv(rows, blocks), tile_rows) * tile_rows;
  plan.pairs = CeilDiv(shape.n, kPairCols);
  plan.split_units = CeilDiv(shape.k, kSplitUnit);
  plan.staged_bytes =
      AlignUp(static_cast<std::size_t>(plan.stage_rows) * static_cast<std::size_t>(words) * 4);
  const bool decodes = config_.pack != kPackF32x16 && config_.pairs == nullptr;
  plan.decode_bytes = decodes ? static_cast<std::size_t>(kChunkK) * kPairCols * 4 : 0;
  if (splits > 1) {
    plan.split_bytes = static_cast<std::size_t>(splits) *
                       static_cast<std::size_t>(plan.stage_rows) *
                       static_cast<std::size_t>(plan.pairs) * kPairCols * 4;
  }
  plan.total_bytes =
      plan.staged_bytes + plan.decode_bytes * static_cast<std::size_t>(workers) + plan.split_bytes;
  return plan;
}

std::optional<Rejection> PanelGemm::IsFeasible(const GemmDesc& p) const {
  if (auto no = Kernel::IsFeasible(p)) return no;
  return CheckDense(p);
}

int PanelGemm::GetMaxSwizzle(const GemmShape& shape) const {
  const Plan plan = MakePlan(shape, 1, 1);
  if (plan.block_rows >= Min(shape.m, plan.stage_rows))
    return 0;  // one row block: there is only one order
  int log2 = 0;
  while ((1 << log2) < plan.pairs) ++log2;
  return log2;
}

int PanelGemm::GetMaxSplits(const GemmShape& shape, int, std::size_t,
                            std::size_t partials_size) const {
  if (!config_.split_k) return 1;
  const Plan one = MakePlan(shape, 1, 1);
  int splits = Min(kMaxSplits, one.split_units);
  while (splits > 1 && MakePlan(shape, 1, splits).total_bytes > partials_size) --splits;
  return Max(splits, 1);
}

std::size_t PanelGemm::PartialsBytes(const GemmDesc& p, const LaunchSpec& spec,
                                     const DeviceSpec& device) const {
  const int workers = WorkersOf(spec.config, device.cores);
  return MakePlan({p.m, p.n, p.k, p.num}, workers, spec.splits).total_bytes;
}

double PanelGemm::EstimateUs(const GemmDesc& p, const LaunchSpec& spec,
                             const DeviceSpec& device) const {
  const Plan plan = MakePlan({p.m, p.n, p.k, p.num}, 1, Max(spec.splits, 1));
  const int tile_rows = TileRows(config_);
  const double rows = CeilDiv(p.m, tile_rows) * tile_rows;
  const double blocks = CeilDiv(p.m, plan.block_rows);
  const double weights = static_cast<double>(plan.pairs) * kPairCols * p.k;
  // A decoded weight costs about as much as multiplying it with this many rows; a plain one is
  // scattered element by element.
  const BlockFormat* format = FindFormat(p.type_b);
  double decode_rows = format != nullptr && HasTopBits(*format) ? 4 : 2.5;
  if (config_.pack == kPackF32x16 || config_.pairs != nullptr) decode_rows = 0;
  if (config_.pack == kPackPlain) decode_rows = 24;
  const double flops = 2 * weights * (0.85 * p.m + 0.15 * rows + blocks * decode_rows);
  const double workers = WorkersOf(spec.config, device.cores);
  const double busy =
      Min(static_cast<int>(workers), plan.pairs * static_cast<int>(blocks) * plan.splits);
  const double bytes = weights / BlockElements(p.type_b) * BlockBytes(p.type_b) +
                       4.0 * p.m * (static_cast<double>(p.k) * 2 + p.n);
  const double partial_bytes = plan.splits > 1 ? 8.0 * plan.splits * p.m * p.n : 0;
  const double rate = config_.pairs != nullptr ? device.bf16_gflop_s : device.f32_gflop_s;
  const double compute_us = flops / (rate * config_.isa.relative_rate * 0.85 * busy) * 1e-3;
  const double memory_us = ReadCost(config_.isa, device) * bytes / ReadRate(device, bytes) * 1e-3;
  const double stage_us = (config_.pairs != nullptr ? 0.2e-3 : 0.6e-3) * p.m * p.k / workers;
  return (compute_us > memory_us ? compute_us : memory_us) + stage_us +
         partial_bytes / ReadRate(device, partial_bytes) * 1e-3 + 3.0;
}

std::size_t PanelGemm::PackedBytes(const MatrixLayout& b) const {
  return config_.pack == kPackPlain ? 0 : PanelPackBytes(b);
}

Status PanelGemm::PackB(const void* plain, const MatrixLayout& b, void* packed,
                        Stream stream) const {
  if (config_.pack == kPackPlain) return Kernel::PackB(plain, b, packed, stream);
  return PackPanels(plain, b, packed, stream);
}

namespace {

// What the tasks of one launch share.
struct Run {
  const GemmArgs* args;
  const PanelOps* ops;
  const PairOps* pairs_of_bf16;  // nullptr: f32
  int tile_rows;
  void (*decode)(const std::uint8_t*, int, int, float*);
  bool plain;   // B as the caller laid it
  bool direct;  // f32 panels, multiplied where they lie
  std::int64_t panel_bytes;
  bool gated;
  bool plain_d;  // finished sums are D as they are
  int n, k, splits, split_units, pairs, block_rows;
  const float* staged;
  float* decode_scratch;  // [worker][2][kChunkK][16]
  float* split_partials;  // [split][stage_rows][pairs * 32]
  int first_row, rows;    // of this stage
};

struct Cell {
  int pair, block, split;
  int next;  // the pair that the worker most likely multiplies next; `pair` where nothing is known
};

// Order of the tasks: with swizzle s, 2^s neighbouring panel pairs share the pass over the row
// blocks.
Cell CellOf(int task, int pairs, int blocks, int swizzle) {
  const int cells = pairs * blocks;
  const int split = task / cells;
  task %= cells;
  const int group = 1 << swizzle;
  const int first = task / (group * blocks) * group;
  const int rest = task % (group * blocks);
  const int width = Min(group, pairs - first);
  const int pair = first + rest % width;
  return {pair, rest / width, split, pair};
}

void SplitRange(const Run& run, int split, int* begin, int* end) {
  *begin = static_cast<int>(static_cast<std::int64_t>(run.split_units) * split / run.splits) *
           kSplitUnit;
  *end = Min(run.k, static_cast<int>(static_cast<std::int64_t>(run.split_units) * (split + 1) /
                                     run.splits) *
                        kSplitUnit);
}

int PanelsOf(const Run& run, int pair) {
  return Min(2, CeilDiv(run.n - pair * kPairCols, kPanelCols));
}

// Weights k0 .. k0 + k of the panels of `pair`, as f32; *stride floats between the panels.
const float* Weights(const Run& run, int pair, int panels, int k0, int k, int worker,
                     std::int64_t* stride) {
  const auto* packed = static_cast<const std::uint8_t*>(run.args->b) + 2 * pair * run.panel_bytes;
  if (run.direct) {
    *stride = static_cast<std::int64_t>(run.k) * kPanelCols;
    return reinterpret_cast<const float*>(packed) + static_cast<std::int64_t>(k0) * kPanelCols;
  }
  *stride = kChunkK * kPanelCols;
  float* scratch = run.decode_scratch + static_cast<std::int64_t>(worker) * kChunkK * kPairCols;
  for (int p = 0; p < panels; ++p) {
    float* out = scratch + p * *stride;
    if (run.plain) {
      DecodePlain(*run.args, 2 * pair + p, k0, k, out);
    } else {
      run.decode(packed + p * run.panel_bytes, k0, k, out);
    }
  }
  return scratch;
}

// Finished sums of rows x one pair to D.
void Finish(const Run& run, int pair, int row, int rows, float* acc, int ld) {
  if (run.gated) {
    run.ops->gated(acc, rows, run.args->alpha);
    StoreTile({run.args, run.first_row + row, rows, pair * kPanelCols, kPanelCols, acc, ld, true});
    return;
  }
  const int col = pair * kPairCols;
  StoreTile(
      {run.args, run.first_row + row, rows, col, Min(kPairCols, run.n - col), acc, ld, false});
}

// Bytes of a panel up to which the first panel of the next pair is fetched beside a single tile of rows too. Longer ones
// the processor fetches better alone: 4, 8 and 12 rows on two cores of a Zen 5, k of 576 1.11 to 1.16 times as fast so,
// of 768 to 1024 1.01 to 1.10, of 1280 0.97 to 1.01, of 1536 to 8192 0.87 to 1.0.
constexpr std::int64_t kShortPanel = 32 << 10;

// Rows of A from row0 on, of one block, times a pair of bf16 panels. While the last two tiles of rows are multiplied, the
// next pair of panels is fetched, one panel beside each: else the first tile of rows, which could multiply faster than
// memory is read, would wait for it, and memory for the others.
void MultiplyPairs(const Run& run, const Cell& cell, int row0, int rows) {
  alignas(64) float sums[kMaxTileRows * kPairCols];
  const GemmArgs& args = *run.args;
  const int tile_rows = run.tile_rows, words = CeilDiv(run.k, 2);
  const int panels = PanelsOf(run, cell.pair), col = cell.pair * kPairCols;
  const bool to_d = run.plain_d && panels * kPanelCols <= run.n - col;
  PairTile tile{.a = reinterpret_cast<const std::uint32_t*>(run.staged) +
                     static_cast<std::int64_t>(row0) * words,
                .b = static_cast<const std::uint8_t*>(args.b) + 2 * cell.pair * run.panel_bytes,
                .b_stride = run.panel_bytes,
                .pairs = words,
                .next = nullptr,
                .out = sums,
                .ld = kPairCols};
  if (to_d) tile.ld = args.d_layout.ld;
  const bool fetches =
      cell.next != cell.pair && (rows > tile_rows || run.panel_bytes <= kShortPanel);
  for (int r = 0; r < rows; r += tile_rows, tile.a += std::int64_t{tile_rows} * words) {
    const int count = Min(tile_rows, rows - r);
    const int behind = CeilDiv(rows - r, tile_rows) - 1;  // tiles
    if (fetches && behind < PanelsOf(run, cell.next))
      tile.next =
          static_cast<const std::uint8_t*>(args.b) + (2 * cell.next + behind) * run.panel_bytes;
    if (to_d) tile.out = static_cast<float*>(args.d) + (run.first_row + row0 + r) * tile.ld + col;
    run.pairs_of_bf16->tile(count, panels, tile);
    if (!to_d) Finish(run, cell.pair, row0 + r, count, sums, kPairCols);
  }
}

void Multiply(const Run& run, const Cell& cell, int worker) {
  alignas(64) float acc[kBlockRows * kPairCols];
  const int tile_rows = run.tile_rows;
  const int row0 = cell.block * run.block_rows;
  const int rows = Min(run.block_rows, run.rows - row0);
  if (run.pairs_of_bf16 != nullptr) return MultiplyPairs(run, cell, row0, rows);
  const int panels = PanelsOf(run, cell.pair);
  int begin = 0, end = run.k;
  SplitRange(run, cell.split, &begin, &end);
  const int chunk = run.direct ? end - begin : kChunkK;
  for (int k0 = begin; k0 < end; k0 += chunk) {
    const int k = Min(chunk, end - k0);
    std::int64_t stride = 0;
    const float* b = Weights(run, cell.pair, panels, k0, k, worker, &stride);
    for (int r = 0; r < rows; r += tile_rows) {
      const float* a = run.staged + (static_cast<std::int64_t>(row0 + r) * run.k) +
                       static_cast<std::int64_t>(k0) * tile_rows;
      run.ops->tile(Min(tile_rows, rows - r), panels, a, b, stride, k, acc + r * kPairCols,
                    k0 > begin);
    }
  }
  if (run.splits == 1) {
    Finish(run, cell.pair, row0, rows, acc, kPairCols);
    return;
  }
  const std::int64_t width = static_cast<std::int64_t>(run.pairs) * kPairCols;
  float* out = run.split_partials +
               (static_cast<std::int64_t>(cell.split) * run.rows + row0) * width +
               cell.pair * kPairCols;
  const int cols = panels * kPanelCols;
  for (int r = 0; r < rows; ++r)
    __builtin_memcpy(out + r * width, acc + r * kPairCols, 4 * static_cast<std::size_t>(cols));
}

// Adds the splits of one cell in ascending order.
void Reduce(const Run& run, const Cell& cell) {
  alignas(64) float acc[kMaxTileRows * kPairCols];
  const std::int64_t width = static_cast<std::int64_t>(run.pairs) * kPairCols;
  const int cols = PanelsOf(run, cell.pair) * kPanelCols;
  const int end = Min((cell.block + 1) * run.block_rows, run.rows);
  for (int row = cell.block * run.block_rows; row < end; row += kMaxTileRows) {
    const int rows = Min(kMaxTileRows, end - row);
    for (int split = 0; split < run.splits; ++split) {
      const float* part = run.split_partials +
                          (static_cast<std::int64_t>(split) * run.rows + row) * width +
                          cell.pair * kPairCols;
      for (int r = 0; r < rows; ++r) {
        for (int c = 0; c < cols; ++c) {
          float& sum = acc[r * kPairCols + c];
          sum = split == 0 ? part[r * width + c] : sum + part[r * width + c];
        }
      }
    }
    Finish(run, cell.pair, row, rows, acc, kPairCols);
  }
}

}  // namespace

Status PanelGemm::LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                           Stream stream) {
  const GemmShape shape = ShapeOf(args);
  const int workers = Workers(stream);
  const Plan plan = MakePlan(shape, workers, spec.splits);
  if (Status ok = CheckLaunch(*this, spec, shape, workspace, plan.total_bytes); !ok) return ok;

  auto* scratch = static_cast<std::uint8_t*>(workspace.partials);
  Run run{};
  run.args = &args;
  run.ops = config_.ops;
  run.pairs_of_bf16 = config_.pairs;
  run.tile_rows = TileRows(config_);
  run.decode = config_.ops->decode[PanelFormatIndex(config_.type_b)];
  run.plain = config_.pack == kPackPlain;
  run.direct = config_.pack == kPackF32x16;
  run.panel_bytes = run.plain ? 0 : PanelBytes(config_.type_b, shape.k);
  run.gated = IsGated(args);
  run.plain_d = !run.gated && args.alpha == 1.0f && args.beta == 0.0f &&
                args.d_layout.order == Order::kRowMajor;
  run.n = shape.n, run.k = shape.k, run.splits = plan.splits, run.split_units = plan.split_units;
  run.pairs = plan.pairs, run.block_rows = plan.block_rows;
  auto* staged = reinterpret_cast<float*>(scratch);
  run.staged = staged;
  run.decode_scratch = reinterpret_cast<float*>(scratch + plan.staged_bytes);
  run.split_partials = reinterpret_cast<float*>(
      scratch + plan.staged_bytes + plan.decode_bytes * static_cast<std::size_t>(workers));

  const Staging staging{&args, run.tile_rows, config_.activations == Precision::kBF16, staged,
                        config_.pairs};
  Executor& exec = stream.exec();
  for (run.first_row = 0; run.first_row < shape.m; run.first_row += plan.stage_rows) {
    run.rows = Min(plan.stage_rows, shape.m - run.first_row);
    const int tile_rows = run.tile_rows, units = CeilDiv(shape.k, kStageUnit);
    RunPartsInLanes(exec, CeilDiv(run.rows, tile_rows), units, [&](int tile, int first, int end) {
      const int first_k = first * kStageUnit;
      StageTile(staging, run.first_row + tile * tile_rows,
                Min(tile_rows, run.rows - tile * tile_rows), tile, first_k,
                Min(end * kStageUnit, shape.k) - first_k);
    });
    const int blocks = CeilDiv(run.rows, run.block_rows);
    const int cells = run.pairs * blocks;
    const int tasks = cells * run.splits;
    const bool in_lanes = KeepsLanes(workers, tasks);
    RunInLanes(exec, tasks, [&](int task, int worker) {
      Cell cell = CellOf(task, run.pairs, blocks, spec.swizzle);
      if (in_lanes && task + 1 < tasks)
        cell.next = CellOf(task + 1, run.pairs, blocks, spec.swizzle).pair;
      Multiply(run, cell, worker);
    });
    if (run.splits > 1) {
      exec.Run(cells, [&](int task, int) { Reduce(run, CellOf(task, run.pairs, blocks, 0)); });
    }
  }
  return {};
}

}  // namespace tilewright::gemm
