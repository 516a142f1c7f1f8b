#include "graph/fusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "graph/liveness.h"

namespace tilewright {
namespace {

constexpr std::array<std::string_view, kFusions> kNames = {
    "merge-qkv", "merge-gate-up",  "residual", "swiglu",       "mul-mat-swiglu", "rope-scatter",
    "rope-qkv",  "rope-attention", "add-norm", "norm-mul-mat", "quantise-once"};

std::size_t Index(NodeId id) { return static_cast<std::size_t>(id); }

/// Whether the operation accepts these types and shapes.
bool IsLegal(const Graph& graph, const TensorNode& node) {
  NodeCheck check;
  RuleOf(node.op)->check(ViewOf(graph, node), check);
  return check.ok();
}

}  // namespace

std::string_view FusionName(Fusion fusion) { return kNames[static_cast<std::size_t>(fusion)]; }

Result<FusionSet> FusionSet::Parse(std::string_view text) {
  if (text == "all") return All();
  if (text == "none") return None();
  FusionSet set;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    const std::string_view word = text.substr(from, to - from);
    const auto found = std::find(kNames.begin(), kNames.end(), word);
    if (found == kNames.end()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is no fusion: must be all, none, or some of {}", word,
                              fmt::join(kNames, ", ")));
    }
    set = set.With(static_cast<Fusion>(found - kNames.begin()));
    from = to + 1;
  }
  return set;
}

std::string FusionSet::ToString() const {
  if (*this == All()) return "all";
  if (*this == None()) return "none";
  std::string text;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (!Has(static_cast<Fusion>(i))) continue;
    if (!text.empty()) text += ',';
    text += kNames[i];
  }
  return text;
}

FusionGraph::FusionGraph(const Graph& graph, BetweenFused between)
    : graph_(graph),
      between_(between),
      original_(graph.size()),
      dead_(graph.size(), false),
      reads_(graph.size(), 0) {
  for (const TensorNode& node : graph_.nodes()) CountReads(node, 1);
}

void FusionGraph::CountReads(const TensorNode& node, int change) {
  for (const NodeId input : node.inputs) {
    if (input != kNoNode) reads_[Index(input)] += change;
  }
}

bool FusionGraph::ReadBy(NodeId id, int inputs) const {
  return reads_[Index(id)] == inputs && !node(id).keep;
}

bool FusionGraph::FreeAfter(NodeId id, NodeId after) const {
  const NodeId storage = StorageOf(graph_, id);
  if (node(storage).op == TensorOp::kNone) return false;
  for (const TensorNode& other : graph_.nodes()) {
    if (dead(other.id)) continue;
    if (other.keep && StorageOf(graph_, other.id) == storage) return false;
    if (other.id <= after) continue;
    for (const NodeId input : other.inputs) {
      if (input != kNoNode && StorageOf(graph_, input) == storage) return false;
    }
  }
  return true;
}

bool FusionGraph::UnchangedBetween(NodeId id, NodeId from, NodeId to) const {
  const NodeId storage = StorageOf(graph_, id);
  for (NodeId between = from + 1; between < to; ++between) {
    const TensorNode& other = node(between);
    if (dead(between)) continue;
    bool unchanged = true;
    ForEachOverwrite(graph_, other, [&](NodeId name) {
      unchanged = unchanged && StorageOf(graph_, name) != storage;
    });
    if (!unchanged) return false;
  }
  return true;
}

bool FusionGraph::ReadBetween(NodeId id, NodeId from, NodeId to) const {
  const NodeId storage = StorageOf(graph_, id);
  for (NodeId between = from + 1; between < to; ++between) {
    if (dead(between)) continue;
    for (const NodeId input : node(between).inputs) {
      if (input != kNoNode && StorageOf(graph_, input) == storage) return true;
    }
  }
  return false;
}

void FusionGraph::Put(const TensorNode& fresh) {
  CountReads(node(fresh.id), -1);
  graph_.node(fresh.id) = fresh;
  CountReads(fresh, 1);
}

void FusionGraph::Replace(const FusionMatch& match) {
  for (const NodeId id : match.absorbed) {
    CountReads(node(id), -1);
    dead_[Index(id)] = true;
  }
  for (const TensorNode& other : match.others) Put(other);
  Put(match.fused);
}

void FusionGraph::Insert(const FusionMatch& match,
                         const std::function<bool(const TensorNode&)>& runs) {
  const NodeId id = graph_.AddLeaf({}, LeafKind::kNotLeaf, match.fused.out);
  graph_.node(id) = match.fused;
  dead_.push_back(false), reads_.push_back(0), before_.push_back(kNoNode);
  std::vector<TensorNode> readers;
  std::copy_if(match.readers.begin(), match.readers.end(), std::back_inserter(readers), runs);
  if (readers.size() < 2) {
    dead_.back() = true;
    return;
  }
  CountReads(match.fused, 1);
  before_.back() = readers.front().id;
  for (const TensorNode& reader : readers) {
    before_.back() = std::min(before_.back(), reader.id);
    Put(reader);
  }
}

std::vector<NodeId> FusionGraph::Order() const {
  std::vector<NodeId> order;
  for (NodeId id = 0; id < static_cast<NodeId>(original_); ++id) {
    for (std::size_t fresh = 0; fresh < before_.size(); ++fresh) {
      if (before_[fresh] == id) order.push_back(static_cast<NodeId>(original_ + fresh));
    }
    if (!dead(id)) order.push_back(id);
  }
  return order;
}

FusedGraph FusionGraph::Take() const {
  FusedGraph result;
  result.id_of.assign(graph_.size(), kNoNode);
  const auto renamed = [&](NodeId id) { return id == kNoNode ? id : result.id_of[Index(id)]; };
  for (const NodeId from : Order()) {
    const TensorNode& node = this->node(from);
    const NodeId id = result.graph.AddLeaf({}, node.leaf, node.out);
    result.id_of[Index(node.id)] = id;
    TensorNode& copy = result.graph.node(id);
    copy = node;  // all of it, whether it is a leaf, an operation or a view
    copy.id = id;
    copy.alias_of = renamed(node.alias_of);
    for (NodeId& input : copy.inputs) input = renamed(input);
  }
  result.id_of.resize(original_);
  return result;
}

FusedGraph Fuse(const Graph& graph, FusionSet fusions, const SupportsNode& supports,
                BetweenFused between) {
  FusionGraph work(graph, between);
  const auto runs = [&](const TensorNode& node) {
    return IsLegal(work.graph(), node) && supports(work.graph(), node);
  };
  for (const FusionPattern& pattern : FusionPatterns()) {
    if (!fusions.Has(pattern.fusion)) continue;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
      if (work.dead(id) || work.node(id).op != pattern.last) continue;
      const std::optional<FusionMatch> match = pattern.match(work, work.node(id));
      if (!match || !runs(match->fused)) continue;
      const auto cannot_run = [&](const TensorNode& other) {
        return Computes(other.op) && !runs(other);
      };
      if (std::any_of(match->others.begin(), match->others.end(), cannot_run)) continue;
      if (match->readers.empty()) {
        work.Replace(*match);
      } else {
        work.Insert(*match, runs);
      }
    }
  }
  return work.Take();
}

}  // namespace tilewright
