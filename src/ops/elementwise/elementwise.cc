#include "ops/elementwise/elementwise.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "engine/stage_templates.h"
#include "ops/elementwise/cpu/elementwise_cpu.h"

namespace tilewright::elementwise {
namespace {

using CpuElementwise = FunctionKernel<Op, ElementwiseImpl>;

ElementwiseRow RowFunction(const ElementwiseImpl& impl, Function function) {
  switch (function) {
    case Function::kAdd:
      return impl.add;
    case Function::kMul:
      return impl.mul;
    case Function::kSilu:
      return impl.silu;
    case Function::kSwiGlu:
      return impl.swiglu;
    case Function::kGelu:
      return impl.gelu;
    case Function::kGeGlu:
      return impl.geglu;
    case Function::kSoftcap:
      return impl.softcap;
    case Function::kClampedSwiGlu:
      return impl.clamped_swiglu;
  }
  return nullptr;
}

std::optional<Rejection> Feasible(const ElementwiseImpl&, const Desc& desc) {
  const bool unary = IsUnary(desc.function);
  for (const DataType type : {desc.type_a, unary ? DataType::kF32 : desc.type_b, desc.type_out}) {
    if (RowTypeIndex(type) < 0)
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)), "f32, f16 or bf16"};
  }
  return std::nullopt;
}

double EstimateUs(const ElementwiseImpl& impl, const Desc& desc, int workers) {
  const double elements = static_cast<double>(desc.rows) * desc.cols;
  const bool has_exp = desc.function != Function::kAdd && desc.function != Function::kMul;
  return elements * (has_exp ? impl.ns_silu : impl.ns_add) * 1e-3 /
         BusyWorkers(elements, kGrainElements, workers);
}

constexpr std::int64_t kChunk = 256;  // elements converted at a time: all three stay in the L1

/// The function on some adjacent elements, through buffers of f32 where the types are others.
class Elements {
 public:
  Elements(const ElementwiseImpl& impl, const Args& args)
      : function_(RowFunction(impl, args.function)),
        a_(args.a),
        b_(IsUnary(args.function) ? args.a : args.b),  // unread by functions of one operand
        out_(args.out),
        parameter_(args.function == Function::kClampedSwiGlu ? args.limit : args.softcap),
        read_a_(impl.rows.Find(a_.dtype, DataType::kF32)),
        read_b_(impl.rows.Find(b_.dtype, DataType::kF32)),
        write_(impl.rows.Find(DataType::kF32, out_.dtype)) {}

  const TensorView& b() const { return b_; }

  /// Offsets into the views, in elements.
  void Run(std::int64_t a, std::int64_t b, std::int64_t out, std::int64_t n) const {
    if (read_a_ == nullptr && read_b_ == nullptr && write_ == nullptr) {
      return function_(a_.as<const float>() + a, b_.as<const float>() + b, out_.as<float>() + out,
                       n, parameter_);
    }
    for (std::int64_t i = 0; i < n; i += kChunk)
      Convert(a + i, b + i, out + i, std::min(kChunk, n - i));
  }

 private:
  static const float* Read(ConvertRow convert, const TensorView& view, std::int64_t at,
                           float* buffer, std::int64_t n) {
    if (convert == nullptr) return view.as<const float>() + at;
    convert(AddressOf(view, at), buffer, n);
    return buffer;
  }
  void Convert(std::int64_t a, std::int64_t b, std::int64_t out, std::int64_t n) const {
    float from_a[kChunk], from_b[kChunk], result[kChunk];
    function_(Read(read_a_, a_, a, from_a, n), Read(read_b_, b_, b, from_b, n),
              write_ != nullptr ? result : out_.as<float>() + out, n, parameter_);
    if (write_ != nullptr) write_(result, MutableAddressOf(out_, out), n);
  }

  const ElementwiseRow function_;
  const TensorView &a_, &b_, &out_;
  const float parameter_;
  const ConvertRow read_a_, read_b_, write_;  // nullptr: f32
};

Status Launch(const ElementwiseImpl& impl, const Args& args, Stream stream) {
  const Elements elements(impl, args);
  if (IsContiguous(args.a) && IsContiguous(elements.b()) && IsContiguous(args.out)) {
    // One long row, which may be cut anywhere: an element's result does not depend on its
    // neighbours.
    ParallelRanges(stream.exec(), args.out.elements(), kGrainElements,
                   [&](std::int64_t begin, std::int64_t end) {
                     elements.Run(begin, begin, begin, end - begin);
                   });
    return {};
  }
  const std::int64_t cols = args.out.cols();
  ParallelRanges(stream.exec(), RowCount(args.out),
                 kGrainElements / std::max<std::int64_t>(cols, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     elements.Run(RowOffset(args.a, row), RowOffset(elements.b(), row),
                                  RowOffset(args.out, row), cols);
                   }
                 });
  return {};
}

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  const bool unary = IsUnary(desc.function);
  for (const DataType type : {desc.type_a, unary ? DataType::kF32 : desc.type_b, desc.type_out}) {
    if (!IsFloatType(type)) {
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)),
                       "f64, f32, f16 or bf16"};
    }
  }
  return std::nullopt;
}

double ReferenceUs(const Desc& desc) { return static_cast<double>(desc.rows) * desc.cols * 20e-3; }

void CheckBinary(const NodeView& node, NodeCheck& check) {
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string_view name = i == 0 ? "inputs[0]" : "inputs[1]";
    check.ExpectSameShape(name, node.in(i), node.out);
    check.ExpectFloat(name, node.in(i).dtype);
  }
  check.ExpectFloat("out", node.out.dtype);
}

