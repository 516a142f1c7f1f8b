#include "ops/gemm/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <vector>

#include "core/block_format.h"
#include "core/i8x32.h"
#include "core/tensor_access.h"
#include "ops/gemm/formats.h"

namespace tilewright {
namespace {

constexpr int kCols = 16;  // columns of D per task

double LoadValue(DataType type, const void* base, std::int64_t index) {
  if (type == DataType::kF64)
    return gemm::LoadAs<double>(static_cast<const std::uint8_t*>(base) + 8 * index);
  return gemm::LoadElement(type, base, index);
}

// A or B as a set of lines along k: rows of A, columns of B.
struct Operand {
  const void* data = nullptr;
  DataType type = DataType::kF32;
  std::int64_t lines = 0, k = 0, ld = 0;
  bool k_contiguous = true;
  bool per_group = false;  // weights of a grouped problem: a matrix for each group
  int groups = 1;
  const std::int32_t* idxs = nullptr;

  const void* scales = nullptr;
  DataType scale_type = DataType::kNone;
  Quant quant;
  std::int64_t scale_ld = 0;
  bool scale_k_contiguous = true;

  std::int64_t scale_lines() const {
    return quant.type == QuantType::kB ? (lines + quant.group - 1) / quant.group : lines;
  }
  std::int64_t scale_steps() const { return (k + quant.group - 1) / quant.group; }
};

Operand MakeOperand(const void* data, const MatrixLayout& layout, bool is_a) {
  Operand o;
  o.data = data;
  o.type = layout.type;
  o.lines = is_a ? layout.rows : layout.cols;
  o.k = is_a ? layout.cols : layout.rows;
  o.ld = layout.ld;
  o.k_contiguous = is_a == (layout.order == Order::kRowMajor);
  o.idxs = layout.idxs;
  return o;
}

// U is [m][k / group] and V [k / group][n], row-major unless their layouts say otherwise:
// Transpose() flips them.
void AddScales(Operand& o, const void* data, const MatrixLayout& layout, DataType type, Quant quant,
               bool is_a) {
  if (quant.type == QuantType::kNone) return;
  o.scales = data;
  o.scale_type = type;
  o.quant = quant;
  o.scale_k_contiguous = is_a == (layout.order == Order::kRowMajor);
  o.scale_ld = layout.ld > 0 ? layout.ld : o.scale_k_contiguous ? o.scale_steps() : o.scale_lines();
}

struct Line {
  const void* base;
  std::int64_t index, ld;
  std::int64_t first = 0;  // linear element at which the group's matrix begins
};

Line LineOf(const Operand& o, std::int64_t index, int group) {
  if (!o.per_group) return {o.data, o.idxs != nullptr ? o.idxs[index] : index, o.ld};
  if (o.ld == 0) {
    const StridedPtr& matrix = static_cast<const StridedPtr*>(o.data)[group];
    return {matrix.data, index, matrix.ld};
  }
  return {o.data, index, o.ld, (o.k_contiguous ? o.lines : o.k) * o.ld * group};
}

// out[i * stride] = value i of the line, scales applied.
void DecodeLine(const Operand& o, std::int64_t index, int group, std::vector<double>& run,
                double* out, std::int64_t stride) {
  const Line line = LineOf(o, index, group);
  if (GetTypeInfo(o.type).block_quantised) {
    run.resize(static_cast<std::size_t>(o.k));
    const auto* bytes = static_cast<const std::uint8_t*>(line.base) +
                        BytesOf(o.type, line.first + line.index * line.ld);
    static_cast<void>(DecodeRow(o.type, bytes, o.k, run.data()));  // CheckOperand saw that it can
    for (std::int64_t i = 0; i < o.k; ++i) out[i * stride] = run[static_cast<std::size_t>(i)];
    return;
  }
  const std::int64_t first = line.first + (o.k_contiguous ? line.index * line.ld : line.index);
  const std::int64_t step = o.k_contiguous ? 1 : line.ld;
  for (std::int64_t i = 0; i < o.k; ++i)
    out[i * stride] = LoadValue(o.type, line.base, first + i * step);
  if (o.quant.type == QuantType::kNone) return;

  const std::int64_t scale_line =
      o.quant.type == QuantType::kB ? line.index / o.quant.group : line.index;
  std::int64_t base = 0;
  if (o.per_group)
    base = static_cast<std::int64_t>(group) *
           (o.scale_k_contiguous ? o.scale_lines() : o.scale_steps()) * o.scale_ld;
  for (std::int64_t i = 0; i < o.k; ++i) {
    const std::int64_t at = i / o.quant.group;
    const std::int64_t element =
        base + (o.scale_k_contiguous ? scale_line * o.scale_ld + at : at * o.scale_ld + scale_line);
    double& value = out[i * stride];
    if (o.type == DataType::kU4) {
      value = LoadValue(o.scale_type, o.scales, 2 * element) *
              (value - LoadValue(o.scale_type, o.scales, 2 * element + 1));
    } else {
      value *= LoadValue(o.scale_type, o.scales, element);
    }
  }
}

struct Problem {
  Operand a, b;
  float alpha = 1, beta = 0;
  bool gated = false;
  std::vector<double> norm = {};  // weights of the norm in front; empty without
  double epsilon = 0;
  int groups = 1;
  int axis = -1;
  const std::int32_t* offsets = nullptr;
};

Status Refuse(ErrorCode code, std::string_view what) {
  return Fail(code, fmt::format("reference gemm: {}", what));
}

Status CheckOperand(const Operand& o, std::string_view name) {
  const TypeInfo& info = GetTypeInfo(o.type);
  const bool decodable =
      o.type != DataType::kNone && o.type != DataType::kI32 && o.type != DataType::kI64;
  if (!decodable)
    return Refuse(ErrorCode::kUnsupported, fmt::format("type {} of {}", info.name, name));
  if (!info.block_quantised) return {};
  if (Status status = DecodeRow(o.type, nullptr, 0, static_cast<double*>(nullptr)); !status)
    return status;
  if (!o.k_contiguous)
    return Refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{}: blocks of {} must lie along k", name, info.name));
  if (o.k % info.block_elements != 0 || o.ld % info.block_elements != 0) {
    return Refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{}: k = {}, ld = {}: both must be multiples of {}", name, o.k, o.ld,
                              info.block_elements));
  }
  return {};
}

