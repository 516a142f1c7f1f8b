#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "model/session/kv_cache.h"
#include "model/session/pass.h"
#include "model/session/pass_inputs.h"
#include "model/session/pass_race.h"
#include "model/session/pass_results.h"
#include "model/session/passes_ahead.h"
#include "tilewright/model.h"
#include "tilewright/prepared_graph.h"

namespace tilewright {

/// A pass that can be run again and again.
struct PreparedPass {
  PassShape shape;               ///< padding included
  std::int64_t cache_moves = 0;  ///< of the cache when the pass was prepared
  NodeId logits = kNoNode, top_ids = kNoNode, top_values = kNoNode;
  std::unique_ptr<PreparedGraph> graph;
  /// The same pass with chains of products in one launch each, or none; `race` between the two where it
  /// is for the session to find the faster one.
  std::unique_ptr<PreparedGraph> chained;
  std::optional<PassRace> race;
  bool ran_chained = false;  ///< the last time
  std::int64_t runs = 0;

  /// Captures both, where that is possible.
  Status Capture(Device& device, Stream stream);
  /// Queues the pass by one of them. Where the device does not take the launches of the chains, the pass runs
  /// without them, now and from now on.
  Status Run(Device& device, Stream stream);
  /// Goes without chains, once the device is done with them.
  void DropChains(Device& device, Stream stream);
  /// The one that runs most of the passes, as far as that is known.
  const PreparedGraph& usual() const {
    const bool by_chains =
        chained != nullptr && (!race || (race->decided() && race->second_us() < race->first_us()));
    return by_chains ? *chained : *graph;
  }

  /// Of a tensor as the last run left it.
  const TensorView& View(NodeId id) const {
    return (ran_chained ? *chained : *graph).graph().node(id).out;
  }
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
    const PassesAhead& ahead;
    PassResults& results;
  };
  explicit PreparedPasses(const Of& of) : of_(of), arena_(*of.dispatch.device()) {}

  /// The pass that serves `rows` rows, `wanted` of them with logits, of which it finds the `top` best.
  PassShape ShapeFor(std::int32_t rows, std::int32_t wanted, std::int32_t top) const;
  /// The pass of that shape as it is prepared, from now on the most recently used; nullptr: there is
  /// none, or something it stands on has moved.
  PreparedPass* Find(const PassShape& shape);
  /// The same, prepared where it is not: the device must then be done with all passes.
  Result<PreparedPass*> Get(const PassShape& shape, Stream stream);
  PreparedPass& most_recent() { return passes_.front(); }

  /// To be asked when passes have ended, before their results are used: an error where chains of one of them
  /// have found that they are not right, also of one that is not kept any more. Told once; no pass has
  /// chains from then on.
  Status Outcome(Stream stream);
  /// What races between passes with chains and without found, by rows.
  std::vector<ChainVerdict> Verdicts();

 private:
  std::int32_t Bucket(std::int32_t rows) const;
  bool Stale(const PreparedPass& pass) const;
  Result<PreparedPass> Prepare(const PassShape& shape);
  bool MayChain(const PassShape& shape) const;
  void AddChained(const Graph& graph, PreparedPass& pass);
  void NoteVerdicts();
  void NoteOutcome(Stream stream);
  FusionSet FusionsFor(const PassShape& shape) const;

  Of of_;
  Arena arena_;
  std::list<PreparedPass> passes_;                 // most recently used first
  std::map<std::int32_t, ChainVerdict> verdicts_;  // by rows
  bool chains_failed_ = false;                     // of a pass: none has them any more
  Status outcome_;                                 // that they have, until it is told
  bool warned_of_none_ = false;
};

}  // namespace tilewright
