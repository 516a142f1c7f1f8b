// What attention is measured with.

#include <algorithm>
#include <cmath>

#include "engine/tune/instantiate.h"
#include "ops/attention/checks.h"

namespace tilewright::attention {
namespace {

/// Rows of as many sequences as the cache has, evenly distributed, each at the end of what its
/// sequence holds: as many positions as the trial says, else about a thousand, as in a conversation,
/// or all that the cache has places for.
struct Batch {
  Batch(const Desc& desc, const TrialOptions& options)
      : sequences(std::min(desc.sequences, desc.rows)),
        rows_each((desc.rows + sequences - 1) / sequences),
        filled(std::min(desc.context,
                        std::max(options.positions > 0 ? options.positions : kUsual, rows_each))) {
    for (std::int32_t r = 0; r < desc.rows; ++r) {
      slots.push_back(r / rows_each);
      positions.push_back(std::max(0, filled - rows_each + r % rows_each));
    }
    if (desc.rows > 1) positions.back() = -1;  // padding
  }
  static constexpr std::int32_t kUsual = 1024;
  std::int32_t sequences, rows_each, filled;
  std::vector<std::int32_t> positions, slots;
};

/// Caches and page table, the pages of the sequences in turn; contiguous without pages.
Status AddCaches(const Desc& desc, const Batch& batch, const TrialOptions& options,
                 std::vector<TrialTensor>& tensors) {
  const TrialRole role = desc.rope_dims > 0 ? TrialRole::kUpdated : TrialRole::kStored;
  const bool paged = desc.page_size > 0;
  const std::int32_t held = paged ? (batch.filled - 1) / desc.page_size + 1 : 0;  // pages of each
  const std::array<std::int64_t, 4> shape = {
      desc.head_dim, desc.kv_heads, paged ? desc.page_size : desc.context,
      paged ? std::int64_t{held} * batch.sequences : std::int64_t{desc.sequences}};
  for (const char* name : {"k_cache", "v_cache"}) {
    auto cache = RandomTensor(name, role, desc.type_kv, shape, SeedOf(options, tensors.size() + 1));
    if (!cache) return Fail(cache.error());
    tensors.push_back(std::move(*cache));
  }
  if (!paged) return {};
  const std::int32_t entries = (desc.context - 1) / desc.page_size + 1;
  std::vector<std::int32_t> table(
      static_cast<std::size_t>(entries) * static_cast<std::size_t>(desc.sequences), -1);
  for (std::int32_t s = 0; s < batch.sequences; ++s) {
    for (std::int32_t p = 0; p < held; ++p)
      table[static_cast<std::size_t>(s) * static_cast<std::size_t>(entries) +
            static_cast<std::size_t>(p)] = p * batch.sequences + s;
  }
  tensors.push_back(IntegerTensor("pages", table, {entries, desc.sequences, 1, 1}));
  return {};
}

}  // namespace

static Args RowsOf(const Args& args, std::int64_t begin, std::int64_t count) {
  Args rows = args;
  rows.q = Slice(args.q, 2, begin, count);
  rows.k = Slice(args.k, 2, begin, count);
  rows.v = Slice(args.v, 2, begin, count);
  rows.positions = Slice(args.positions, 0, begin, count);
  rows.slots = Slice(args.slots, 0, begin, count);
  rows.out = Slice(args.out, 1, begin, count);
  return rows;
}

static Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options) {
  Trial<Op> trial;
  const Batch batch(desc, options);
  const std::int64_t new_heads = desc.rope_dims > 0 ? 2 * std::int64_t{desc.kv_heads} : 0;
  auto q = RandomTensor("q", TrialRole::kRecent, desc.type_q,
                        {desc.head_dim, desc.heads + new_heads, desc.rows, 1}, SeedOf(options, 1));
  if (!q) return Fail(q.error());
  trial.tensors = {std::move(*q), IntegerTensor("positions", batch.positions, {desc.rows, 1, 1, 1}),
                   IntegerTensor("slots", batch.slots, {desc.rows, 1, 1, 1}),
                   OutputTensor("out", desc.type_q,
                                {std::int64_t{desc.head_dim} * desc.heads, desc.rows, 1, 1})};
  if (Status s = AddCaches(desc, batch, options, trial.tensors); !s) return Fail(s.error());
  if (desc.sinks) {  // the last
    auto sinks = RandomTensor("sinks", TrialRole::kStored, DataType::kF32, {desc.heads, 1, 1, 1},
                              SeedOf(options, 9));
    if (!sinks) return Fail(sinks.error());
    trial.tensors.push_back(std::move(*sinks));
  }
  trial.outputs = {3};
  trial.rows = desc.rows;
  // Each score is a sum of head_dim products, which its weight follows; the sums over the positions
  // are of one sign or weigh as much as the values, which are below 6.
  trial.tolerance.relative = 0x1p-24 * batch.filled + EpsilonOf(desc.type_q);
  trial.tolerance.absolute = 6 * 0x1p-24 * (desc.head_dim + 64);
  if (desc.rope_dims > 0) {
    trial.outputs = {3, 4, 5};
    trial.rows = 1;  // a row may lie anywhere in the caches
    // An element that is turned may be rounded to its neighbour, which moves its score by as much.
    trial.tolerance.absolute += EpsilonOf(desc.type_q) / 2;
  }
  // bf16 rounds an element of q, k and v, and a weight, by 2^-9 of it at most, by about a third of
  // that in the root of the mean square. A score of deviation 1 is off by 0.0013 of that kind and its
  // weight by 0.0016; five deviations of that, times the distance of two values, is what a row of few
  // positions can be off by, and one of many by less as errors cancel.
  trial.rounding_features = kRoundingFeatures;
  std::int32_t least = std::max(1, batch.filled - batch.rows_each + 1);
  if (desc.window > 0) least = std::min(least, desc.window);
  trial.rounded.relative = trial.tolerance.relative + 0x1p-8;
  trial.rounded.absolute = trial.tolerance.absolute + 0x1p-6 / std::max(1.0, std::sqrt(least) / 4);
  trial.args = [](const Desc& d, std::span<const TensorView> t) {
    const bool turns = d.rope_dims > 0;  // then q, k and v lie in one merged product
    const auto heads = [&](std::int64_t first, std::int64_t count) {
      return Slice(t[0], 1, first, count);
    };
    return Args{.q = heads(0, d.heads),
                .k_cache = t[4],
                .v_cache = t[5],
                .positions = t[1],
                .slots = t[2],
                .out = t[3],
                .pages = d.page_size > 0 ? t[6] : TensorView{},
                .scale = 1.0f / std::sqrt(static_cast<float>(d.head_dim)),
                .window = d.window,
                .softcap = d.soft_capped ? 2.0f : 0.0f,
                .sinks = d.sinks ? t.back() : TensorView{},
                .k = turns ? heads(d.heads, d.kv_heads) : TensorView{},
                .v = turns ? heads(d.heads + d.kv_heads, d.kv_heads) : TensorView{},
                .rope = {.mode = d.rope_mode, .dims = d.rope_dims}};
  };
  return trial;
}

