#include "model/llama/builder.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace tilewright {
namespace {

class Builder {
 public:
  Builder(const Model& model, const PassInputs& inputs, std::int32_t rows, DataType type)
      : model_(model), config_(model.config()), rows_(rows), type_(type) {
    tokens_ = Ints("tokens", inputs.tokens, rows);
    positions_ = Ints("positions", inputs.positions, rows);
    slots_ = Ints("slots", inputs.slots, rows);
    if (model.rope_factors().view.data != nullptr) {
      factors_ = graph_.AddLeaf("rope_freqs", LeafKind::kWeight, model.rope_factors().view);
    }
  }

  NodeId Embed() {
    const NodeId table = Leaf("token_embd", model_.embedding());
    return Op(TensorOp::kEmbedding, "embedding", {table, tokens_}, {config_.hidden, rows_, 1, 1});
  }

  NodeId Layer(std::int32_t index, NodeId x, const KvLayer& cache) {
    const LayerWeights& w = model_.layers()[static_cast<std::size_t>(index)];
    blk_ = fmt::format("blk.{}.", index);
    NodeId normed = Norm("attn_norm", x, w.attn_norm);
    const NodeId attended = Attention(index, normed, w, cache);
    x = Project("attn_output", attended, w.attn_out, x);
    normed = Norm("ffn_norm", x, w.ffn_norm);
    return Project("ffn_down", FeedForward(normed, w), w.down, x);
  }

  NodeId Logits(NodeId x, std::int32_t* wanted, std::int32_t logits_rows) {
    blk_.clear();
    if (logits_rows < rows_) {
      const NodeId picked = Ints("wanted", wanted, logits_rows);
      x = Op(TensorOp::kEmbedding, "pick_rows", {x, picked}, {config_.hidden, logits_rows, 1, 1});
    }
    x = Op(TensorOp::kRmsNorm, "output_norm", {x, Leaf("output_norm", model_.output_norm())},
           {config_.hidden, logits_rows, 1, 1}, Epsilon());
    x = MulMat("output", x, model_.output());
    graph_.node(x).keep = true;
    return x;
  }

  Graph Take() { return std::move(graph_); }

 private:
  using Shape = std::array<std::int64_t, 4>;

  NodeId Ints(const char* name, std::int32_t* data, std::int32_t count) {
    return graph_.AddLeaf(name, LeafKind::kInput,
                          Contiguous(data, DataType::kI32, {count, 1, 1, 1}));
  }
  NodeId Leaf(const std::string& name, const Weight& weight) {
    return graph_.AddLeaf(blk_ + name + ".weight", LeafKind::kWeight, weight.view, weight.pack);
  }
  NodeId Op(TensorOp op, const std::string& name, std::vector<NodeId> inputs, Shape shape,
            OpParams params = {}) {
    return graph_.AddOp(op, blk_ + name, std::move(inputs), type_, shape, params);
  }
  OpParams Epsilon() const {
    OpParams params;
    params.epsilon = config_.epsilon;
    return params;
  }
  NodeId Norm(const char* name, NodeId x, const Weight& weight) {
    return Op(TensorOp::kRmsNorm, name, {x, Leaf(name, weight)}, {config_.hidden, rows_, 1, 1},
              Epsilon());
  }
  /// A node that multiplies by `weight` says in its own pack how the weight lies.
  NodeId Multiply(TensorOp op, const std::string& name, std::vector<NodeId> inputs,
                  const Weight& weight, Shape shape) {
    const NodeId id = Op(op, name, std::move(inputs), shape);
    graph_.node(id).pack = weight.pack;
    return id;
  }
  NodeId MulMat(const char* name, NodeId x, const Weight& weight) {
    return Multiply(TensorOp::kMulMat, name, {x, Leaf(name, weight)}, weight,
                    {weight.view.shape[1], x_rows(x), 1, 1});
  }
  std::int64_t x_rows(NodeId x) const { return graph_.node(x).out.shape[1]; }

  /// x * w + residual; fused it is one node, in place on the residual (unless that is a tensor
  /// somebody still needs).
  NodeId Project(const char* name, NodeId x, const Weight& weight, NodeId residual) {
    const Shape shape{config_.hidden, rows_, 1, 1};
    if (!model_.fused())
      return Op(TensorOp::kAdd, std::string(name) + "_add", {MulMat(name, x, weight), residual},
                shape);
    const NodeId sum =
        Multiply(TensorOp::kMulMatAdd, name, {x, Leaf(name, weight), residual}, weight, shape);
    graph_.node(sum).alias_of = residual;
    return sum;
  }

