#include <cmath>

#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/elementwise/elementwise.h"

namespace tilewright {
namespace {

double Silu(double x) { return x / (1 + std::exp(-x)); }

double Apply(ElementwiseOp op, double a, double b) {
  switch (op) {
    case ElementwiseOp::kAdd:
      return a + b;
    case ElementwiseOp::kMul:
      return a * b;
    case ElementwiseOp::kSilu:
      return Silu(a);
    case ElementwiseOp::kSwiGlu:
      return Silu(a) * b;
  }
  return 0;
}

}  // namespace

Status CheckReference(const ElementwiseArgs& args) {
  const Result<ElementwiseDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  const bool unary = args.op == ElementwiseOp::kSilu;
  for (const TensorView* view : {&args.a, &args.b, &args.out}) {
    if (!IsFloatType(view->dtype) && !(unary && view == &args.b)) {
      return Fail(ErrorCode::kUnsupported,
                  Format("{} of type {}: must be f64, f32, f16 or bf16", ElementwiseOpName(args.op),
                         DataTypeName(view->dtype)));
    }
  }
  return {};
}

Status ReferenceElementwise(const ElementwiseArgs& args) {
  if (Status status = CheckReference(args); !status) return status;
  const bool unary = args.op == ElementwiseOp::kSilu;
  for (std::int64_t row = 0; row < RowCount(args.out); ++row) {
    const void* a = AddressOf(args.a, RowOffset(args.a, row));
    const void* b = unary ? nullptr : AddressOf(args.b, RowOffset(args.b, row));
    void* out = MutableAddressOf(args.out, RowOffset(args.out, row));
    for (std::int64_t c = 0; c < args.out.cols(); ++c) {
      const double y = unary ? 0 : ReadF64(args.b.dtype, b, c);
      WriteF64(args.out.dtype, out, c, Apply(args.op, ReadF64(args.a.dtype, a, c), y));
    }
  }
  return {};
}

}  // namespace tilewright
