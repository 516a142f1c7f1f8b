#include "ops/norm/norm.h"

#include <algorithm>
#include <memory>

#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "engine/stage_templates.h"
#include "ops/norm/cpu/norm_cpu.h"

namespace tilewright::norm {
namespace {

using CpuNorm = FunctionKernel<Op, NormImpl>;

/// Elements of a task: below this, handing work to another thread costs more than it saves (0.25 us
/// a job).
constexpr std::int64_t kGrain = 16384;

std::optional<Rejection> Feasible(const NormImpl&, const Desc& desc) {
  for (const DataType type : {desc.type_in, desc.type_weight, desc.type_out}) {
    if (type != DataType::kF32) {
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)),
                       "f32 input, weight and output"};
    }
  }
  return std::nullopt;
}

double EstimateUs(const NormImpl& impl, const Desc& desc, int workers) {
  const double elements = static_cast<double>(desc.rows) * desc.cols;
  return elements * impl.ns_per_element * 1e-3 / BusyWorkers(elements, kGrain, workers) +
         desc.rows * 0.01;
}

Status Launch(const NormImpl& impl, const Args& args, Stream stream) {
  const std::int64_t cols = args.in.cols();
  ParallelRanges(stream.exec(), RowCount(args.in), kGrain / std::max<std::int64_t>(cols, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     impl.row(args.in.as<const float>() + RowOffset(args.in, row),
                              args.weight.as<const float>(),
                              args.out.as<float>() + RowOffset(args.out, row), cols, args.epsilon);
                   }
                 });
  return {};
}

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  for (const DataType type : {desc.type_in, desc.type_weight, desc.type_out}) {
    if (!IsFloatType(type)) {
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)),
                       "f64, f32, f16 or bf16"};
    }
  }
  return std::nullopt;
}

double ReferenceUs(const Desc& desc) { return static_cast<double>(desc.rows) * desc.cols * 10e-3; }

void CheckNode(const NodeView& node, NodeCheck& check) {
  check.ExpectSameShape("inputs[0]", node.in(0), node.out);
  check.Expect("inputs[1].shape[0]", node.in(1).shape[0], node.out.shape[0], "hidden");
  check.ExpectType("inputs[0]", node.in(0).dtype, node.out.dtype);
  if (!(node.params.epsilon >= 0.0f))
    check.Fault(Format("epsilon = {}, must be >= 0", node.params.epsilon));
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kRmsNorm,
                                .name = "rms_norm",
                                .min_inputs = 2,
                                .max_inputs = 2,
                                .in_place = 1u << 0,
                                .check = &CheckNode}};

}  // namespace

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  return {.in = node.in(0), .weight = node.in(1), .out = node.out, .epsilon = node.params.epsilon};
}

std::string KeyOf(const Desc& desc) { return FieldsKey(desc); }

Result<Desc> DescOf(const Args& args, const CallTerms& terms) {
  if (Status s = CheckView("norm: in", args.in); !s) return Fail(s.error());
  if (Status s = CheckView("norm: weight", args.weight); !s) return Fail(s.error());
  if (Status s = CheckView("norm: out", args.out); !s) return Fail(s.error());
  if (Status s = CheckSameShape("norm: out", args.out, "in", args.in); !s) return Fail(s.error());
  if (args.weight.elements() != args.in.cols() || args.weight.cols() != args.in.cols()) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("norm: weight has shape {}, must be [cols = {}]", ShapeText(args.weight),
                       args.in.cols()));
  }
  if (!(args.epsilon >= 0)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("norm: epsilon = {}, must be 0 or more", args.epsilon));
  }
  return Desc{.type_in = args.in.dtype,
              .type_weight = args.weight.dtype,
              .type_out = args.out.dtype,
              .rows = static_cast<std::int32_t>(RowCount(args.in)),
              .cols = static_cast<std::int32_t>(args.in.cols()),
              .guarantee = terms.guarantee};
}

Result<Checked<Op>> Validate(const Desc& desc) {
  if (desc.rows < 1 || desc.cols < 1) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("norm: rows = {}, cols = {}: each must be at least 1", desc.rows, desc.cols));
  }
  return Stages<Op>::MarkValidated(desc);
}

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "norm.rms.any.reference",
      ReferenceOpKernel<Op>::Functions{&ReferenceFeasible, &ReferenceUs, &Reference})));
}

void AddKernels(Registry& registry) {
  const CpuNorm::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const NormImpl* impl : {&kNormScalar, &kNormAvx2, &kNormAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuNorm>(
        CpuKernelInfo(Format("norm.rms.f32.{}", impl->isa), impl->tu, impl->features), *impl,
        shared)));
  }
  AddReference(registry);
}

}  // namespace tilewright::norm

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(norm::Op);
}  // namespace tilewright
