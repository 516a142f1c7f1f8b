#include "ops/top_k/top_k.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "engine/stage_templates.h"
#include "ops/top_k/cpu/top_k_cpu.h"

namespace tilewright::top_k {
namespace {

using CpuTopK = FunctionKernel<Op, TopKImpl>;

constexpr std::int64_t kGrain = 65536;  // elements of a task of whole rows
/// Of rows in pieces: columns at least (a core reads so many that others have written in about 5 us),
/// pieces of a worker, and places of all lists.
constexpr std::int64_t kPieceCols = 8192;
constexpr int kPiecesOfWorker = 2, kMostListed = 2048;

std::optional<Rejection> Feasible(const TopKImpl&, const Desc& desc) {
  if (RowTypeIndex(desc.type_in) < 0) {
    return Rejection{Reason::kType, Format("type_in {}", DataTypeName(desc.type_in)),
                     "f32, f16 or bf16"};
  }
  if (desc.type_values != DataType::kNone && desc.type_values != DataType::kF32) {
    return Rejection{Reason::kType, Format("type_values {}", DataTypeName(desc.type_values)),
                     "f32, or none"};
  }
  if (desc.k > kMostK) {
    return Rejection{Reason::kShape, Format("k = {}", desc.k), Format("at most {}", kMostK)};
  }
  return std::nullopt;
}

double EstimateUs(const TopKImpl& impl, const Desc& desc, int workers) {
  const double cols = desc.cols, k = desc.k;
  const double elements = desc.rows * cols;
  // Each value that enters the list has its block looked at again, and moves half of the list.
  const double entering = desc.rows * k * std::log(1 + cols / k);
  const double us = elements * impl.ns_per_element * 1e-3 + entering * (0.05 + k * 0.5e-3);
  return us / BusyWorkers(elements, kPieceCols, workers) + desc.rows * 0.05;
}

/// The list of a row, and what stands behind its end.
void PutRow(const Args& args, std::int64_t row, int found, const float* values,
            const std::int32_t* ids) {
  const auto k = static_cast<int>(args.ids.cols());
  auto* out_ids = args.ids.as<std::int32_t>() + RowOffset(args.ids, row);
  for (int i = 0; i < k; ++i) out_ids[i] = i < found ? ids[i] : -1;
  HandOver(args, row, out_ids[0]);
  if (args.values.data == nullptr) return;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float none = found < 0 ? std::numeric_limits<float>::quiet_NaN() : -kInfinity;
  auto* out_values = args.values.as<float>() + RowOffset(args.values, row);
  for (int i = 0; i < k; ++i) out_values[i] = i < found ? values[i] : none;
}

/// Into how many pieces of columns each row is cut, so that every worker has some of the few rows of a
/// decode pass.
int PiecesOf(std::int64_t rows, std::int64_t cols, int k, int workers) {
  if (workers == 1 || rows >= workers) return 1;
  const std::int64_t wanted = (kPiecesOfWorker * workers + rows - 1) / rows;
  return static_cast<int>(
      std::max<std::int64_t>(1, std::min({wanted, cols / kPieceCols, kMostListed / (rows * k)})));
}

/// What stands in the lists of `pieces` pieces of a row, each best first and of k places, as one list:
/// how many there are, at most k; -1 if a piece has no order. Equal values are in ascending order of
/// their pieces.
int Merge(int pieces, int k, const int* found, const float* values, const std::int32_t* ids,
          float* merged_values, std::int32_t* merged_ids) {
  if (std::any_of(found, found + pieces, [](int count) { return count < 0; })) return -1;
  int taken[kMostListed] = {};
  for (int i = 0; i < k; ++i) {
    int best = -1;
    for (int piece = 0; piece < pieces; ++piece) {
      if (taken[piece] == found[piece]) continue;
      if (best < 0 || values[piece * k + taken[piece]] > values[best * k + taken[best]])
        best = piece;
    }
    if (best < 0) return i;
    merged_values[i] = values[best * k + taken[best]];
    merged_ids[i] = ids[best * k + taken[best]];
    ++taken[best];
  }
  return k;
}

/// Rows in pieces: a list of each, then one of each row.
void LaunchInPieces(const TopKImpl& impl, const Args& args, int pieces, Executor& executor) {
  const std::int64_t cols = args.in.cols();
  const auto k = static_cast<int>(args.ids.cols());
  const auto rows = static_cast<int>(RowCount(args.in));
  const TopKRowFunction top = impl.rows[RowTypeIndex(args.in.dtype)];
  float values[kMostListed];
  std::int32_t ids[kMostListed];
  int found[kMostListed];
  executor.Run(rows * pieces, [&](int task, int) {
    const int piece = task % pieces;
    const std::int64_t first = cols * piece / pieces, end = cols * (piece + 1) / pieces;
    const std::int64_t at = RowOffset(args.in, task / pieces) + first;
    std::int32_t* list = ids + task * k;
    found[task] = top(AddressOf(args.in, at), end - first, k, values + task * k, list);
    for (int i = 0; i < found[task]; ++i) list[i] += static_cast<std::int32_t>(first);
  });
  for (int row = 0; row < rows; ++row) {
    float row_values[kMostK];
    std::int32_t row_ids[kMostK];
    const int lists = row * pieces;
    const int count =
        Merge(pieces, k, found + lists, values + lists * k, ids + lists * k, row_values, row_ids);
    PutRow(args, row, count, row_values, row_ids);
  }
}

Status Launch(const TopKImpl& impl, const Args& args, Stream stream) {
  const std::int64_t cols = args.in.cols();
  const auto k = static_cast<int>(args.ids.cols());
  const int pieces = PiecesOf(RowCount(args.in), cols, k, stream.exec().workers());
  if (pieces > 1) {
    LaunchInPieces(impl, args, pieces, stream.exec());
    return {};
  }
  const TopKRowFunction top = impl.rows[RowTypeIndex(args.in.dtype)];
  ParallelRanges(stream.exec(), RowCount(args.in), kGrain / std::max<std::int64_t>(cols, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   float values[kMostK];
                   std::int32_t ids[kMostK];
                   for (std::int64_t row = begin; row < end; ++row) {
                     const int found =
                         top(AddressOf(args.in, RowOffset(args.in, row)), cols, k, values, ids);
                     PutRow(args, row, found, values, ids);
                   }
                 });
  return {};
}

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  for (const DataType type : {desc.type_in, desc.type_values}) {
    if (!IsFloatType(type) && (type != DataType::kNone || type == desc.type_in)) {
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)),
                       "f64, f32, f16 or bf16"};
    }
  }
  return std::nullopt;
}

