#include "tilewright/graph.h"

#include <utility>

namespace tilewright {

NodeId Graph::AddLeaf(std::string name, LeafKind kind, const TensorView& view, Pack pack) {
  TensorNode node;
  node.leaf = kind;
  node.id = static_cast<NodeId>(nodes_.size());
  node.name = std::move(name);
  node.out = view;
  node.pack = pack;
  nodes_.push_back(std::move(node));
  return nodes_.back().id;
}

NodeId Graph::AddOp(TensorOp op, std::string name, std::vector<NodeId> inputs, DataType dtype,
                    std::array<std::int64_t, 4> shape, OpParams params) {
  TensorNode node;
  node.op = op;
  node.id = static_cast<NodeId>(nodes_.size());
  node.name = std::move(name);
  node.inputs = std::move(inputs);
  node.out = TensorView{nullptr, shape, {}, dtype};
  // Any shape may be added and VerifyGraph judges it, so here the products wrap.
  std::uint64_t step = 1;
  for (std::size_t d = 0; d < 4; ++d) {
    node.out.stride[d] = static_cast<std::int64_t>(step);
    step *= static_cast<std::uint64_t>(shape[d]);
  }
  node.params = params;
  nodes_.push_back(std::move(node));
  return nodes_.back().id;
}

NodeId Graph::AddView(std::string name, NodeId source, std::int64_t offset,
                      std::array<std::int64_t, 4> shape, std::array<std::int64_t, 4> stride) {
  TensorNode node;
  node.op = TensorOp::kView;
  node.id = static_cast<NodeId>(nodes_.size());
  node.name = std::move(name);
  node.inputs = {source};
  node.out = TensorView{nullptr, shape, stride, this->node(source).out.dtype};
  node.params.view_offset = offset;
  node.alias_of = source;
  nodes_.push_back(std::move(node));
  return nodes_.back().id;
}

}  // namespace tilewright
