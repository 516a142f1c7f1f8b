#pragma once

#include <cstdint>

#include "model/session/kv_cache.h"
#include "model/session/pass_inputs.h"
#include "model/session/passes_ahead.h"
#include "tilewright/model.h"

namespace tilewright {

/// What a pass is made for.
struct PassShape {
  std::int32_t rows = 0;
  std::int32_t logits_rows = 0;  ///< rows of the logits
  /// The logits are those of the rows that PassInputs::wanted names; else of the first ones.
  bool pick = false;
  std::int32_t top = 0;  ///< of the best logits of each row that the pass ends with; 0: none

  /// Whether the pass leaves the inputs of the one that follows.
  bool hands_over() const { return top == 1 && !pick; }
  bool operator==(const PassShape&) const = default;
};

/// Types of the tensors between operations: what the norms give to products, the logits, the rest.
struct PassTypes {
  DataType activations = DataType::kF32, normed = DataType::kF32, logits = DataType::kF32;
};

struct PassGraph {
  Graph graph;
  NodeId logits = kNoNode;      ///< [vocab, logits_rows]; kNoNode when no row wants logits
  NodeId top_ids = kNoNode;     ///< [top, logits_rows] i32; kNoNode without
  NodeId top_values = kNoNode;  ///< [top, logits_rows] f32; kNoNode for a top of 0 or 1
};

/// One forward pass over the whole model, as its architecture describes each block and its weights
/// lie, with nothing fused: a block uses the eight operations and kKvScatter only. The cache is the
/// one that `cache` has now: a move of it makes the graph stale. A pass that ends with the best token
/// of each of its rows leaves the inputs of the one that follows, and the tokens in `ahead`.
PassGraph BuildPass(const Model& model, const KvCache& cache, const PassInputs& inputs,
                    const PassesAhead& ahead, const PassShape& shape, const PassTypes& types);

}  // namespace tilewright