double ReferenceUs(const Desc& desc) { return static_cast<double>(desc.rows) * desc.cols * 60e-3; }

constexpr std::size_t kFirstHandedOver = 2, kMostInputs = 6;  // of a node

void CheckNode(const NodeView& node, NodeCheck& check) {
  check.ExpectFloat("inputs[0]", node.in(0).dtype);
  check.ExpectType("out", node.out.dtype, DataType::kI32);
  check.Expect("inputs[0].shape[1]", node.in(0).shape[1], node.out.shape[1], "rows");
  for (const std::size_t d : {std::size_t{2}, std::size_t{3}}) {
    check.Expect(Format("inputs[0].shape[{}]", d), node.in(0).shape[d], 1, "a matrix");
    check.Expect(Format("out.shape[{}]", d), node.out.shape[d], 1, "a matrix");
  }
  if (node.input_count > 1 && node.inputs[1].present) {
    check.ExpectSameShape("inputs[1]", node.in(1), node.out);
    check.ExpectFloat("inputs[1]", node.in(1).dtype);
  }
  if (node.input_count <= kFirstHandedOver) return;
  check.Expect("inputs", node.input_count, kMostInputs, "all that is handed over");
  check.Expect("out.shape[0]", node.out.shape[0], 1, "what can be handed over");
  for (std::size_t i = kFirstHandedOver; i + 1 < kMostInputs; ++i)
    check.ExpectRows(Format("inputs[{}]", i), node.in(i), node.out.shape[1]);
  check.ExpectType("inputs[5]", node.in(5).dtype, DataType::kI32);
  check.Expect("inputs[5].shape[0]", node.in(5).shape[0], node.out.shape[1], "rows");
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kTopK,
                                .name = "top_k",
                                .min_inputs = 1,
                                .max_inputs = kMostInputs,
                                .writes = 0b111110,
                                .check = &CheckNode}};

