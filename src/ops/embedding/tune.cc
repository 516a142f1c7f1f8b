// What an embedding is measured with.

#include <algorithm>

#include "core/random.h"
#include "engine/tune/instantiate.h"
#include "ops/embedding/embedding.h"

namespace tilewright::embedding {

static Args RowsOf(const Args& args, std::int64_t begin, std::int64_t count) {
  Args rows = args;
  rows.ids = Slice(args.ids, 0, begin, count);
  rows.out = Slice(args.out, 1, begin, count);
  return rows;
}

static Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options) {
  Trial<Op> trial;
  // Ids of a text fall anywhere in the table; under the cold policy it rotates anyway.
  const std::int64_t entries = std::max<std::int64_t>(256, desc.rows);
  auto table = RandomTensor("table", TrialRole::kStored, desc.type_table,
                            {desc.hidden, entries, 1, 1}, SeedOf(options, 1));
  if (!table) return Fail(table.error());
  Random random(SeedOf(options, 2));
  std::vector<std::int32_t> ids;
  for (std::int32_t r = 0; r < desc.rows; ++r)
    ids.push_back(static_cast<std::int32_t>(random.Between(0, entries - 1)));
  if (desc.rows > 1) ids.back() = -1;  // padding
  trial.tensors = {std::move(*table), IntegerTensor("ids", ids, {desc.rows, 1, 1, 1}),
                   OutputTensor("out", desc.type_out, {desc.hidden, desc.rows, 1, 1})};
  trial.outputs = {2};
  trial.rows = desc.rows;
  // A code times a scale is exact; where a minimum is added it rounds once, of values below 8.
  trial.tolerance = {.relative = EpsilonOf(desc.type_out), .absolute = 8 * 0x1p-23};
  trial.args = [](const Desc&, std::span<const TensorView> t) {
    return Args{.table = t[0], .ids = t[1], .out = t[2]};
  };
  return trial;
}

static LeastWork WorkOf(const Desc& desc) {
  const std::int64_t values = std::int64_t{desc.rows} * desc.hidden;
  return {.bytes = static_cast<double>(BytesOf(desc.type_table, values) +
                                       BytesOf(desc.type_out, values))};
}

}  // namespace tilewright::embedding

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(embedding::Op);
}  // namespace tilewright