  /// A window of heads into rows of `source`.
  NodeId Heads(const char* name, NodeId source, std::int64_t first_column, std::int32_t heads) {
    const std::int64_t row = graph_.node(source).out.shape[0];
    return graph_.AddView(blk_ + name, source, first_column, {config_.head_dim, heads, rows_, 1},
                          {1, config_.head_dim, row, 0});
  }

  NodeId Rope(const char* name, NodeId heads) {
    OpParams params;
    params.rope = config_.rope;
    const TensorView view = graph_.node(heads).out;
    const NodeId id = Op(TensorOp::kRope, name, {heads, positions_, factors_}, view.shape, params);
    graph_.node(id).alias_of = heads;
    graph_.node(id).out.stride = view.stride;
    return id;
  }

  NodeId Scatter(const char* name, NodeId heads, const TensorView& cache, std::int32_t layer) {
    OpParams params;
    params.layer = layer;
    const NodeId leaf = graph_.AddLeaf(blk_ + name + ".cache", LeafKind::kCache, cache);
    const NodeId id =
        graph_.AddOp(TensorOp::kKvScatter, blk_ + name, {heads, leaf, positions_, slots_},
                     cache.dtype, cache.shape, params);
    graph_.node(id).alias_of = leaf;
    return id;
  }

  NodeId Attention(std::int32_t layer, NodeId normed, const LayerWeights& w, const KvLayer& cache) {
    const std::int64_t q_size = std::int64_t{config_.heads} * config_.head_dim;
    const std::int64_t kv_size = std::int64_t{config_.kv_heads} * config_.head_dim;
    NodeId q = kNoNode, k = kNoNode, v = kNoNode;
    if (w.qkv.view.data != nullptr) {
      const NodeId qkv = MulMat("attn_qkv", normed, w.qkv);
      q = Heads("q", qkv, 0, config_.heads);
      k = Heads("k", qkv, q_size, config_.kv_heads);
      v = Heads("v", qkv, q_size + kv_size, config_.kv_heads);
    } else {
      q = Heads("q", MulMat("attn_q", normed, w.q), 0, config_.heads);
      k = Heads("k", MulMat("attn_k", normed, w.k), 0, config_.kv_heads);
      v = Heads("v", MulMat("attn_v", normed, w.v), 0, config_.kv_heads);
    }
    q = Rope("rope_q", q);
    k = Rope("rope_k", k);
    const NodeId keys = Scatter("k_scatter", k, cache.k, layer);
    const NodeId values = Scatter("v_scatter", v, cache.v, layer);
    OpParams params;
    params.layer = layer;
    params.attention_scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
    return Op(TensorOp::kAttention, "attention", {q, keys, values, positions_, slots_},
              {q_size, rows_, 1, 1}, params);
  }

  NodeId FeedForward(NodeId normed, const LayerWeights& w) {
    const Shape shape{config_.ffn, rows_, 1, 1};
    if (w.gate_up.view.data != nullptr) {
      return Multiply(TensorOp::kMulMatSwiGlu, "ffn_gate_up",
                      {normed, Leaf("ffn_gate_up", w.gate_up)}, w.gate_up, shape);
    }
    const NodeId gate = MulMat("ffn_gate", normed, w.gate);
    const NodeId up = MulMat("ffn_up", normed, w.up);
    return Op(TensorOp::kMul, "ffn_mul", {Op(TensorOp::kSilu, "ffn_silu", {gate}, shape), up},
              shape);
  }

  const Model& model_;
  const ModelConfig& config_;
  const std::int32_t rows_;
  const DataType type_;
  Graph graph_;
  std::string blk_;
  NodeId tokens_ = kNoNode, positions_ = kNoNode, slots_ = kNoNode, factors_ = kNoNode;
};

}  // namespace

LlamaGraph BuildLlama(const Model& model, const std::vector<KvLayer>& cache,
                      const PassInputs& inputs, std::int32_t rows, std::int32_t logits_rows,
                      DataType activations) {
  Builder builder(model, inputs, rows, activations);
  NodeId x = builder.Embed();
  for (std::int32_t i = 0; i < model.config().layers; ++i)
    x = builder.Layer(i, x, cache[static_cast<std::size_t>(i)]);
  LlamaGraph result;
  if (logits_rows > 0) result.logits = builder.Logits(x, inputs.wanted, logits_rows);
  result.graph = builder.Take();
  return result;
}

}  // namespace tilewright
