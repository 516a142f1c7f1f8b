#include <fmt/format.h>

#include <cmath>

#include "ops/gemm/cpu/scalar_gemm.h"
#include "ops/gemm/formats.h"

namespace tilewright::gemm {
namespace {

constexpr int kCols = 16;
constexpr int kScaleGroup = 128;               // of fp8
constexpr std::int64_t kStageBytes = 8 << 20;  // of decoded A at a time

int Min(int a, int b) { return a < b ? a : b; }
int Max(int a, int b) { return a > b ? a : b; }

constexpr std::uint32_t kFloats = Bit(DataType::kF32) | Bit(DataType::kF16) | Bit(DataType::kBF16);
constexpr std::uint32_t kBlocks = [] {
  std::uint32_t bits = 0;
  for (const BlockFormat& format : kFormats) bits |= Bit(format.type);
  return bits;
}();
constexpr std::uint32_t kBothOrders = Bit(Order::kRowMajor) | Bit(Order::kColMajor);
constexpr std::uint32_t kInGroups = Bit(Striding::kBlocked) | Bit(Striding::kIndexed);

KernelInfo InfoOf(ScalarKind kind) {
  KernelId id{.a = "any",
              .b = "any",
              .c = "any",
              .orders = "xx",
              .isa = "scalar",
              .tile = "1x16",
              .pack = "plain"};
  if (kind == ScalarKind::kU4) id.b = "u4", id.orders = "xn";
  if (kind == ScalarKind::kFp8) id.a = id.b = DataTypeName(DataType::kF8E4M3);
  if (kind == ScalarKind::kGrouped) id.flag = "grouped";
  KernelInfo info;
  info.name = FormatKernelId(id);
  info.fingerprint = JoinFingerprints({TILEWRIGHT_TU, CommonTu()});
  info.batch_invariant = true;
  info.reference = true;
  return info;
}

KernelDesc DescOf(ScalarKind kind) {
  KernelDesc desc;
  desc.type_a = desc.type_c = kFloats;
  desc.type_b = kFloats | kBlocks;
  desc.order_a = desc.order_b = desc.order_c = kBothOrders;
  desc.epilogue = Bit(Epilogue::kNone) | Bit(Epilogue::kGatedSilu);
  desc.tile_n = kCols;
  switch (kind) {
    case ScalarKind::kPlain:
      break;
    case ScalarKind::kU4:
      desc.type_b = Bit(DataType::kU4);
      desc.quant_b = Bit(QuantType::kK);
      desc.order_b = Bit(Order::kColMajor);  // two k share a byte
      desc.align_k = 2;
      break;
    case ScalarKind::kFp8:
      desc.type_a = desc.type_b = Bit(DataType::kF8E4M3);
      desc.quant_a = Bit(QuantType::kK);
      desc.quant_b = Bit(QuantType::kB);
      break;
    case ScalarKind::kGrouped:
      desc.striding_a = desc.striding_c = kInGroups;
      desc.striding_b = Bit(Striding::kBlocked);
      desc.epilogue = Bit(Epilogue::kNone);
      break;
  }
  return desc;
}

std::optional<Rejection> CheckScales(ScalarKind kind, const GemmDesc& p) {
  const bool v_float =
      p.type_v == DataType::kF32 || (p.type_v == DataType::kF16 && kind == ScalarKind::kU4);
  const std::string have =
      fmt::format("type_u = {}, type_v = {}, groups of {} and {}", DataTypeName(p.type_u),
                  DataTypeName(p.type_v), p.quant_a.group, p.quant_b.group);
  if (kind == ScalarKind::kU4) {
    const bool group = p.quant_b.group == 32 || p.quant_b.group == 64 || p.quant_b.group == 128;
    if (v_float && group && p.type_u == DataType::kNone) return std::nullopt;
    return Rejection{Reason::kQuant, have,
                     "V pairs of f16 or f32 for groups of 32, 64 or 128, and no U"};
  }
  if (kind == ScalarKind::kFp8) {
    const bool group = p.quant_a.group == kScaleGroup && p.quant_b.group == kScaleGroup;
    if (v_float && group && p.type_u == DataType::kF32) return std::nullopt;
    return Rejection{Reason::kQuant, have, "U and V of f32 for groups of 128"};
  }
  if (p.type_u == DataType::kNone && p.type_v == DataType::kNone) return std::nullopt;
  return Rejection{Reason::kQuant, have, "no scales beside the matrices"};
}

// Values of scale matrix S at (line, step of k), whichever way it lies.
struct Scales {
  const void* data = nullptr;
  DataType type = DataType::kNone;
  std::int64_t line_stride = 0, step_stride = 0;  // elements
  int line_group = 1, k_group = 1;

