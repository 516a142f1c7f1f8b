// What a rotary embedding is measured with.

#include "engine/tune/instantiate.h"
#include "ops/rope/rope.h"

namespace tilewright::rope {

static Args RowsOf(const Args& args, std::int64_t begin, std::int64_t count) {
  Args rows = args;
  rows.qk = Slice(args.qk, 2, begin, count);
  rows.positions = Slice(args.positions, 0, begin, count);
  rows.out = Slice(args.out, 2, begin, count);
  return rows;
}

/// Into a KV cache: compared as a whole, since a row may lie anywhere in it.
static Result<Trial<Op>> MakeScatterTrial(const Desc& desc, const TrialOptions& options) {
  auto tensors = ScatterTensors(
      "qk", {desc.type_in, desc.type_out, desc.head_dim, desc.heads, desc.rows, desc.page_size},
      options);
  if (!tensors) return Fail(tensors.error());
  Trial<Op> trial;
  trial.tensors = std::move(*tensors);
  trial.outputs = {1};
  trial.positions = desc.page_size / 2 + desc.rows;
  const bool blocks = GetTypeInfo(desc.type_out).block_quantised;
  // As below; in blocks, a value at the border of two codes may become either, 1/127 of the largest
  // value apart, which is below 6 * sqrt(2).
  trial.tolerance = {.relative = blocks ? 0x1p-10 : EpsilonOf(desc.type_out),
                     .absolute = blocks ? 6 * 1.42 / 127 : 2 * 6 * 0x1p-22};
  trial.args = [](const Desc& d, std::span<const TensorView> t) {
    Args args;
    args.qk = t[0], args.positions = t[2];
    args.cache = t[1], args.slots = t[3];
    if (t.size() > 4) args.pages = t[4];
    args.params.mode = d.mode, args.params.dims = d.dims;
    return args;
  };
  return trial;
}

/// Queries beside keys and values, which lie in one merged product.
static Result<Trial<Op>> MakeQkvTrial(const Desc& desc, const TrialOptions& options) {
  const std::int32_t heads = desc.heads + 2 * desc.kv_heads;
  auto tensors = ScatterTensors(
      "k", {desc.type_in, desc.type_cache, desc.head_dim, desc.kv_heads, desc.rows, desc.page_size},
      options);
  if (!tensors) return Fail(tensors.error());
  auto qkv = RandomTensor("qkv", TrialRole::kRecent, desc.type_in,
                          {desc.head_dim, heads, desc.rows, 1}, SeedOf(options, 3));
  if (!qkv) return Fail(qkv.error());
  auto v_cache = RandomTensor("v_cache", TrialRole::kUpdated, desc.type_cache,
                              (*tensors)[1].view.shape, SeedOf(options, 4));
  if (!v_cache) return Fail(v_cache.error());
  Trial<Op> trial;
  trial.tensors = std::move(*tensors);
  trial.tensors[0] = std::move(*qkv);  // in the place of the keys alone
  trial.tensors.push_back(std::move(*v_cache));
  trial.tensors.push_back(
      OutputTensor("out", desc.type_out, {desc.head_dim, desc.heads, desc.rows, 1}));
  trial.outputs = {1, trial.tensors.size() - 2, trial.tensors.size() - 1};
  trial.positions = desc.page_size / 2 + desc.rows;
  const bool blocks = GetTypeInfo(desc.type_cache).block_quantised;
  // As above, of the coarser of both types.
  const double rounding = std::max(EpsilonOf(desc.type_out), EpsilonOf(desc.type_cache));
  trial.tolerance = {.relative = blocks ? 0x1p-10 : rounding,
                     .absolute = blocks ? 6 * 1.42 / 127 : 2 * 6 * 0x1p-22};
  trial.args = [](const Desc& d, std::span<const TensorView> t) {
    Args args;
    const auto part = [&](std::int64_t first, std::int64_t count) {
      return Slice(t[0], 1, first, count);
    };
    args.qk = part(0, d.heads), args.k = part(d.heads, d.kv_heads);
    args.v = part(d.heads + d.kv_heads, d.kv_heads);
    args.cache = t[1], args.positions = t[2], args.slots = t[3];
    if (d.page_size > 0) args.pages = t[4];
    args.v_cache = t[t.size() - 2], args.out = t[t.size() - 1];
    args.params.mode = d.mode, args.params.dims = d.dims;
    return args;
  };
  return trial;
}

static Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options) {
  if (desc.scatter) return MakeScatterTrial(desc, options);
  if (desc.kv_heads > 0) return MakeQkvTrial(desc, options);
  constexpr std::int32_t kFirst = 100;  // a sequence that goes on
  Trial<Op> trial;
  const std::array<std::int64_t, 4> shape = {desc.head_dim, desc.heads, desc.rows, 1};
  auto qk = RandomTensor("qk", TrialRole::kRecent, desc.type_in, shape, SeedOf(options, 1));
  if (!qk) return Fail(qk.error());
  std::vector<std::int32_t> positions;
  for (std::int32_t r = 0; r < desc.rows; ++r) positions.push_back(kFirst + r);
  if (desc.rows > 1) positions.back() = -1;  // padding
  trial.tensors = {std::move(*qk), IntegerTensor("positions", positions, {desc.rows, 1, 1, 1}),
                   OutputTensor("out", desc.type_out, shape)};
  trial.outputs = {2};
  trial.rows = desc.rows;
  trial.positions = kFirst + desc.rows;
  if (desc.type_in == desc.type_out) trial.in_place = {0, 2};
  // Two products with a cosine and a sine that are rounded themselves; no value is beyond 6.
  trial.tolerance = {.relative = EpsilonOf(desc.type_out), .absolute = 2 * 6 * 0x1p-22};
  trial.args = [](const Desc& d, std::span<const TensorView> t) {
    Args args;
    args.qk = t[0], args.positions = t[1], args.out = t[2];
    args.params.mode = d.mode, args.params.dims = d.dims;
    return args;
  };
  return trial;
}

static LeastWork WorkOf(const Desc& desc) {
  const std::int64_t head_values = std::int64_t{desc.rows} * desc.head_dim;
  const std::int64_t out = head_values * desc.heads, cached = head_values * 2 * desc.kv_heads;
  double bytes = static_cast<double>(BytesOf(desc.type_in, out + cached)) +
                 static_cast<double>(BytesOf(desc.type_out, out));
  if (cached > 0) bytes += static_cast<double>(BytesOf(desc.type_cache, cached));
  return {.bytes = bytes};
}

}  // namespace tilewright::rope

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(rope::Op);
}  // namespace tilewright
