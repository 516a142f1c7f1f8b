#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph/node_view.h"
#include "tilewright/fusion.h"

namespace tilewright {

/// What a pattern found: the node that may take the place of its last one, and the others.
struct FusionMatch {
  TensorNode fused;
  std::vector<NodeId> absorbed;      ///< computed within `fused` alone
  std::optional<TensorNode> buffer;  ///< what takes the place of a node that `fused` computes too
};

/// The graph while patterns are replaced: node ids stay, nodes that were absorbed are dead until
/// Take removes them.
class FusionGraph {
 public:
  explicit FusionGraph(const Graph& graph);

  const Graph& graph() const { return graph_; }
  const TensorNode& node(NodeId id) const { return graph_.node(id); }
  bool dead(NodeId id) const { return dead_[static_cast<std::size_t>(id)]; }
  /// Whether so many inputs of nodes are all that reads `id`: the caller does not.
  bool ReadBy(NodeId id, int inputs) const;
  bool ReadOnce(NodeId id) const { return ReadBy(id, 1); }
  /// Whether the memory that `id` lies in is free for another result once node `after` runs: an
  /// intermediate's, which nothing keeps and no later node reads under any name.
  bool FreeAfter(NodeId id, NodeId after) const;
  /// Whether an operation that reads `id` where node `from` runs may as well read it where `to`
  /// runs: nothing between them writes in place over its memory.
  bool UnchangedBetween(NodeId id, NodeId from, NodeId to) const;

  /// Whether a node between the two reads the memory that `id` lies in.
  bool ReadBetween(NodeId id, NodeId from, NodeId to) const;

  void Replace(const FusionMatch& match);
  FusedGraph Take() const;

 private:
  void Put(const TensorNode& fresh);
  void CountReads(const TensorNode& node, int change);

  Graph graph_;
  std::vector<bool> dead_;
  std::vector<int> reads_;  ///< inputs of living nodes that name the node
};

/// A row of the one table of patterns, which every device shares: the operations are the same
/// everywhere, and what a device cannot run is not fused there.
struct FusionPattern {
  Fusion fusion;
  TensorOp last;  ///< operation of the node that the pattern ends with
  std::optional<FusionMatch> (*match)(const FusionGraph& graph, const TensorNode& last);
};
/// In the order in which they are tried, over the whole graph each.
std::span<const FusionPattern> FusionPatterns();

}  // namespace tilewright
