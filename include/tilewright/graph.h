#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/gemm.h"
#include "tilewright/result.h"
#include "tilewright/tensor.h"
#include "tilewright/tensor_op.h"

namespace tilewright {

using NodeId = std::int32_t;
constexpr NodeId kNoNode = -1;

struct TensorNode {
  TensorOp op = TensorOp::kNone;
  LeafKind leaf = LeafKind::kNotLeaf;
  NodeId id = kNoNode;
  std::string name;  ///< "blk.3.attn_q", shown in errors, traces and profiles
  /// Type, shape and stride of the result; `out.data` is set by the caller (leaves) or by
  /// BindMemory.
  TensorView out;
  /// Weights: layout of the bytes at out.data. kMulMat and its fused forms: layout of the weight
  /// that they read.
  Pack pack = kPackPlain;
  std::vector<NodeId> inputs;  ///< kNoNode for an absent optional one
  OpParams params;
  /// The result lives in the memory of this node (views, in-place operations, cache writes).
  NodeId alias_of = kNoNode;
  bool keep = false;  ///< read by the caller after the run, so its memory is not reused
};

/// A computation over tensors; nodes are in execution order. A value; owns no tensor memory. Adding
/// a node is cheap and unchecked; VerifyGraph checks everything at once.
class Graph {
 public:
  NodeId AddLeaf(std::string name, LeafKind kind, const TensorView& view, Pack pack = kPackPlain);
  /// `shape` is innermost first; the result is contiguous.
  NodeId AddOp(TensorOp op, std::string name, std::vector<NodeId> inputs, DataType dtype,
               std::array<std::int64_t, 4> shape, OpParams params = {});
  /// A strided window into `source`.
  NodeId AddView(std::string name, NodeId source, std::int64_t offset,
                 std::array<std::int64_t, 4> shape, std::array<std::int64_t, 4> stride);

  TensorNode& node(NodeId id) { return nodes_[static_cast<std::size_t>(id)]; }
  const TensorNode& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  std::span<const TensorNode> nodes() const { return nodes_; }
  std::size_t size() const { return nodes_.size(); }

 private:
  std::vector<TensorNode> nodes_;
};

/// Checks order, arity, shapes, types, aliases and liveness; the error names the node and the
/// field: "node 17 'blk.0.ffn_down' (mul_mat): inputs[1].shape[0] = 1536, expected k = 576". An
/// in-place result over memory that a later node still reads is an error too.
Status VerifyGraph(const Graph& graph);

/// Where each intermediate lives in one arena: tensors whose lifetimes do not overlap share bytes.
struct MemoryPlan {
  std::vector<std::int64_t> offset;  ///< by node id; -1 for leaves and aliases
  std::size_t bytes = 0;             ///< size of the arena
  std::size_t unshared_bytes = 0;    ///< its size without sharing
};
/// When the memory of a tensor goes to another one: once its last reader has run, or only once the
/// operation behind that one has, for launches that do both at once.
enum class Reuse : std::uint8_t { kAtOnce, kBehindNext };
/// Pure. Precondition: VerifyGraph accepted the graph.
MemoryPlan PlanMemory(const Graph& graph, Reuse reuse = Reuse::kAtOnce, std::size_t alignment = 64);

/// Sets out.data of every intermediate and alias; `arena` must hold plan.bytes.
void BindMemory(Graph& graph, const MemoryPlan& plan, void* arena);

}  // namespace tilewright