Result<Problem> MakeProblem(const GemmArgs& args, const GemmDesc& desc) {
  const auto fail = [](const Status& status) { return tl::unexpected<Error>(status.error()); };
  if (args.a_layout.pack != kPackPlain || args.b_layout.pack != kPackPlain) {
    return fail(Refuse(ErrorCode::kUnsupported, "packed operands: pass the plain weights"));
  }
  Problem p;
  p.a = MakeOperand(args.a, args.a_layout, true);
  p.b = MakeOperand(args.b, args.b_layout, false);
  AddScales(p.a, args.u, args.u_layout, desc.type_u, desc.quant_a, true);
  AddScales(p.b, args.v, args.v_layout, desc.type_v, desc.quant_b, false);
  p.alpha = args.alpha, p.beta = args.beta;
  p.gated = desc.epilogue == Epilogue::kGatedSilu;
  if (desc.prologue == Prologue::kRmsNorm) {
    if (!IsFloatType(desc.type_norm) || args.norm == nullptr) {
      return fail(
          Refuse(ErrorCode::kInvalidArgument,
                 fmt::format("a norm of {} at {}", DataTypeName(desc.type_norm), args.norm)));
    }
    p.epsilon = static_cast<double>(args.epsilon);
    for (std::int64_t i = 0; i < p.a.k; ++i)
      p.norm.push_back(LoadValue(desc.type_norm, args.norm, i));
  }
  p.axis = desc.group_axis;
  if (p.axis >= 0) {
    p.groups = desc.num;
    Operand& weights = p.axis == 0 ? p.b : p.a;
    weights.per_group = desc.num > 1;
    weights.groups = desc.num;
    p.offsets = p.axis == 0 ? args.a_layout.offsets : args.b_layout.offsets;
    if (desc.num > 1 && p.offsets == nullptr)
      return fail(Refuse(ErrorCode::kInvalidArgument, "a grouped problem without offsets"));
  }
  if (p.a.k != p.b.k) {
    return fail(
        Refuse(ErrorCode::kInvalidArgument, fmt::format("A has k = {}, B has {}", p.a.k, p.b.k)));
  }
  if (p.gated && p.b.lines % (2 * kGatedBlock) != 0) {
    return fail(Refuse(
        ErrorCode::kInvalidArgument,
        fmt::format("n = {}: gated_silu needs a multiple of {}", p.b.lines, 2 * kGatedBlock)));
  }
  if (Status ok = CheckOperand(p.a, "A"); !ok) return fail(ok);
  if (Status ok = CheckOperand(p.b, "B"); !ok) return fail(ok);
  if (!IsFloatType(desc.type_c))
    return fail(Refuse(
        ErrorCode::kUnsupported,
        fmt::format("D of type {}: must be f64, f32, f16 or bf16", DataTypeName(desc.type_c))));
  return p;
}

