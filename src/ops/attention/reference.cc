#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/block_format.h"
#include "core/tensor_access.h"
#include "ops/attention/attention.h"

namespace tilewright {
namespace {

std::vector<double> CacheRow(const TensorView& cache, std::int64_t slot, std::int64_t position,
                             std::int64_t head) {
  const std::int64_t at =
      slot * cache.stride[3] + position * cache.stride[2] + head * cache.stride[1];
  std::vector<double> row(static_cast<std::size_t>(cache.shape[0]));
  static_cast<void>(DecodeRow(cache.dtype, AddressOf(cache, at), cache.shape[0], row.data()));
  return row;
}

}  // namespace

Status CheckReference(const AttentionArgs& args) {
  const Result<AttentionDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  const DataType cache = desc->type_kv;
  if (!IsFloatType(desc->type_q) || (!IsFloatType(cache) && cache != DataType::kQ8_0)) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("attention of {} over a cache of {}: must be f64, f32, f16 or bf16, the "
                    "cache one of these or q8_0",
                    DataTypeName(desc->type_q), DataTypeName(cache)));
  }
  if (desc->head_dim % GetTypeInfo(cache).block_elements != 0) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("attention with head_dim = {}: must be a multiple of {} for {}", desc->head_dim,
                    GetTypeInfo(cache).block_elements, DataTypeName(cache)));
  }
  return {};
}

Status ReferenceAttention(const AttentionArgs& args) {
  if (Status status = CheckReference(args); !status) return status;
  const std::int64_t head_dim = args.q.shape[0], heads = args.q.shape[1], rows = args.q.shape[2];
  const std::int64_t group = heads / args.k_cache.shape[1];
  std::vector<double> weights, out(static_cast<std::size_t>(head_dim));
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t seen = args.positions.as<std::int32_t>()[r] + 1,
                       slot = args.slots.as<std::int32_t>()[r];
    if (seen < 1 || seen > args.k_cache.shape[2] || slot < 0 || slot >= args.k_cache.shape[3]) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("row {}: position {} or slot {} outside the cache", r, seen - 1, slot));
    }
    for (std::int64_t h = 0; h < heads; ++h) {
      weights.assign(static_cast<std::size_t>(seen), 0.0);
      double max = -HUGE_VAL, sum = 0;
      for (std::int64_t p = 0; p < seen; ++p) {
        const std::vector<double> key = CacheRow(args.k_cache, slot, p, h / group);
        double dot = 0;
        for (std::int64_t d = 0; d < head_dim; ++d) {
          dot +=
              ReadF64(args.q.dtype, args.q.data, r * args.q.stride[2] + h * args.q.stride[1] + d) *
              key[static_cast<std::size_t>(d)];
        }
        weights[static_cast<std::size_t>(p)] = dot * static_cast<double>(args.scale);
        max = std::max(max, weights[static_cast<std::size_t>(p)]);
      }
      for (double& w : weights) sum += w = std::exp(w - max);
      std::fill(out.begin(), out.end(), 0.0);
      for (std::int64_t p = 0; p < seen; ++p) {
        const std::vector<double> value = CacheRow(args.v_cache, slot, p, h / group);
        for (std::size_t d = 0; d < out.size(); ++d)
          out[d] += weights[static_cast<std::size_t>(p)] * value[d];
      }
      for (std::int64_t d = 0; d < head_dim; ++d) {
        WriteF64(args.out.dtype, args.out.data, r * args.out.stride[1] + h * head_dim + d,
                 out[static_cast<std::size_t>(d)] / sum);
      }
    }
  }
  return {};
}

}  // namespace tilewright
