#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <list>

#include "core/log.h"
#include "core/text.h"
#include "model/session/kv_cache.h"
#include "model/session/pass.h"
#include "model/session/pass_inputs.h"
#include "model/session/pass_results.h"
#include "tilewright/fusion.h"
#include "tilewright/model.h"
#include "tilewright/prepared_graph.h"

namespace tilewright {
namespace {

/// Graphs kept: decode runs one or two shapes forever, prompts a handful.
constexpr std::size_t kGraphsKept = 8;

/// Positions of a page are whole splits of attention.
constexpr std::int32_t kPageGrain = 64;

/// Token, position and wanted row of a padding row, which every operation ignores.
constexpr std::int32_t kPadding = -1;

struct PreparedPass {
  std::int32_t rows = 0, logits_rows = 0;  ///< padding included
  bool pick = false;                       ///< logits of some rows, not of all in their order
  std::int32_t top = 0;                    ///< best logits of each row that it finds
  std::int64_t cache_moves = 0;            ///< of the cache when the pass was prepared
  NodeId logits = kNoNode, top_ids = kNoNode, top_values = kNoNode;
  std::unique_ptr<PreparedGraph> graph;
  std::int64_t runs = 0;

  const TensorView& View(NodeId id) const { return graph->graph().node(id).out; }
};

KvCache::Shape CacheShape(const ModelConfig& config, const SessionOptions& options) {
  const std::int32_t whole = (options.context + kPageGrain - 1) / kPageGrain * kPageGrain;
  return {.layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .type = options.kv,
          .context = options.context,
          .slots = options.slots,
          .page_size = std::min(options.page_size, whole)};
}

PassTypes TypesOf(const SessionOptions& options) {
  const auto or_activations = [&](DataType type) {
    return type == DataType::kNone ? options.activations : type;
  };
  return {options.activations, or_activations(options.normed), or_activations(options.logits)};
}

}  // namespace

struct Session::Impl {
  Impl(const Model& of, KernelDispatch& by, const SessionOptions& wanted, KvCache kv,
       PassInputs integers)
      : model(of),
        dispatch(by),
        device(*by.device()),
        stream(device.default_stream()),
        options(wanted),
        cache(std::move(kv)),
        inputs(std::move(integers)),
        arena(device),
        results(device),
        filled(static_cast<std::size_t>(wanted.slots), 0),
        next(static_cast<std::size_t>(wanted.slots), -1) {}

  const Model& model;
  KernelDispatch& dispatch;
  Device& device;
  Stream stream;
  SessionOptions options;
  KvCache cache;
  PassInputs inputs;
  Arena arena;
  std::list<PreparedPass> passes;  // most recently used first
  std::int64_t table_sent = -1;    // of the cache's table_changes
  PassResults results;
  const PreparedPass* last = nullptr;  // the pass whose logits are there
  std::int32_t last_wanted = 0;        // rows of them
  std::vector<std::int32_t> filled;    // [slots]: positions 0 .. filled - 1 hold keys and values
  std::vector<std::int32_t> next;      // [slots]: where a pass continues a slot, -1 if it does not

  std::int32_t Bucket(std::int32_t rows) const;
  Result<PreparedPass*> PassFor(std::int32_t rows, std::int32_t wanted, std::int32_t top);
  Result<PreparedPass> Prepare(const PassShape& shape);
  Status Check(std::span<const Row> rows);
  Status CheckPosition(std::size_t index, const Row& row);
  Status HoldPages();
  Status RunPass(PreparedPass& pass);
  Status SendInputs(std::span<const Row> rows, const PreparedPass& pass);
  Result<const PreparedPass*> Run(std::span<const Row> rows, std::int32_t top);
  Result<std::span<const float>> ReadLogits(const PreparedPass& pass);
  Result<TopLogits> ReadTop(const PreparedPass& pass);
  void MarkFilled();
};

/// Rows of the pass that serves `rows`. Where capturing or binding a graph is expensive, one graph
/// serves many numbers of rows; where the work itself is, a graph has exactly the rows that there
/// are.
std::int32_t Session::Impl::Bucket(std::int32_t rows) const {
  const bool pad = options.buckets == RowBuckets::kPowersOfTwo ||
                   (options.buckets == RowBuckets::kAuto && !device.host_accessible());
  if (!pad || rows == 0) return rows;
  return std::min(static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(rows))),
                  options.max_rows);
}