void CheckUnary(const NodeView& node, NodeCheck& check) {
  check.ExpectFloat("inputs[0]", node.in(0).dtype);
  check.ExpectSameShape("inputs[0]", node.in(0), node.out);
  check.ExpectFloat("out", node.out.dtype);
}

void CheckSoftcap(const NodeView& node, NodeCheck& check) {
  CheckUnary(node, check);
  if (const float softcap = node.params.softcap; !(softcap > 0) || !std::isfinite(softcap))
    check.Fault(Format("softcap = {}, must be positive", softcap));
}

void CheckClamped(const NodeView& node, NodeCheck& check) {
  CheckBinary(node, check);
  if (const float limit = node.params.gate_limit; !(limit > 0) || !std::isfinite(limit))
    check.Fault(Format("gate_limit = {}, must be positive", limit));
}

constexpr NodeRule BinaryRule(TensorOp op, std::string_view name,
                              void (*check)(const NodeView&, NodeCheck&) = &CheckBinary) {
  return {.op = op,
          .name = name,
          .min_inputs = 2,
          .max_inputs = 2,
          .in_place = 1u << 0 | 1u << 1,
          .check = check};
}

constexpr NodeRule UnaryRule(TensorOp op, std::string_view name,
                             void (*check)(const NodeView&, NodeCheck&) = &CheckUnary) {
  return {.op = op,
          .name = name,
          .min_inputs = 1,
          .max_inputs = 1,
          .in_place = 1u << 0,
          .check = check};
}

constexpr NodeRule kRules[] = {
    BinaryRule(TensorOp::kAdd, "add"),
    BinaryRule(TensorOp::kMul, "mul"),
    BinaryRule(TensorOp::kSwiGlu, "swiglu"),
    BinaryRule(TensorOp::kGeGlu, "geglu"),
    BinaryRule(TensorOp::kClampedSwiGlu, "clamped_swiglu", &CheckClamped),
    UnaryRule(TensorOp::kSilu, "silu"),
    UnaryRule(TensorOp::kGelu, "gelu"),
    UnaryRule(TensorOp::kSoftcap, "softcap", &CheckSoftcap)};

Function FunctionOf(TensorOp op) {
  switch (op) {
    case TensorOp::kMul:
      return Function::kMul;
    case TensorOp::kSilu:
      return Function::kSilu;
    case TensorOp::kSwiGlu:
      return Function::kSwiGlu;
    case TensorOp::kGelu:
      return Function::kGelu;
    case TensorOp::kGeGlu:
      return Function::kGeGlu;
    case TensorOp::kSoftcap:
      return Function::kSoftcap;
    case TensorOp::kClampedSwiGlu:
      return Function::kClampedSwiGlu;
    default:
      return Function::kAdd;
  }
}

}  // namespace

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  const Function function = FunctionOf(node.op);
  return {.function = function,
          .a = node.in(0),
          .b = IsUnary(function) ? TensorView{} : node.in(1),
          .out = node.out,
          .softcap = node.params.softcap,
          .limit = node.params.gate_limit};
}

std::string KeyOf(const Desc& desc) { return FieldsKey(desc); }

Result<Desc> DescOf(const Args& args, const CallTerms& terms) {
  const bool unary = IsUnary(args.function);
  if (Status s = CheckView("elementwise: a", args.a); !s) return Fail(s.error());
  if (Status s = CheckView("elementwise: out", args.out); !s) return Fail(s.error());
  if (Status s = CheckSameShape("elementwise: out", args.out, "a", args.a); !s)
    return Fail(s.error());
  if (!unary) {
    if (Status s = CheckView("elementwise: b", args.b); !s) return Fail(s.error());
    if (Status s = CheckSameShape("elementwise: b", args.b, "a", args.a); !s)
      return Fail(s.error());
  }
  if (args.function == Function::kSoftcap &&
      (!(args.softcap > 0) || !std::isfinite(args.softcap))) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("elementwise: softcap = {}, must be positive", args.softcap));
  }
  if (args.function == Function::kClampedSwiGlu &&
      (!(args.limit > 0) || !std::isfinite(args.limit))) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("elementwise: limit = {}, must be positive", args.limit));
  }
  return Desc{.function = args.function,
              .type_a = args.a.dtype,
              .type_b = unary ? DataType::kNone : args.b.dtype,
              .type_out = args.out.dtype,
              .rows = RowCount(args.out),
              .cols = static_cast<std::int32_t>(args.out.cols()),
              .guarantee = terms.guarantee};
}

Result<Checked<Op>> Validate(const Desc& desc) {
  if (desc.rows < 1 || desc.cols < 1) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("elementwise: rows = {}, cols = {}: each must be at least 1", desc.rows, desc.cols));
  }
  if (IsUnary(desc.function) && desc.type_b != DataType::kNone) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("elementwise: type_b = {}, must be none for {}", DataTypeName(desc.type_b),
                       kFunctionWords[static_cast<std::size_t>(desc.function)]));
  }
  return Stages<Op>::MarkValidated(desc);
}

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "elementwise.any.reference",
      ReferenceOpKernel<Op>::Functions{&ReferenceFeasible, &ReferenceUs, &Reference})));
}

void AddKernels(Registry& registry) {
  const CpuElementwise::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const ElementwiseImpl* impl :
       {&kElementwiseScalar, &kElementwiseAvx2, &kElementwiseAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuElementwise>(
        CpuKernelInfo(Format("elementwise.f32.{}", impl->isa), impl->tu, impl->features), *impl,
        shared)));
  }
  AddReference(registry);
}

}  // namespace tilewright::elementwise

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(elementwise::Op);
}  // namespace tilewright
