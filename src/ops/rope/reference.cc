#include <vector>

#include "core/block_format.h"
#include "core/paged_cache.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/rope/angles.h"

namespace tilewright::rope {
/// Values into their cache, as they are.
static Status ScatterValues(const Args& args) {
  const CachePlaces places(args.v_cache, args.pages);
  std::vector<double> head(static_cast<std::size_t>(args.v.shape[0]));
  for (std::int64_t row = 0; row < args.v.shape[2]; ++row) {
    const std::int32_t position = args.positions.as<const std::int32_t>()[row];
    if (position < 0) continue;  // padding
    const std::int64_t first = places.Offset(args.slots.as<const std::int32_t>()[row], position);
    for (std::int64_t h = 0; h < args.v.shape[1]; ++h) {
      const void* in = AddressOf(args.v, h * args.v.stride[1] + row * args.v.stride[2]);
      for (std::size_t i = 0; i < head.size(); ++i)
        head[i] = ReadF64(args.v.dtype, in, static_cast<std::int64_t>(i));
      void* const to = MutableAddressOf(args.v_cache, first + h * args.v_cache.stride[1]);
      if (Status s = EncodeRow(args.v_cache.dtype, head.data(), args.v.shape[0], to); !s) return s;
    }
  }
  return {};
}

Status Reference(const Args& args) {
  const Result<Desc> desc = DescOf(args, CallTerms{});
  if (!desc) return Fail(desc.error());
  if (HasKeys(args)) {
    // The places of all rows are looked at before anything is written.
    if (Status status = CheckRows(args); !status) return status;
    // Keys first: what is refused of them is refused before `out`, which may be in place, is written.
    for (const Args& part : {KeysOf(args), QueriesOf(args)}) {
      if (Status status = Reference(part); !status) return status;
    }
    return ScatterValues(args);
  }
  const bool blocks = desc->scatter && desc->type_out == DataType::kQ8_0;
  if (!IsFloatType(desc->type_in) || (!IsFloatType(desc->type_out) && !blocks)) {
    return Fail(ErrorCode::kUnsupported,
                Format("rope of type {} to {}: must be f64, f32, f16 or bf16",
                       DataTypeName(desc->type_in), DataTypeName(desc->type_out)));
  }
  const auto* factors = args.factors.as<const float>();
  if (Status status = CheckParams(args.params, factors); !status) return status;
  if (Status status = CheckRows(args); !status) return status;

  const TensorView& target = desc->scatter ? args.cache : args.out;
  const CachePlaces places(args.cache, args.pages);
  std::vector<double> head(static_cast<std::size_t>(desc->head_dim));
  for (std::int64_t row = 0; row < desc->rows; ++row) {
    const std::int32_t position = args.positions.as<const std::int32_t>()[row];
    if (position < 0) continue;  // padding
    const std::int64_t first =
        desc->scatter ? places.Offset(args.slots.as<const std::int32_t>()[row], position)
                      : row * target.stride[2];
    for (std::int64_t h = 0; h < desc->heads; ++h) {
      const void* in = AddressOf(args.qk, h * args.qk.stride[1] + row * args.qk.stride[2]);
      for (std::int64_t i = 0; i < desc->head_dim; ++i)
        head[static_cast<std::size_t>(i)] = ReadF64(args.qk.dtype, in, i);
      TurnHead(args.params, factors, position, head);
      void* const to = MutableAddressOf(target, first + h * target.stride[1]);
      if (Status s = EncodeRow(target.dtype, head.data(), desc->head_dim, to); !s) return s;
    }
  }
  return {};
}

}  // namespace tilewright::rope
