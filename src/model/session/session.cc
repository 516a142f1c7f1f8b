#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/log.h"
#include "core/text.h"
#include "model/session/kv_cache.h"
#include "model/session/pass_inputs.h"
#include "model/session/pass_results.h"
#include "model/session/passes_ahead.h"
#include "model/session/prepared_passes.h"
#include "model/session/slot_positions.h"
#include "tilewright/model.h"

namespace tilewright {
namespace {

/// Positions of a page are whole splits of attention.
constexpr std::int32_t kPageGrain = 64;

/// Token, position and wanted row of a padding row, which every operation ignores.
constexpr std::int32_t kPadding = -1;

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

/// The model's context or, where the KV cache of that has no room, a smaller one, with a warning.
std::int32_t DefaultContext(const ModelConfig& config, SessionOptions options, Device& device) {
  options.context = config.context;
  const KvCache::Shape shape = CacheShape(config, options);
  const std::int32_t fits = KvCache::ContextThatFits(shape, device);
  if (fits < config.context) {
    LogWarning(fmt::format(
        "the memory that is free holds no KV cache of the model's {} positions for {} {}: the "
        "context is {} positions",
        config.context, options.slots, options.slots == 1 ? "sequence" : "sequences", fits));
  }
  return fits;
}

}  // namespace

struct Session::Impl {
  Impl(const Model& of, KernelDispatch& by, const SessionOptions& wanted, KvCache kv,
       PassInputs integers, PassesAhead passes_ahead)
      : model(of),
        device(*by.device()),
        stream(device.default_stream()),
        options(wanted),
        cache(std::move(kv)),
        inputs(std::move(integers)),
        results(device),
        ahead(std::move(passes_ahead)),
        passes({model, by, options, cache, inputs, ahead, results}),
        positions({of.config().vocab, wanted.slots, wanted.context, wanted.max_rows}) {
    followers.reserve(static_cast<std::size_t>(wanted.max_rows));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { static_cast<void>(DropAhead()); }

  const Model& model;
  Device& device;
  Stream stream;
  SessionOptions options;
  KvCache cache;
  PassInputs inputs;
  PassResults results;
  PassesAhead ahead;
  PreparedPasses passes;
  std::int64_t table_sent = -1;        // of the cache's table_changes
  const PreparedPass* last = nullptr;  // the pass whose logits are there
  std::int32_t last_wanted = 0;        // rows of them
  std::vector<Row> followers;          // that go on from the pass in front; none unless submitted
  SlotPositions positions;

  Status HoldPages();
  Status CaptureOfDecode(PreparedPass& pass);
  Status RunPass(PreparedPass& pass);
  Status SendInputs(std::span<const Row> rows, const PreparedPass& pass);
  bool HandedOver(std::span<const Row> rows) const;
  Result<const PreparedPass*> Run(std::span<const Row> rows, std::int32_t top);
  Status CheckSubmitted(std::span<const Row> rows, bool follows) const;
  Status Submit(std::span<const Row> rows);
  Status DropAhead();
  Result<std::span<const float>> ReadLogits(const PreparedPass& pass);
  Result<TopLogits> ReadTop(const PreparedPass& pass);
};

/// Every slot of the pass gets pages for its positions; those of a slot that goes back are free
/// again from the pass's rows on.
Status Session::Impl::HoldPages() {
  for (std::int32_t slot = 0; slot < positions.slots(); ++slot) {
    const std::int32_t after = positions.after(slot);
    if (after < 0) continue;
    if (Status s = cache.Hold(slot, after); !s) return s;
  }
  return {};
}

/// Tokens that are kBestOfLast are where the pass in front leaves them.
Status Session::Impl::SendInputs(std::span<const Row> rows, const PreparedPass& pass) {
  const PassInputs::Places host = inputs.host();
  const bool tokens = rows.front().token != kBestOfLast;
  std::int32_t row = 0, wanted = 0;
  for (const Row& r : rows) {
    if (tokens) host.tokens[row] = r.token;
    host.positions[row] = r.position;
    host.slots[row] = r.slot;
    host.turns[row] = ahead.turn();
    if (r.logits) host.wanted[wanted++] = row;
    ++row;
  }
  for (; row < pass.shape.rows; ++row) {
    if (tokens) host.tokens[row] = kPadding;
    host.positions[row] = kPadding;
    host.slots[row] = 0;
  }
  for (; wanted < pass.shape.logits_rows; ++wanted) host.wanted[wanted] = kPadding;
  const bool changed = table_sent != cache.table_changes();
  if (changed) std::copy(cache.table().begin(), cache.table().end(), host.pages);
  const PassInputs::Parts parts{.tokens = tokens, .pages = changed};
  if (Status status = inputs.Send(pass.shape.rows, parts, stream); !status) return status;
  table_sent = cache.table_changes();
  return {};
}

/// Whether the pass in front leaves the inputs of these rows as they are to be: of as many rows it has the
/// same shape, so padding is where it was.
bool Session::Impl::HandedOver(std::span<const Row> rows) const {
  return table_sent == cache.table_changes() &&
         std::ranges::equal(rows, followers, [](const Row& a, const Row& b) {
           return a.token == b.token && a.position == b.position && a.slot == b.slot;
         });
}

/// The passes of decode, in which every row wants logits, come back token after token: they are
/// captured where that is possible. A prompt's length that comes twice may never come again, and
/// its kernels take long enough to be launched meanwhile.
Status Session::Impl::CaptureOfDecode(PreparedPass& pass) {
  const bool decodes = !pass.shape.pick && pass.shape.logits_rows > 0;
  return decodes && device.can_capture() ? pass.Capture(device, stream) : Status();
}

Status Session::Impl::RunPass(PreparedPass& pass) {
  if (++pass.runs == 2) {
    if (Status captured = CaptureOfDecode(pass); !captured) return captured;
  }
  return pass.Run(device, stream);
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Create(const Model& model, KernelDispatch& dispatch,
                                                 const SessionOptions& options) {
  SessionOptions o = options;
  if (o.context < 0 || o.slots < 1 || o.max_rows < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("context = {}, slots = {}, max_rows = {}: each must be at least 1",
                            o.context, o.slots, o.max_rows));
  }
  if (o.page_size < kPageGrain || o.page_size % kPageGrain != 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("page_size = {}: must be a positive multiple of {}", o.page_size, kPageGrain));
  }
  Device& device = *dispatch.device();
  if (o.context == 0) o.context = DefaultContext(model.config(), o, device);
  o.max_rows = std::min<std::int64_t>(o.max_rows, std::int64_t{o.context} * o.slots);
  Result<KvCache> cache = KvCache::Create(CacheShape(model.config(), o), device);
  if (!cache) return Fail(cache.error());
  Result<PassInputs> inputs = PassInputs::Create(device, o.max_rows, cache->table().size());
  if (!inputs) return Fail(inputs.error());
  Result<PassesAhead> ahead = PassesAhead::Create(device, o.max_rows);
  if (!ahead) return Fail(ahead.error());
  return std::unique_ptr<Session>(new Session(std::make_unique<Impl>(
      model, dispatch, o, std::move(*cache), std::move(*inputs), std::move(*ahead))));
}

/// Waits for the passes that were submitted and forgets what they found; where that is not right, also what
/// they wrote into the cache.
Status Session::Impl::DropAhead() {
  followers.clear();
  if (ahead.queued() == 0) return {};
  ahead.Drop();
  Status ended = device.Synchronize(stream);
  if (ended) ended = passes.Outcome(stream);
  ended ? positions.Confirm() : positions.Retract();
  return ended;
}

/// Checks the rows and queues their pass.
Result<const PreparedPass*> Session::Impl::Run(std::span<const Row> rows, std::int32_t top) {
  last = nullptr;
  if (Status status = DropAhead(); !status) return Fail(status.error());
  if (Status status = positions.Check(rows, false); !status) return Fail(status.error());
  // A pass that fails, before it runs or half way, leaves nothing to rely on.
  positions.Discard(rows);
  if (Status status = HoldPages(); !status) return Fail(status.error());
  const auto count = static_cast<std::int32_t>(rows.size());
  last_wanted = static_cast<std::int32_t>(
      std::count_if(rows.begin(), rows.end(), [](const Row& r) { return r.logits; }));
  Result<PreparedPass*> pass = passes.Get(passes.ShapeFor(count, last_wanted, top), stream);
  if (!pass) return Fail(pass.error());
  if (Status status = SendInputs(rows, **pass); !status) return Fail(status.error());
  if (Status status = RunPass(**pass); !status) return Fail(status.error());
  return *pass;
}

Result<std::span<const float>> Session::Impl::ReadLogits(const PreparedPass& pass) {
  Result<std::span<const float>> logits = std::span<const float>();
  if (last_wanted > 0) {
    logits = results.ReadLogits(pass.View(pass.logits), last_wanted, stream);
  } else if (Status status = device.Synchronize(stream); !status) {
    return Fail(status.error());
  }
  if (!logits) return logits;
  if (Status right = passes.Outcome(stream); !right) return Fail(right.error());
  return logits;
}

Result<TopLogits> Session::Impl::ReadTop(const PreparedPass& pass) {
  const bool values = pass.top_values != kNoNode;
  return results.ReadTop(pass.View(pass.top_ids), values ? &pass.View(pass.top_values) : nullptr,
                         last_wanted, stream);
}

Result<std::span<const float>> Session::Forward(std::span<const Row> rows) {
  Impl& s = *impl_;
  Result<const PreparedPass*> pass = s.Run(rows, 0);
  if (!pass) return Fail(pass.error());
  Result<std::span<const float>> logits = s.ReadLogits(**pass);
  if (!logits) return logits;
  s.last = *pass;
  s.positions.Expect();
  s.positions.Confirm();
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
  if (Status right = s.passes.Outcome(s.stream); !right) return Fail(right.error());
  s.last = *pass;
  s.positions.Expect();
  s.positions.Confirm();
  return top;
}

/// Whether the pass fits behind those that are queued.
Status Session::Impl::CheckSubmitted(std::span<const Row> rows, bool follows) const {
  if (ahead.full()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} passes are submitted and not received: receive one before the next",
                            ahead.queued()));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].logits) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("row {} of a submitted pass wants no logits: all must", i));
    }
    if ((rows[i].token == kBestOfLast) != follows) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("row {}: token = {}: kBestOfLast is for all rows or none", i, rows[i].token));
    }
    if (follows && (i >= followers.size() || followers[i].slot != rows[i].slot)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("row {}: kBestOfLast in slot {}, but no pass was submitted in front "
                              "with that slot in that row",
                              i, rows[i].slot));
    }
  }
  return {};
}