// `count` (at most kRows) rows of A times up to 32 columns b[k][width]; with kMagnitude, of
// absolute values. out[kRows][kOutCols], of which the first `count` rows mean something.
constexpr int kRows = 4;
constexpr int kOutCols = 2 * kCols;
struct DotArgs {
  const double* a;
  const double* b;
  int count, width;
  std::int64_t k;
  double* out;
};

// Four columns; the compiler splits them where the target is narrower.
using Lanes [[gnu::vector_size(32)]] = double;
using LanesInMemory [[gnu::vector_size(32), gnu::aligned(8), gnu::may_alias]] = double;

template <bool kMagnitude>
[[gnu::always_inline]] inline void DotBody(const DotArgs& args) {
  const double* row[kRows];
  for (int r = 0; r < kRows; ++r) row[r] = args.a + (r < args.count ? r : 0) * args.k;
  for (int first = 0; first < args.width; first += 8) {
    Lanes sum[kRows][2] = {};
    for (std::int64_t i = 0; i < args.k; ++i) {
      const double* at = args.b + i * args.width + first;
      const Lanes column[2] = {*reinterpret_cast<const LanesInMemory*>(at),
                               *reinterpret_cast<const LanesInMemory*>(at + 4)};
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const Lanes product = row[r][i] * column[half];
          sum[r][half] += kMagnitude ? (product < 0 ? -product : product) : product;
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      double* out = args.out + r * kOutCols + first;
      *reinterpret_cast<LanesInMemory*>(out) = sum[r][0];
      *reinterpret_cast<LanesInMemory*>(out + 4) = sum[r][1];
    }
  }
}

#if defined(__x86_64__)
// The oracle also runs whole models: compiled again for what most machines have.
template <bool kMagnitude>
[[gnu::target("avx2,fma")]] void DotAvx2(const DotArgs& args) {
  DotBody<kMagnitude>(args);
}
#endif

template <bool kMagnitude>
void Dot(const DotArgs& args) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) return DotAvx2<kMagnitude>(args);
#endif
  DotBody<kMagnitude>(args);
}

double Silu(double x) { return x / (1.0 + std::exp(-x)); }

// An element: what it is, the magnitude sum its f32 roundings scale with, and how far rounded
// activations may take it.
struct Value {
  double value = 0, magnitude = 0, slack = 0;
};

// Sums of products, of their magnitudes, and of the activations' largest errors times the weights.
struct Sums {
  double values[kRows][kOutCols] = {}, magnitudes[kRows][kOutCols] = {},
         slacks[kRows][kOutCols] = {};
};

