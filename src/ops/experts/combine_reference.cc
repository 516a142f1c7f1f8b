#include <cmath>

#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/experts/combine.h"

namespace tilewright::combine {
namespace {

double ElementOf(const TensorView& view, std::int64_t row, std::int64_t col) {
  return ReadF64(view.dtype, AddressOf(view, RowOffset(view, row)), col);
}

}  // namespace

Status Reference(const Args& args) {
  const Result<Desc> desc = DescOf(args, CallTerms{});
  if (!desc) return Fail(desc.error());
  for (const TensorView* view : {&args.x, &args.weights, &args.out, &args.shared}) {
    if (view->data != nullptr && !IsFloatType(view->dtype)) {
      return Fail(
          ErrorCode::kUnsupported,
          Format("combine of type {}: must be f64, f32, f16 or bf16", DataTypeName(view->dtype)));
    }
  }
  if (Status pairs = CheckPairs(args); !pairs) return pairs;
  const auto* const places = args.places.as<const std::int32_t>();
  for (std::int64_t row = 0; row < desc->rows; ++row) {
    double factor = 0;
    if (args.shared.data != nullptr) factor = 1 / (1 + std::exp(-ElementOf(args.gate, row, 0)));
    for (std::int64_t col = 0; col < desc->cols; ++col) {
      double sum = 0;
      for (std::int64_t j = 0; j < desc->used; ++j)
        sum +=
            ElementOf(args.weights, row, j) * ElementOf(args.x, places[row * desc->used + j], col);
      if (args.shared.data != nullptr) sum += factor * ElementOf(args.shared, row, col);
      WriteF64(args.out.dtype, MutableAddressOf(args.out, RowOffset(args.out, row)), col, sum);
    }
  }
  return {};
}

}  // namespace tilewright::combine
