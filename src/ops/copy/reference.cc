#include <cstring>
#include <vector>

#include "core/block_format.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/copy/checks.h"

namespace tilewright {
namespace {

/// One element, or for block types one block of elements, of equal types.
void CopyBytes(const CopyArgs& args, std::int64_t from, std::int64_t to) {
  const auto bytes = static_cast<std::size_t>(GetTypeInfo(args.src.dtype).block_bytes);
  std::memcpy(MutableAddressOf(args.dst, to), AddressOf(args.src, from), bytes);
}

}  // namespace

bool CanConvert(DataType src, DataType dst) {
  if (src == DataType::kNone || dst == DataType::kNone) return false;
  return src == dst || (IsFloatType(src) && IsFloatType(dst));
}

Status CheckReference(const CopyArgs& args) {
  const Result<CopyDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  if (!CanConvert(desc->type_src, desc->type_dst)) {
    return Fail(ErrorCode::kUnsupported,
                Format("copy of {} to {}: only floats convert", DataTypeName(desc->type_src),
                       DataTypeName(desc->type_dst)));
  }
  return {};
}

Status ReferenceCopy(const CopyArgs& args) {
  if (Status status = CheckReference(args); !status) return status;
  const Result<CopyDesc> desc = DescOf(args, 1);
  const int step = GetTypeInfo(desc->type_src).block_elements;
  for (std::int64_t row = 0; row < desc->rows; ++row) {
    const std::int64_t from = RowOffset(args.src, row), to = RowOffset(args.dst, row);
    for (std::int64_t c = 0; c < desc->cols; c += step) {
      const std::int64_t at = from + c * args.src.stride[0], put = to + c * args.dst.stride[0];
      if (desc->type_src == desc->type_dst) {
        CopyBytes(args, at, put);
      } else {
        WriteF64(args.dst.dtype, args.dst.data, put, ReadF64(args.src.dtype, args.src.data, at));
      }
    }
  }
  return {};
}

Status CheckReference(const KvScatterArgs& args) {
  const Result<KvScatterDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  const bool quantised = desc->type_cache == DataType::kQ8_0;
  if (!IsFloatType(desc->type_x) || (!IsFloatType(desc->type_cache) && !quantised)) {
    return Fail(ErrorCode::kUnsupported,
                Format("kv scatter of {} into a cache of {}", DataTypeName(desc->type_x),
                       DataTypeName(desc->type_cache)));
  }
  return {};
}

Status ReferenceKvScatter(const KvScatterArgs& args) {
  if (Status status = CheckReference(args); !status) return status;
  const Result<KvScatterDesc> desc = DescOf(args, 1);
  const bool quantised = desc->type_cache == DataType::kQ8_0;
  if (Status status = CheckPlaces(args); !status) return status;
  std::vector<float> head(static_cast<std::size_t>(desc->head_dim));
  for (std::int64_t r = 0; r < desc->rows; ++r) {
    const std::int64_t position = args.positions.as<const std::int32_t>()[r];
    const std::int64_t slot = args.slots.as<const std::int32_t>()[r];
    for (std::int64_t h = 0; h < desc->kv_heads; ++h) {
      const std::int64_t from = h * args.x.stride[1] + r * args.x.stride[2];
      const std::int64_t to =
          h * args.cache.stride[1] + position * args.cache.stride[2] + slot * args.cache.stride[3];
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

}  // namespace tilewright
