#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/experts/route.h"

namespace tilewright::route {
namespace {

void RouteRow(const Args& args, std::int64_t row, std::vector<double>& logits,
              std::vector<std::int32_t>& order) {
  const void* const from = AddressOf(args.logits, RowOffset(args.logits, row));
  bool finite = true;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    logits[e] = ReadF64(args.logits.dtype, from, static_cast<std::int64_t>(e));
    finite = finite && std::isfinite(logits[e]);
    if (std::isnan(logits[e])) logits[e] = -std::numeric_limits<double>::infinity();
  }
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  const std::int64_t used = args.weights.cols();
  double sum = 0;
  const std::int64_t counted = args.normalise ? used : args.logits.cols();
  for (std::int64_t i = 0; i < counted; ++i)
    sum += std::exp(logits[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] -
                    logits[static_cast<std::size_t>(order[0])]);
  void* const to = MutableAddressOf(args.weights, RowOffset(args.weights, row));
  for (std::int64_t j = 0; j < used; ++j) {
    const std::int32_t expert = order[static_cast<std::size_t>(j)];
    args.places.as<std::int32_t>()[row * used + j] = expert;
    const double share = std::exp(logits[static_cast<std::size_t>(expert)] -
                                  logits[static_cast<std::size_t>(order[0])]) /
                         sum;
    WriteF64(args.weights.dtype, to, j, finite ? args.scale * share : std::nan(""));
  }
}

}  // namespace

Status Reference(const Args& args) {
  const Result<Desc> desc = DescOf(args, CallTerms{});
  if (!desc) return Fail(desc.error());
  for (const DataType type : {desc->type_logits, desc->type_weights}) {
    if (!IsFloatType(type)) {
      return Fail(ErrorCode::kUnsupported,
                  Format("route of type {}: must be f64, f32, f16 or bf16", DataTypeName(type)));
    }
  }
  std::vector<double> logits(static_cast<std::size_t>(desc->experts));
  std::vector<std::int32_t> order(logits.size());
  for (std::int64_t row = 0; row < desc->rows; ++row) RouteRow(args, row, logits, order);
  PlacePairs(args);
  return {};
}

}  // namespace tilewright::route
