// What the sum over experts is measured with.

#include <algorithm>

#include "core/random.h"
#include "engine/tune/instantiate.h"
#include "ops/experts/combine.h"

namespace tilewright::combine {

static Args RowsOf(const Args& args, std::int64_t begin, std::int64_t count) {
  Args rows = args;
  rows.places = Slice(args.places, 1, begin, count);
  rows.weights = Slice(args.weights, 1, begin, count);
  rows.out = Slice(args.out, 1, begin, count);
  if (args.shared.data == nullptr) return rows;
  rows.shared = Slice(args.shared, 1, begin, count);
  rows.gate = Slice(args.gate, 1, begin, count);
  return rows;
}

/// The pairs in an order that a router may leave: any.
static std::vector<std::int32_t> RandomPlaces(std::int32_t pairs, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int32_t> places;
  for (std::int32_t i = 0; i < pairs; ++i) places.push_back(i);
  for (std::int32_t i = pairs - 1; i > 0; --i)
    std::swap(places[static_cast<std::size_t>(i)],
              places[static_cast<std::size_t>(random.Between(0, i))]);
  return places;
}

static Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options) {
  const std::int32_t pairs = desc.used * desc.rows;
  Trial<Op> trial;
  const auto add = [&](const char* name, DataType type, std::array<std::int64_t, 4> shape) {
    auto tensor = RandomTensor(name, TrialRole::kRecent, type, shape,
                               SeedOf(options, 1 + trial.tensors.size()));
    if (!tensor) return Status(Fail(tensor.error()));
    trial.tensors.push_back(std::move(*tensor));
    return Status();
  };
  if (Status s = add("x", desc.type_x, {desc.cols, pairs, 1, 1}); !s) return Fail(s.error());
  trial.tensors.push_back(IntegerTensor("places", RandomPlaces(pairs, SeedOf(options, 9)),
                                        {desc.used, desc.rows, 1, 1}));
  if (Status s = add("weights", desc.type_weights, {desc.used, desc.rows, 1, 1}); !s)
    return Fail(s.error());
  trial.tensors.push_back(OutputTensor("out", desc.type_out, {desc.cols, desc.rows, 1, 1}));
  if (desc.type_shared != DataType::kNone) {
    if (Status s = add("shared", desc.type_shared, {desc.cols, desc.rows, 1, 1}); !s)
      return Fail(s.error());
    if (Status s = add("gate", desc.type_shared, {1, desc.rows, 1, 1}); !s) return Fail(s.error());
  }
  trial.outputs = {3};
  trial.rows = desc.rows;
  // A sum of `used` products of values about 1.
  trial.tolerance = {.relative = EpsilonOf(desc.type_out), .absolute = desc.used * 8 * 0x1p-23};
  trial.args = [](const Desc&, std::span<const TensorView> t) {
    Args args{.x = t[0], .places = t[1], .weights = t[2], .shared = {}, .gate = {}, .out = t[3]};
    if (t.size() > 5) args.shared = t[4], args.gate = t[5];
    return args;
  };
  return trial;
}

static LeastWork WorkOf(const Desc& desc) {
  const std::int64_t pairs = std::int64_t{desc.used} * desc.rows;
  const std::int64_t values = std::int64_t{desc.cols} * desc.rows;
  std::size_t bytes = BytesOf(desc.type_x, pairs * desc.cols) + BytesOf(DataType::kI32, pairs) +
                      BytesOf(desc.type_weights, pairs) + BytesOf(desc.type_out, values);
  if (desc.type_shared != DataType::kNone) bytes += BytesOf(desc.type_shared, values + desc.rows);
  return {.bytes = static_cast<double>(bytes)};
}

}  // namespace tilewright::combine

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(combine::Op);
}  // namespace tilewright
