#pragma once

#include <cstdint>
#include <vector>

#include "graph/node_view.h"
#include "tilewright/graph.h"

namespace tilewright {

/// Node indices between which a tensor's memory holds something: from the node that makes it to the
/// last that reads it, through all its aliases. A kept tensor lives to the end.
struct Liveness {
  std::int32_t first = 0, last = 0;
};

/// The node that owns the memory of `id`: follows alias_of to its end.
NodeId StorageOf(const Graph& graph, NodeId id);

/// f(id) for the names under which the memory that `node` writes in place is read afterwards: its
/// own where it overwrites an operand, and those of the buffers it writes that have no memory of
/// their own.
template <class F>
void ForEachOverwrite(const Graph& graph, const TensorNode& node, F&& f) {
  if (!Computes(node.op)) return;
  if (node.alias_of != kNoNode) f(node.id);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoNode) continue;
    const TensorNode& input = graph.node(node.inputs[i]);
    if (input.op != TensorOp::kBuffer || input.alias_of == kNoNode) continue;
    if (((RuleOf(node.op)->writes >> i) & 1) != 0) f(input.id);
  }
}

/// By node id. Aliases carry the life of their storage.
std::vector<Liveness> ComputeLiveness(const Graph& graph);

}  // namespace tilewright
