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

namespace tilewright {

/// What a node computes. The first eight and kKvScatter are all that an unfused layer uses.
enum class TensorOp : std::uint8_t {
  kNone,     ///< a leaf: weight, input or KV cache
  kMulMat,   ///< (x [k, m], w [k, n]) -> [n, m]; w may be quantised and packed
  kRmsNorm,  ///< (x [hidden, m], weight [hidden]) -> [hidden, m]
  kAdd,      ///< (a, b) -> a + b, equal shapes
  kRope,  ///< (x [head_dim, heads, m], positions [m], frequency factors [rope_dims / 2] or none) ->
          ///< as x
  kAttention,  ///< (q [head_dim, heads, m], k cache, v cache, positions [m], slots [m]) ->
               ///< [head_dim * heads, m]
  kCopy,       ///< (x) -> x, converting the type
  kMul,        ///< (a, b) -> a * b
  kSilu,       ///< (x) -> x / (1 + exp(-x))
  // Through DispatchExtra:
  kKvScatter,  ///< (x [head_dim, kv_heads, m], cache, positions [m], slots [m]) -> the cache,
               ///< written in place
  kEmbedding,  ///< (table [hidden, rows], ids [m]) -> [hidden, m]: row ids[i] of the table
  kMulMatAdd,  ///< fused kMulMat + kAdd: (x, w, residual [n, m]) -> [n, m]; may be in place on the
               ///< residual
  kMulMatSwiGlu,  ///< fused gate and up projection: (x, w [k, 2 * n], rows paired by kGatedBlock)
                  ///< -> silu(gate) * up, [n, m]
  kSwiGlu,        ///< fused kSilu + kMul: (gate, up) -> silu(gate) * up
  kView,          ///< part of another tensor, no computation
};
std::string_view TensorOpName(TensorOp op);

using NodeId = std::int32_t;
constexpr NodeId kNoNode = -1;

/// What a leaf is for; decides who owns the memory and whether it may be written.
enum class LeafKind : std::uint8_t { kNotLeaf, kWeight, kInput, kCache };

enum class RopeMode : std::uint8_t {
  kInterleaved,  ///< pairs (2i, 2i + 1): GGUF's llama
  kHalfSplit,    ///< pairs (i, i + dims / 2): NeoX, Qwen
};

/// Rotary embedding: angle(i, position) = position * freq_scale * base^(-2 i / dims) / factor[i].
struct RopeParams {
  RopeMode mode = RopeMode::kInterleaved;
  std::int32_t dims = 0;  ///< rotated elements of a head, even, <= head_dim; the rest pass through
  float base = 10000.0f;
  float freq_scale = 1.0f;
  /// Llama-3 frequency scaling, off when scaling_factor == 0: wavelengths beyond original_context /
  /// low_freq_factor are slowed by scaling_factor, those below original_context / high_freq_factor
  /// kept, smoothly in between.
  float scaling_factor = 0.0f, low_freq_factor = 1.0f, high_freq_factor = 4.0f;
  std::int32_t original_context = 8192;
  auto operator<=>(const RopeParams&) const = default;
};

/// Parameters of the operation; a node uses those of its op.
struct OpParams {
  float epsilon = 1e-5f;         ///< kRmsNorm
  RopeParams rope;               ///< kRope
  float attention_scale = 0.0f;  ///< kAttention: usually 1 / sqrt(head_dim)
  std::int32_t layer = -1;       ///< kAttention, kKvScatter: for messages and profiles
  std::int64_t view_offset = 0;  ///< kView: elements into the source
};

struct TensorNode {
  TensorOp op = TensorOp::kNone;
  LeafKind leaf = LeafKind::kNotLeaf;
  NodeId id = kNoNode;
  std::string name;  ///< "blk.3.attn_q", shown in errors, traces and profiles
  TensorView out;    ///< type, shape and stride of the result; `out.data` is set by the caller
                     ///< (leaves) or the plan
  Pack pack = kPackPlain;  ///< weights: layout of the bytes at out.data; kMulMat and its kin: of
                           ///< the weight they read
  std::vector<NodeId> inputs;  ///< kNoNode for an absent optional one
  OpParams params;
  NodeId alias_of = kNoNode;  ///< the result lives in this node's memory (views, in-place
                              ///< operations, cache writes)
  bool keep = false;          ///< read by the caller after the run: its memory is not reused
};

/// A computation over tensors, nodes in the order they run. A value; owns no tensor memory. Adding
/// is cheap and unchecked; VerifyGraph checks everything at once.
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

/// Where every intermediate lives in one arena, by liveness: tensors whose lives do not overlap
/// share bytes.
struct MemoryPlan {
  std::vector<std::int64_t> offset;  ///< by node id; -1 for leaves and aliases
  std::size_t bytes = 0;             ///< of the arena
  std::size_t unshared_bytes = 0;    ///< what it would take without sharing
};
/// Pure. Precondition: VerifyGraph accepted the graph.
MemoryPlan PlanMemory(const Graph& graph, std::size_t alignment = 64);

/// Sets out.data of every intermediate and alias; `arena` holds plan.bytes.
void BindMemory(Graph& graph, const MemoryPlan& plan, void* arena);

}  // namespace tilewright
