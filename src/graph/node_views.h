#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "tilewright/graph.h"

namespace tilewright {

/// The operands of one node before its graph runs. Tensors whose memory is not bound yet carry a
/// placeholder address: operations refuse a view without memory, though planning reads none of it.
struct NodeViews {
  std::array<TensorView, 5> in;  ///< an absent optional input stays without data
  TensorView out;
};

inline NodeViews ViewsForPlanning(const Graph& graph, const TensorNode& node) {
  static std::byte nowhere;
  const auto with_memory = [](const TensorView& view) {
    TensorView result = view;
    if (result.data == nullptr) result.data = &nowhere;
    return result;
  };
  NodeViews views;
  for (std::size_t i = 0; i < std::min(node.inputs.size(), views.in.size()); ++i) {
    if (node.inputs[i] != kNoNode) views.in[i] = with_memory(graph.node(node.inputs[i]).out);
  }
  views.out = with_memory(node.out);
  return views;
}

}  // namespace tilewright
