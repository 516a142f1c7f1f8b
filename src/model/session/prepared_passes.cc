#include "model/session/prepared_passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "core/log.h"
#include "core/text.h"
#include "tilewright/fusion.h"

namespace tilewright {
namespace {

/// Graphs kept: decode runs one or two shapes forever, prompts a handful.
constexpr std::size_t kGraphsKept = 8;

/// Rows of passes that chains of products are raced for: those of fewer have kernels that no launch keeps
/// from the memory for long.
constexpr std::int32_t kFewestChainRows = 8;

PassTypes TypesOf(const SessionOptions& options) {
  const auto or_activations = [&](DataType type) {
    return type == DataType::kNone ? options.activations : type;
  };
  return {options.activations, or_activations(options.normed), or_activations(options.logits)};
}

}  // namespace

/// Rows of the pass that serves `rows`. Where capturing or binding a graph is expensive, one graph
/// serves many numbers of rows; where the work itself is, a graph has exactly the rows that there
/// are.
std::int32_t PreparedPasses::Bucket(std::int32_t rows) const {
  const bool pad =
      of_.options.buckets == RowBuckets::kPowersOfTwo ||
      (of_.options.buckets == RowBuckets::kAuto && !of_.dispatch.device()->host_accessible());
  if (!pad || rows == 0) return rows;
  return std::min(static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(rows))),
                  of_.options.max_rows);
}

PassShape PreparedPasses::ShapeFor(std::int32_t rows, std::int32_t wanted, std::int32_t top) const {
  return {Bucket(rows), Bucket(wanted), wanted < rows && wanted > 0, wanted > 0 ? top : 0};
}

Status PreparedPass::Capture(Device& device, Stream stream) {
  Status captured = graph->Capture(device, stream);
  if (!captured && captured.error().code != ErrorCode::kUnsupported) return captured;
  if (chained == nullptr) return {};
  captured = chained->Capture(device, stream);
  if (captured || captured.error().code == ErrorCode::kUnsupported) return {};
  LogWarning(fmt::format("passes of {} rows run without chains of products: {}", shape.rows,
                         captured.error().message));
  DropChains(device, stream);
  return {};
}

Status PreparedPass::Run(Device& device, Stream stream) {
  if (chained == nullptr) return graph->Run(stream);
  const bool racing = race && !race->decided();
  Status queued = race ? race->Run(*graph, *chained, stream) : chained->Run(stream);
  if (racing && race->decided() && LogEnabled(LogLevel::kInfo)) {
    LogInfo(fmt::format(
        "a pass of {} rows takes {:.1f} us as separate kernels and {:.1f} us with chains of "
        "products",
        shape.rows, race->first_us(), race->second_us()));
  }
  ran_chained = !race || race->ran_second();
  if (queued || !ran_chained) return queued;
  LogWarning(fmt::format("passes of {} rows run without chains of products: {}", shape.rows,
                         queued.error().message));
  DropChains(device, stream);
  return graph->Run(stream);
}

void PreparedPass::DropChains(Device& device, Stream stream) {
  static_cast<void>(device.Synchronize(stream));
  ran_chained = false;
  race.reset();
  chained.reset();
}

bool PreparedPasses::Stale(const PreparedPass& pass) const {
  return pass.graph->stale() || (pass.chained != nullptr && pass.chained->stale()) ||
         pass.cache_moves != of_.cache.moves();
}

PreparedPass* PreparedPasses::Find(const PassShape& shape) {
  const auto it = std::find_if(passes_.begin(), passes_.end(),
                               [&](const PreparedPass& pass) { return pass.shape == shape; });
  if (it == passes_.end() || Stale(*it)) return nullptr;
  if (it != passes_.begin()) passes_.splice(passes_.begin(), passes_, it);
  return &passes_.front();
}

Result<PreparedPass*> PreparedPasses::Get(const PassShape& shape, Stream stream) {
  if (PreparedPass* prepared = Find(shape)) return prepared;
  NoteVerdicts();
  NoteOutcome(stream);
  passes_.remove_if([&](const PreparedPass& pass) { return Stale(pass); });
  Result<PreparedPass> fresh = Prepare(shape);
  if (!fresh) return Fail(fresh.error());
  passes_.push_front(std::move(*fresh));
  if (passes_.size() > kGraphsKept) passes_.pop_back();
  return &passes_.front();
}

/// Rows that are rounded to int8 are for int8 kernels alone, and more rows than a tile has are
/// faster through bf16 tiles.
FusionSet PreparedPasses::FusionsFor(const PassShape& shape) const {
  constexpr std::int32_t kTileRows = 16;
  const bool tiles = of_.dispatch.device()->spec().Has(kFeatureAmxTile | kFeatureAmxBf16);
  const FusionSet all = of_.model.fusions();
  return tiles && shape.rows > kTileRows ? all.Without(Fusion::kQuantiseOnce) : all;
}

void PreparedPasses::NoteVerdicts() {
  for (const PreparedPass& pass : passes_) {
    if (!pass.race || !pass.race->decided()) continue;
    verdicts_.emplace(pass.shape.rows,
                      ChainVerdict{pass.shape.rows, pass.race->first_us(), pass.race->second_us()});
  }
}

