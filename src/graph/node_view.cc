#include "graph/node_view.h"

#include <algorithm>

#include "core/text.h"
#include "graph/liveness.h"
#include "tilewright/kernels.h"

namespace tilewright {

NodeView ViewOf(const Graph& graph, const TensorNode& node) {
  NodeView view;
  view.op = node.op;
  view.out = node.out;
  view.pack = node.pack;
  view.params = node.params;
  view.input_count = std::min(node.inputs.size(), NodeView::kMaxInputs);
  for (std::size_t i = 0; i < view.input_count; ++i) {
    const NodeId id = node.inputs[i];
    if (id == kNoNode) continue;
    view.inputs[i] = {.view = graph.node(id).out,
                      .pack = graph.node(id).pack,
                      .storage = graph.node(StorageOf(graph, id)).leaf,
                      .present = true};
    if (node.alias_of == id && view.overwrites < 0) view.overwrites = static_cast<int>(i);
  }
  return view;
}

NodeView ViewOf(const TensorNode& node, std::span<const TensorView> inputs, const TensorView& out) {
  NodeView view;
  view.op = node.op;
  view.out = out;
  view.pack = node.pack;
  view.params = node.params;
  view.input_count = std::min(inputs.size(), NodeView::kMaxInputs);
  for (std::size_t i = 0; i < view.input_count; ++i)
    view.inputs[i] = {.view = inputs[i], .present = inputs[i].data != nullptr};
  return view;
}

tl::unexpected<Error> AtNode(const TensorNode& node, const Error& error) {
  return Fail(error.code, Format("node {} '{}' ({}): {}", node.id, node.name, TensorOpName(node.op),
                                 error.message));
}

const NodeRule* RuleOf(TensorOp op) {
  const NodeRule* found = nullptr;
  ForEachOperation([&]<class Op>() {
    for (const NodeRule& rule : Op::NodeRules()) {
      if (rule.op == op) found = &rule;
    }
  });
  return found;
}

std::string_view TensorOpName(TensorOp op) {
  if (op == TensorOp::kNone) return "leaf";
  if (op == TensorOp::kView) return "view";
  if (op == TensorOp::kBuffer) return "buffer";
  const NodeRule* rule = RuleOf(op);
  return rule != nullptr ? rule->name : "unknown";
}

}  // namespace tilewright
