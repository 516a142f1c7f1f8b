#include <cmath>

#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/norm/norm.h"

namespace tilewright::norm {

Status Reference(const Args& args) {
  const Result<Desc> desc = DescOf(args, CallTerms{});
  if (!desc) return Fail(desc.error());
  for (const DataType type : {desc->type_in, desc->type_weight, desc->type_out}) {
    if (!IsFloatType(type)) {
      return Fail(ErrorCode::kUnsupported,
                  Format("norm of type {}: must be f64, f32, f16 or bf16", DataTypeName(type)));
    }
  }
  const std::int64_t cols = args.in.cols();
  for (std::int64_t row = 0; row < RowCount(args.in); ++row) {
    const void* in = AddressOf(args.in, RowOffset(args.in, row));
    void* out = MutableAddressOf(args.out, RowOffset(args.out, row));
    double sum = 0;
    for (std::int64_t c = 0; c < cols; ++c) {
      const double x = ReadF64(args.in.dtype, in, c);
      sum += x * x;
    }
    const double scale =
        1.0 / std::sqrt(sum / static_cast<double>(cols) + static_cast<double>(args.epsilon));
    for (std::int64_t c = 0; c < cols; ++c) {
      const double value =
          ReadF64(args.in.dtype, in, c) * scale * ReadF64(args.weight.dtype, args.weight.data, c);
      WriteF64(args.out.dtype, out, c, value);
    }
  }
  return {};
}

}  // namespace tilewright::norm
