#include <cmath>

#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/norm/norm.h"

namespace tilewright::norm {
namespace {

void Add(const Args& args, std::int64_t row) {
  const void* a = AddressOf(args.in, RowOffset(args.in, row));
  const void* b = AddressOf(args.residual, RowOffset(args.residual, row));
  void* sum = MutableAddressOf(args.sum, RowOffset(args.sum, row));
  for (std::int64_t c = 0; c < args.in.cols(); ++c)
    WriteF64(args.sum.dtype, sum, c,
             ReadF64(args.in.dtype, a, c) + ReadF64(args.residual.dtype, b, c));
}

}  // namespace

Status Reference(const Args& args) {
  const Result<Desc> desc = DescOf(args, CallTerms{});
  if (!desc) return Fail(desc.error());
  const bool adds = desc->type_sum != DataType::kNone;
  for (const DataType type : {desc->type_in, desc->type_weight, desc->type_out, desc->type_sum}) {
    if (!IsFloatType(type) && type != DataType::kNone) {
      return Fail(ErrorCode::kUnsupported,
                  Format("norm of type {}: must be f64, f32, f16 or bf16", DataTypeName(type)));
    }
  }
  const std::int64_t cols = args.in.cols();
  for (std::int64_t row = 0; row < RowCount(args.in); ++row) {
    if (adds) Add(args, row);
    const TensorView& from = adds ? args.sum : args.in;
    const void* in = AddressOf(from, RowOffset(from, row));
    void* out = MutableAddressOf(args.out, RowOffset(args.out, row));
    double sum = 0;
    for (std::int64_t c = 0; c < cols; ++c) {
      const double x = ReadF64(from.dtype, in, c);
      sum += x * x;
    }
    const double scale =
        1.0 / std::sqrt(sum / static_cast<double>(cols) + static_cast<double>(args.epsilon));
    for (std::int64_t c = 0; c < cols; ++c) {
      const double value =
          ReadF64(from.dtype, in, c) * scale * ReadF64(args.weight.dtype, args.weight.data, c);
      WriteF64(args.out.dtype, out, c, value);
    }
  }
  return {};
}

}  // namespace tilewright::norm