Result<PreparedPass> Session::Impl::Prepare(const PassShape& shape) {
  // Shapes and addresses of the cache are part of a graph, so some of it must be there.
  if (Status status = cache.Reserve(1); !status) return Fail(status.error());
  PassGraph built = BuildPass(model, cache, inputs.device(), shape, TypesOf(options));
  const auto supports = [this](const Graph& in, const TensorNode& node) {
    return !dispatch.Supports(in, node);
  };
  // GPUs keep activations in 16 bits to move fewer bytes.
  FusedGraph fused = Fuse(
      built.graph, model.fusions(), supports,
      device.spec().kind == DeviceKind::kCuda ? BetweenFused::kUnrounded : BetweenFused::kRounded);
  // Results are kept, so fusing leaves each a node.
  const auto now = [&](NodeId id) {
    return id == kNoNode ? kNoNode : fused.id_of[static_cast<std::size_t>(id)];
  };
  PreparedPass pass{.rows = shape.rows,
                    .logits_rows = shape.logits_rows,
                    .pick = shape.pick,
                    .top = shape.top,
                    .cache_moves = cache.moves(),
                    .logits = now(built.logits),
                    .top_ids = now(built.top_ids),
                    .top_values = now(built.top_values)};
  Result<std::unique_ptr<PreparedGraph>> graph =
      PrepareGraph(std::move(fused.graph), dispatch, arena);
  if (!graph) return Fail(graph.error());
  pass.graph = std::move(*graph);
  Status reserved;
  if (pass.top > 0) {
    reserved = results.ReserveTop(pass.View(pass.top_ids));
  } else if (pass.logits != kNoNode) {
    reserved = results.ReserveLogits(pass.View(pass.logits));
  }
  if (!reserved) return Fail(reserved.error());
  if (LogEnabled(LogLevel::kDebug)) {
    LogDebug(fmt::format("prepared a pass of {} rows, {} with logits: {} nodes, activations of {}",
                         shape.rows, shape.logits_rows, pass.graph->graph().size(),
                         HumanBytes(pass.graph->memory().bytes)));
  }
  return pass;
}

/// The pass for `rows` rows, `wanted` of them with logits, of which it finds the `top` best;
/// prepared again if something it depends on has moved.
Result<PreparedPass*> Session::Impl::PassFor(std::int32_t rows, std::int32_t wanted,
                                             std::int32_t top) {
  const bool pick = wanted < rows && wanted > 0;
  const std::int32_t padded = Bucket(rows), logits_rows = Bucket(wanted);
  for (auto it = passes.begin(); it != passes.end(); ++it) {
    if (it->rows != padded || it->logits_rows != logits_rows || it->pick != pick || it->top != top)
      continue;
    if (it->graph->stale() || it->cache_moves != cache.moves()) {
      passes.erase(it);
      break;
    }
    if (it != passes.begin()) passes.splice(passes.begin(), passes, it);
    return &passes.front();
  }
  Result<PreparedPass> fresh = Prepare({padded, logits_rows, pick, top});
  if (!fresh) return Fail(fresh.error());
  passes.push_front(std::move(*fresh));
  if (passes.size() > kGraphsKept) passes.pop_back();
  return &passes.front();
}

/// Every slot of the pass gets pages for its positions; those of a slot that goes back are free
/// again from the pass's rows on.
Status Session::Impl::HoldPages() {
  for (std::size_t slot = 0; slot < next.size(); ++slot) {
    if (next[slot] < 0) continue;
    if (Status s = cache.Hold(static_cast<std::int32_t>(slot), next[slot]); !s) return s;
  }
  return {};
}

