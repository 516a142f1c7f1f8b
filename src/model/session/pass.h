#pragma once

#include <cstdint>
#include <vector>

#include "tilewright/model.h"

namespace tilewright {

/// One layer's cache: views [head_dim, kv_heads, context, slots].
struct KvLayer {
  TensorView k, v;
};

/// Where a pass reads its integers: int32 vectors that stay in place while the graph lives.
struct PassInputs {
  std::int32_t* tokens = nullptr;     ///< [rows]
  std::int32_t* positions = nullptr;  ///< [rows]
  std::int32_t* slots = nullptr;      ///< [rows]
  std::int32_t* wanted = nullptr;     ///< [logits_rows]: rows whose logits are asked for
};

struct PassGraph {
  Graph graph;
  NodeId logits = kNoNode;  ///< [vocab, logits_rows]; kNoNode when no row wants logits
};

/// One forward pass of `rows` rows over the whole model, as its architecture describes each block
/// and its weights lie: a block of an unfused model uses the eight operations and kKvScatter only.
/// `activations` is the type of every tensor between operations.
PassGraph BuildPass(const Model& model, const std::vector<KvLayer>& cache, const PassInputs& inputs,
                    std::int32_t rows, std::int32_t logits_rows, DataType activations);

}  // namespace tilewright