/// Queues the pass of rows that were checked.
Status Session::Impl::Submit(std::span<const Row> rows) {
  if (Status status = HoldPages(); !status) return status;
  const auto count = static_cast<std::int32_t>(rows.size());
  const PassShape shape = passes.ShapeFor(count, count, 1);
  PreparedPass* pass = passes.Find(shape);
  if (pass == nullptr) {
    // To prepare one may move what the passes under way work on.
    if (Status ended = device.Synchronize(stream); !ended) return ended;
    Result<PreparedPass*> made = passes.Get(shape, stream);
    if (!made) return Fail(made.error());
    pass = *made;
  } else if (device.host_accessible()) {
    if (Status ended = device.Synchronize(stream); !ended) return ended;
  }
  if (!HandedOver(rows)) {
    if (Status s = SendInputs(rows, *pass); !s) return s;
  }
  if (Status s = RunPass(*pass); !s) return s;
  return ahead.Queue(count, stream);
}

Status Session::Submit(std::span<const Row> rows) {
  Impl& s = *impl_;
  const bool follows = !rows.empty() && rows[0].token == kBestOfLast;
  if (Status status = s.CheckSubmitted(rows, follows); !status) return status;
  if (Status status = s.positions.Check(rows, follows); !status) return status;
  s.last = nullptr;
  s.positions.Discard(rows);
  if (Status submitted = s.Submit(rows); !submitted) {
    static_cast<void>(s.DropAhead());
    return submitted;
  }
  s.positions.Expect();
  s.followers.clear();
  for (const Row& row : rows)
    s.followers.push_back({kBestOfLast, row.position + 1, row.slot, true});
  return {};
}

