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

std::optional<Rejection> Feasible(const NormImpl&, const Desc& desc) {
  const bool adds = desc.type_sum != DataType::kNone;
  const auto no = [](DataType type, const char* need) {
    return Rejection{Reason::kType, Format("type {}", DataTypeName(type)), need};
  };
  for (const DataType type : {desc.type_in, desc.type_out}) {
    if (RowTypeIndex(type) < 0) return no(type, "input and output of f32, f16 or bf16");
  }
  if (desc.type_weight != DataType::kF32) return no(desc.type_weight, "a weight of f32");
  for (const DataType type : {desc.type_in, desc.type_sum}) {
    if (adds && type != DataType::kF32) return no(type, "input, residual and sum of f32");
  }
  return std::nullopt;
}

double EstimateUs(const NormImpl& impl, const Desc& desc, int workers) {
  const double elements = static_cast<double>(desc.rows) * desc.cols;
  return elements * impl.ns_per_element * 1e-3 / BusyWorkers(elements, kGrainElements, workers) +
         desc.rows * 0.01;
}

Status Launch(const NormImpl& impl, const Args& args, Stream stream) {
  const std::int64_t cols = args.in.cols();
  const bool adds = args.residual.data != nullptr;
  const TensorView& in = adds ? args.sum : args.in;
  const NormRowFunction norm = impl.rows[RowTypeIndex(in.dtype)][RowTypeIndex(args.out.dtype)];
  ParallelRanges(stream.exec(), RowCount(in), kGrainElements / std::max<std::int64_t>(cols, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     if (adds) {
                       impl.add(args.in.as<const float>() + RowOffset(args.in, row),
                                args.residual.as<const float>() + RowOffset(args.residual, row),
                                args.sum.as<float>() + RowOffset(args.sum, row), cols);
                     }
                     norm(AddressOf(in, RowOffset(in, row)), args.weight.as<const float>(),
                          MutableAddressOf(args.out, RowOffset(args.out, row)), cols, args.epsilon);
                   }
                 });
  return {};
}

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  for (const DataType type : {desc.type_in, desc.type_weight, desc.type_out, desc.type_sum}) {
    if (!IsFloatType(type) && type != DataType::kNone) {
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)),
                       "f64, f32, f16 or bf16"};
    }
  }
  return std::nullopt;
}

double ReferenceUs(const Desc& desc) { return static_cast<double>(desc.rows) * desc.cols * 10e-3; }

void CheckRows(const NodeView& node, std::size_t weight, NodeCheck& check) {
  check.ExpectSameShape("inputs[0]", node.in(0), node.out);
  check.Expect(Format("inputs[{}].shape[0]", weight), node.in(weight).shape[0], node.out.shape[0],
               "hidden");
  check.ExpectFloat("inputs[0]", node.in(0).dtype);
  check.ExpectFloat("out", node.out.dtype);
  if (!(node.params.epsilon >= 0.0f))
    check.Fault(Format("epsilon = {}, must be >= 0", node.params.epsilon));
}

void CheckNorm(const NodeView& node, NodeCheck& check) { CheckRows(node, 1, check); }

void CheckAddNorm(const NodeView& node, NodeCheck& check) {
  CheckRows(node, 2, check);
  check.ExpectSameShape("inputs[1]", node.in(1), node.out);
  check.ExpectSameShape("inputs[3]", node.in(3), node.out);
  check.ExpectFloat("inputs[3]", node.in(3).dtype);
  check.ExpectType("inputs[1]", node.in(1).dtype, node.in(3).dtype);
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kRmsNorm,
                                .name = "rms_norm",
                                .min_inputs = 2,
                                .max_inputs = 2,
                                .in_place = 1u << 0,
                                .check = &CheckNorm},
                               {.op = TensorOp::kAddRmsNorm,
                                .name = "add_rms_norm",
                                .min_inputs = 4,
                                .max_inputs = 4,
                                .writes = 1u << 3,
                                .check = &CheckAddNorm}};

}  // namespace

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  if (node.op == TensorOp::kAddRmsNorm) {
    return {.in = node.in(0),
            .weight = node.in(2),
            .out = node.out,
            .epsilon = node.params.epsilon,
            .residual = node.in(1),
            .sum = node.in(3)};
  }
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
  const bool adds = args.residual.data != nullptr;
  if (adds) {
    for (const auto& [name, view] :
         {std::pair{"norm: residual", &args.residual}, {"norm: sum", &args.sum}}) {
      if (Status s = CheckView(name, *view); !s) return Fail(s.error());
      if (Status s = CheckSameShape(name, *view, "in", args.in); !s) return Fail(s.error());
    }
    if (args.residual.dtype != args.sum.dtype) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("norm: sum is {}, must be {} as the residual",
                         DataTypeName(args.sum.dtype), DataTypeName(args.residual.dtype)));
    }
  }
  return Desc{.type_in = args.in.dtype,
              .type_weight = args.weight.dtype,
              .type_out = args.out.dtype,
              .type_sum = adds ? args.sum.dtype : DataType::kNone,
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
