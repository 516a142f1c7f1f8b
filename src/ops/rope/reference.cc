#include <cmath>
#include <vector>

#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/rope/angles.h"

namespace tilewright::rope {

Status Reference(const Args& args) {
  const Result<Desc> desc = DescOf(args, CallTerms{});
  if (!desc) return Fail(desc.error());
  if (!IsFloatType(desc->type_in) || !IsFloatType(desc->type_out)) {
    return Fail(ErrorCode::kUnsupported,
                Format("rope of type {} to {}: must be f64, f32, f16 or bf16",
                       DataTypeName(desc->type_in), DataTypeName(desc->type_out)));
  }
  const auto* factors = args.factors.as<const float>();
  if (Status status = CheckParams(args.params, factors); !status) return status;
  if (Status status = CheckPositions(args); !status) return status;

  const int half = desc->dims / 2;
  std::vector<double> head(static_cast<std::size_t>(desc->head_dim));
  for (std::int64_t row = 0; row < desc->rows; ++row) {
    const double position = args.positions.as<const std::int32_t>()[row];
    if (position < 0) continue;  // padding
    for (std::int64_t h = 0; h < desc->heads; ++h) {
      const void* in = AddressOf(args.qk, h * args.qk.stride[1] + row * args.qk.stride[2]);
      void* out = MutableAddressOf(args.out, h * args.out.stride[1] + row * args.out.stride[2]);
      for (std::int64_t i = 0; i < desc->head_dim; ++i) {
        head[static_cast<std::size_t>(i)] = ReadF64(args.qk.dtype, in, i);
      }
      for (int i = 0; i < half; ++i) {
        const bool adjacent = desc->mode == RopeMode::kInterleaved;
        double& x0 = head[static_cast<std::size_t>(adjacent ? 2 * i : i)];
        double& x1 = head[static_cast<std::size_t>(adjacent ? 2 * i + 1 : i + half)];
        const double angle = position * Frequency(args.params, factors, i);
        const double c = std::cos(angle), s = std::sin(angle);
        const double y0 = x0 * c - x1 * s;
        x1 = x0 * s + x1 * c;
        x0 = y0;
      }
      for (std::int64_t i = 0; i < desc->head_dim; ++i) {
        WriteF64(args.out.dtype, out, i, head[static_cast<std::size_t>(i)]);
      }
    }
  }
  return {};
}

}  // namespace tilewright::rope
