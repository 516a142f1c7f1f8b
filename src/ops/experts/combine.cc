#include "ops/experts/combine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "engine/stage_templates.h"
#include "ops/experts/cpu/experts_cpu.h"

namespace tilewright::combine {
namespace {

using CpuCombine = FunctionKernel<Op, ExpertsImpl>;

constexpr std::int64_t kGrain = 16384;  // values of a task
constexpr std::int32_t kMostUsed = 256;

std::optional<Rejection> Feasible(const ExpertsImpl&, const Desc& desc) {
  for (const DataType type : {desc.type_x, desc.type_weights, desc.type_out, desc.type_shared}) {
    if (type != DataType::kF32 && (type != DataType::kNone || type != desc.type_shared))
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)), "f32"};
  }
  if (desc.used > kMostUsed) {
    return Rejection{Reason::kShape, Format("used = {}", desc.used),
                     Format("at most {}", kMostUsed)};
  }
  return std::nullopt;
}

double EstimateUs(const ExpertsImpl& impl, const Desc& desc, int workers) {
  const int terms = desc.used + (desc.type_shared != DataType::kNone ? 1 : 0);
  const double values = static_cast<double>(desc.rows) * desc.cols * terms;
  return values * impl.ns_per_value * 1e-3 / BusyWorkers(values, kGrain, workers) +
         desc.rows * 0.02;
}

Status Launch(const ExpertsImpl& impl, const Args& args, Stream stream) {
  if (Status pairs = CheckPairs(args); !pairs) return pairs;
  const std::int64_t cols = args.out.cols(), used = args.places.cols();
  ParallelRanges(
      stream.exec(), args.out.rows(), kGrain / (cols * used),
      [&](std::int64_t begin, std::int64_t end) {
        const float* rows[kMostUsed];
        for (std::int64_t row = begin; row < end; ++row) {
          const auto* const places = args.places.as<const std::int32_t>() + row * used;
          for (std::int64_t j = 0; j < used; ++j)
            rows[j] = args.x.as<const float>() + RowOffset(args.x, places[j]);
          const float* shared = nullptr;
          float factor = 0;
          if (args.shared.data != nullptr) {
            shared = args.shared.as<const float>() + RowOffset(args.shared, row);
            factor = 1 / (1 + std::exp(-args.gate.as<const float>()[RowOffset(args.gate, row)]));
          }
          impl.combine(rows, args.weights.as<const float>() + RowOffset(args.weights, row),
                       static_cast<int>(used), shared, factor, cols,
                       args.out.as<float>() + RowOffset(args.out, row));
        }
      });
  return {};
}

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  for (const DataType type : {desc.type_x, desc.type_weights, desc.type_out, desc.type_shared}) {
    if (!IsFloatType(type) && (type != DataType::kNone || type != desc.type_shared)) {
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)),
                       "f64, f32, f16 or bf16"};
    }
  }
  return std::nullopt;
}

double ReferenceUs(const Desc& desc) {
  return static_cast<double>(desc.rows) * desc.cols * desc.used * 30e-3;
}

/// (x [n, pairs], places [used, m], weights [used, m], shared [n, m] and gate [1, m], or neither).
void CheckNode(const NodeView& node, NodeCheck& check) {
  const TensorView &x = node.in(0), &places = node.in(1), &weights = node.in(2);
  check.ExpectFloat("inputs[0]", x.dtype);
  check.ExpectType("inputs[1]", places.dtype, DataType::kI32);
  check.ExpectFloat("inputs[2]", weights.dtype);
  check.ExpectFloat("out", node.out.dtype);
  check.Expect("inputs[0].shape[0]", x.shape[0], node.out.shape[0], "n");
  check.Expect("inputs[1].shape[1]", places.shape[1], node.out.shape[1], "m");
  check.Expect("inputs[0].shape[1]", x.shape[1], places.shape[0] * places.shape[1], "used * m");
  check.ExpectSameShape("inputs[2]", weights, places);
  for (const std::size_t d : {std::size_t{2}, std::size_t{3}}) {
    check.Expect(Format("inputs[0].shape[{}]", d), x.shape[d], 1, "a matrix");
    check.Expect(Format("inputs[1].shape[{}]", d), places.shape[d], 1, "a matrix");
    check.Expect(Format("out.shape[{}]", d), node.out.shape[d], 1, "a matrix");
  }
  const bool shared = node.input_count > 3 && node.inputs[3].present;
  const bool gate = node.input_count > 4 && node.inputs[4].present;
  if (shared != gate) check.Fault("inputs[3] and inputs[4]: a shared expert comes with its gate");
  if (!shared || !gate) return;
  check.ExpectSameShape("inputs[3]", node.in(3), node.out);
  check.ExpectFloat("inputs[3]", node.in(3).dtype);
  check.ExpectType("inputs[4]", node.in(4).dtype, node.in(3).dtype);
  check.Expect("inputs[4].shape[0]", node.in(4).shape[0], 1, "one for each row");
  check.Expect("inputs[4].shape[1]", node.in(4).shape[1], node.out.shape[1], "m");
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kCombine,
                                .name = "combine",
                                .min_inputs = 3,
                                .max_inputs = 5,
                                .check = &CheckNode}};

