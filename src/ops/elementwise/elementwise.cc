#include "ops/elementwise/elementwise.h"

#include <algorithm>
#include <memory>

#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "ops/elementwise/cpu/elementwise_cpu.h"

namespace tilewright {
namespace {

using CpuElementwise = FunctionKernel<ElementwiseDesc, ElementwiseArgs, ElementwiseImpl>;

constexpr std::string_view kNames[] = {"add", "mul", "silu", "swiglu"};
constexpr std::int64_t kGrain = 16384;  // elements of a task, as in ops/norm

ElementwiseRow RowFunction(const ElementwiseImpl& impl, ElementwiseOp op) {
  switch (op) {
    case ElementwiseOp::kAdd:
      return impl.add;
    case ElementwiseOp::kMul:
      return impl.mul;
    case ElementwiseOp::kSilu:
      return impl.silu;
    case ElementwiseOp::kSwiGlu:
      return impl.swiglu;
  }
  return nullptr;
}

std::optional<Rejection> Feasible(const ElementwiseImpl&, const ElementwiseDesc& desc) {
  const bool unary = desc.op == ElementwiseOp::kSilu;
  for (const DataType type : {desc.type_a, unary ? DataType::kF32 : desc.type_b, desc.type_out}) {
    if (type != DataType::kF32)
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)), "f32"};
  }
  return std::nullopt;
}

double EstimateUs(const ElementwiseImpl& impl, const ElementwiseDesc& desc, const DeviceSpec&) {
  const double elements = static_cast<double>(desc.rows) * desc.cols;
  const double threads =
      std::clamp(elements / static_cast<double>(kGrain), 1.0, static_cast<double>(desc.threads));
  const bool has_exp = desc.op == ElementwiseOp::kSilu || desc.op == ElementwiseOp::kSwiGlu;
  return elements * (has_exp ? impl.ns_silu : impl.ns_add) * 1e-3 / threads;
}

Status Launch(const ElementwiseImpl& impl, const ElementwiseArgs& args, Stream stream) {
  const Result<ElementwiseDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  if (auto no = Feasible(impl, *desc)) return Fail(ErrorCode::kUnsupported, no->ToString());
  const ElementwiseRow row_function = RowFunction(impl, args.op);
  const bool unary = args.op == ElementwiseOp::kSilu;
  const auto* a = args.a.as<const float>();
  const auto* b = unary ? a : args.b.as<const float>();  // unread
  auto* out = args.out.as<float>();
  const TensorView& b_view = unary ? args.a : args.b;
  if (IsContiguous(args.a) && IsContiguous(b_view) && IsContiguous(args.out)) {
    // One long row, which may be cut anywhere: an element's result does not depend on its
    // neighbours.
    ParallelRanges(stream.exec(), args.out.elements(), kGrain,
                   [&](std::int64_t begin, std::int64_t end) {
                     row_function(a + begin, b + begin, out + begin, end - begin);
                   });
    return {};
  }
  const std::int64_t cols = args.out.cols();
  ParallelRanges(stream.exec(), RowCount(args.out), kGrain / std::max<std::int64_t>(cols, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     row_function(a + RowOffset(args.a, row), b + RowOffset(b_view, row),
                                  out + RowOffset(args.out, row), cols);
                   }
                 });
  return {};
}

class ReferenceKernel final : public ElementwiseKernel {
 public:
  ReferenceKernel() : ElementwiseKernel(Info()) {}
  std::optional<Rejection> IsFeasible(const ElementwiseDesc& desc) const override {
    const bool unary = desc.op == ElementwiseOp::kSilu;
    for (const DataType type : {desc.type_a, unary ? DataType::kF32 : desc.type_b, desc.type_out}) {
      if (!IsFloatType(type)) {
        return Rejection{Reason::kType, Format("type {}", DataTypeName(type)),
                         "f64, f32, f16 or bf16"};
      }
    }
    return std::nullopt;
  }
  double EstimateUs(const ElementwiseDesc& desc, const DeviceSpec&) const override {
    return static_cast<double>(desc.rows) * desc.cols * 20e-3;
  }
  Status Launch(const ElementwiseArgs& args, Stream) const override {
    return ReferenceElementwise(args);
  }

 private:
  static KernelInfo Info() {
    KernelInfo info = CpuKernelInfo("elementwise.any.reference", "", 0);
    info.fingerprint = "reference";
    info.reference = true;
    return info;
  }
};

}  // namespace

std::string_view ElementwiseOpName(ElementwiseOp op) {
  const auto index = static_cast<unsigned>(op);
  return index < 4 ? kNames[index] : "unknown";
}

std::string KeyOf(const ElementwiseDesc& desc) {
  return Format("elementwise.{} {}_{}_{} rows={} cols={} threads={}", ElementwiseOpName(desc.op),
                DataTypeName(desc.type_a), DataTypeName(desc.type_b), DataTypeName(desc.type_out),
                desc.rows, desc.cols, desc.threads);
}

Result<ElementwiseDesc> DescOf(const ElementwiseArgs& args, int threads) {
  const bool unary = args.op == ElementwiseOp::kSilu;
  if (Status s = CheckView("elementwise: a", args.a); !s) return Fail(s.error());
  if (Status s = CheckView("elementwise: out", args.out); !s) return Fail(s.error());
  if (Status s = CheckSameShape("elementwise: out", args.out, "a", args.a); !s)
    return Fail(s.error());
  if (!unary) {
    if (Status s = CheckView("elementwise: b", args.b); !s) return Fail(s.error());
    if (Status s = CheckSameShape("elementwise: b", args.b, "a", args.a); !s)
      return Fail(s.error());
  }
  return ElementwiseDesc{.op = args.op,
                         .type_a = args.a.dtype,
                         .type_b = unary ? DataType::kNone : args.b.dtype,
                         .type_out = args.out.dtype,
                         .rows = RowCount(args.out),
                         .cols = static_cast<std::int32_t>(args.out.cols()),
                         .threads = threads};
}

void AddElementwise(ElementwiseRegistry& registry) {
  const CpuElementwise::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const ElementwiseImpl* impl :
       {&kElementwiseScalar, &kElementwiseAvx2, &kElementwiseAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuElementwise>(
        CpuKernelInfo(Format("elementwise.f32.{}", impl->isa), impl->tu, impl->features), *impl,
        shared)));
  }
  static_cast<void>(registry.Add(std::make_unique<ReferenceKernel>()));
}

}  // namespace tilewright
