#include "ops/experts/route.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "engine/stage_templates.h"
#include "ops/experts/cpu/experts_cpu.h"

namespace tilewright::route {
namespace {

using CpuRoute = FunctionKernel<Op, ExpertsImpl>;

constexpr std::int64_t kGrain = 4096;  // logits of a task

std::optional<Rejection> Feasible(const ExpertsImpl&, const Desc& desc) {
  for (const DataType type : {desc.type_logits, desc.type_weights}) {
    if (type != DataType::kF32)
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)), "f32"};
  }
  return std::nullopt;
}

double EstimateUs(const ExpertsImpl& impl, const Desc& desc, int workers) {
  const double logits = static_cast<double>(desc.rows) * desc.experts;
  const double pairs = static_cast<double>(desc.rows) * desc.used;
  return logits * impl.ns_per_expert * 1e-3 / BusyWorkers(logits, kGrain, workers) + pairs * 2e-3 +
         desc.experts * 1e-3;
}

Status Launch(const ExpertsImpl& impl, const Args& args, Stream stream) {
  const auto experts = static_cast<int>(args.logits.cols());
  const auto used = static_cast<int>(args.places.cols());
  ParallelRanges(stream.exec(), args.logits.rows(), kGrain / experts,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     impl.route(args.logits.as<const float>() + RowOffset(args.logits, row),
                                experts, used, args.normalise, args.scale,
                                args.places.as<std::int32_t>() + row * used,
                                args.weights.as<float>() + RowOffset(args.weights, row));
                   }
                 });
  PlacePairs(args);
  return {};
}

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  for (const DataType type : {desc.type_logits, desc.type_weights}) {
    if (!IsFloatType(type)) {
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)),
                       "f64, f32, f16 or bf16"};
    }
  }
  return std::nullopt;
}

double ReferenceUs(const Desc& desc) {
  return static_cast<double>(desc.rows) * desc.experts * 60e-3;
}

/// (logits [experts, rows], sources [pairs], places [used, rows], weights [used, rows], experts [pairs]
/// or none) -> offsets.
void CheckNode(const NodeView& node, NodeCheck& check) {
  const TensorView &logits = node.in(0), &sources = node.in(1), &places = node.in(2),
                   &weights = node.in(3);
  check.ExpectFloat("inputs[0]", logits.dtype);
  check.ExpectType("inputs[1]", sources.dtype, DataType::kI32);
  check.ExpectType("inputs[2]", places.dtype, DataType::kI32);
  check.ExpectFloat("inputs[3]", weights.dtype);
  check.ExpectType("out", node.out.dtype, DataType::kI32);
  check.Expect("out.shape[0]", node.out.shape[0], logits.shape[0] + 1, "experts + 1");
  check.Expect("inputs[2].shape[1]", places.shape[1], logits.shape[1], "rows");
  check.Expect("inputs[1].shape[0]", sources.shape[0], places.shape[0] * places.shape[1],
               "used * rows");
  check.ExpectSameShape("inputs[3]", weights, places);
  for (const std::size_t d : {std::size_t{2}, std::size_t{3}}) {
    check.Expect(Format("inputs[0].shape[{}]", d), logits.shape[d], 1, "a matrix");
    check.Expect(Format("inputs[2].shape[{}]", d), places.shape[d], 1, "a matrix");
  }
  if (node.input_count > 4 && node.inputs[4].present) {
    check.ExpectType("inputs[4]", node.in(4).dtype, DataType::kI32);
    check.ExpectSameShape("inputs[4]", node.in(4), sources);
  }
  if (places.shape[0] > logits.shape[0]) {
    check.Fault(Format("inputs[2].shape[0] = {}: at most the {} experts", places.shape[0],
                       logits.shape[0]));
  }
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kRoute,
                                .name = "route",
                                .min_inputs = 4,
                                .max_inputs = 5,
                                .writes = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4,
                                .check = &CheckNode}};

}  // namespace

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  return {.logits = node.in(0),
          .offsets = node.out,
          .sources = node.in(1),
          .places = node.in(2),
          .weights = node.in(3),
          .experts = node.input_count > 4 ? node.in(4) : TensorView{},
          .normalise = node.params.route_normalise,
          .scale = node.params.route_scale};
}

