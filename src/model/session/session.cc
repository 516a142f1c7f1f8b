#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <list>

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "model/session/pass.h"
#include "tilewright/model.h"

namespace tilewright {
namespace {

/// Graphs kept: decode runs one or two shapes for ever, prompts a handful.
constexpr std::size_t kGraphsKept = 8;

struct PreparedPass {
  std::int32_t rows = 0, logits_rows = 0;
  PassGraph pass;
  std::shared_ptr<const Buffer> arena;  ///< of the intermediates; several passes may share one
};

}  // namespace

struct Session::Impl {
  const Model* model = nullptr;
  KernelDispatch* dispatch = nullptr;
  SessionOptions options;
  Allocator* allocator = nullptr;
  Buffer cache_memory, ints;
  std::shared_ptr<const Buffer> arena;  ///< the largest so far: of the next pass that fits
  std::vector<KvLayer> cache;
  PassInputs inputs;
  std::list<PreparedPass> passes;  // most recently used first
  std::size_t cache_bytes = 0;
  std::vector<std::int32_t> filled;  // [slots]: positions 0 .. filled - 1 hold keys and values
  std::vector<std::int32_t> next;    // [slots]: where a pass continues a slot, -1 if it does not

  Status AllocateCache();
  Status EnsureArena(std::size_t bytes);
  Result<PreparedPass*> Pass(std::int32_t rows, std::int32_t logits_rows);
  Status Check(std::span<const Row> rows);
  Status CheckPosition(std::size_t index, const Row& row);
};

Status Session::Impl::AllocateCache() {
  const ModelConfig& c = model->config();
  const std::int64_t row = std::int64_t{c.kv_heads} * c.head_dim;
  const TypeInfo& type = GetTypeInfo(options.kv);
  if (c.head_dim % type.block_elements != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("KV cache of {}: head_dim = {} must be a multiple of {}", type.name,
                            c.head_dim, type.block_elements));
  }
  // In floating point first: positions times sequences may be more than 64 bits hold.
  const double wanted = 2.0 * c.layers * static_cast<double>(row) * options.context *
                        options.slots * type.block_bytes / type.block_elements;
  const bool countable = wanted < 0x1p62;
  const std::int64_t elements = countable ? row * options.context * options.slots : 0;
  const std::size_t each = (BytesOf(options.kv, elements) + 63) / 64 * 64;
  cache_bytes = countable ? each * 2 * static_cast<std::size_t>(c.layers)
                          : std::numeric_limits<std::size_t>::max();
  const std::uint64_t available = AvailableMemoryBytes();
  cache_memory = cache_bytes <= available ? Buffer::Make(cache_bytes, *allocator) : Buffer();
  if (!cache_memory) {
    return Fail(ErrorCode::kOutOfMemory,
                fmt::format("a KV cache of {} positions for {} sequence(s) in {} needs {}, {} of "
                            "memory are available; a smaller context or KV type needs less",
                            options.context, options.slots, type.name, HumanBytes(cache_bytes),
                            HumanBytes(available)));
  }
  auto* at = cache_memory.as<std::byte>();
  const std::array<std::int64_t, 4> shape{c.head_dim, c.kv_heads, options.context, options.slots};
  for (std::int32_t i = 0; i < c.layers; ++i) {
    KvLayer layer;
    layer.k = Contiguous(at, options.kv, shape);
    layer.v = Contiguous(at + each, options.kv, shape);
    at += 2 * each;
    cache.push_back(layer);
  }
  return {};
}

/// Passes that were prepared keep the arena they were prepared in: what a dispatch has resolved for
/// them stays true.
Status Session::Impl::EnsureArena(std::size_t bytes) {
  if (arena != nullptr && bytes <= arena->size()) return {};
  auto larger = std::make_shared<Buffer>(Buffer::Make(bytes, *allocator));
  if (!*larger) {
    return Fail(ErrorCode::kOutOfMemory,
                fmt::format("the activations of a pass need {}", HumanBytes(bytes)));
  }
  arena = std::move(larger);
  return {};
}

