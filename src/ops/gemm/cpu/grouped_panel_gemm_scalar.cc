#include "core/parallel.h"
#include "ops/gemm/base/packs.h"
#include "ops/gemm/cpu/grouped_panel_gemm.h"
#include "ops/gemm/cpu/panel_pack.h"
#include "ops/gemm/formats.h"

namespace tilewright::gemm {
namespace {

/// Tasks of a worker, so that a late one is evened out.
constexpr int kTasksOfWorker = 8;

int Min(int a, int b) { return a < b ? a : b; }
int Max(int a, int b) { return a > b ? a : b; }

/// Rows of a group that are staged together.
struct Piece {
  std::int32_t matrix, first_row, rows;
  std::int32_t first_tile, first_task;  ///< counted over the pieces of a stage
};

/// Cuts groups into pieces of a stage, in ascending order.
class Cutter {
 public:
  Cutter(const MatrixLayout& a, int tile_rows, int tiles)
      : a_(a), tile_rows_(tile_rows), most_tiles_(tiles) {}

  /// The pieces of the next stage; none when every row was in one.
  int Next(Piece* pieces) {
    int count = 0;
    for (tiles_ = 0; group_ < a_.num && tiles_ < most_tiles_;) {
      const int first = a_.offsets[group_] + taken_;
      const int left = a_.offsets[group_ + 1] - first;
      const int rows = Min(left, (most_tiles_ - tiles_) * tile_rows_);
      if (rows > 0) {
        pieces[count++] = {group_, first, rows, tiles_, 0};
        tiles_ += CeilDiv(rows, tile_rows_);
      }
      taken_ = rows < left ? taken_ + rows : 0;
      if (rows == left) ++group_;
    }
    return count;
  }
  int tiles() const { return tiles_; }  ///< of the last stage