std::string KeyOf(const Desc& desc) { return FieldsKey(desc); }

Result<Desc> DescOf(const Args& args, const CallTerms& terms) {
  if (Status s = CheckView("route: logits", args.logits); !s) return Fail(s.error());
  if (Status s = CheckView("route: weights", args.weights); !s) return Fail(s.error());
  const auto is_matrix = [](const TensorView& v) { return v.shape[2] == 1 && v.shape[3] == 1; };
  const std::int64_t experts = args.logits.shape[0], rows = args.logits.shape[1];
  const std::int64_t used = args.weights.shape[0];
  if (!is_matrix(args.logits) || !is_matrix(args.weights) || args.weights.shape[1] != rows) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("route: logits {} to weights {}: must be [experts, rows] to [used, rows]",
                       ShapeText(args.logits), ShapeText(args.weights)));
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (experts > kMost || rows > kMost || rows * used > kMost) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("route: {} experts, {} rows of {} each: at most {} pairs", experts, rows,
                       used, kMost));
  }
  if (Status s = CheckInts("route: offsets", args.offsets, experts + 1); !s) return Fail(s.error());
  if (Status s = CheckInts("route: sources", args.sources, rows * used); !s) return Fail(s.error());
  if (args.experts.data != nullptr) {
    if (Status s = CheckInts("route: experts", args.experts, rows * used); !s)
      return Fail(s.error());
  }
  if (args.places.shape != args.weights.shape || !IsContiguous(args.places) ||
      args.places.dtype != DataType::kI32 || args.places.data == nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("route: places {} of {}: must be adjacent i32 {}", ShapeText(args.places),
                       DataTypeName(args.places.dtype), ShapeText(args.weights)));
  }
  return Desc{.type_logits = args.logits.dtype,
              .type_weights = args.weights.dtype,
              .rows = static_cast<std::int32_t>(rows),
              .experts = static_cast<std::int32_t>(experts),
              .used = static_cast<std::int32_t>(used),
              .pair_experts = args.experts.data != nullptr,
              .guarantee = terms.guarantee};
}

Result<Checked<Op>> Validate(const Desc& desc) {
  if (desc.rows < 1 || desc.experts < 1 || desc.used < 1 || desc.used > desc.experts) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("route: rows = {}, experts = {}, used = {}: each must be at least 1, and "
                       "used at most experts",
                       desc.rows, desc.experts, desc.used));
  }
  return Stages<Op>::MarkValidated(desc);
}

void PlacePairs(const Args& args) {
  const std::int64_t experts = args.logits.cols();
  const std::int64_t used = args.places.cols(), pairs = used * args.places.rows();
  auto* const offsets = args.offsets.as<std::int32_t>();
  auto* const sources = args.sources.as<std::int32_t>();
  auto* const places = args.places.as<std::int32_t>();
  for (std::int64_t e = 0; e <= experts; ++e) offsets[e] = 0;
  for (std::int64_t i = 0; i < pairs; ++i) ++offsets[places[i] + 1];
  for (std::int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  for (std::int64_t i = 0; i < pairs; ++i) {
    std::int32_t& next = offsets[places[i]];
    sources[next] = static_cast<std::int32_t>(i / used);
    places[i] = next++;
  }
  // Each now is where the next expert begins.
  for (std::int64_t e = experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
  if (args.experts.data == nullptr) return;
  auto* const of_pairs = args.experts.as<std::int32_t>();
  for (std::int64_t e = 0; e < experts; ++e)
    std::fill(of_pairs + offsets[e], of_pairs + offsets[e + 1], static_cast<std::int32_t>(e));
}

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "route.any.reference",
      ReferenceOpKernel<Op>::Functions{&ReferenceFeasible, &ReferenceUs, &Reference})));
}

void AddKernels(Registry& registry) {
  const CpuRoute::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const ExpertsImpl* impl : {&kExpertsScalar, &kExpertsAvx2, &kExpertsAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuRoute>(
        CpuKernelInfo(Format("route.f32.{}", impl->isa), impl->tu, impl->features), *impl,
        shared)));
  }
  AddReference(registry);
}

}  // namespace tilewright::route

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(route::Op);
}  // namespace tilewright
