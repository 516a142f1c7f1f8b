// What the router of a sparse feed-forward is measured with.

#include "engine/tune/instantiate.h"
#include "ops/experts/route.h"

namespace tilewright::route {

/// The order of pairs is of all rows together.
static Args RowsOf(const Args& args, std::int64_t, std::int64_t) { return args; }

static Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options) {
  auto logits = RandomTensor("logits", TrialRole::kRecent, desc.type_logits,
                             {desc.experts, desc.rows, 1, 1}, SeedOf(options, 1));
  if (!logits) return Fail(logits.error());
  const std::array<std::int64_t, 4> pairs = {desc.used, desc.rows, 1, 1};
  Trial<Op> trial;
  trial.tensors = {std::move(*logits),
                   OutputTensor("offsets", DataType::kI32, {desc.experts + 1, 1, 1, 1}),
                   OutputTensor("sources", DataType::kI32, {desc.used * desc.rows, 1, 1, 1}),
                   OutputTensor("places", DataType::kI32, pairs),
                   OutputTensor("weights", desc.type_weights, pairs)};
  trial.outputs = {1, 2, 3, 4};
  if (desc.pair_experts) {
    trial.tensors.push_back(
        OutputTensor("experts", DataType::kI32, {desc.used * desc.rows, 1, 1, 1}));
    trial.outputs.push_back(5);
  }
  // Exponents and a sum of them, each rounded.
  trial.tolerance = {.relative = EpsilonOf(desc.type_weights) + 64 * 0x1p-24, .absolute = 0};
  trial.args = [](const Desc&, std::span<const TensorView> t) {
    return Args{.logits = t[0],
                .offsets = t[1],
                .sources = t[2],
                .places = t[3],
                .weights = t[4],
                .experts = t.size() > 5 ? t[5] : TensorView{}};
  };
  return trial;
}

static LeastWork WorkOf(const Desc& desc) {
  const std::int64_t pairs = std::int64_t{desc.rows} * desc.used;
  return {.bytes = static_cast<double>(
              BytesOf(desc.type_logits, std::int64_t{desc.rows} * desc.experts) +
              BytesOf(desc.type_weights, pairs) +
              (desc.pair_experts ? 3 : 2) * BytesOf(DataType::kI32, pairs) +
              BytesOf(DataType::kI32, desc.experts + 1))};
}

}  // namespace tilewright::route

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(route::Op);
}  // namespace tilewright
