#include "ops/rope/rope.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "engine/stage_templates.h"
#include "ops/rope/angles.h"
#include "ops/rope/cpu/rope_cpu.h"

namespace tilewright::rope {
namespace {

using CpuRope = FunctionKernel<Op, RopeImpl>;

constexpr std::int64_t kGrain = 16384;  // elements of a task, as in ops/norm

std::optional<Rejection> Feasible(const RopeImpl&, const Desc& desc) {
  if (desc.type_in != DataType::kF32 || desc.type_out != DataType::kF32) {
    return Rejection{Reason::kType,
                     Format("{} to {}", DataTypeName(desc.type_in), DataTypeName(desc.type_out)),
                     "f32 to f32"};
  }
  return std::nullopt;
}

double EstimateUs(const RopeImpl& impl, const Desc& desc, int workers) {
  const double elements = static_cast<double>(desc.rows) * desc.heads * desc.head_dim;
  return elements * impl.ns_per_element * 1e-3 / BusyWorkers(elements, kGrain, workers) +
         desc.rows * 0.01;
}

/// Cosines and sines of one position without a table.
void ComputeAngles(const Args& args, std::int64_t position, float* out) {
  if (args.table != nullptr) return args.table->Compute(position, out);
  const int half = args.params.dims / 2;
  for (int i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) * Frequency(args.params, args.factors.as<const float>(), i);
    out[i] = static_cast<float>(std::cos(angle));
    out[half + i] = static_cast<float>(std::sin(angle));
  }
}

void RunRows(const RopeImpl& impl, const Args& args, std::int64_t begin, std::int64_t end) {
  float computed[kMaxDims];
  const std::int64_t dims = args.params.dims, head_dim = args.qk.shape[0];
  const auto rotate =
      args.params.mode == RopeMode::kInterleaved ? impl.interleaved : impl.half_split;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t position = args.positions.as<const std::int32_t>()[row];
    if (position < 0) continue;  // padding
    const float* angles = computed;
    if (args.table != nullptr && position < args.table->positions()) {
      angles = args.table->Row(position);
    } else {
      ComputeAngles(args, position, computed);
    }
    const float* in = args.qk.as<const float>() + row * args.qk.stride[2];
    float* out = args.out.as<float>() + row * args.out.stride[2];
    for (std::int64_t h = 0; h < args.qk.shape[1];
         ++h, in += args.qk.stride[1], out += args.out.stride[1]) {
      rotate(in, angles, angles + dims / 2, out, dims / 2);
      if (out != in) std::copy(in + dims, in + head_dim, out + dims);
    }
  }
}

Status Launch(const RopeImpl& impl, const Args& args, Stream stream) {
  if (args.table == nullptr) {
    if (Status status = CheckParams(args.params, args.factors.as<const float>()); !status)
      return status;
  }
  if (Status status = CheckPositions(args); !status) return status;
  const std::int64_t row_elements = std::max<std::int64_t>(args.qk.shape[0] * args.qk.shape[1], 1);
  ParallelRanges(stream.exec(), args.qk.shape[2], kGrain / row_elements,
                 [&](std::int64_t begin, std::int64_t end) { RunRows(impl, args, begin, end); });
  return {};
}

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  if (IsFloatType(desc.type_in) && IsFloatType(desc.type_out)) return std::nullopt;
  return Rejection{Reason::kType,
                   Format("{} to {}", DataTypeName(desc.type_in), DataTypeName(desc.type_out)),
                   "f64, f32, f16 or bf16"};
}

double ReferenceUs(const Desc& desc) {
  return static_cast<double>(desc.rows) * desc.heads * desc.head_dim * 50e-3;
}