Status Session::Impl::SendInputs(std::span<const Row> rows, const PreparedPass& pass) {
  const PassInputs::Places host = inputs.host();
  std::int32_t row = 0, wanted = 0;
  for (const Row& r : rows) {
    host.tokens[row] = r.token;
    host.positions[row] = r.position;
    host.slots[row] = r.slot;
    if (r.logits) host.wanted[wanted++] = row;
    ++row;
  }
  for (; row < pass.rows; ++row) {
    host.tokens[row] = host.positions[row] = kPadding;
    host.slots[row] = 0;
  }
  for (; wanted < pass.logits_rows; ++wanted) host.wanted[wanted] = kPadding;
  const bool changed = table_sent != cache.table_changes();
  if (changed) std::copy(cache.table().begin(), cache.table().end(), host.pages);
  if (Status status = inputs.Send(pass.rows, changed, stream); !status) return status;
  table_sent = cache.table_changes();
  return {};
}

/// The passes of decode, in which every row wants logits, come back token after token: they are
/// captured where that is possible. A prompt's length that comes twice may never come again, and
/// its kernels take long enough to be launched meanwhile.
Status Session::Impl::RunPass(PreparedPass& pass) {
  const bool decodes = !pass.pick && pass.logits_rows > 0;
  if (++pass.runs == 2 && decodes && device.can_capture()) {
    Status captured = pass.graph->Capture(device, stream);
    if (!captured && captured.error().code != ErrorCode::kUnsupported) return captured;
  }
  return pass.graph->Run(stream);
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
    if (Status s = check(kInvalid, i, "token", row.token, model.config().vocab); !s) return s;
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
  SessionOptions o = options;
  if (o.context == 0) o.context = model.config().context;
  if (o.context < 1 || o.slots < 1 || o.max_rows < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("context = {}, slots = {}, max_rows = {}: each must be at least 1",
                            o.context, o.slots, o.max_rows));
  }
  if (o.page_size < kPageGrain || o.page_size % kPageGrain != 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("page_size = {}: must be a positive multiple of {}", o.page_size, kPageGrain));
  }
  o.max_rows = std::min<std::int64_t>(o.max_rows, std::int64_t{o.context} * o.slots);
  Device& device = *dispatch.device();
  Result<KvCache> cache = KvCache::Create(CacheShape(model.config(), o), device);
  if (!cache) return Fail(cache.error());
  Result<PassInputs> inputs = PassInputs::Create(device, o.max_rows, cache->table().size());
  if (!inputs) return Fail(inputs.error());
  return std::unique_ptr<Session>(new Session(
      std::make_unique<Impl>(model, dispatch, o, std::move(*cache), std::move(*inputs))));
}

/// Checks the rows and queues their pass.
Result<const PreparedPass*> Session::Impl::Run(std::span<const Row> rows, std::int32_t top) {
  last = nullptr;
  if (Status status = Check(rows); !status) return Fail(status.error());
  // A pass that fails, before it runs or half way, leaves nothing to rely on from its first row on.
  for (const Row& row : rows) {
    std::int32_t& held = filled[static_cast<std::size_t>(row.slot)];
    held = std::min(held, row.position);
  }
  if (Status status = HoldPages(); !status) return Fail(status.error());
  const auto count = static_cast<std::int32_t>(rows.size());
  last_wanted = static_cast<std::int32_t>(
      std::count_if(rows.begin(), rows.end(), [](const Row& r) { return r.logits; }));
  Result<PreparedPass*> pass = PassFor(count, last_wanted, last_wanted > 0 ? top : 0);
  if (!pass) return Fail(pass.error());
  if (Status status = SendInputs(rows, **pass); !status) return Fail(status.error());
  if (Status status = RunPass(**pass); !status) return Fail(status.error());
  return *pass;
}

Result<std::span<const float>> Session::Impl::ReadLogits(const PreparedPass& pass) {
  if (last_wanted > 0) return results.ReadLogits(pass.View(pass.logits), last_wanted, stream);
  if (Status status = device.Synchronize(stream); !status) return Fail(status.error());
  return std::span<const float>();
}