 private:
  const MatrixLayout& a_;
  const int tile_rows_, most_tiles_;
  int group_ = 0, taken_ = 0, tiles_ = 0;
};

/// The last of the `count` pieces whose `first` is at most `at`.
const Piece& PieceAt(const Piece* pieces, int count, std::int32_t Piece::*first, int at) {
  int begin = 0, end = count;
  while (end - begin > 1) {
    const int middle = (begin + end) / 2;
    (pieces[middle].*first <= at ? begin : end) = middle;
  }
  return pieces[begin];
}

/// What the tasks of a launch share.
struct Run {
  const GemmArgs* args;
  const PanelOps* ops;
  void (*decode)(const std::uint8_t*, int, int, float*);
  bool direct;  // f32 panels, multiplied where they lie
  std::int64_t panel_bytes, matrix_bytes;
  bool gated;
  int n, k;
  const float* staged;
  float* decode_scratch;  // [worker][2][kChunkK][16]
};

/// Weights k0 .. k0 + k of the panels of `pair`, as f32; *stride floats between the panels.
const float* Weights(const Run& run, const Piece& piece, int pair, int panels, int k0, int k,
                     int worker, std::int64_t* stride) {
  const auto* packed = static_cast<const std::uint8_t*>(run.args->b) +
                       piece.matrix * run.matrix_bytes + 2 * pair * run.panel_bytes;
  if (run.direct) {
    *stride = static_cast<std::int64_t>(run.k) * kPanelCols;
    return reinterpret_cast<const float*>(packed) + static_cast<std::int64_t>(k0) * kPanelCols;
  }
  *stride = kChunkK * kPanelCols;
  float* scratch = run.decode_scratch + static_cast<std::int64_t>(worker) * kChunkK * kPairCols;
  for (int p = 0; p < panels; ++p)
    run.decode(packed + p * run.panel_bytes, k0, k, scratch + p * *stride);
  return scratch;
}

/// One pair of panels times up to kBlockRows rows of a piece, from its row `row0` on.
void Multiply(const Run& run, const Piece& piece, int pair, int row0, int worker) {
  alignas(64) float acc[kBlockRows * kPairCols];
  const int tile_rows = run.ops->tile_rows;
  const int rows = Min(kBlockRows, piece.rows - row0);
  const int panels = Min(2, CeilDiv(run.n - pair * kPairCols, kPanelCols));
  const float* const staged =
      run.staged + (static_cast<std::int64_t>(piece.first_tile) * tile_rows + row0) * run.k;
  for (int k0 = 0; k0 < run.k; k0 += kChunkK) {
    const int k = Min(kChunkK, run.k - k0);
    std::int64_t stride = 0;
    const float* b = Weights(run, piece, pair, panels, k0, k, worker, &stride);
    for (int r = 0; r < rows; r += tile_rows) {
      const float* a =
          staged + static_cast<std::int64_t>(r) * run.k + static_cast<std::int64_t>(k0) * tile_rows;
      run.ops->tile(Min(tile_rows, rows - r), panels, a, b, stride, k, acc + r * kPairCols, k0 > 0);
    }
  }
  const int row = piece.first_row + row0;
  if (run.gated) {
    run.ops->gated(acc, rows, run.args->alpha);
    StoreTile({run.args, row, rows, pair * kPanelCols, kPanelCols, acc, kPairCols, true});
    return;
  }
  const int col = pair * kPairCols;
  StoreTile({run.args, row, rows, col, Min(kPairCols, run.n - col), acc, kPairCols, false});
}

}  // namespace

GroupedPanelGemm::GroupedPanelGemm(const PanelConfig& config)
    : CpuKernel(PanelInfo(config, TILEWRIGHT_TU, true),
                [&] {
                  KernelDesc desc = PanelDesc(config);
                  desc.striding_a = Bit(Striding::kBlocked) | Bit(Striding::kIndexed);
                  desc.striding_b = desc.striding_c = Bit(Striding::kBlocked);
                  return desc;
                }()),
      config_(config) {}

GroupedPanelGemm::Parts GroupedPanelGemm::PartsOf(const GemmShape& shape, int workers) const {
  Parts parts;
  const int tile_rows = config_.ops->tile_rows;
  const std::int64_t tile_bytes = static_cast<std::int64_t>(shape.k) * tile_rows * 4;
  // The last tile of a group may be of few rows.
  const int most = CeilDiv(shape.m, tile_rows) + Min(shape.num, shape.m);
  parts.tiles = Min(most, Max(1, static_cast<int>(kStageBytes / tile_bytes)));
  parts.pieces = AlignUp(static_cast<std::size_t>(shape.num) * sizeof(Piece));
  parts.staged =
      AlignUp(static_cast<std::size_t>(parts.tiles) * static_cast<std::size_t>(tile_bytes));
  const bool decodes = config_.pack != kPackF32x16;
  parts.decode = decodes ? static_cast<std::size_t>(kChunkK) * kPairCols * 4 : 0;
  parts.total = parts.pieces + parts.staged + parts.decode * static_cast<std::size_t>(workers);
  return parts;
}

std::optional<Rejection> GroupedPanelGemm::IsFeasible(const GemmDesc& p) const {
  if (auto no = Kernel::IsFeasible(p)) return no;
  if (p.num < 2 || p.group_axis != 0) {
    return Rejection{Reason::kStriding, "num below 2, or groups along n",
                     "num at least 2, groups along m"};
  }
  GemmDesc dense = p;
  dense.num = 1, dense.group_axis = -1;
  return CheckDense(dense);
}

std::size_t GroupedPanelGemm::PartialsBytes(const GemmDesc& p, const LaunchSpec& spec,
                                            const DeviceSpec& device) const {
  return PartsOf({p.m, p.n, p.k, p.num}, WorkersOf(spec.config, device.cores)).total;
}

double GroupedPanelGemm::EstimateUs(const GemmDesc& p, const LaunchSpec& spec,
                                    const DeviceSpec& device) const {
  const double used = MatricesUsed(p.m, p.num);
  const double columns = CeilDiv(p.n, kPairCols) * kPairCols;
  // Decoding a weight costs about as much as multiplying it with this many rows, and tiles of few
  // rows do not reach the rate of full ones: 25 M weights of q4_k took eight groups of one row 2.2 ms
  // on two Zen 3 cores, 1.2 ms in integers.
  const BlockFormat* format = FindFormat(p.type_b);
  double decode_rows = format == nullptr ? 2.5 : HasTopBits(*format) ? 7 : 5;
  if (config_.pack == kPackF32x16) decode_rows = 0;
  const double blocks = used + p.m / kBlockRows;
  const double flops = 2 * columns * p.k * (p.m + blocks * decode_rows);
  const double workers = WorkersOf(spec.config, device.cores);
  const double compute_us =
      flops / (device.f32_gflop_s * config_.isa.relative_rate * 0.85 * workers) * 1e-3;
  // Which groups have rows changes from call to call: their weights come from memory.
  const double bytes = used * columns * p.k / BlockElements(p.type_b) * BlockBytes(p.type_b);
  const double memory_us = bytes / device.read_gb_s * 1e-3;
  const double stage_us = 0.6e-3 * p.m * p.k / workers;
  return (compute_us > memory_us ? compute_us : memory_us) + stage_us + 3.0;
}

std::size_t GroupedPanelGemm::PackedBytes(const MatrixLayout& b) const {
  return static_cast<std::size_t>(b.num) * PanelPackBytes(b);
}

Status GroupedPanelGemm::PackB(const void* plain, const MatrixLayout& b, void* packed,
                               Stream stream) const {
  for (std::int32_t g = 0; g < b.num; ++g) {
    const StridedPtr matrix = MatrixOf(plain, b, g);
    MatrixLayout one = b;
    one.num = 1, one.ld = matrix.ld;
    auto* const to =
        static_cast<std::uint8_t*>(packed) + static_cast<std::size_t>(g) * PanelPackBytes(one);
    if (Status made = PackPanels(matrix.data, one, to, stream); !made) return made;
  }
  return {};
}

Status GroupedPanelGemm::LaunchOn(const GemmArgs& args, const LaunchSpec& spec,
                                  Workspace& workspace, Stream stream) {
  const GemmShape shape = ShapeOf(args);
  const int workers = Workers(stream);
  const Parts parts = PartsOf(shape, workers);
  if (Status ok = CheckLaunch(*this, spec, shape, workspace, parts.total); !ok) return ok;
  if (Status ok = CheckOffsets(args.a_layout, name()); !ok) return ok;

  auto* const scratch = static_cast<std::uint8_t*>(workspace.partials);
  auto* const pieces = reinterpret_cast<Piece*>(scratch);
  auto* const staged = reinterpret_cast<float*>(scratch + parts.pieces);
  const int tile_rows = config_.ops->tile_rows;
  Run run{};
  run.args = &args;
  run.ops = config_.ops;
  run.decode = config_.ops->decode[PanelFormatIndex(config_.type_b)];
  run.direct = config_.pack == kPackF32x16;
  run.panel_bytes = PanelBytes(config_.type_b, shape.k);
  run.matrix_bytes = CeilDiv(shape.n, kPanelCols) * run.panel_bytes;
  run.gated = IsGated(args);
  run.n = shape.n, run.k = shape.k;
  run.staged = staged;
  run.decode_scratch = reinterpret_cast<float*>(scratch + parts.pieces + parts.staged);

  Executor& exec = stream.exec();
  const Staging staging{&args, tile_rows, false, staged};
  const int pairs = CeilDiv(shape.n, kPairCols);
  Cutter cutter(args.a_layout, tile_rows, parts.tiles);
  for (int count = cutter.Next(pieces); count > 0; count = cutter.Next(pieces)) {
    RunInLanes(exec, cutter.tiles(), [&](int tile, int) {
      const Piece& piece = PieceAt(pieces, count, &Piece::first_tile, tile);
      const int row = (tile - piece.first_tile) * tile_rows;
      StageTile(staging, piece.first_row + row, Min(tile_rows, piece.rows - row), tile, 0, shape.k);
    });
    std::int64_t rows = 0;
    for (int i = 0; i < count; ++i) rows += pieces[i].rows;
    // Pairs of a task of a piece, so that tasks are about alike, whichever piece has most rows.
    const auto chunk_of = [&](const Piece& piece) {
      const std::int64_t all = workers == 1 ? 1 : kTasksOfWorker * workers;
      const auto wanted = static_cast<int>((all * piece.rows + rows - 1) / rows);
      return CeilDiv(pairs, Min(pairs, wanted));
    };
    int tasks = 0;
    for (int i = 0; i < count; ++i) {
      pieces[i].first_task = tasks;
      tasks += CeilDiv(pairs, chunk_of(pieces[i]));
    }
    exec.Run(tasks, [&](int task, int worker) {
      const Piece& piece = PieceAt(pieces, count, &Piece::first_task, task);
      const int chunk = chunk_of(piece);
      const int first = (task - piece.first_task) * chunk, last = Min(first + chunk, pairs);
      for (int row = 0; row < piece.rows; row += kBlockRows) {
        for (int pair = first; pair < last; ++pair) Multiply(run, piece, pair, row, worker);
      }
    });
  }
  return {};
}

}  // namespace tilewright::gemm
