#include <algorithm>
#include <vector>

#include "core/block_format.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/embedding/checks.h"

namespace tilewright::embedding {

Status Reference(const Args& args) {
  const Result<Desc> desc = DescOf(args, CallTerms{});
  if (!desc) return Fail(desc.error());
  if (!IsFloatType(desc->type_out)) {
    return Fail(ErrorCode::kUnsupported, Format("embedding to {}: must be f64, f32, f16 or bf16",
                                                DataTypeName(desc->type_out)));
  }
  if (Status status = CheckIds(args); !status) return status;
  std::vector<double> row(static_cast<std::size_t>(desc->hidden));
  for (std::int64_t r = 0; r < desc->rows; ++r) {
    const std::int64_t id = args.ids.as<const std::int32_t>()[r];
    if (id < 0) {
      std::fill(row.begin(), row.end(), 0.0);
    } else if (Status s =
                   DecodeRow(desc->type_table, AddressOf(args.table, id * args.table.stride[1]),
                             desc->hidden, row.data());
               !s) {
      return s;
    }
    for (std::int64_t i = 0; i < desc->hidden; ++i) {
      WriteF64(args.out.dtype, args.out.data, r * args.out.stride[1] + i,
               row[static_cast<std::size_t>(i)]);
    }
  }
  return {};
}

}  // namespace tilewright::embedding
