#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "graph/node_view.h"
#include "tilewright/fusion.h"

namespace tilewright {

/// What a pattern found: the node that may take the place of its last one, and the others.
struct FusionMatch {
  TensorNode fused;
  std::vector<NodeId> absorbed;  ///< computed only inside `fused`
  /// What takes the places of other nodes: memory, where `fused` computes that too, or operations that
  /// must be able to run as well.
  std::vector<TensorNode> others = {};
  /// Where not empty, `fused` takes no node's place: it is a new node in front of the first of
  /// these, and these are nodes as they would be if they read it. Those that can run so do, if they
  /// are at least two.
  std::vector<TensorNode> readers = {};
};

/// The graph while patterns are replaced: node ids stay, nodes that were absorbed are dead until
/// Take removes them, and new ones stand behind all others until Take puts them where they belong.
class FusionGraph {
 public:
  FusionGraph(const Graph& graph, BetweenFused between);

  const Graph& graph() const { return graph_; }
  const TensorNode& node(NodeId id) const { return graph_.node(id); }
  BetweenFused between() const { return between_; }
  bool dead(NodeId id) const { return dead_[static_cast<std::size_t>(id)]; }
  /// Whether exactly `inputs` inputs of nodes read `id`, and the caller does not.
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

  /// The id of the next new node.
  NodeId next_id() const { return static_cast<NodeId>(graph_.size()); }

  void Replace(const FusionMatch& match);
  /// For a match with readers; `runs` says which of them can run.
  void Insert(const FusionMatch& match, const std::function<bool(const TensorNode&)>& runs);
  FusedGraph Take() const;

 private:
  void Put(const TensorNode& fresh);
  /// The living nodes in the order of execution.
  std::vector<NodeId> Order() const;
  void CountReads(const TensorNode& node, int change);

  Graph graph_;
  BetweenFused between_;
  std::size_t original_ = 0;    ///< nodes of the graph before; later ones are new
  std::vector<NodeId> before_;  ///< of each new node: which node it goes in front of
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
/// In the order in which they are tried, over the whole graph each. Those that insert nodes are
/// last: to the others the order of ids is the order of execution.
std::span<const FusionPattern> FusionPatterns();

}  // namespace tilewright