Status Refuse(std::string what) { return Fail(ErrorCode::kInvalidArgument, std::move(what)); }

}  // namespace

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  Args args{.x = node.in(0),
            .places = node.in(1),
            .weights = node.in(2),
            .shared = {},
            .gate = {},
            .out = node.out};
  if (node.input_count > 4) args.shared = node.in(3), args.gate = node.in(4);
  return args;
}

std::string KeyOf(const Desc& desc) { return FieldsKey(desc); }

Result<Desc> DescOf(const Args& args, const CallTerms& terms) {
  for (const auto& [what, view] : {std::pair("combine: x", &args.x),
                                   {"combine: out", &args.out},
                                   {"combine: weights", &args.weights}}) {
    if (Status s = CheckView(what, *view); !s) return Fail(s.error());
    if (view->shape[2] != 1 || view->shape[3] != 1)
      return Fail(Refuse(Format("{} {}: must be a matrix", what, ShapeText(*view))).error());
  }
  const std::int64_t cols = args.out.shape[0], rows = args.out.shape[1];
  const std::int64_t used = args.weights.shape[0];
  if (args.x.shape[0] != cols || args.weights.shape[1] != rows) {
    return Fail(Refuse(Format("combine: x {}, weights {}, out {}: must be [n, pairs], [used, m] "
                              "and [n, m]",
                              ShapeText(args.x), ShapeText(args.weights), ShapeText(args.out)))
                    .error());
  }
  if (args.places.shape != args.weights.shape || !IsContiguous(args.places) ||
      args.places.dtype != DataType::kI32 || args.places.data == nullptr) {
    return Fail(
        Refuse(Format("combine: places {} of {}: must be adjacent i32 {}", ShapeText(args.places),
                      DataTypeName(args.places.dtype), ShapeText(args.weights)))
            .error());
  }
  const bool shared = args.shared.data != nullptr;
  if (shared) {
    if (Status s = CheckView("combine: shared", args.shared); !s) return Fail(s.error());
    if (Status s = CheckSameShape("combine: shared", args.shared, "out", args.out); !s)
      return Fail(s.error());
    if (Status s = CheckView("combine: gate", args.gate); !s) return Fail(s.error());
    const std::array<std::int64_t, 4> of_rows = {1, rows, 1, 1};
    if (args.gate.shape != of_rows || args.gate.dtype != args.shared.dtype) {
      return Fail(Refuse(Format("combine: gate {} of {}: must be {} of {}", ShapeText(args.gate),
                                DataTypeName(args.gate.dtype),
                                ShapeText({.data = nullptr, .shape = of_rows}),
                                DataTypeName(args.shared.dtype)))
                      .error());
    }
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (cols > kMost || rows > kMost || used > kMost)
    return Fail(Refuse(Format("combine: at most {} in each dimension", kMost)).error());
  return Desc{.type_x = args.x.dtype,
              .type_weights = args.weights.dtype,
              .type_out = args.out.dtype,
              .type_shared = shared ? args.shared.dtype : DataType::kNone,
              .rows = static_cast<std::int32_t>(rows),
              .cols = static_cast<std::int32_t>(cols),
              .used = static_cast<std::int32_t>(used),
              .guarantee = terms.guarantee};
}

Result<Checked<Op>> Validate(const Desc& desc) {
  if (desc.rows < 1 || desc.cols < 1 || desc.used < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("combine: rows = {}, cols = {}, used = {}: each must be at least 1",
                       desc.rows, desc.cols, desc.used));
  }
  return Stages<Op>::MarkValidated(desc);
}

Status CheckPairs(const Args& args) {
  const auto* const places = args.places.as<const std::int32_t>();
  const std::int64_t count = args.places.cols() * args.places.rows(), pairs = args.x.rows();
  for (std::int64_t i = 0; i < count; ++i) {
    if (places[i] < 0 || places[i] >= pairs) {
      return Refuse(Format("combine: places[{}] = {}: x has {} rows", i, places[i], pairs));
    }
  }
  return {};
}

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "combine.any.reference",
      ReferenceOpKernel<Op>::Functions{&ReferenceFeasible, &ReferenceUs, &Reference})));
}

void AddKernels(Registry& registry) {
  const CpuCombine::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const ExpertsImpl* impl : {&kExpertsScalar, &kExpertsAvx2, &kExpertsAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuCombine>(
        CpuKernelInfo(Format("combine.f32.{}", impl->isa), impl->tu, impl->features), *impl,
        shared)));
  }
  AddReference(registry);
}

}  // namespace tilewright::combine

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(combine::Op);
}  // namespace tilewright
