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

static Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options) {
  auto tensors = ScatterTensors(
      "x", {desc.type_x, desc.type_cache, desc.head_dim, desc.kv_heads, desc.rows, desc.page_size},
      options);
  if (!tensors) return Fail(tensors.error());
  Trial<Op> trial;
  trial.tensors = std::move(*tensors);
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

static LeastWork WorkOf(const Desc& desc) {
  const std::int64_t values = std::int64_t{desc.rows} * desc.kv_heads * desc.head_dim;
  return {.bytes =
              static_cast<double>(BytesOf(desc.type_x, values) + BytesOf(desc.type_cache, values))};
}

}  // namespace tilewright::kv_scatter

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(kv_scatter::Op);
}  // namespace tilewright