Result<PreparedPass*> Session::Impl::Pass(std::int32_t rows, std::int32_t logits_rows) {
  for (auto it = passes.begin(); it != passes.end(); ++it) {
    if (it->rows != rows || it->logits_rows != logits_rows) continue;
    if (it != passes.begin()) passes.splice(passes.begin(), passes, it);
    return &passes.front();
  }
  PreparedPass fresh{rows, logits_rows,
                     BuildPass(*model, cache, inputs, rows, logits_rows, options.activations),
                     nullptr};
  if (Status status = VerifyGraph(fresh.pass.graph); !status) return Fail(status.error());
  const MemoryPlan plan = PlanMemory(fresh.pass.graph);
  if (Status status = EnsureArena(plan.bytes); !status) return Fail(status.error());
  fresh.arena = arena;
  BindMemory(fresh.pass.graph, plan, arena->data());
  if (Status status = dispatch->Prepare(fresh.pass.graph); !status) return Fail(status.error());
  if (LogEnabled(LogLevel::kDebug)) {
    LogDebug(fmt::format("prepared a pass of {} rows, {} with logits: {} nodes, activations of {}",
                         rows, logits_rows, fresh.pass.graph.size(), HumanBytes(plan.bytes)));
  }
  passes.push_front(std::move(fresh));
  if (passes.size() > kGraphsKept) passes.pop_back();
  return &passes.front();
}

/// Attention of a row reads every position before its own, so none of them may be unwritten; and a
/// pass writes all its rows before any is read, so its rows of one slot must follow each other.
Status Session::Impl::CheckPosition(std::size_t index, const Row& row) {
  std::int32_t& expected = next[static_cast<std::size_t>(row.slot)];
  const std::int32_t held = filled[static_cast<std::size_t>(row.slot)];
  if (expected >= 0 && row.position != expected) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("row {}: position = {}, must be {}: rows of one slot ascend by one",
                            index, row.position, expected));
  }
  if (expected < 0 && row.position > held) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("row {}: position = {}, must be 0 to {}: slot {} holds {} positions",
                            index, row.position, held, row.slot, held));
  }
  expected = row.position + 1;
  return {};
}

