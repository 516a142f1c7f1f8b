// What a norm is measured with.

#include "engine/tune/instantiate.h"
#include "ops/norm/norm.h"

namespace tilewright::norm {

static Args RowsOf(const Args& args, std::int64_t begin, std::int64_t count) {
  Args rows = args;
  rows.in = Slice(args.in, 1, begin, count);
  rows.out = Slice(args.out, 1, begin, count);
  rows.residual = Slice(args.residual, 1, begin, count);
  rows.sum = Slice(args.sum, 1, begin, count);
  return rows;
}

static Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options) {
  Trial<Op> trial;
  const std::array<std::int64_t, 4> shape = {desc.cols, desc.rows, 1, 1};
  auto in = RandomTensor("in", TrialRole::kRecent, desc.type_in, shape, SeedOf(options, 1));
  if (!in) return Fail(in.error());
  auto weight = RandomTensor("weight", TrialRole::kStored, desc.type_weight, {desc.cols, 1, 1, 1},
                             SeedOf(options, 2));
  if (!weight) return Fail(weight.error());
  trial.tensors = {std::move(*in), std::move(*weight), OutputTensor("out", desc.type_out, shape)};
  trial.outputs = {2};
  trial.rows = desc.rows;
  if (desc.type_in == desc.type_out) trial.in_place = {0, 2};
  // A sum of `cols` positive squares in f32, whatever the order, is off by cols / 2 rounding errors
  // of its value at most; the root halves that.
  trial.tolerance.relative = 0x1p-24 * (desc.cols / 2.0 + 8) + EpsilonOf(desc.type_out);
  if (desc.type_sum != DataType::kNone) {
    auto residual =
        RandomTensor("residual", TrialRole::kRecent, desc.type_sum, shape, SeedOf(options, 3));
    if (!residual) return Fail(residual.error());
    trial.tensors.push_back(std::move(*residual));
    trial.tensors.push_back(OutputTensor("sum", desc.type_sum, shape));
    trial.outputs.push_back(4);
    trial.in_place = {3, 4};
    trial.tolerance.relative += EpsilonOf(desc.type_sum);  // what is normalised is rounded first
  }
  trial.args = [](const Desc&, std::span<const TensorView> t) {
    Args args{.in = t[0], .weight = t[1], .out = t[2]};
    if (t.size() > 3) args.residual = t[3], args.sum = t[4];
    return args;
  };
  return trial;
}

static LeastWork WorkOf(const Desc& desc) {
  const std::int64_t values = std::int64_t{desc.rows} * desc.cols;
  std::size_t bytes = BytesOf(desc.type_in, values) + BytesOf(desc.type_out, values) +
                      BytesOf(desc.type_weight, desc.cols);
  if (desc.type_sum != DataType::kNone) bytes += 2 * BytesOf(desc.type_sum, values);
  return {.bytes = static_cast<double>(bytes)};
}

}  // namespace tilewright::norm

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(norm::Op);
}  // namespace tilewright
