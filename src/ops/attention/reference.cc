#include <algorithm>
#include <cmath>
#include <vector>

#include "core/block_format.h"
#include "core/paged_cache.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/rope_angles.h"
#include "ops/attention/attention.h"
#include "ops/attention/checks.h"

namespace tilewright::attention {
namespace {

/// One head of a cache at one position.
Status LoadHead(const TensorView& cache, std::int64_t offset, std::vector<double>& head) {
  return DecodeRow(cache.dtype, AddressOf(cache, offset), cache.shape[0], head.data());
}

/// The new keys, turned, and values into the caches.
Status ScatterKeys(const Args& args) {
  const CachePlaces places(args.k_cache, args.pages);
  const auto* factors = args.factors.as<const float>();
  std::vector<double> head(static_cast<std::size_t>(args.k.shape[0]));
  for (std::int64_t row = 0; row < args.k.shape[2]; ++row) {
    const std::int32_t position = args.positions.as<const std::int32_t>()[row];
    if (position < 0) continue;  // padding
    const std::int64_t first = places.Offset(args.slots.as<const std::int32_t>()[row], position);
    for (std::int64_t part = 0; part < 2 * args.k.shape[1]; ++part) {
      const bool is_key = part < args.k.shape[1];
      const std::int64_t h = part % args.k.shape[1];
      const TensorView& from = is_key ? args.k : args.v;
      const TensorView& cache = is_key ? args.k_cache : args.v_cache;
      for (std::size_t i = 0; i < head.size(); ++i) {
        head[i] = ReadF64(from.dtype, from.data,
                          h * from.stride[1] + row * from.stride[2] + static_cast<std::int64_t>(i));
      }
      if (is_key) rope::TurnHead(args.rope, factors, position, head);
      void* const to = MutableAddressOf(cache, first + h * cache.stride[1]);
      if (Status s = EncodeRow(cache.dtype, head.data(), args.k.shape[0], to); !s) return s;
    }
  }
  return {};
}

/// The queries, turned and rounded to their type, [head_dim, heads, rows] without gaps in `memory`.
TensorView TurnQueries(const Args& args, std::vector<std::byte>& memory) {
  const TensorView& q = args.q;
  memory.resize(BytesOf(q.dtype, q.elements()));
  const TensorView turned = Contiguous(memory.data(), q.dtype, q.shape);
  std::vector<double> head(static_cast<std::size_t>(q.shape[0]));
  for (std::int64_t row = 0; row < q.shape[2]; ++row) {
    const std::int32_t position = args.positions.as<const std::int32_t>()[row];
    for (std::int64_t h = 0; h < q.shape[1]; ++h) {
      const std::int64_t from = h * q.stride[1] + row * q.stride[2];
      const std::int64_t to = h * turned.stride[1] + row * turned.stride[2];
      for (std::size_t i = 0; i < head.size(); ++i)
        head[i] = ReadF64(q.dtype, q.data, from + static_cast<std::int64_t>(i));
      rope::TurnHead(args.rope, args.factors.as<const float>(), position, head);
      for (std::size_t i = 0; i < head.size(); ++i)
        WriteF64(q.dtype, turned.data, to + static_cast<std::int64_t>(i), head[i]);
    }
  }
  return turned;
}

/// One query head over the positions [from, end) of its sequence.
Status AttendHead(const Args& args, const CachePlaces& places, std::int64_t row, std::int64_t head,
                  std::int64_t from, std::int64_t end, std::vector<double>& out) {
  const auto head_dim = static_cast<std::size_t>(args.q.shape[0]);
  const std::int64_t slot = args.slots.as<const std::int32_t>()[row];
  const std::int64_t kv_head = head / (args.q.shape[1] / args.k_cache.shape[1]);
  const auto place = [&](std::int64_t position) {
    return places.Offset(slot, position) + kv_head * args.k_cache.stride[1];
  };
  const std::int64_t query = row * args.q.stride[2] + head * args.q.stride[1];
  std::vector<double> weights(static_cast<std::size_t>(end - from)), cached(head_dim);
  double max = -HUGE_VAL, sum = 0;
  for (std::int64_t p = from; p < end; ++p) {
    if (Status s = LoadHead(args.k_cache, place(p), cached); !s) return s;
    double dot = 0;
    for (std::size_t d = 0; d < head_dim; ++d)
      dot += ReadF64(args.q.dtype, args.q.data, query + static_cast<std::int64_t>(d)) * cached[d];
    double& weight = weights[static_cast<std::size_t>(p - from)];
    weight = dot * static_cast<double>(args.scale);
    if (const auto limit = static_cast<double>(args.softcap); limit > 0)
      weight = limit * std::tanh(weight / limit);
    max = std::max(max, weight);
  }
  const bool has_sink = args.sinks.data != nullptr;
  const double sink = has_sink ? static_cast<double>(args.sinks.as<const float>()[head]) : 0;
  if (has_sink) max = std::max(max, sink);
  for (double& weight : weights) sum += weight = std::exp(weight - max);
  if (has_sink) sum += std::exp(sink - max);
  std::fill(out.begin(), out.end(), 0.0);
  for (std::int64_t p = from; p < end; ++p) {
    if (Status s = LoadHead(args.v_cache, place(p), cached); !s) return s;
    for (std::size_t d = 0; d < head_dim; ++d)
      out[d] += weights[static_cast<std::size_t>(p - from)] * cached[d];
  }
  for (double& value : out) value /= sum;
  return {};
}

}  // namespace

Status Reference(const Args& args) {
  if (const Result<Desc> desc = DescOf(args, CallTerms{}); !desc) return Fail(desc.error());
  if (!IsFloatType(args.q.dtype)) {
    return Fail(ErrorCode::kUnsupported, Format("attention of q of type {}: must be f64, f32, f16 "
                                                "or bf16",
                                                DataTypeName(args.q.dtype)));
  }
  if (Status status = CheckRows(args); !status) return status;
  if (HasKeys(args)) {
    const auto* factors = args.factors.as<const float>();
    if (Status status = rope::CheckParams(args.rope, factors); !status) return status;
    if (Status status = ScatterKeys(args); !status) return status;
    std::vector<std::byte> memory;
    Args turned = args;
    turned.q = TurnQueries(args, memory);
    turned.k = turned.v = {};
    return Reference(turned);
  }
  const CachePlaces places(args.k_cache, args.pages);
  const std::int64_t head_dim = args.q.shape[0], heads = args.q.shape[1];
  std::vector<double> out(static_cast<std::size_t>(head_dim));
  for (std::int64_t r = 0; r < args.q.shape[2]; ++r) {
    const std::int64_t end = args.positions.as<const std::int32_t>()[r] + 1;
    const std::int64_t from = FirstSeen(static_cast<std::int32_t>(end - 1), args.window);
    for (std::int64_t h = 0; h < heads; ++h) {
      if (end == 0) {
        std::fill(out.begin(), out.end(), 0.0);  // padding
      } else if (Status s = AttendHead(args, places, r, h, from, end, out); !s) {
        return s;
      }
      for (std::int64_t d = 0; d < head_dim; ++d) {
        WriteF64(args.out.dtype, args.out.data, r * args.out.stride[1] + h * head_dim + d,
                 out[static_cast<std::size_t>(d)]);
      }
    }
  }
  return {};
}

}  // namespace tilewright::attention
