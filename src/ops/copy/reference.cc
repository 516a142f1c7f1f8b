#include <algorithm>
#include <cstring>

#include "core/block_format.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/copy/copy.h"

namespace tilewright::copy {
namespace {

/// One block of `dst` from as many f32.
Status EncodeBlock(const Args& args, std::int64_t from, std::int64_t to, int elements) {
  float values[kMaxBlockElements];
  for (int i = 0; i < elements; ++i) {
    values[i] =
        static_cast<float>(ReadF64(args.src.dtype, args.src.data, from + i * args.src.stride[0]));
  }
  return EncodeRow(args.dst.dtype, values, elements, MutableAddressOf(args.dst, to));
}

/// One element, or for block types one block of elements, of equal types.
void CopyBytes(const Args& args, std::int64_t from, std::int64_t to) {
  const auto bytes = static_cast<std::size_t>(GetTypeInfo(args.src.dtype).block_bytes);
  std::memcpy(MutableAddressOf(args.dst, to), AddressOf(args.src, from), bytes);
}

}  // namespace

Status Reference(const Args& args) {
  const Result<Desc> desc = DescOf(args, CallTerms{});
  if (!desc) return Fail(desc.error());
  if (!CanConvert(desc->type_src, desc->type_dst)) {
    return Fail(
        ErrorCode::kUnsupported,
        Format(
            "copy of {} to {}: floats convert into each other, blocks to f32, f16 or bf16, f32 to "
            "i8x32",
            DataTypeName(desc->type_src), DataTypeName(desc->type_dst)));
  }
  const int unpacked = GetTypeInfo(desc->type_src).block_elements,
            packed = GetTypeInfo(desc->type_dst).block_elements, step = std::max(unpacked, packed);
  for (std::int64_t row = 0; row < desc->rows; ++row) {
    const std::int64_t from = RowOffset(args.src, row), to = RowOffset(args.dst, row);
    for (std::int64_t c = 0; c < desc->cols; c += step) {
      const std::int64_t at = from + c * args.src.stride[0], put = to + c * args.dst.stride[0];
      if (desc->type_src == desc->type_dst) {
        CopyBytes(args, at, put);
      } else if (packed > 1) {
        if (Status s = EncodeBlock(args, at, put, packed); !s) return s;
      } else if (unpacked > 1) {
        double values[kMaxBlockElements];
        if (Status s = DecodeRow(desc->type_src, AddressOf(args.src, at), step, values); !s)
          return s;
        for (int i = 0; i < step; ++i)
          WriteF64(args.dst.dtype, args.dst.data, put + i * args.dst.stride[0], values[i]);
      } else {
        WriteF64(args.dst.dtype, args.dst.data, put, ReadF64(args.src.dtype, args.src.data, at));
      }
    }
  }
  return {};
}

}  // namespace tilewright::copy
