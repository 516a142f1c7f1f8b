// What a rotary embedding is measured with.

#include "engine/tune/instantiate.h"
#include "ops/rope/rope.h"

namespace tilewright::rope {

static Args RowsOf(const Args& args, std::int64_t begin, std::int64_t count) {
  Args rows = args;
  rows.qk = Slice(args.qk, 2, begin, count);
  rows.positions = Slice(args.positions, 0, begin, count);
  rows.slots = Slice(args.slots, 0, begin, count);
  rows.out = Slice(args.out, 2, begin, count);
  return rows;
}

/// A KV cache with places for `rows` rows of one sequence from position `first` on, its pages in
/// falling order; what the rotated rows go into.
static Status AddCache(const Desc& desc, std::int32_t first, std::vector<TrialTensor>& tensors) {
  const std::int32_t end = first + desc.rows;
  const std::int32_t pages = desc.page_size > 0 ? (end - 1) / desc.page_size + 1 : 1;
  auto cache = RandomTensor(
      "cache", TrialRole::kUpdated, desc.type_out,
      {desc.head_dim, desc.heads, desc.page_size > 0 ? desc.page_size : end, pages}, 2);
  if (!cache) return Fail(cache.error());
  tensors.push_back(std::move(*cache));
  const std::vector<std::int32_t> slots(static_cast<std::size_t>(desc.rows), 0);
  tensors.push_back(IntegerTensor("slots", slots, {desc.rows, 1, 1, 1}));
  if (desc.page_size == 0) return {};
  std::vector<std::int32_t> table;
  for (std::int32_t p = 0; p < pages; ++p) table.push_back(pages - 1 - p);
  tensors.push_back(IntegerTensor("pages", table, {pages, 1, 1, 1}));
  return {};
}

static Result<Trial<Op>> MakeTrial(const Desc& desc) {
  constexpr std::int32_t kFirst = 100;  // a sequence that goes on
  Trial<Op> trial;
  const std::array<std::int64_t, 4> shape = {desc.head_dim, desc.heads, desc.rows, 1};
  auto qk = RandomTensor("qk", TrialRole::kRecent, desc.type_in, shape, 1);
  if (!qk) return Fail(qk.error());
  std::vector<std::int32_t> positions;
  for (std::int32_t r = 0; r < desc.rows; ++r) positions.push_back(kFirst + r);
  if (desc.rows > 1) positions.back() = -1;  // padding
  trial.tensors = {std::move(*qk), IntegerTensor("positions", positions, {desc.rows, 1, 1, 1})};
  trial.outputs = {2};
  trial.positions = kFirst + desc.rows;
  // Two products with a cosine and a sine that are rounded themselves; no value is beyond 6.
  trial.tolerance = {.relative = EpsilonOf(desc.type_out), .absolute = 2 * 6 * 0x1p-22};
  if (desc.scatter) {
    if (Status s = AddCache(desc, kFirst, trial.tensors); !s) return Fail(s.error());
    // A value at the edge of two codes may take either: one step of the largest value's scale.
    if (desc.type_out == DataType::kQ8_0) trial.tolerance.absolute += 2 * 6.0 / 127;
  } else {
    trial.tensors.push_back(OutputTensor("out", desc.type_out, shape));
    trial.rows = desc.rows;
    if (desc.type_in == desc.type_out) trial.in_place = {0, 2};
  }
  trial.args = [](const Desc& d, std::span<const TensorView> t) {
    Args args{.qk = t[0], .positions = t[1]};
    (d.scatter ? args.cache : args.out) = t[2];
    if (t.size() > 3) args.slots = t[3];
    if (t.size() > 4) args.pages = t[4];
    args.params.mode = d.mode, args.params.dims = d.dims;
    return args;
  };
  return trial;
}

}  // namespace tilewright::rope

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(rope::Op);
}  // namespace tilewright
