#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <list>

#include "core/block_format.h"
#include "core/log.h"
#include "core/text.h"
#include "model/session/kv_cache.h"
#include "model/session/pass.h"
#include "model/session/pass_inputs.h"
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
  std::int64_t cache_moves = 0;            ///< of the cache when the pass was prepared
  NodeId logits = kNoNode;
  std::unique_ptr<PreparedGraph> graph;
  std::int64_t runs = 0;
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
  std::list<PreparedPass> passes;    // most recently used first
  std::int64_t table_sent = -1;      // of the cache's table_changes
  DeviceMemory host_logits;          // where the host cannot touch those of the device
  std::vector<float> as_floats;      // logits of another type than f32, as the caller reads them
  std::vector<std::int32_t> filled;  // [slots]: positions 0 .. filled - 1 hold keys and values
  std::vector<std::int32_t> next;    // [slots]: where a pass continues a slot, -1 if it does not

  std::int32_t Bucket(std::int32_t rows) const;
  Result<PreparedPass*> PassFor(std::int32_t rows, std::int32_t wanted);
  Result<PreparedPass> Prepare(std::int32_t rows, std::int32_t logits_rows, bool pick);
  Status Check(std::span<const Row> rows);
  Status CheckPosition(std::size_t index, const Row& row);
  Status ReserveLogits(const PreparedPass& pass);
  Status HoldPages();
  Status RunPass(PreparedPass& pass);
  Status SendInputs(std::span<const Row> rows, const PreparedPass& pass);
  Result<std::span<const float>> ReadLogits(const PreparedPass& pass, std::int32_t rows);
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

Result<PreparedPass> Session::Impl::Prepare(std::int32_t rows, std::int32_t logits_rows,
                                            bool pick) {
  // Shapes and addresses of the cache are part of a graph, so some of it must be there.
  if (Status status = cache.Reserve(1); !status) return Fail(status.error());
  PassGraph built =
      BuildPass(model, cache, inputs.device(), {rows, logits_rows, pick}, TypesOf(options));
  const auto supports = [this](const Graph& in, const TensorNode& node) {
    return !dispatch.Supports(in, node);
  };
  // GPUs keep activations in 16 bits to move fewer bytes.
  FusedGraph fused = Fuse(
      built.graph, model.fusions(), supports,
      device.spec().kind == DeviceKind::kCuda ? BetweenFused::kUnrounded : BetweenFused::kRounded);
  // The logits are kept, so fusing leaves them a node.
  const NodeId logits =
      built.logits == kNoNode ? kNoNode : fused.id_of[static_cast<std::size_t>(built.logits)];
  PreparedPass pass{rows, logits_rows, pick, cache.moves(), logits, nullptr, 0};
  Result<std::unique_ptr<PreparedGraph>> graph =
      PrepareGraph(std::move(fused.graph), dispatch, arena);
  if (!graph) return Fail(graph.error());
  pass.graph = std::move(*graph);
  if (Status status = ReserveLogits(pass); !status) return Fail(status.error());
  if (LogEnabled(LogLevel::kDebug)) {
    LogDebug(fmt::format("prepared a pass of {} rows, {} with logits: {} nodes, activations of {}",
                         rows, logits_rows, pass.graph->graph().size(),
                         HumanBytes(pass.graph->memory().bytes)));
  }
  return pass;
}

/// Room on the host for the logits of a pass, where it cannot touch those of the device, and where
/// they are no floats.
Status Session::Impl::ReserveLogits(const PreparedPass& pass) {
  if (pass.logits == kNoNode) return {};
  const TensorView& view = pass.graph->graph().node(pass.logits).out;
  const auto elements = static_cast<std::size_t>(view.elements());
  if (view.dtype != DataType::kF32 && as_floats.size() < elements) as_floats.resize(elements);
  const std::size_t bytes = BytesOf(view.dtype, view.elements());
  if (device.host_accessible() || bytes <= host_logits.size()) return {};
  Result<DeviceMemory> larger = device.AllocateStaging(bytes);
  if (!larger) return Fail(larger.error());
  host_logits = std::move(*larger);
  return {};
}

