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

static Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options) {
  if (desc.scatter) return MakeScatterTrial(desc, options);
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
  const std::int64_t values = std::int64_t{desc.rows} * desc.heads * desc.head_dim;
  return {.bytes =
              static_cast<double>(BytesOf(desc.type_in, values) + BytesOf(desc.type_out, values))};
}

}  // namespace tilewright::rope

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(rope::Op);
}  // namespace tilewright