Result<TopLogits> Session::Impl::ReadTop(const PreparedPass& pass) {
  const bool values = pass.top_values != kNoNode;
  return results.ReadTop(pass.View(pass.top_ids), values ? &pass.View(pass.top_values) : nullptr,
                         last_wanted, stream);
}

/// After a pass was waited for: its rows are there.
void Session::Impl::MarkFilled() {
  for (std::size_t slot = 0; slot < filled.size(); ++slot) {
    if (next[slot] >= 0) filled[slot] = next[slot];
  }
}

Result<std::span<const float>> Session::Forward(std::span<const Row> rows) {
  Impl& s = *impl_;
  Result<const PreparedPass*> pass = s.Run(rows, 0);
  if (!pass) return Fail(pass.error());
  Result<std::span<const float>> logits = s.ReadLogits(**pass);
  if (!logits) return logits;
  s.last = *pass;
  s.MarkFilled();
  return logits;
}

Result<TopLogits> Session::ForwardTop(std::span<const Row> rows, std::int32_t k) {
  if (k < 1) return Fail(ErrorCode::kInvalidArgument, fmt::format("k = {}: must be at least 1", k));
  Impl& s = *impl_;
  Result<const PreparedPass*> pass = s.Run(rows, k);
  if (!pass) return Fail(pass.error());
  Result<TopLogits> top = TopLogits{.k = k, .ids = {}, .logits = {}};
  if (s.last_wanted > 0) {
    top = s.ReadTop(**pass);
  } else if (Status status = s.device.Synchronize(s.stream); !status) {
    top = Fail(status.error());
  }
  if (!top) return top;
  s.last = *pass;
  s.MarkFilled();
  return top;
}

Result<std::span<const float>> Session::Logits() {
  Impl& s = *impl_;
  if (s.last == nullptr)
    return Fail(ErrorCode::kInvalidArgument, "no pass ran whose logits could be read");
  if (s.last_wanted > 0) {
    const TensorView& logits = s.last->View(s.last->logits);
    if (Status status = s.results.ReserveLogits(logits); !status) return Fail(status.error());
  }
  return s.ReadLogits(*s.last);
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

Result<StepTimes> Session::TimePass(std::span<const Row> rows, int repeat) {
  Impl& s = *impl_;
  if (const auto logits = Forward(rows); !logits) return Fail(logits.error());
  CacheLoad load;
  load.bytes_per_position = static_cast<double>(kv_bytes_per_position()) / s.model.config().layers;
  for (std::size_t slot = 0; slot < s.filled.size(); ++slot) {
    if (s.next[slot] >= 0) load.positions_read += s.next[slot];
  }
  for (const Row& row : rows) {
    load.positions_scored += row.position + 1;
    std::int32_t& filled = s.filled[static_cast<std::size_t>(row.slot)];
    filled = std::min(filled, row.position);
  }
  // The pass that ran last is the first of the list.
  return TimeSteps(*s.passes.front().graph, s.device, s.stream, load, repeat);
}

Result<const Graph*> Session::GraphFor(std::int32_t rows, std::int32_t logits_rows) {
  if (rows < 1 || rows > impl_->options.max_rows || logits_rows < 0 || logits_rows > rows) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("rows = {} (1 to {}), logits_rows = {} (0 to rows)", rows,
                            impl_->options.max_rows, logits_rows));
  }
  impl_->last = nullptr;  // preparing may move what the last pass left
  Result<PreparedPass*> pass = impl_->PassFor(rows, logits_rows, 0);
  if (!pass) return Fail(pass.error());
  return &(*pass)->graph->graph();
}

std::int32_t Session::context() const { return impl_->options.context; }
std::int32_t Session::max_rows() const { return impl_->options.max_rows; }
std::int64_t Session::kv_bytes() const { return impl_->cache.bytes(); }
std::int64_t Session::kv_pages_held() const { return impl_->cache.pages_held(); }
std::int64_t Session::kv_bytes_per_position() const { return impl_->cache.bytes_per_position(); }

}  // namespace tilewright