void CheckNode(const NodeView& node, NodeCheck& check) {
  const RopeParams& rope = node.params.rope;
  check.ExpectSameShape("inputs[0]", node.in(0), node.out);
  check.ExpectType("inputs[0]", node.in(0).dtype, node.out.dtype);
  check.ExpectRows("inputs[1].shape[0]", node.in(1), node.out.shape[2]);
  if (rope.dims <= 0 || rope.dims % 2 != 0 || rope.dims > node.out.shape[0]) {
    check.Fault(Format("rope.dims = {}, must be even, positive and at most head_dim = {}",
                       rope.dims, node.out.shape[0]));
  }
  if (!(rope.base > 0)) check.Fault(Format("rope.base = {}, must be positive", rope.base));
  if (!node.inputs[2].present) return;
  check.ExpectType("inputs[2]", node.in(2).dtype, DataType::kF32);
  check.Expect("inputs[2].shape[0]", node.in(2).shape[0], rope.dims / 2, "rope.dims / 2");
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kRope,
                                .name = "rope",
                                .min_inputs = 2,
                                .max_inputs = 3,
                                .in_place = 1u << 0,
                                .check = &CheckNode}};

}  // namespace

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  return {.qk = node.in(0),
          .positions = node.in(1),
          .factors = node.in(2),
          .out = node.out,
          .params = node.params.rope};
}

std::string KeyOf(const Desc& desc) { return FieldsKey(desc); }

Result<Desc> DescOf(const Args& args, const CallTerms& terms) {
  if (Status s = CheckView("rope: qk", args.qk); !s) return Fail(s.error());
  if (Status s = CheckView("rope: out", args.out); !s) return Fail(s.error());
  if (Status s = CheckSameShape("rope: out", args.out, "qk", args.qk); !s) return Fail(s.error());
  if (args.qk.shape[3] != 1) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("rope: qk has shape {}, must be [head_dim, heads, rows]", ShapeText(args.qk)));
  }
  if (Status s = CheckInts("rope: positions", args.positions, args.qk.shape[2]); !s)
    return Fail(s.error());
  const std::int32_t dims = args.params.dims;
  if (dims < 2 || dims % 2 != 0 || dims > kMaxDims || dims > args.qk.shape[0]) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: dims = {}, must be even and at most head_dim = {} and {}", dims,
                       args.qk.shape[0], kMaxDims));
  }
  if (args.factors.data != nullptr &&
      (args.factors.dtype != DataType::kF32 || args.factors.shape[0] < dims / 2 ||
       args.factors.stride[0] != 1)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: factors {} {}, must be {} adjacent f32",
                       DataTypeName(args.factors.dtype), ShapeText(args.factors), dims / 2));
  }
  if (args.table != nullptr && args.table->params() != args.params)
    return Fail(ErrorCode::kInvalidArgument, "rope: the table was made for other parameters");
  return Desc{.type_in = args.qk.dtype,
              .type_out = args.out.dtype,
              .mode = args.params.mode,
              .rows = static_cast<std::int32_t>(args.qk.shape[2]),
              .heads = static_cast<std::int32_t>(args.qk.shape[1]),
              .head_dim = static_cast<std::int32_t>(args.qk.shape[0]),
              .dims = dims,
              .guarantee = terms.guarantee};
}

Result<Checked<Op>> Validate(const Desc& desc) {
  if (desc.rows < 1 || desc.heads < 1 || desc.head_dim < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: rows = {}, heads = {}, head_dim = {}: each must be at least 1",
                       desc.rows, desc.heads, desc.head_dim));
  }
  if (desc.dims < 2 || desc.dims % 2 != 0 || desc.dims > kMaxDims || desc.dims > desc.head_dim) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: dims = {}, must be even and at most head_dim = {} and {}", desc.dims,
                       desc.head_dim, kMaxDims));
  }
  return Stages<Op>::MarkValidated(desc);
}

Status CheckPositions(const Args& args) {
  const auto* positions = args.positions.as<const std::int32_t>();
  for (std::int64_t row = 0; row < args.qk.shape[2]; ++row) {
    if (positions[row] < -1) {
      return Fail(
          ErrorCode::kInvalidArgument,
          Format("rope: positions[{}] = {}, must be -1 (padding) or more", row, positions[row]));
    }
  }
  return {};
}

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "rope.any.reference",
      ReferenceOpKernel<Op>::Functions{&ReferenceFeasible, &ReferenceUs, &Reference})));
}

void AddKernels(Registry& registry) {
  const CpuRope::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const RopeImpl* impl : {&kRopeScalar, &kRopeAvx2, &kRopeAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuRope>(
        CpuKernelInfo(Format("rope.f32.{}", impl->isa), impl->tu, impl->features), *impl, shared)));
  }
  AddReference(registry);
}

}  // namespace tilewright::rope

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(rope::Op);
}  // namespace tilewright
