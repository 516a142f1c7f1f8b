// What an elementwise function is measured with.

#include "engine/tune/instantiate.h"
#include "ops/elementwise/elementwise.h"

namespace tilewright::elementwise {

static Args RowsOf(const Args& args, std::int64_t begin, std::int64_t count) {
  return {.function = args.function,
          .a = Slice(args.a, 1, begin, count),
          .b = Slice(args.b, 1, begin, count),
          .out = Slice(args.out, 1, begin, count),
          .softcap = args.softcap,
          .limit = args.limit};
}

static Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options) {
  Trial<Op> trial;
  const std::array<std::int64_t, 4> shape = {desc.cols, desc.rows, 1, 1};
  auto a = RandomTensor("a", TrialRole::kRecent, desc.type_a, shape, SeedOf(options, 1));
  if (!a) return Fail(a.error());
  trial.tensors = {OutputTensor("out", desc.type_out, shape), std::move(*a)};
  if (!IsUnary(desc.function)) {
    auto b = RandomTensor("b", TrialRole::kRecent, desc.type_b, shape, SeedOf(options, 2));
    if (!b) return Fail(b.error());
    trial.tensors.push_back(std::move(*b));
  }
  trial.outputs = {0};
  trial.rows = desc.rows;
  if (desc.type_a == desc.type_out) trial.in_place = {1, 0};
  // An exponential in f32 is good to a few units in the last place. That of gelu has an argument
  // below 16 for these operands, whose few roundings show as often.
  const bool has_exp = desc.function != Function::kAdd && desc.function != Function::kMul;
  const bool has_gelu = desc.function == Function::kGelu || desc.function == Function::kGeGlu;
  trial.tolerance.relative = (has_gelu  ? 64 * 0x1p-23
                              : has_exp ? 16 * 0x1p-23
                                        : 0) +
                             EpsilonOf(desc.type_out);
  trial.args = [](const Desc& d, std::span<const TensorView> t) {
    return Args{.function = d.function,
                .a = t[1],
                .b = t.size() > 2 ? t[2] : TensorView{},
                .out = t[0],
                .softcap = 2.0f,
                .limit = 2.0f};
  };
  return trial;
}

static LeastWork WorkOf(const Desc& desc) {
  const std::int64_t values = desc.rows * desc.cols;
  std::size_t bytes = BytesOf(desc.type_a, values) + BytesOf(desc.type_out, values);
  if (!IsUnary(desc.function)) bytes += BytesOf(desc.type_b, values);
  return {.bytes = static_cast<double>(bytes)};
}

}  // namespace tilewright::elementwise

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(elementwise::Op);
}  // namespace tilewright
