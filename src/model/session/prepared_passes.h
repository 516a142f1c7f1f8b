#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "model/session/kv_cache.h"
#include "model/session/pass.h"
#include "model/session/pass_inputs.h"
#include "model/session/pass_results.h"
#include "tilewright/model.h"
#include "tilewright/prepared_graph.h"

namespace tilewright {

/// A pass that can be run again and again.
struct PreparedPass {
  PassShape shape;               ///< padding included
  std::int64_t cache_moves = 0;  ///< of the cache when the pass was prepared
  NodeId logits = kNoNode, top_ids = kNoNode, top_values = kNoNode;
  std::unique_ptr<PreparedGraph> graph;
  std::int64_t runs = 0;

  const TensorView& View(NodeId id) const { return graph->graph().node(id).out; }
};

/// The passes of a session, prepared when they are first asked for and again when something they
/// stand on has moved, and the memory of their activations. One thread at a time; refers to the
/// parts of the session.
class PreparedPasses {
 public:
  struct Of {
    const Model& model;
    KernelDispatch& dispatch;
    const SessionOptions& options;
    KvCache& cache;
    const PassInputs& inputs;
    PassResults& results;
  };
  explicit PreparedPasses(const Of& of) : of_(of), arena_(*of.dispatch.device()) {}

  /// The pass that serves `rows` rows, `wanted` of them with logits, of which it finds the `top` best.
  PassShape ShapeFor(std::int32_t rows, std::int32_t wanted, std::int32_t top) const;
  /// The pass of that shape as it is prepared, from now on the most recently used; nullptr: there is
  /// none, or something it stands on has moved.
  PreparedPass* Find(const PassShape& shape);
  /// The same, prepared where it is not: the device must then be done with all passes.
  Result<PreparedPass*> Get(const PassShape& shape);
  PreparedPass& most_recent() { return passes_.front(); }

 private:
  std::int32_t Bucket(std::int32_t rows) const;
  bool Stale(const PreparedPass& pass) const;
  Result<PreparedPass> Prepare(const PassShape& shape);
  FusionSet FusionsFor(const PassShape& shape) const;

  Of of_;
  Arena arena_;
  std::list<PreparedPass> passes_;  // most recently used first
};

}  // namespace tilewright
