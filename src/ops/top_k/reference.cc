#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/top_k/top_k.h"

namespace tilewright::top_k {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Column {
  double value;
  std::int32_t id;
};

void PutRow(const Args& args, std::int64_t row, std::vector<Column>& columns) {
  const void* in = AddressOf(args.in, RowOffset(args.in, row));
  columns.clear();
  bool ordered = true;
  for (std::int64_t c = 0; c < args.in.cols(); ++c) {
    const double value = ReadF64(args.in.dtype, in, c);
    ordered = ordered && value < kInfinity;  // false for NaN
    if (value > -kInfinity) columns.push_back({value, static_cast<std::int32_t>(c)});
  }
  std::sort(columns.begin(), columns.end(), [](const Column& a, const Column& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
  });
  auto* ids = args.ids.as<std::int32_t>() + RowOffset(args.ids, row);
  for (std::int64_t i = 0; i < args.ids.cols(); ++i) {
    const bool found = ordered && i < static_cast<std::int64_t>(columns.size());
    const Column column = found ? columns[static_cast<std::size_t>(i)]
                                : Column{ordered ? -kInfinity : std::nan(""), -1};
    ids[i] = column.id;
    if (args.values.data != nullptr) {
      WriteF64(args.values.dtype, MutableAddressOf(args.values, RowOffset(args.values, row)), i,
               column.value);
    }
  }
  HandOver(args, row, ids[0]);
}

}  // namespace

Status Reference(const Args& args) {
  const Result<Desc> desc = DescOf(args, CallTerms{});
  if (!desc) return Fail(desc.error());
  for (const DataType type : {desc->type_in, desc->type_values}) {
    if (!IsFloatType(type) && type != DataType::kNone) {
      return Fail(ErrorCode::kUnsupported,
                  Format("top_k of type {}: must be f64, f32, f16 or bf16", DataTypeName(type)));
    }
  }
  std::vector<Column> columns;  // NaN has no place in it: a row that has one is not sorted by it
  columns.reserve(static_cast<std::size_t>(desc->cols));
  for (std::int64_t row = 0; row < desc->rows; ++row) PutRow(args, row, columns);
  return {};
}

}  // namespace tilewright::top_k