/// The pass for `rows` rows, `wanted` of them with logits; prepared again if something it depends
/// on has moved.
Result<PreparedPass*> Session::Impl::PassFor(std::int32_t rows, std::int32_t wanted) {
  const bool pick = wanted < rows && wanted > 0;
  const std::int32_t padded = Bucket(rows), logits_rows = Bucket(wanted);
  for (auto it = passes.begin(); it != passes.end(); ++it) {
    if (it->rows != padded || it->logits_rows != logits_rows || it->pick != pick) continue;
    if (it->graph->stale() || it->cache_moves != cache.moves()) {
      passes.erase(it);
      break;
    }
    if (it != passes.begin()) passes.splice(passes.begin(), passes, it);
    return &passes.front();
  }
  Result<PreparedPass> fresh = Prepare(padded, logits_rows, pick);
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

/// A pass that comes back is likely to be the one of decode: it is captured where that is possible.
Status Session::Impl::RunPass(PreparedPass& pass) {
  if (++pass.runs == 2 && device.can_capture()) {
    Status captured = pass.graph->Capture(device, stream);
    if (!captured && captured.error().code != ErrorCode::kUnsupported) return captured;
  }
  return pass.graph->Run(stream);
}

/// Waits for the pass and returns the logits of `rows` rows.
Result<std::span<const float>> Session::Impl::ReadLogits(const PreparedPass& pass,
                                                         std::int32_t rows) {
  if (rows == 0) {
    if (Status status = device.Synchronize(stream); !status) return Fail(status.error());
    return std::span<const float>();
  }
  const TensorView& view = pass.graph->graph().node(pass.logits).out;
  const std::int64_t elements = view.shape[0] * rows;
  void* data = view.data;
  if (!device.host_accessible()) {
    data = host_logits.data();
    if (Status s = device.Download(data, view.data, BytesOf(view.dtype, elements), stream); !s)
      return Fail(s.error());
  }
  if (Status status = device.Synchronize(stream); !status) return Fail(status.error());
  if (view.dtype != DataType::kF32) {
    if (Status s = DecodeRow(view.dtype, data, elements, as_floats.data()); !s)
      return Fail(s.error());
    data = as_floats.data();
  }
  return std::span<const float>(static_cast<const float*>(data),
                                static_cast<std::size_t>(elements));
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

Result<std::span<const float>> Session::Forward(std::span<const Row> rows) {
  Impl& s = *impl_;
  if (Status status = s.Check(rows); !status) return Fail(status.error());
  // A pass that fails, before it runs or half way, leaves nothing to rely on from its first row on.
  for (const Row& row : rows) {
    std::int32_t& filled = s.filled[static_cast<std::size_t>(row.slot)];
    filled = std::min(filled, row.position);
  }
  if (Status status = s.HoldPages(); !status) return Fail(status.error());
  const auto count = static_cast<std::int32_t>(rows.size());
  const auto wanted = static_cast<std::int32_t>(
      std::count_if(rows.begin(), rows.end(), [](const Row& r) { return r.logits; }));
  Result<PreparedPass*> pass = s.PassFor(count, wanted);
  if (!pass) return Fail(pass.error());
  if (Status status = s.SendInputs(rows, **pass); !status) return Fail(status.error());
  if (Status status = s.RunPass(**pass); !status) return Fail(status.error());
  Result<std::span<const float>> logits = s.ReadLogits(**pass, wanted);
  if (!logits) return logits;
  for (std::size_t slot = 0; slot < s.filled.size(); ++slot) {
    if (s.next[slot] >= 0) s.filled[slot] = s.next[slot];
  }
  return logits;
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
  Result<PreparedPass*> pass = impl_->PassFor(rows, logits_rows);
  if (!pass) return Fail(pass.error());
  return &(*pass)->graph->graph();
}

std::int32_t Session::context() const { return impl_->options.context; }
std::int32_t Session::max_rows() const { return impl_->options.max_rows; }
std::int64_t Session::kv_bytes() const { return impl_->cache.bytes(); }
std::int64_t Session::kv_pages_held() const { return impl_->cache.pages_held(); }
std::int64_t Session::kv_bytes_per_position() const { return impl_->cache.bytes_per_position(); }

}  // namespace tilewright
