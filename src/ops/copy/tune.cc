// What a copy is measured with.

#include "engine/tune/instantiate.h"
#include "ops/copy/copy.h"

namespace tilewright::copy {

static Args RowsOf(const Args& args, std::int64_t begin, std::int64_t count) {
  return {.src = Slice(args.src, 1, begin, count), .dst = Slice(args.dst, 1, begin, count)};
}

static Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options) {
  if (!desc.adjacent && GetTypeInfo(desc.type_src).block_elements > 1)
    return Fail(ErrorCode::kUnsupported, "values of a block are adjacent");
  Trial<Op> trial;
  const std::int64_t cols = std::int64_t{desc.cols} * (desc.adjacent ? 1 : 2);
  auto src = RandomTensor("src", TrialRole::kRecent, desc.type_src, {cols, desc.rows, 1, 1},
                          SeedOf(options, 1));
  if (!src) return Fail(src.error());
  trial.tensors = {std::move(*src),
                   OutputTensor("dst", desc.type_dst, {desc.cols, desc.rows, 1, 1})};
  trial.outputs = {1};
  trial.rows = desc.rows;
  // Kernels unpack to f32, which rounds where a minimum is added, and round that again.
  if (GetTypeInfo(desc.type_src).block_elements > 1 && desc.type_dst != desc.type_src &&
      desc.type_dst != DataType::kF32) {
    trial.tolerance = {.relative = EpsilonOf(desc.type_dst), .absolute = 0x1p-24};
  }
  trial.args = [](const Desc& d, std::span<const TensorView> t) {
    Args args{.src = t[0], .dst = t[1]};
    args.src.shape[0] = d.cols;
    if (!d.adjacent) args.src.stride[0] = 2;
    return args;
  };
  return trial;
}

static LeastWork WorkOf(const Desc& desc) {
  const std::int64_t values = desc.rows * desc.cols;
  return {.bytes =
              static_cast<double>(BytesOf(desc.type_src, values) + BytesOf(desc.type_dst, values))};
}

}  // namespace tilewright::copy

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(copy::Op);
}  // namespace tilewright