// alpha and the epilogue applied to row r and column j of a task's sums.
Value Finish(const Problem& p, const Sums& sums, int r, int j) {
  const double alpha = p.alpha, size = std::fabs(alpha);
  if (!p.gated)
    return {alpha * sums.values[r][j], size * sums.magnitudes[r][j], size * sums.slacks[r][j]};
  const double gate = alpha * sums.values[r][j], up = alpha * sums.values[r][j + kCols];
  const double activated = Silu(gate);
  // silu' lies within 1.1 of 0, so that silu is off by 1.1 times what gate is off, and the product
  // by no more than what follows. The exponential adds a few roundings of the value itself.
  const auto through = [&](double of_gate, double of_up) {
    return 1.1 * of_gate * std::fabs(up) + std::fabs(activated) * of_up;
  };
  const double gate_slack = size * sums.slacks[r][j], up_slack = size * sums.slacks[r][j + kCols];
  return {activated * up,
          through(size * sums.magnitudes[r][j], size * sums.magnitudes[r][j + kCols]) +
              std::fabs(activated * up),
          through(gate_slack, up_slack) + 1.1 * gate_slack * up_slack};
}

// The most by which a row of `k` activations is off when it is rounded, element by element.
void RoundingErrors(Precision activations, const double* a, std::int64_t k, double* off) {
  if (activations == Precision::kBF16) {
    // Eight significant bits, to nearest: half a unit in the last place is at most 2^-8 of the
    // value.
    for (std::int64_t i = 0; i < k; ++i) off[i] = 0x1p-8 * std::fabs(a[i]);
    return;
  }
  // int8: half a step, and the step is a 127th of the block's largest. The factor pays for the f32
  // product with 127 / largest, whose error moves values near the middle of two steps. Blocks below
  // 2^-100 count as zero.
  constexpr std::int64_t kBlock = 32;
  for (std::int64_t first = 0; first < k; first += kBlock) {
    const std::int64_t end = std::min(k, first + kBlock);
    double largest = 0;
    for (std::int64_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(a[i]));
    const double error = largest < 0x1p-100 ? largest : 1.0001 * largest / 254;
    std::fill(off + first, off + end, error);
  }
}

// A row of activations divided by the root of its mean square, times the weights of the norm.
void Normalise(const Problem& p, double* row) {
  double squares = 0;
  for (std::size_t i = 0; i < p.norm.size(); ++i) squares += row[i] * row[i];
  const double scale = 1 / std::sqrt(squares / static_cast<double>(p.norm.size()) + p.epsilon);
  for (std::size_t i = 0; i < p.norm.size(); ++i) row[i] *= scale * p.norm[i];
}

// One scale for a whole line, as Precision::kW8A8 says: the numbers that its codes stand for. The
// arithmetic is that of kernels, f32, so that both round to the same code at the middle of two steps.
void RoundByOneScale(std::int64_t k, std::int64_t stride, double* line) {
  std::uint32_t magnitude = 0;
  for (std::int64_t i = 0; i < k; ++i)
    magnitude = std::max(magnitude, BitsOfF32(static_cast<float>(line[i * stride])) & 0x7fffffffu);
  float scale, inverse;
  ScaleOfI8x32(magnitude, scale, inverse);
  for (std::int64_t i = 0; i < k; ++i) {
    double& value = line[i * stride];
    const float code = inverse != 0 ? std::nearbyintf(static_cast<float>(value) * inverse) : 0.0f;
    value = static_cast<double>(scale) * static_cast<double>(code);
  }
}

// What is wanted beside the values.
struct Wanted {
  bool magnitudes = false;
  Precision activations = Precision::kF32;  // rounded to; kF32 = no slacks
  bool one_scale() const { return activations == Precision::kW8A8; }
  bool slacks() const { return activations == Precision::kBF16 || activations == Precision::kI8; }
};