Status CheckHandedOver(const Args& args) {
  const std::pair<const char*, const TensorView*> each[] = {{"top_k: tokens", &args.tokens},
                                                            {"top_k: positions", &args.positions},
                                                            {"top_k: turns", &args.turns},
                                                            {"top_k: found", &args.found}};
  if (std::ranges::all_of(each, [](const auto& one) { return one.second->data == nullptr; }))
    return {};
  if (args.ids.shape[0] != 1) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("top_k: k = {}: only one id of a row can be handed over", args.ids.shape[0]));
  }
  for (const auto& [what, view] : each) {
    if (Status s = CheckInts(what, *view, args.ids.shape[1]); !s) return s;
  }
  if (args.found.shape[1] < 1)
    return Fail(ErrorCode::kInvalidArgument, "top_k: found has no turns, must be at least 1");
  return CheckView("top_k: found", args.found);
}

}  // namespace

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  Args args{.in = node.in(0), .ids = node.out, .values = {}};
  if (node.input_count > 1) args.values = node.in(1);
  if (node.input_count <= kFirstHandedOver) return args;
  args.tokens = node.in(2);
  args.positions = node.in(3);
  args.turns = node.in(4);
  args.found = node.in(5);
  return args;
}

void HandOver(const Args& args, std::int64_t row, std::int32_t id) {
  if (args.tokens.data == nullptr) return;
  std::int32_t& position = args.positions.as<std::int32_t>()[row];
  if (position < 0) return;  // padding
  std::int32_t& turn = args.turns.as<std::int32_t>()[row];
  args.tokens.as<std::int32_t>()[row] = id;
  args.found.as<std::int32_t>()[turn * args.found.stride[1] + row] = id;
  ++position;
  turn = turn + 1 < args.found.shape[1] ? turn + 1 : 0;
}

std::string KeyOf(const Desc& desc) { return FieldsKey(desc); }

Result<Desc> DescOf(const Args& args, const CallTerms& terms) {
  if (Status s = CheckView("top_k: in", args.in); !s) return Fail(s.error());
  if (Status s = CheckView("top_k: ids", args.ids); !s) return Fail(s.error());
  const auto is_matrix = [](const TensorView& v) { return v.shape[2] == 1 && v.shape[3] == 1; };
  if (!is_matrix(args.in) || !is_matrix(args.ids) || args.in.shape[1] != args.ids.shape[1]) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("top_k: in {} to ids {}: must be [cols, rows] to [k, rows]",
                       ShapeText(args.in), ShapeText(args.ids)));
  }
  if (args.ids.dtype != DataType::kI32) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("top_k: ids are {}, must be i32", DataTypeName(args.ids.dtype)));
  }
  const bool values = args.values.data != nullptr;
  if (values) {
    if (Status s = CheckView("top_k: values", args.values); !s) return Fail(s.error());
    if (Status s = CheckSameShape("top_k: values", args.values, "ids", args.ids); !s)
      return Fail(s.error());
  }
  if (Status s = CheckHandedOver(args); !s) return Fail(s.error());
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (args.in.shape[0] > kMost || args.in.shape[1] > kMost || args.ids.shape[0] > kMost) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("top_k: in {} to ids {}: at most {} in each dimension", ShapeText(args.in),
                       ShapeText(args.ids), kMost));
  }
  return Desc{.type_in = args.in.dtype,
              .type_values = values ? args.values.dtype : DataType::kNone,
              .rows = static_cast<std::int32_t>(args.in.shape[1]),
              .cols = static_cast<std::int32_t>(args.in.shape[0]),
              .k = static_cast<std::int32_t>(args.ids.shape[0]),
              .guarantee = terms.guarantee};
}

Result<Checked<Op>> Validate(const Desc& desc) {
  if (desc.rows < 1 || desc.cols < 1 || desc.k < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("top_k: rows = {}, cols = {}, k = {}: each must be at least 1", desc.rows,
                       desc.cols, desc.k));
  }
  return Stages<Op>::MarkValidated(desc);
}

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "top_k.any.reference",
      ReferenceOpKernel<Op>::Functions{&ReferenceFeasible, &ReferenceUs, &Reference})));
}

void AddKernels(Registry& registry) {
  const CpuTopK::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const TopKImpl* impl : {&kTopKScalar, &kTopKAvx2, &kTopKAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuTopK>(
        CpuKernelInfo(Format("top_k.f32.{}", impl->isa), impl->tu, impl->features), *impl,
        shared)));
  }
  AddReference(registry);
}

}  // namespace tilewright::top_k

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(top_k::Op);
}  // namespace tilewright
