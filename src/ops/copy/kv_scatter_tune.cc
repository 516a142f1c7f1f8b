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

static Result<Trial<Op>> MakeTrial(const Desc& desc) {
  Trial<Op> trial;
  const TrialPlaces places = PlacesInCache(desc.rows, desc.page_size);
  auto x = RandomTensor("x", TrialRole::kRecent, desc.type_x,
                        {desc.head_dim, desc.kv_heads, desc.rows, 1}, 1);
  if (!x) return Fail(x.error());
  auto cache = RandomTensor("cache", TrialRole::kUpdated, desc.type_cache,
                            {desc.head_dim, desc.kv_heads, places.held, places.page_count}, 2);
  if (!cache) return Fail(cache.error());
  trial.tensors = {std::move(*x), std::move(*cache),
                   IntegerTensor("positions", places.positions, {desc.rows, 1, 1, 1}),
                   IntegerTensor("slots", places.slots, {desc.rows, 1, 1, 1})};
  if (desc.page_size > 0)
    trial.tensors.push_back(IntegerTensor("pages", places.pages, {places.page_count, 1, 1, 1}));
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