Result<std::span<const TokenId>> Session::Receive() {
  Impl& s = *impl_;
  if (s.ahead.queued() == 0)
    return Fail(ErrorCode::kInvalidArgument, "no pass is submitted and not received");
  Result<std::span<const TokenId>> tokens = s.ahead.Receive();
  if (tokens) {
    if (Status right = s.passes.Outcome(s.stream); !right) tokens = Fail(right.error());
  }
  if (!tokens) {
    s.positions.Retract();
    static_cast<void>(s.DropAhead());
    return tokens;
  }
  if (s.ahead.queued() == 0) s.positions.Confirm();
  return tokens;
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
                                                std::int32_t position,
                                                const std::atomic<bool>* cancel) {
  const std::size_t limit = static_cast<std::size_t>(impl_->options.max_rows);
  std::vector<Row> rows;
  Result<std::span<const float>> logits = std::span<const float>();
  for (std::size_t from = 0; from < tokens.size(); from += limit) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      return Fail(ErrorCode::kCancelled,
                  fmt::format("cancelled after {} of {} tokens", from, tokens.size()));
    }
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
  for (std::int32_t slot = 0; slot < s.positions.slots(); ++slot)
    load.positions_read += std::max(s.positions.after(slot), 0);
  for (const Row& row : rows) load.positions_scored += row.position + 1;
  s.positions.Discard(rows);
  PreparedPass& pass = s.passes.most_recent();
  if (Status captured = s.CaptureOfDecode(pass); !captured) return Fail(captured.error());
  Result<StepTimes> times = TimeSteps(pass.usual(), s.device, s.stream, load, repeat);
  if (!times) return times;
  if (Status right = s.passes.Outcome(s.stream); !right) return Fail(right.error());
  return times;
}

