// What a scatter into a KV cache is measured with.

#include "engine/tune/instantiate.h"
#include "ops/copy/kv_scatter.h"

namespace tilewright::kv_scatter {

static Args RowsOf(const Args& args, std::int64_t begin, std::int64_t count) {
  Args rows = args;
  rows.x = Slice(args.x, 2, begin, count);
  rows.positions = Slice(args.positions, 0, begin, count);
  rows.slots = Slice(args.slots, 0, begin, count);
  return rows;
}

/// Consecutive rows of one sequence from the middle of a page on, its pages in falling order.
static Result<Trial<Op>> MakeTrial(const Desc& desc) {
  Trial<Op> trial;
  const std::int32_t first = desc.page_size / 2;
  const std::int32_t pages = desc.page_size > 0 ? (first + desc.rows - 1) / desc.page_size + 1 : 1;
  const std::int32_t held = desc.page_size > 0 ? desc.page_size : desc.rows + 1;
  std::vector<std::int32_t> positions, table;
  for (std::int32_t r = 0; r < desc.rows; ++r) positions.push_back(first + r);
  if (desc.rows > 1) positions.back() = -1;  // padding
  for (std::int32_t p = 0; p < pages; ++p) table.push_back(pages - 1 - p);
  auto x = RandomTensor("x", TrialRole::kRecent, desc.type_x,
                        {desc.head_dim, desc.kv_heads, desc.rows, 1}, 1);
  if (!x) return Fail(x.error());
  auto cache = RandomTensor("cache", TrialRole::kUpdated, desc.type_cache,
                            {desc.head_dim, desc.kv_heads, held, pages}, 2);
  if (!cache) return Fail(cache.error());
  const std::vector<std::int32_t> slots(positions.size(), 0);
  trial.tensors = {std::move(*x), std::move(*cache),
                   IntegerTensor("positions", positions, {desc.rows, 1, 1, 1}),
                   IntegerTensor("slots", slots, {desc.rows, 1, 1, 1})};
  if (desc.page_size > 0) trial.tensors.push_back(IntegerTensor("pages", table, {pages, 1, 1, 1}));
  trial.outputs = {1};
  trial.args = [](const Desc&, std::span<const TensorView> t) {
    return Args{.x = t[0],
                .cache = t[1],
                .positions = t[2],
                .slots = t[3],
                .pages = t.size() > 4 ? t[4] : TensorView{}};
  };
  return trial;
}

}  // namespace tilewright::kv_scatter

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(kv_scatter::Op);
}  // namespace tilewright