static LeastWork WorkOf(const Desc& desc, const TrialOptions& options) {
  const Batch batch(desc, options);
  std::vector<std::int64_t> read(static_cast<std::size_t>(batch.sequences));
  double scored = 0;
  for (std::size_t r = 0; r < batch.positions.size(); ++r) {
    std::int64_t seen = batch.positions[r] + 1;  // padding sees nothing
    if (desc.window > 0) seen = std::min<std::int64_t>(seen, desc.window);
    scored += static_cast<double>(seen);
    // The last row of a sequence sees what those before it see, but for what left the window.
    std::int64_t& of_sequence = read[static_cast<std::size_t>(batch.slots[r])];
    of_sequence = std::max(of_sequence + (desc.window > 0 && of_sequence > 0 ? 1 : 0), seen);
  }
  std::int64_t positions = 0;
  for (const std::int64_t of_sequence : read) positions += of_sequence;
  const std::int64_t values = std::int64_t{desc.rows} * desc.heads * desc.head_dim;
  const std::int64_t cached = positions * desc.kv_heads * desc.head_dim;
  const std::int64_t fresh =
      desc.rope_dims > 0 ? 2 * std::int64_t{desc.rows} * desc.kv_heads * desc.head_dim : 0;
  return {.bytes = static_cast<double>(BytesOf(desc.type_q, 2 * values + fresh) +
                                       2 * BytesOf(desc.type_kv, cached)),
          .operations = 4.0 * desc.heads * desc.head_dim * scored};
}

}  // namespace tilewright::attention

namespace tilewright {
TILEWRIGHT_INSTANTIATE_TUNING(attention::Op);
}  // namespace tilewright