std::vector<ChainVerdict> Session::chain_verdicts() const { return impl_->passes.Verdicts(); }

Result<const Graph*> Session::GraphFor(std::int32_t rows, std::int32_t logits_rows) {
  if (rows < 1 || rows > impl_->options.max_rows || logits_rows < 0 || logits_rows > rows) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("rows = {} (1 to {}), logits_rows = {} (0 to rows)", rows,
                            impl_->options.max_rows, logits_rows));
  }
  impl_->last = nullptr;  // preparing may move what the last pass left
  if (Status status = impl_->DropAhead(); !status) return Fail(status.error());
  Result<PreparedPass*> pass =
      impl_->passes.Get(impl_->passes.ShapeFor(rows, logits_rows, 0), impl_->stream);
  if (!pass) return Fail(pass.error());
  return &(*pass)->graph->graph();
}

bool Session::asynchronous() const { return !impl_->device.host_accessible(); }
std::int32_t Session::context() const { return impl_->options.context; }
std::int32_t Session::max_rows() const { return impl_->options.max_rows; }
std::int64_t Session::kv_bytes() const { return impl_->cache.bytes(); }
std::int64_t Session::kv_pages_held() const { return impl_->cache.pages_held(); }
std::int64_t Session::kv_bytes_per_position() const { return impl_->cache.bytes_per_position(); }

}  // namespace tilewright
