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

bool PreparedPasses::Stale(const PreparedPass& pass) const {
  return pass.graph->stale() || pass.cache_moves != of_.cache.moves();
}

PreparedPass* PreparedPasses::Find(const PassShape& shape) {
  const auto it = std::find_if(passes_.begin(), passes_.end(),
                               [&](const PreparedPass& pass) { return pass.shape == shape; });
  if (it == passes_.end() || Stale(*it)) return nullptr;
  if (it != passes_.begin()) passes_.splice(passes_.begin(), passes_, it);
  return &passes_.front();
}

Result<PreparedPass*> PreparedPasses::Get(const PassShape& shape) {
  if (PreparedPass* prepared = Find(shape)) return prepared;
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

Result<PreparedPass> PreparedPasses::Prepare(const PassShape& shape) {
  // Shapes and addresses of the cache are part of a graph, so some of it must be there.
  if (Status status = of_.cache.Reserve(1); !status) return Fail(status.error());
  PassGraph built =
      BuildPass(of_.model, of_.cache, of_.inputs.device(), shape, TypesOf(of_.options));
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
                    .graph = {}};
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