// Calls sink(row, column of D, Value) for every chosen element; beta * C is the sink's business.
template <class Sink>
void Compute(const Problem& p, const std::vector<int>& rows, const std::vector<int>& cols,
             const Wanted& wanted, Executor* executor, Sink&& sink) {
  Executor& exec = executor != nullptr ? *executor : SerialExecutor();
  const std::int64_t k = p.a.k;
  const int width = p.gated ? 2 * kCols : kCols;
  std::vector<double> a, off;
  for (int group = 0; group < p.groups; ++group) {
    const auto in_group = [&](int index) {
      return p.groups == 1 || (index >= p.offsets[group] && index < p.offsets[group + 1]);
    };
    std::vector<int> my_rows, my_cols;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(my_rows),
                 [&](int r) { return p.axis != 0 || in_group(r); });
    std::copy_if(cols.begin(), cols.end(), std::back_inserter(my_cols),
                 [&](int c) { return p.axis != 1 || in_group(c); });
    a.resize(my_rows.size() * static_cast<std::size_t>(k));
    std::vector<double> decoded;
    for (std::size_t r = 0; r < my_rows.size(); ++r) {
      double* row = a.data() + static_cast<std::int64_t>(r) * k;
      DecodeLine(p.a, my_rows[r], group, decoded, row, 1);
      if (!p.norm.empty()) Normalise(p, row);
      if (wanted.one_scale()) RoundByOneScale(k, 1, row);
    }
    if (wanted.slacks()) {
      off.resize(a.size());
      for (std::size_t at = 0; at < a.size(); at += static_cast<std::size_t>(k))
        RoundingErrors(wanted.activations, a.data() + at, k, off.data() + at);
    }

    const int tasks = (static_cast<int>(my_cols.size()) + kCols - 1) / kCols;
    exec.Run(my_rows.empty() ? 0 : tasks, [&](int task, int) {
      const int first = task * kCols;
      const int count = std::min(kCols, static_cast<int>(my_cols.size()) - first);
      std::vector<double> run,
          b(static_cast<std::size_t>(k) * static_cast<std::size_t>(width), 0.0);
      for (int j = 0; j < count; ++j) {
        const int col = my_cols[static_cast<std::size_t>(first + j)];
        const int gate = col / kGatedBlock * 2 * kGatedBlock + col % kGatedBlock;
        DecodeLine(p.b, p.gated ? gate : col, group, run, b.data() + j, width);
        if (p.gated) DecodeLine(p.b, gate + kGatedBlock, group, run, b.data() + kCols + j, width);
        if (wanted.one_scale()) RoundByOneScale(k, width, b.data() + j);
        if (wanted.one_scale() && p.gated) RoundByOneScale(k, width, b.data() + kCols + j);
      }
      Sums sums;
      const int row_count = static_cast<int>(my_rows.size());
      for (int first_row = 0; first_row < row_count; first_row += kRows) {
        DotArgs dot{a.data() + first_row * k,
                    b.data(),
                    std::min(kRows, row_count - first_row),
                    width,
                    k,
                    sums.values[0]};
        Dot<false>(dot);
        dot.out = sums.magnitudes[0];
        if (wanted.magnitudes) Dot<true>(dot);
        dot.out = sums.slacks[0];
        if (wanted.slacks()) {
          dot.a = off.data() + first_row * k;
          Dot<true>(dot);
        }
        for (int r = 0; r < dot.count; ++r) {
          for (int j = 0; j < count; ++j) {
            sink(my_rows[static_cast<std::size_t>(first_row + r)],
                 my_cols[static_cast<std::size_t>(first + j)], Finish(p, sums, r, j));
          }
        }
      }
    });
  }
}

std::int64_t ElementOf(const MatrixLayout& layout, int axis, int row, int col) {
  std::int64_t r = row, c = col;
  if (layout.idxs != nullptr) (axis == 1 ? c : r) = layout.idxs[axis == 1 ? col : row];
  return layout.order == Order::kRowMajor ? r * layout.ld + c : c * layout.ld + r;
}