std::vector<ChainVerdict> PreparedPasses::Verdicts() {
  NoteVerdicts();
  std::vector<ChainVerdict> all;
  for (const auto& [rows, verdict] : verdicts_) all.push_back(verdict);
  return all;
}

/// Keeps what chains of passes have found, of which some may go before anybody asks for it.
void PreparedPasses::NoteOutcome(Stream stream) {
  for (const PreparedPass& pass : passes_) {
    if (pass.chained == nullptr) continue;
    const Status right = pass.chained->Outcome();
    if (right) continue;
    chains_failed_ = true;
    outcome_ = Fail(right.error().code,
                    right.error().message + "; passes run without chains of products from now on");
    for (PreparedPass& each : passes_) each.DropChains(*of_.dispatch.device(), stream);
    return;
  }
}

Status PreparedPasses::Outcome(Stream stream) {
  NoteOutcome(stream);
  return std::exchange(outcome_, {});
}

/// Whether a pass is to have chains of products: in a race those of decoding, which come again and again.
bool PreparedPasses::MayChain(const PassShape& shape) const {
  if (chains_failed_ || shape.rows > kMostChainRows) return false;
  switch (of_.options.chains) {
    case Chains::kOff:
      return false;
    case Chains::kOn:
      return true;
    case Chains::kRace:
      break;
  }
  if (shape.rows < kFewestChainRows || shape.logits_rows == 0 || shape.pick) return false;
  if (of_.dispatch.device()->spec().kind != DeviceKind::kCuda) return false;
  const auto known = verdicts_.find(shape.rows);
  return known == verdicts_.end() || known->second.chained();
}

/// Adds the pass with chains of products, where there are such chains. It is none the worse without.
void PreparedPasses::AddChained(const Graph& graph, PreparedPass& pass) {
  const bool raced = of_.options.chains == Chains::kRace && !verdicts_.contains(pass.shape.rows);
  Result<std::unique_ptr<PreparedGraph>> chained =
      PrepareGraph(graph, of_.dispatch, arena_, BindAs::kChained);
  if (chained && raced) {
    Result<PassRace> race = PassRace::Create(*of_.dispatch.device());
    if (race) {
      pass.race.emplace(std::move(*race));
    } else {
      chained = Fail(race.error());
    }
  }
  if (chained) {
    pass.chained = std::move(*chained);
    return;
  }
  const std::string text = fmt::format("a pass of {} rows has no chains of products: {}",
                                       pass.shape.rows, chained.error().message);
  // A warning, once, but where they were only tried and do not exist.
  const bool told =
      of_.options.chains == Chains::kOn || chained.error().code != ErrorCode::kUnsupported;
  if (told && !std::exchange(warned_of_none_, true)) {
    LogWarning(text);
  } else {
    LogInfo(text);
  }
}

Result<PreparedPass> PreparedPasses::Prepare(const PassShape& shape) {
  // Shapes and addresses of the cache are part of a graph, so some of it must be there.
  if (Status status = of_.cache.Reserve(1); !status) return Fail(status.error());
  PassGraph built =
      BuildPass(of_.model, of_.cache, of_.inputs, of_.ahead, shape, TypesOf(of_.options));
  const auto supports = [this](const Graph& in, const TensorNode& node) {
    return !of_.dispatch.Supports(in, node);
  };
  // GPUs keep activations in 16 bits to move fewer bytes.
  FusedGraph fused =
      Fuse(built.graph, FusionsFor(shape), supports,
           of_.dispatch.device()->spec().kind == DeviceKind::kCuda ? BetweenFused::kUnrounded
                                                                   : BetweenFused::kRounded);
  // Results are kept, so fusing leaves each a node.
  const auto now = [&](NodeId id) {
    return id == kNoNode ? kNoNode : fused.id_of[static_cast<std::size_t>(id)];
  };
  PreparedPass pass{.shape = shape,
                    .cache_moves = of_.cache.moves(),
                    .logits = now(built.logits),
                    .top_ids = now(built.top_ids),
                    .top_values = now(built.top_values),
                    .graph = {},
                    .chained = {},
                    .race = {}};
  // First, since it may make arena and workspace larger, for which the other one would be stale.
  if (MayChain(shape)) AddChained(fused.graph, pass);
  Result<std::unique_ptr<PreparedGraph>> graph =
      PrepareGraph(std::move(fused.graph), of_.dispatch, arena_);
  if (!graph) return Fail(graph.error());
  pass.graph = std::move(*graph);
  Status reserved;
  if (shape.top > 0) {
    reserved = of_.results.ReserveTop(pass.View(pass.top_ids));
  } else if (pass.logits != kNoNode) {
    reserved = of_.results.ReserveLogits(pass.View(pass.logits));
  }
  if (!reserved) return Fail(reserved.error());
  if (LogEnabled(LogLevel::kDebug)) {
    LogDebug(fmt::format("prepared a pass of {} rows, {} with logits: {} nodes, activations of {}",
                         shape.rows, shape.logits_rows, pass.graph->graph().size(),
                         HumanBytes(pass.graph->memory().bytes)));
  }
  return pass;
}

}  // namespace tilewright
