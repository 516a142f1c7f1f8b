#pragma once

#include <span>

#include "tilewright/graph.h"

namespace tilewright {

/// A node of a graph with the views of its inputs.
NodeView ViewOf(const Graph& graph, const TensorNode& node);

/// The same for a call that brings its own views: a foreign engine, or a decorator.
NodeView ViewOf(const TensorNode& node, std::span<const TensorView> inputs, const TensorView& out);

/// The error with its node in front: "node 17 'blk.0.ffn_down' (mul_mat): ...".
tl::unexpected<Error> AtNode(const TensorNode& node, const Error& error);

/// The rule that an operation declares for `op`; nullptr for leaves and views, which have none.
const NodeRule* RuleOf(TensorOp op);

}  // namespace tilewright