// Up to `most` of [0, count), evenly spread, both ends among them.
std::vector<int> Spread(int count, int most) {
  std::vector<int> all;
  if (most <= 0 || most >= count) {
    all.resize(static_cast<std::size_t>(std::max(count, 0)));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  for (int i = 0; i < most; ++i) {
    all.push_back(most == 1
                      ? count - 1
                      : static_cast<int>(static_cast<std::int64_t>(count - 1) * i / (most - 1)));
  }
  return all;
}

// Half the smallest subnormal step of a result.
double SmallestStep(DataType type) { return type == DataType::kF16 ? 0x1p-25 : 1e-37; }

// Half a unit in the last place of a result, relative.
double RoundingOf(DataType type) {
  switch (type) {
    case DataType::kF64:
      return 0x1p-53;
    case DataType::kF16:
      return 0x1p-11;
    case DataType::kBF16:
      return 0x1p-8;
    default:
      return 0x1p-24;
  }
}

}  // namespace

Status ReferenceGemm(const GemmArgs& args, const GemmDesc& desc, Executor* executor) {
  const Result<Problem> problem = MakeProblem(args, desc);
  if (!problem) return Fail(problem.error());
  const int n = static_cast<int>(problem->gated ? problem->b.lines / 2 : problem->b.lines);
  Compute(*problem, Spread(static_cast<int>(problem->a.lines), 0), Spread(n, 0), {}, executor,
          [&](int row, int col, Value v) {
            if (args.beta != 0) {
              v.value +=
                  static_cast<double>(args.beta) *
                  LoadValue(desc.type_c, args.c, ElementOf(args.c_layout, problem->axis, row, col));
            }
            gemm::StoreElement(desc.type_c, args.d,
                               ElementOf(args.d_layout, problem->axis, row, col), v.value);
          });
  return {};
}

double GemmTolerance(const GemmDesc& desc) {
  return 0x1p-24 * (8 + 4 * std::sqrt(static_cast<double>(std::max(desc.k, 1))));
}

Result<GemmError> CheckGemm(const GemmArgs& args, const GemmDesc& desc, const GemmCheck& check) {
  const Result<Problem> problem = MakeProblem(args, desc);
  if (!problem) return Fail(problem.error());
  const int n = static_cast<int>(problem->gated ? problem->b.lines / 2 : problem->b.lines);
  const double tolerance = GemmTolerance(desc);
  GemmError worst;
  double error2 = 0, want2 = 0, magnitude2 = 0;
  std::mutex mutex;
  Compute(*problem, Spread(static_cast<int>(problem->a.lines), check.max_rows),
          Spread(n, check.max_cols), {true, check.activations}, check.executor,
          [&](int row, int col, Value v) {
            if (args.beta != 0) {
              const double c =
                  static_cast<double>(args.beta) *
                  LoadValue(desc.type_c, args.c, ElementOf(args.c_layout, problem->axis, row, col));
              v.value += c;
              v.magnitude += std::fabs(c);
            }
            const double got =
                LoadValue(desc.type_c, args.d, ElementOf(args.d_layout, problem->axis, row, col));
            const double allowed = v.slack + tolerance * (v.magnitude + v.slack) +
                                   1.01 * RoundingOf(desc.type_c) * (std::fabs(v.value) + v.slack) +
                                   SmallestStep(desc.type_c);
            double error = std::fabs(got - v.value) / allowed;
            if (!std::isfinite(v.value) && !std::isfinite(got)) error = 0;
            if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
            const std::lock_guard<std::mutex> lock(mutex);
            ++worst.compared;
            error2 += (got - v.value) * (got - v.value);
            want2 += v.value * v.value;
            magnitude2 += v.magnitude * v.magnitude;
            if (error <= worst.worst) return;
            worst.worst = error;
            worst.row = row, worst.col = col;
            worst.got = got, worst.want = v.value;
          });
  worst.error_l2 = std::sqrt(error2);
  worst.want_l2 = std::sqrt(want2);
  worst.magnitude_l2 = std::sqrt(magnitude2);
  return worst;
}

}  // namespace tilewright
