#include <vector>

#include "core/block_format.h"
#include "core/paged_cache.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/copy/kv_scatter.h"

namespace tilewright::kv_scatter {

Status Reference(const Args& args) {
  const Result<Desc> desc = DescOf(args, CallTerms{});
  if (!desc) return Fail(desc.error());
  const bool quantised = desc->type_cache == DataType::kQ8_0;
  if (!IsFloatType(desc->type_x) || (!IsFloatType(desc->type_cache) && !quantised)) {
    return Fail(ErrorCode::kUnsupported,
                Format("kv scatter of {} into a cache of {}", DataTypeName(desc->type_x),
                       DataTypeName(desc->type_cache)));
  }
  const CacheRows where{args.cache, args.pages, args.positions, args.slots};
  if (Status s = CheckPlaces("kv scatter", where, desc->rows); !s) return s;
  const CachePlaces places(args.cache, args.pages);
  std::vector<float> head(static_cast<std::size_t>(desc->head_dim));
  for (std::int64_t r = 0; r < desc->rows; ++r) {
    const std::int64_t position = args.positions.as<const std::int32_t>()[r];
    if (position < 0) continue;  // padding
    const std::int64_t slot = args.slots.as<const std::int32_t>()[r];
    for (std::int64_t h = 0; h < desc->kv_heads; ++h) {
      const std::int64_t from = h * args.x.stride[1] + r * args.x.stride[2];
      const std::int64_t to = h * args.cache.stride[1] + places.Offset(slot, position);
      for (std::int64_t i = 0; i < desc->head_dim; ++i) {
        const double value = ReadF64(args.x.dtype, args.x.data, from + i);
        if (!quantised) WriteF64(args.cache.dtype, args.cache.data, to + i, value);
        head[static_cast<std::size_t>(i)] = static_cast<float>(value);
      }
      if (!quantised) continue;
      if (Status status = EncodeRow(DataType::kQ8_0, head.data(), desc->head_dim,
                                    MutableAddressOf(args.cache, to));
          !status) {
        return status;
      }
    }
  }
  return {};
}

}  // namespace tilewright::kv_scatter