  std::int64_t At(std::int64_t line, std::int64_t k) const {
    return line / line_group * line_stride + k / k_group * step_stride;
  }
};

Scales MakeScales(const void* data, const MatrixLayout& layout, bool is_u, int lines, int k,
                  int line_group, int k_group) {
  Scales s{data, layout.type, 1, 1, line_group, k_group};
  const bool steps_contiguous = is_u == (layout.order == Order::kRowMajor);
  if (steps_contiguous) {
    s.line_stride = layout.ld > 0 ? layout.ld : CeilDiv(k, k_group);
  } else {
    s.step_stride = layout.ld > 0 ? layout.ld : CeilDiv(lines, line_group);
  }
  return s;
}

// The group length of u4 is not in the layouts, the number of scale rows is: of 32, 64 and 128 the
// ones that give the same number put every k in the same group.
int GroupOf(int k, int steps) {
  for (const int group : {32, 64, 128}) {
    if (CeilDiv(k, group) == steps) return group;
  }
  return 0;
}

// One group's matrices, in the terms of the loops.
struct Problem {
  const GemmArgs* args;
  const void* b;
  std::int64_t b_first, b_ld;  // first: linear element where this group's matrix begins
  int first_row, rows;         // logical rows of the batch
  int n, k;
  bool gated;
  Scales u, v;
};

void StageRow(const Problem& p, int row, float* out) {
  const MatrixLayout& a = p.args->a_layout;
  const std::int64_t at = a.idxs != nullptr ? a.idxs[row] : row;
  const bool row_major = a.order == Order::kRowMajor;
  DecodeRun(a.type, p.args->a, row_major ? at * a.ld : at, row_major ? 1 : a.ld, p.k, out, 1);
  if (p.u.data == nullptr) return;
  for (int i = 0; i < p.k; ++i) out[i] *= LoadElement(p.u.type, p.u.data, p.u.At(at, i));
}

// Column `col` of B to out[i * stride].
void DecodeColumn(const Problem& p, int col, float* out, int stride) {
  const MatrixLayout& b = p.args->b_layout;
  const bool col_major = b.order == Order::kColMajor;
  DecodeRun(b.type, p.b, p.b_first + (col_major ? col * p.b_ld : col), col_major ? 1 : p.b_ld, p.k,
            out, stride);
  if (p.v.data == nullptr) return;
  for (int i = 0; i < p.k; ++i) {
    float& value = out[static_cast<std::int64_t>(i) * stride];
    const std::int64_t at = p.v.At(col, i);
    if (b.type == DataType::kU4) {
      const float zero = LoadElement(p.v.type, p.v.data, 2 * at + 1);
      value = LoadElement(p.v.type, p.v.data, 2 * at) * (value - zero);
    } else {
      value *= LoadElement(p.v.type, p.v.data, at);
    }
  }
}

void MultiplyRow(const float* a, const float* b, int width, int k, float* sums) {
  for (int first = 0; first < width; first += kCols) {
    float sum[kCols] = {};
    const float* column = b + first;
    for (int i = 0; i < k; ++i) {
      for (int c = 0; c < kCols; ++c)
        sum[c] += a[i] * column[static_cast<std::int64_t>(i) * width + c];
    }
    for (int c = 0; c < kCols; ++c) sums[first + c] = sum[c];
  }
}

std::int64_t ElementOf(const MatrixLayout& layout, int row, int col) {
  const std::int64_t r = layout.idxs != nullptr ? layout.idxs[row] : row;
  return layout.order == Order::kRowMajor ? r * layout.ld + col : col * layout.ld + r;
}

void StoreRow(const Problem& p, int row, int col, int cols, const float* sums) {
  const GemmArgs& args = *p.args;
  for (int c = 0; c < cols; ++c) {
    float value = args.alpha * sums[c];
    if (p.gated) value = value / (1.0f + std::exp(-value)) * (args.alpha * sums[kCols + c]);
    if (args.beta != 0.0f) {
      value += args.beta *
               LoadElement(args.d_layout.type, args.c, ElementOf(args.c_layout, row, col + c));
    }
    StoreElement(args.d_layout.type, args.d, ElementOf(args.d_layout, row, col + c), value);
  }
}

int StageRows(int m, int k) {
  const std::int64_t most = kStageBytes / (4 * static_cast<std::int64_t>(Max(k, 1)));
  return most < 1 ? 1 : most < m ? static_cast<int>(most) : m;
}

std::size_t Bytes(int m, int k, bool gated, int workers) {
  const auto floats = static_cast<std::size_t>(k);
  return AlignUp(static_cast<std::size_t>(StageRows(m, k)) * floats * 4) +
         static_cast<std::size_t>(workers) * floats * (gated ? 2 : 1) * kCols * 4;
}

void LaunchGroup(const Problem& p, int stage_rows, float* staged, float* columns, Stream stream) {
  const int width = p.gated ? 2 * kCols : kCols;
  const int tasks = CeilDiv(p.n, width);
  for (int row0 = 0; row0 < p.rows; row0 += stage_rows) {
    const int rows = Min(stage_rows, p.rows - row0);
    stream.exec().Run(rows, [&](int row, int) {
      StageRow(p, p.first_row + row0 + row, staged + static_cast<std::int64_t>(row) * p.k);
    });
    stream.exec().Run(tasks, [&](int task, int worker) {
      float* b = columns + static_cast<std::int64_t>(worker) * p.k * width;
      const int first = task * width;
      const int count = Min(width, p.n - first);
      for (int c = 0; c < count; ++c) DecodeColumn(p, first + c, b + c, width);
      for (int c = count; c < width; ++c) {
        for (int i = 0; i < p.k; ++i) b[static_cast<std::int64_t>(i) * width + c] = 0;
      }
      float sums[2 * kCols];
      for (int row = 0; row < rows; ++row) {
        MultiplyRow(staged + static_cast<std::int64_t>(row) * p.k, b, width, p.k, sums);
        StoreRow(p, p.first_row + row0 + row, p.gated ? first / 2 : first, p.gated ? kCols : count,
                 sums);
      }
    });
  }
}

}  // namespace

ScalarGemm::ScalarGemm(ScalarKind kind) : CpuKernel(InfoOf(kind), DescOf(kind)), kind_(kind) {}

std::optional<Rejection> ScalarGemm::IsFeasible(const GemmDesc& p) const {
  if (auto no = Kernel::IsFeasible(p)) return no;
  if (auto no = CheckScales(kind_, p)) return no;
  GemmDesc dense = p;  // the rest is what a dense kernel asks
  dense.type_u = dense.type_v = DataType::kNone;
  if (kind_ == ScalarKind::kGrouped) {
    if (p.num < 2 || p.group_axis != 0) {
      return Rejection{Reason::kStriding,
                       fmt::format("num = {}, group_axis = {}", p.num, p.group_axis),
                       "num at least 2, groups along m"};
    }
    dense.num = 1, dense.group_axis = -1;
  }
  if (auto no = CheckDense(dense)) return no;
  const int block = BlockElements(p.type_b);
  if (block == 1) return std::nullopt;
  if (p.order_b != Order::kColMajor) {
    return Rejection{Reason::kOrder, "order_b = row-major", "column-major: blocks lie along k"};
  }
  if (p.k % block != 0) {
    return Rejection{Reason::kShape, fmt::format("k = {}", p.k),
                     fmt::format("k a multiple of {}", block)};
  }
  return std::nullopt;
}

std::size_t ScalarGemm::PartialsBytes(const GemmDesc& p, const LaunchSpec& spec,
                                      const DeviceSpec& device) const {
  return Bytes(p.m, p.k, p.epilogue == Epilogue::kGatedSilu, WorkersOf(spec.config, device.cores));
}

double ScalarGemm::EstimateUs(const GemmDesc& p, const LaunchSpec& spec,
                              const DeviceSpec& device) const {
  // SSE without fma: a tenth of the rate at best, and every weight is decoded in tens of cycles.
  const double workers = WorkersOf(spec.config, device.cores);
  const double products = 2.0 * p.m * p.n * p.k / (0.1 * device.f32_gflop_s);
  const double decoding = 4.0 * (static_cast<double>(p.n) * p.k + static_cast<double>(p.m) * p.k);
  return (products + decoding) * 1e-3 / workers + 5.0;
}

Status ScalarGemm::LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                            Stream stream) {
  const GemmShape shape = ShapeOf(args);
  const int workers = Workers(stream);
  const bool gated = IsGated(args);
  if (Status ok =
          CheckLaunch(*this, spec, shape, workspace, Bytes(shape.m, shape.k, gated, workers));
      !ok)
    return ok;

  Problem p{&args, args.b, 0, args.b_layout.ld, 0, shape.m, shape.n, shape.k, gated, {}, {}};
  if (kind_ == ScalarKind::kU4) {
    const MatrixLayout& v = args.v_layout;
    const int group = GroupOf(shape.k, v.rows);
    if (group == 0 || v.cols != shape.n) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: V is {} x {}, needs k / group rows (group 32, 64 or 128) and n "
                              "columns for k = {}, n = {}",
                              name(), v.rows, v.cols, shape.k, shape.n));
    }
    p.v = MakeScales(args.v, v, false, shape.n, shape.k, 1, group);
  } else if (kind_ == ScalarKind::kFp8) {
    p.u = MakeScales(args.u, args.u_layout, true, shape.m, shape.k, 1, kScaleGroup);
    p.v = MakeScales(args.v, args.v_layout, false, shape.n, shape.k, kScaleGroup, kScaleGroup);
  }

  const int stage_rows = StageRows(shape.m, shape.k);
  auto* staged = static_cast<float*>(workspace.partials);
  auto* columns = reinterpret_cast<float*>(
      static_cast<std::uint8_t*>(workspace.partials) +
      AlignUp(static_cast<std::size_t>(stage_rows) * static_cast<std::size_t>(shape.k) * 4));
  if (kind_ != ScalarKind::kGrouped) {
    LaunchGroup(p, stage_rows, staged, columns, stream);
    return {};
  }
  if (Status sound = CheckOffsets(args.a_layout, name()); !sound) return sound;
  const std::int32_t* offsets = args.a_layout.offsets;
  const std::int64_t matrix_elements =
      (args.b_layout.order == Order::kColMajor ? shape.n : shape.k) * args.b_layout.ld;
  for (int group = 0; group < shape.num; ++group) {
    p.first_row = offsets[group];
    p.rows = offsets[group + 1] - offsets[group];
    if (args.b_layout.ld == 0) {
      const StridedPtr& matrix = static_cast<const StridedPtr*>(args.b)[group];
      p.b = matrix.data, p.b_ld = matrix.ld;
    } else {
      p.b_first = matrix_elements * group;
    }
    LaunchGroup(p, stage_rows, staged, columns, stream);
  }
  return {};
}

}  // namespace tilewright::gemm
