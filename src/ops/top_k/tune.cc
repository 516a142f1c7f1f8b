// What a top-k is measured with.

#include "engine/tune/instantiate.h"
#include "ops/top_k/top_k.h"

namespace tilewright::top_k {

static Args RowsOf(const Args& args, std::int64_t begin, std::int64_t count) {
  return {.in = Slice(args.in, 1, begin, count),
          .ids = Slice(args.ids, 1, begin, count),
          .values = Slice(args.values, 1, begin, count)};
}

static Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options) {
  Trial<Op> trial;
  auto in = RandomTensor("in", TrialRole::kRecent, desc.type_in, {desc.cols, desc.rows, 1, 1},
                         SeedOf(options, 1));
  if (!in) return Fail(in.error());
  const std::array<std::int64_t, 4> shape = {desc.k, desc.rows, 1, 1};
  trial.tensors = {std::move(*in), OutputTensor("ids", DataType::kI32, shape)};
  trial.outputs = {1};
  trial.rows = desc.rows;
  if (desc.type_values != DataType::kNone) {
    trial.tensors.push_back(OutputTensor("values", desc.type_values, shape));
    trial.outputs.push_back(2);
  }
  trial.args = [](const Desc&, std::span<const TensorView> t) {
    return Args{.in = t[0], .ids = t[1], .values = t.size() > 2 ? t[2] : TensorView{}};
  };
  return trial;
}

static LeastWork WorkOf(const Desc& desc) {
  const std::int64_t found = std::int64_t{desc.rows} * desc.k;
  std::size_t bytes =
      BytesOf(desc.type_in, std::int64_t{desc.rows} * desc.cols) + BytesOf(DataType::kI32, found);
  if (desc.type_values != DataType::kNone) bytes += BytesOf(desc.type_values, found);
  return {.bytes = static_cast<double>(bytes)};
}

}  // namespace tilewright::top_k

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(top_k::Op);
}  // namespace tilewright