Status Session::Impl::Check(std::span<const Row> rows) {
  if (rows.empty() || rows.size() > static_cast<std::size_t>(options.max_rows)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} rows in one pass, must be 1 to {}", rows.size(), options.max_rows));
  }
  auto check = [](ErrorCode code, std::size_t row, const char* field, std::int32_t value,
                  std::int32_t limit) -> Status {
    if (value >= 0 && value < limit) return {};
    return Fail(code,
                fmt::format("row {}: {} = {}, must be 0 to {}", row, field, value, limit - 1));
  };
  constexpr ErrorCode kInvalid = ErrorCode::kInvalidArgument;
  std::fill(next.begin(), next.end(), -1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (Status s = check(kInvalid, i, "token", row.token, model->config().vocab); !s) return s;
    if (Status s = check(kInvalid, i, "slot", row.slot, options.slots); !s) return s;
    if (Status s = check(ErrorCode::kExhausted, i, "position", row.position, options.context); !s) {
      return s;
    }
    if (Status s = CheckPosition(i, row); !s) return s;
  }
  return {};
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Create(const Model& model, KernelDispatch& dispatch,
                                                 const SessionOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->model = &model;
  impl->dispatch = &dispatch;
  impl->options = options;
  impl->allocator = options.allocator != nullptr ? options.allocator : &DefaultAllocator();
  SessionOptions& o = impl->options;
  if (o.context == 0) o.context = model.config().context;
  if (o.context < 1 || o.slots < 1 || o.max_rows < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("context = {}, slots = {}, max_rows = {}: each must be at least 1",
                            o.context, o.slots, o.max_rows));
  }
  o.max_rows = std::min<std::int64_t>(o.max_rows, std::int64_t{o.context} * o.slots);
  if (Status status = impl->AllocateCache(); !status) return Fail(status.error());
  const auto rows = static_cast<std::size_t>(o.max_rows);
  impl->ints = Buffer::Make(4 * rows * sizeof(std::int32_t), *impl->allocator);
  if (!impl->ints) return Fail(ErrorCode::kOutOfMemory, "no memory for the inputs of a pass");
  auto* ints = impl->ints.as<std::int32_t>();
  std::fill(ints, ints + 4 * rows, 0);
  impl->filled.assign(static_cast<std::size_t>(o.slots), 0);
  impl->next.assign(static_cast<std::size_t>(o.slots), -1);
  impl->inputs = {ints, ints + rows, ints + 2 * rows, ints + 3 * rows};
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Result<std::span<const float>> Session::Forward(std::span<const Row> rows) {
  Impl& s = *impl_;
  if (Status status = s.Check(rows); !status) return Fail(status.error());
  const auto count = static_cast<std::int32_t>(rows.size());
  const auto wanted = static_cast<std::int32_t>(
      std::count_if(rows.begin(), rows.end(), [](const Row& r) { return r.logits; }));
  Result<PreparedPass*> pass = s.Pass(count, wanted);
  if (!pass) return Fail(pass.error());
  std::int32_t next = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    const Row& row = rows[static_cast<std::size_t>(i)];
    s.inputs.tokens[i] = row.token;
    s.inputs.positions[i] = row.position;
    s.inputs.slots[i] = row.slot;
    if (row.logits) s.inputs.wanted[next++] = i;
    // A pass that fails half way leaves nothing to rely on from its first row on.
    std::int32_t& filled = s.filled[static_cast<std::size_t>(row.slot)];
    filled = std::min(filled, row.position);
  }
  const PassGraph& built = (*pass)->pass;
  if (Result<std::int64_t> calls = ExecuteGraph(built.graph, *s.dispatch); !calls)
    return Fail(calls.error());
  for (std::size_t slot = 0; slot < s.filled.size(); ++slot) {
    if (s.next[slot] >= 0) s.filled[slot] = s.next[slot];
  }
  if (wanted == 0) return std::span<const float>();
  const TensorView& logits = built.graph.node(built.logits).out;
  const auto elements = static_cast<std::size_t>(logits.elements());
  if (logits.dtype == DataType::kF64) {
    // The caller reads floats; narrowing in place is safe from the front, since each float ends
    // before its double does.
    auto* wide = logits.as<double>();
    auto* narrow = logits.as<float>();
    for (std::size_t i = 0; i < elements; ++i) {
      const auto value = static_cast<float>(wide[i]);
      std::memcpy(narrow + i, &value, sizeof value);
    }
  }
  return std::span<const float>(logits.as<float>(), elements);
}

Result<std::span<const float>> Session::Prefill(std::span<const TokenId> tokens, std::int32_t slot,
                                                std::int32_t position) {
  const std::size_t limit = static_cast<std::size_t>(impl_->options.max_rows);
  std::vector<Row> rows;
  Result<std::span<const float>> logits = std::span<const float>();
  for (std::size_t from = 0; from < tokens.size(); from += limit) {
    const std::size_t to = std::min(tokens.size(), from + limit);
    rows.clear();
    for (std::size_t i = from; i < to; ++i) {
      rows.push_back(
          {tokens[i], position + static_cast<std::int32_t>(i), slot, i + 1 == tokens.size()});
    }
    logits = Forward(rows);
    if (!logits) return logits;
  }
  return logits;
}

Result<const Graph*> Session::GraphFor(std::int32_t rows, std::int32_t logits_rows) {
  if (rows < 1 || rows > impl_->options.max_rows || logits_rows < 0 || logits_rows > rows) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("rows = {} (1 to {}), logits_rows = {} (0 to rows)", rows,
                            impl_->options.max_rows, logits_rows));
  }
  Result<PreparedPass*> pass = impl_->Pass(rows, logits_rows);
  if (!pass) return Fail(pass.error());
  return &(*pass)->pass.graph;
}

std::int32_t Session::context() const { return impl_->options.context; }
std::int32_t Session::max_rows() const { return impl_->options.max_rows; }
std::int64_t Session::kv_bytes() const { return static_cast<std::int64_t>(impl_->cache_bytes); }
std::int64_t Session::kv_bytes_per_position() const {
  return kv_bytes() / (std::int64_t{impl_->options.context} * impl_->options.slots);
}

}  // namespace tilewright
