#include "ops/gemm/cpu/int8/gemm_int8_grouped.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "core/parallel.h"
#include "ops/gemm/cpu/int8/pack.h"

namespace tilewright::gemm_int8 {
namespace {

/// Tasks of a worker, so that a late one is evened out.
constexpr int kTasksOfWorker = 8;

constexpr std::size_t AlignUp(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// The last of the `count` groups whose `first` is at most `at`.
template <class Group>
const Group& GroupAt(const Group* groups, int count, std::int32_t Group::*first, int at) {
  const auto* const behind =
      std::upper_bound(groups, groups + count, at,
                       [=](int value, const Group& group) { return value < group.*first; });
  return behind[-1];
}

}  // namespace

/// The parts of the workspace, in bytes.
struct GroupedGemmInt8::Parts {
  std::size_t groups;   ///< Group[num + 1]
  std::size_t records;  ///< of all rows
  std::size_t staging;  ///< of a worker: gathered rows of a tile
  std::size_t total;
};

GroupedGemmInt8::Parts GroupedGemmInt8::PartsOf(int m, int k, int num, bool indexed,
                                                int workers) const {
  Parts parts{};
  parts.groups = AlignUp(static_cast<std::size_t>(num + 1) * sizeof(Group));
  parts.records = AlignUp(static_cast<std::size_t>(m) * static_cast<std::size_t>(k / kBlock) *
                          static_cast<std::size_t>(RecordBytes(format_)));
  if (indexed)
    parts.staging = AlignUp(static_cast<std::size_t>(desc_.tile_m) * static_cast<std::size_t>(k) *
                            sizeof(float));
  parts.total = parts.groups + parts.records + static_cast<std::size_t>(workers) * parts.staging;
  return parts;
}

GroupedGemmInt8::GroupedGemmInt8(const IsaConfig& isa, const BlockFormat& format)
    : CpuKernel(InfoOf(isa, DataType::kF32, format, true),
                [&] {
                  KernelDesc desc = DescOf(isa, DataType::kF32, format);
                  desc.striding_a = Bit(Striding::kBlocked) | Bit(Striding::kIndexed);
                  desc.striding_b = desc.striding_c = Bit(Striding::kBlocked);
                  return desc;
                }()),
      isa_(isa),
      format_(format) {}

std::optional<Rejection> GroupedGemmInt8::IsFeasible(const GemmDesc& problem) const {
  if (auto no = Kernel::IsFeasible(problem)) return no;
  if (problem.num < 2 || problem.group_axis != 0) {
    return Rejection{Reason::kStriding,
                     fmt::format("num = {}, group_axis = {}", problem.num, problem.group_axis),
                     "num at least 2, groups along m"};
  }
  if (problem.epilogue == Epilogue::kGatedSilu && problem.n % (2 * kGatedBlock) != 0) {
    return Rejection{Reason::kShape, fmt::format("n = {}", problem.n),
                     fmt::format("n a multiple of {} for gated_silu", 2 * kGatedBlock)};
  }
  return std::nullopt;
}

std::size_t GroupedGemmInt8::PartialsBytes(const GemmDesc& problem, const LaunchSpec& spec,
                                           const DeviceSpec& device) const {
  return PartsOf(problem.m, problem.k, problem.num, problem.striding_a == Striding::kIndexed,
                 WorkersOf(spec.config, device.cores))
      .total;
}

std::size_t GroupedGemmInt8::PackedBytes(const MatrixLayout& b) const {
  return static_cast<std::size_t>(b.num) * PackedSize(format_, b.cols, b.rows);
}

Status GroupedGemmInt8::PackB(const void* plain, const MatrixLayout& b, void* packed,
                              Stream stream) const {
  const std::size_t packed_bytes = PackedSize(format_, b.cols, b.rows);
  for (std::int32_t g = 0; g < b.num; ++g) {
    const StridedPtr matrix = gemm::MatrixOf(plain, b, g);
    if (Status plain_b = CheckPlain(format_, b, matrix.ld, name()); !plain_b) return plain_b;
    PackPanels(format_, matrix.data, b.cols, b.rows, BytesOf(format_.type, matrix.ld),
               static_cast<std::byte*>(packed) + static_cast<std::size_t>(g) * packed_bytes,
               stream);
  }
  return {};
}

double GroupedGemmInt8::EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                                   const DeviceSpec& device) const {
  const double workers = WorkersOf(spec.config, device.cores);
  const double used = gemm::MatricesUsed(problem.m, problem.num);
  const double rows_of_group = problem.m / used;
  const double rows = rows_of_group / std::ceil(rows_of_group / desc_.tile_m);  // of a tile
  const double cost = BlockCost(isa_, format_) * (rows + 0.6) / rows;
  const double gop = 2e-9 * problem.m * problem.n * problem.k * cost;
  const double compute_us = gop / (PeakOn(isa_, device) * workers) * 1e6;
  // Which groups have rows changes from call to call: their weights come from memory.
  const double bytes = used * static_cast<double>(PackedSize(format_, problem.n, problem.k));
  const double memory_us = bytes / device.read_gb_s * 1e-3;
  const std::int64_t elements = static_cast<std::int64_t>(problem.m) * problem.k;
  const double quantise_us =
      static_cast<double>(elements) * kQuantiseUs / (elements <= kSerialQuantise ? 1 : workers);
  return std::max(compute_us, memory_us) + quantise_us + 2 * kRegionUs;
}

/// Rows `row` .. of A, which `staging` gathers where they are indexed, as a tile.
void GroupedGemmInt8::FillTile(const GemmArgs& args, int row, int rows, float* staging,
                               std::uint8_t* to) const {
  const MatrixLayout& a = args.a_layout;
  const float* source = static_cast<const float*>(args.a);
  std::int64_t lda = a.ld;
  if (a.idxs == nullptr) {
    source += row * lda;
  } else {
    for (int r = 0; r < rows; ++r) {
      std::memcpy(staging + static_cast<std::ptrdiff_t>(r) * a.cols, source + a.idxs[row + r] * lda,
                  static_cast<std::size_t>(a.cols) * sizeof(float));
    }
    source = staging;
    lda = a.cols;
  }
  isa_.ops->quantise[IndexOf(format_)](source, lda, rows, a.cols / kBlock, to);
}

Status GroupedGemmInt8::LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                                 Stream stream) {
  Executor& executor = stream.exec();
  const int workers = std::max(1, executor.workers());
  const int m = args.a_layout.rows, k = args.a_layout.cols, n = args.b_layout.cols;
  const int num = args.a_layout.num;
  const Parts parts = PartsOf(m, k, num, args.a_layout.idxs != nullptr, workers);
  if (Status call = CheckCall(*this, format_, args, spec, workspace, parts.total); !call)
    return call;
  if (Status sound = gemm::CheckOffsets(args.a_layout, name()); !sound) return sound;
  auto* const groups = static_cast<Group*>(workspace.partials);
  auto* const records = static_cast<std::uint8_t*>(workspace.partials) + parts.groups;
  std::uint8_t* const staging = records + parts.records;

  int count = 0, tiles = 0;
  for (int g = 0; g < num; ++g) {
    const int first = args.a_layout.offsets[g], rows = args.a_layout.offsets[g + 1] - first;
    if (rows == 0) continue;
    groups[count++] = {g, first, rows, tiles, 0};
    tiles += CeilDiv(rows, desc_.tile_m);
  }
  const int blocks = k / kBlock;
  const std::size_t row_bytes =
      static_cast<std::size_t>(blocks) * static_cast<std::size_t>(RecordBytes(format_));
  const auto fill = [&](int tile, int worker) {
    const Group& group = GroupAt(groups, count, &Group::first_tile, tile);
    const int of_group = CeilDiv(group.rows, desc_.tile_m), i = tile - group.first_tile;
    const int row = group.RowOf(i, of_group);
    auto* const gathered =
        reinterpret_cast<float*>(staging + static_cast<std::size_t>(worker) * parts.staging);
    FillTile(args, row, group.RowOf(i + 1, of_group) - row, gathered,
             records + static_cast<std::size_t>(row) * row_bytes);
  };
  if (static_cast<std::int64_t>(m) * k <= kSerialQuantise) {
    for (int tile = 0; tile < tiles; ++tile) fill(tile, 0);
  } else {
    RunInLanes(executor, tiles, fill);
  }

  const bool gated = args.d_layout.cols != n;
  const int step = gated ? 2 : 1;
  const int panels = CeilDiv(n, kPanelColumns);
  const std::size_t panel_bytes = PanelBytes(format_, blocks);
  const std::size_t matrix_bytes = static_cast<std::size_t>(panels) * panel_bytes;
  const int fitting = std::max<int>(1, static_cast<int>(kChunkBytes / panel_bytes));
  /// Panels of a task of a group, so that tasks are about alike, whichever group has most rows.
  const auto chunk_of = [&](int rows) {
    const std::int64_t all = workers == 1 ? 1 : kTasksOfWorker * workers;
    const auto wanted = static_cast<int>((all * rows + m - 1) / m);
    const int chunks = std::max({std::min(wanted, panels / step), CeilDiv(panels, fitting), 1});
    return CeilDiv(CeilDiv(panels, chunks), step) * step;
  };
  int tasks = 0;
  for (Group& group : std::span(groups, static_cast<std::size_t>(count))) {
    group.first_task = tasks;
    tasks += CeilDiv(panels, chunk_of(group.rows));
  }
  const auto compute = isa_.ops->compute[IndexOf(format_)];
  executor.Run(tasks, [&](int task, int) {
    const Group& group = GroupAt(groups, count, &Group::first_task, task);
    const int panel_chunk = chunk_of(group.rows);
    const int first_panel = (task - group.first_task) * panel_chunk;
    const int first_column = first_panel * kPanelColumns / step;
    TileArgs tile;
    tile.b = static_cast<const std::uint8_t*>(args.b) +
             static_cast<std::size_t>(group.matrix) * matrix_bytes +
             static_cast<std::size_t>(first_panel) * panel_bytes;
    tile.panel_bytes = panel_bytes;
    tile.panels = std::min(panel_chunk, panels - first_panel);
    tile.blocks = blocks;
    tile.gated = gated;
    tile.abreast = true;
    tile.alpha = args.alpha;
    tile.beta = args.beta;
    tile.ldc = args.c_layout.ld;
    tile.ldd = args.d_layout.ld;
    tile.columns = args.d_layout.cols - first_column;
    const int of_group = CeilDiv(group.rows, desc_.tile_m);
    for (int i = 0; i < of_group; ++i) {
      const int row = group.RowOf(i, of_group);
      tile.rows = group.RowOf(i + 1, of_group) - row;
      tile.a = records + static_cast<std::size_t>(row) * row_bytes;
      tile.d = static_cast<float*>(args.d) + row * tile.ldd + first_column;
      if (args.beta != 0.0f)
        tile.c = static_cast<const float*>(args.c) + row * tile.ldc + first_column;
      compute(tile);
    }
  });
  return {};
}

}  // namespace tilewright::gemm_int8
