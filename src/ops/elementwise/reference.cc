#include <cmath>
#include <numbers>

#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/elementwise/elementwise.h"

namespace tilewright::elementwise {
namespace {

double Silu(double x) { return x / (1 + std::exp(-x)); }

/// (1 + tanh(u)) / 2 as 1 / (1 + e^-2u), which loses nothing where u is far below zero.
double Gelu(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));
}

double ClampedSwiGlu(double a, double b, double limit) {
  const double gate = a > limit ? limit : a;
  const double up = b > limit ? limit : b < -limit ? -limit : b;
  return gate / (1 + std::exp(-static_cast<double>(kClampedSwiGluFactor) * gate)) * (up + 1);
}

double Apply(const Args& args, double a, double b) {
  const auto softcap = static_cast<double>(args.softcap);
  switch (args.function) {
    case Function::kAdd:
      return a + b;
    case Function::kMul:
      return a * b;
    case Function::kSilu:
      return Silu(a);
    case Function::kSwiGlu:
      return Silu(a) * b;
    case Function::kGelu:
      return Gelu(a);
    case Function::kGeGlu:
      return Gelu(a) * b;
    case Function::kSoftcap:
      return softcap * std::tanh(a / softcap);
    case Function::kClampedSwiGlu:
      return ClampedSwiGlu(a, b, static_cast<double>(args.limit));
  }
  return 0;
}

}  // namespace

Status Reference(const Args& args) {
  const Result<Desc> desc = DescOf(args, CallTerms{});
  if (!desc) return Fail(desc.error());
  const bool unary = IsUnary(args.function);
  for (const TensorView* view : {&args.a, &args.b, &args.out}) {
    if (!IsFloatType(view->dtype) && !(unary && view == &args.b)) {
      return Fail(ErrorCode::kUnsupported,
                  Format("{} of type {}: must be f64, f32, f16 or bf16",
                         kFunctionWords[static_cast<std::size_t>(args.function)],
                         DataTypeName(view->dtype)));
    }
  }
  for (std::int64_t row = 0; row < RowCount(args.out); ++row) {
    const void* a = AddressOf(args.a, RowOffset(args.a, row));
    const void* b = unary ? nullptr : AddressOf(args.b, RowOffset(args.b, row));
    void* out = MutableAddressOf(args.out, RowOffset(args.out, row));
    for (std::int64_t c = 0; c < args.out.cols(); ++c) {
      const double y = unary ? 0 : ReadF64(args.b.dtype, b, c);
      WriteF64(args.out.dtype, out, c, Apply(args, ReadF64(args.a.dtype, a, c), y));
    }
  }
  return {};
}

}  // namespace tilewright::elementwise
