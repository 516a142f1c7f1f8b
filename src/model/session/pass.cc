#include "model/session/pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "model/arch/architecture.h"

namespace tilewright {
namespace {

class Builder {
 public:
  Builder(const Model& model, const KvCache& cache, const PassInputs::Places& inputs,
          const PassShape& shape, const PassTypes& types)
      : model_(model), config_(model.config()), cache_(cache), rows_(shape.rows), types_(types) {
    const LeafKind kind = shape.hands_over() ? LeafKind::kCache : LeafKind::kInput;
    tokens_ = Ints("tokens", inputs.tokens, rows_, kind);
    positions_ = Ints("positions", inputs.positions, rows_, kind);
    slots_ = Ints("slots", inputs.slots, rows_);
    pages_ = graph_.AddLeaf("pages", LeafKind::kInput,
                            Contiguous(inputs.pages, DataType::kI32,
                                       {cache.pages_per_slot(), cache.shape().slots, 1, 1}));
    if (const Weight* factors = RopeFactors(cache.shape().context))
      factors_ = graph_.AddLeaf("rope_freqs", LeafKind::kWeight, factors->view);
  }

  NodeId Embed() {
    const NodeId table = Leaf("token_embd", model_.globals()[WeightRole::kEmbedding]);
    const NodeId rows =
        Op(TensorOp::kEmbedding, "embedding", {table, tokens_}, {config_.hidden, rows_, 1, 1});
    const Weight* scale = model_.globals().Find(WeightRole::kEmbeddingScale);
    if (scale == nullptr) return rows;
    const NodeId factors = ForEachRow("embedding_scale", *scale, graph_.node(rows).out.shape, 0);
    return InPlace(TensorOp::kMul, "embedding_scale_mul", rows, {rows, factors});
  }

  NodeId Block(std::int32_t index, NodeId x) {
    weights_ = &model_.blocks()[static_cast<std::size_t>(index)];
    block_ = model_.architecture().block(config_, index);
    prefix_ = fmt::format("blk.{}.", index);
    x = AddToResidual(
        "attn_output",
        {WeightRole::kAttnOutput, WeightRole::kAttnOutputBias, WeightRole::kAttnPostNorm},
        Attention(index, ForProducts("attn_norm", WeightRole::kAttnNorm, x)), x);
    const NodeId normed = ForProducts("ffn_norm", WeightRole::kFfnNorm, x);
    if (weights_->Find(WeightRole::kRouter) != nullptr) {
      return Op(TensorOp::kAdd, "ffn_add", {Experts(normed), x}, {config_.hidden, rows_, 1, 1});
    }
    return AddToResidual("ffn_down", {WeightRole::kDown, std::nullopt, WeightRole::kFfnPostNorm},
                         FeedForward(kDenseFfn, config_.ffn, normed), x);
  }

  /// `wanted` is nullptr where all rows are.
  NodeId Logits(NodeId x, std::int32_t* wanted, std::int32_t logits_rows) {
    prefix_.clear();
    weights_ = &model_.globals();
    if (wanted != nullptr) {
      const NodeId picked = Ints("wanted", wanted, logits_rows);
      x = Op(TensorOp::kEmbedding, "pick_rows", {x, picked}, {config_.hidden, logits_rows, 1, 1});
    }
    x = ForProducts("output_norm", WeightRole::kOutputNorm, x);
    x = MulMat("output", x, (*weights_)[WeightRole::kOutput]);
    graph_.node(x).out.dtype = types_.logits;
    if (config_.logit_softcap > 0) {
      OpParams params;
      params.softcap = config_.logit_softcap;
      x = InPlace(TensorOp::kSoftcap, "output_softcap", x, {x}, params);
      graph_.node(x).out.dtype = types_.logits;
    }
    graph_.node(x).keep = true;
    return x;
  }

  /// The `k` best of each row of the logits. One, the choice of greedy decoding, is its id only.
  /// Handed over, it is left in `found`, by `turns`.
  void Top(const PassShape& of, std::int32_t* turns, const TensorView& found, PassGraph& pass) {
    const std::int32_t k = of.top;
    const Shape shape = {k, graph_.node(pass.logits).out.shape[1], 1, 1};
    std::vector<NodeId> inputs = {pass.logits};
    if (k > 1) {
      pass.top_values = graph_.AddOp(TensorOp::kBuffer, "top_values", {}, DataType::kF32, shape);
      graph_.node(pass.top_values).keep = true;
      inputs.push_back(pass.top_values);
    }
    if (of.hands_over()) {
      inputs = {pass.logits,
                kNoNode,
                Written("next_tokens", tokens_),
                Written("next_positions", positions_),
                Written("next_turns", Ints("turns", turns, rows_, LeafKind::kCache)),
                Written("found_tokens", graph_.AddLeaf("found", LeafKind::kCache, found))};
    }
    pass.top_ids = graph_.AddOp(TensorOp::kTopK, "top_ids", inputs, DataType::kI32, shape);
    graph_.node(pass.top_ids).keep = true;
  }

  Graph Take() { return std::move(graph_); }

 private:
  using Shape = std::array<std::int64_t, 4>;

  /// As llama.cpp does, the context of the session decides which factors it uses, not a sequence's
  /// length: cached keys could not be rotated again when the sequence outgrows the original context.
  const Weight* RopeFactors(std::int32_t context) const {
    const WeightSet& globals = model_.globals();
    if (const Weight* factors = globals.Find(WeightRole::kRopeFactors)) return factors;
    return globals.Find(context > config_.original_context ? WeightRole::kRopeFactorsLong
                                                           : WeightRole::kRopeFactorsShort);
  }

  NodeId Ints(const char* name, std::int32_t* data, std::int32_t count,
              LeafKind kind = LeafKind::kInput) {
    return graph_.AddLeaf(name, kind, Contiguous(data, DataType::kI32, {count, 1, 1, 1}));
  }
  /// The leaf as the node leaves it that has this among its inputs.
  NodeId Written(const char* name, NodeId leaf) {
    const TensorView view = graph_.node(leaf).out;
    const NodeId id = graph_.AddOp(TensorOp::kBuffer, name, {}, view.dtype, view.shape);
    graph_.node(id).alias_of = leaf;
    graph_.node(id).out.stride = view.stride;
    return id;
  }
  NodeId Leaf(const std::string& name, const Weight& weight) {
    return graph_.AddLeaf(prefix_ + name + ".weight", LeafKind::kWeight, weight.view, weight.pack);
  }
  NodeId Op(TensorOp op, const std::string& name, std::vector<NodeId> inputs, Shape shape,
            OpParams params = {}) {
    return graph_.AddOp(op, prefix_ + name, std::move(inputs), types_.activations, shape, params);
  }
  /// x itself where the block has no such norm.
  NodeId Norm(const char* name, WeightRole role, NodeId x) {
    const Weight* weight = weights_->Find(role);
    if (weight == nullptr) return x;
    OpParams params;
    params.epsilon = config_.epsilon;
    const Shape shape = graph_.node(x).out.shape;  // a leaf may move the nodes
    return Op(TensorOp::kRmsNorm, name, {x, Leaf(name, *weight)}, shape, params);
  }
  /// A norm whose result only products read.
  NodeId ForProducts(const char* name, WeightRole role, NodeId x) {
    const NodeId normed = Norm(name, role, x);
    if (normed != x) graph_.node(normed).out.dtype = types_.normed;
    return normed;
  }
  /// A node that multiplies by `weight` says in its own pack how the weight lies.
  NodeId MulMat(const char* name, NodeId x, const Weight& weight) {
    const NodeId id = Op(TensorOp::kMulMat, name, {x, Leaf(name, weight)},
                         {weight.view.shape[1], x_rows(x), 1, 1});
    graph_.node(id).pack = weight.pack;
    return id;
  }
  std::int64_t x_rows(NodeId x) const { return graph_.node(x).out.shape[1]; }

  /// The weights of a projection back to the residual.
  struct ProjectionRoles {
    WeightRole matrix;
    std::optional<WeightRole> bias;
    WeightRole norm;
  };
  /// x * w + residual. A bias and a norm are applied to the product first, where the block has them.
  NodeId AddToResidual(const char* name, const ProjectionRoles& roles, NodeId x, NodeId residual) {
    const std::string text(name);
    NodeId product = MulMat(name, x, (*weights_)[roles.matrix]);
    if (roles.bias) product = Bias((text + "_bias").c_str(), *roles.bias, product);
    return Op(TensorOp::kAdd, text + "_add",
              {Norm((text + "_norm").c_str(), roles.norm, product), residual},
              {config_.hidden, rows_, 1, 1});
  }

  /// A window of heads into rows of `source`.
  NodeId Heads(const char* name, NodeId source, std::int64_t first_column, std::int32_t heads) {
    const std::int64_t row = graph_.node(source).out.shape[0];
    return graph_.AddView(prefix_ + name, source, first_column, {config_.head_dim, heads, rows_, 1},
                          {1, config_.head_dim, row, 0});
  }

  /// In place on `heads`, with its strides.
  NodeId InPlace(TensorOp op, const std::string& name, NodeId heads, std::vector<NodeId> inputs,
                 OpParams params = {}) {
    const TensorView view = graph_.node(heads).out;
    const NodeId id = Op(op, name, std::move(inputs), view.shape, params);
    graph_.node(id).alias_of = heads;
    graph_.node(id).out.stride = view.stride;
    return id;
  }

  /// x + a bias that is the same in every row, `head_stride` apart for the heads of a row; x itself
  /// where the block has none.
  NodeId Bias(const char* name, WeightRole role, NodeId x, std::int64_t head_stride = 0) {
    const Weight* weight = weights_->Find(role);
    if (weight == nullptr) return x;
    const NodeId bias = ForEachRow(name, *weight, graph_.node(x).out.shape, head_stride);
    return InPlace(TensorOp::kAdd, std::string(name) + "_add", x, {x, bias});
  }

  /// A vector as the operand of every row of `shape`, and of every head if `head_stride` is 0.
  NodeId ForEachRow(const char* name, const Weight& weight, Shape shape, std::int64_t head_stride) {
    NodeId vector = graph_.AddLeaf(prefix_ + name, LeafKind::kWeight, weight.view);
    if (weight.view.dtype != types_.activations)
      vector =
          Op(TensorOp::kCopy, std::string(name) + "_as", {vector}, {weight.view.shape[0], 1, 1, 1});
    return graph_.AddView(prefix_ + name + "_rows", vector, 0, shape, {1, head_stride, 0, 0});
  }

  /// Queries whose rotated elements are larger than the others.
  NodeId ScaleQueries(NodeId q) {
    const Weight* scale = weights_->Find(WeightRole::kQueryScale);
    if (scale == nullptr) return q;
    const NodeId factors = ForEachRow("q_scale", *scale, graph_.node(q).out.shape, 0);
    return InPlace(TensorOp::kMul, "q_scale_mul", q, {q, factors});
  }

  NodeId Rope(const char* name, NodeId heads) {
    OpParams params;
    params.rope = block_.rope;
    return InPlace(TensorOp::kRope, name, heads, {heads, positions_, factors_}, params);
  }

  NodeId Scatter(const char* name, NodeId heads, const TensorView& cache, std::int32_t layer) {
    OpParams params;
    params.layer = layer;
    const NodeId leaf = graph_.AddLeaf(prefix_ + name + ".cache", LeafKind::kCache, cache);
    const NodeId id =
        graph_.AddOp(TensorOp::kKvScatter, prefix_ + name,
                     {heads, leaf, positions_, slots_, pages_}, cache.dtype, cache.shape, params);
    graph_.node(id).alias_of = leaf;
    return id;
  }

  struct Projections {
    NodeId q = kNoNode, k = kNoNode, v = kNoNode;
  };
  /// Heads of queries, keys and values, with their biases and norms.
  Projections Project(NodeId normed) {
    const std::int64_t q_size = std::int64_t{config_.heads} * config_.head_dim;
    const std::int64_t kv_size = std::int64_t{config_.kv_heads} * config_.head_dim;
    Projections heads;
    if (const Weight* merged = weights_->Find(WeightRole::kQkv)) {
      const NodeId qkv = MulMat("attn_qkv", normed, *merged);
      heads.q = Heads("q", qkv, 0, config_.heads);
      heads.k = Heads("k", qkv, q_size, config_.kv_heads);
      heads.v = Heads("v", qkv, q_size + kv_size, config_.kv_heads);
    } else {
      const auto each = [&](const char* name, const char* weight, WeightRole role,
                            std::int32_t count) {
        return Heads(name, MulMat(weight, normed, (*weights_)[role]), 0, count);
      };
      heads.q = each("q", "attn_q", WeightRole::kQ, config_.heads);
      heads.k = each("k", "attn_k", WeightRole::kK, config_.kv_heads);
      heads.v = each("v", "attn_v", WeightRole::kV, config_.kv_heads);
    }
    heads.q = Bias("q_bias", WeightRole::kQBias, heads.q, config_.head_dim);
    heads.k = Bias("k_bias", WeightRole::kKBias, heads.k, config_.head_dim);
    heads.v = Bias("v_bias", WeightRole::kVBias, heads.v, config_.head_dim);
    heads.q = Norm("q_norm", WeightRole::kQNorm, heads.q);
    heads.k = Norm("k_norm", WeightRole::kKNorm, heads.k);
    return heads;
  }

  /// What the router leaves for the products of the experts and their sum.
  struct Routed {
    NodeId offsets = kNoNode, sources = kNoNode, places = kNoNode, weights = kNoNode;
    NodeId experts = kNoNode;  ///< where experts have biases
  };

  NodeId Attention(std::int32_t layer, NodeId normed) {
    const KvLayer& cache = cache_.layers()[static_cast<std::size_t>(layer)];
    const Projections heads = Project(normed);
    const NodeId q = Rope("rope_q", ScaleQueries(heads.q));
    const NodeId k = Rope("rope_k", heads.k);
    const NodeId keys = Scatter("k_scatter", k, cache.k, layer);
    const NodeId values = Scatter("v_scatter", heads.v, cache.v, layer);
    OpParams params;
    params.layer = layer;
    params.attention_scale = block_.attention_scale;
    params.attention_window = block_.window;
    params.softcap = block_.attention_softcap;
    std::vector<NodeId> inputs = {q, keys, values, positions_, slots_, pages_};
    if (const Weight* sinks = weights_->Find(WeightRole::kAttnSinks))
      inputs.push_back(graph_.AddLeaf(prefix_ + "attn_sinks", LeafKind::kWeight, sinks->view));
    return Op(TensorOp::kAttention, "attention", std::move(inputs),
              {std::int64_t{config_.heads} * config_.head_dim, rows_, 1, 1}, params);
  }

  /// The weights of a gated feed-forward, and what its nodes are called.
  struct FfnRoles {
    const char* name;
    WeightRole gate, up, merged;
  };
  static constexpr FfnRoles kDenseFfn = {"ffn", WeightRole::kGate, WeightRole::kUp,
                                         WeightRole::kGateUp};
  static constexpr FfnRoles kSharedFfn = {"ffn_shexp", WeightRole::kSharedGate,
                                          WeightRole::kSharedUp, WeightRole::kSharedGateUp};
  static constexpr FfnRoles kExpertFfn = {"ffn_exps", WeightRole::kExpertGate,
                                          WeightRole::kExpertUp, WeightRole::kExpertGateUp};

  /// activation(gate) * up of a feed-forward that is `width` wide. `routed`: of the experts' pairs.
  NodeId FeedForward(const FfnRoles& roles, std::int64_t width, NodeId normed,
                     const Routed* routed = nullptr) {
    const std::string name(roles.name);
    const auto product = [&](const char* part, const Weight& weight) {
      return routed == nullptr ? MulMat((name + part).c_str(), normed, weight)
                               : MulMatExperts(name + part, normed, weight, *routed, true);
    };
    // Architectures whose experts have biases do not merge gate and up.
    if (const Weight* merged = weights_->Find(roles.merged)) {
      const NodeId both = product("_gate_up", *merged);
      const NodeId gate = GatedHalf(name + "_gate", both, width, 0);
      const NodeId gated = Gated(name, gate, GatedHalf(name + "_up", both, width, 1));
      return graph_.AddView(prefix_ + name + "_rows", gated, 0, {width, x_rows(both), 1, 1},
                            {1, width, 0, 0});
    }
    NodeId gate = product("_gate", (*weights_)[roles.gate]);
    NodeId up = product("_up", (*weights_)[roles.up]);
    if (routed != nullptr) {
      gate = ExpertBias(name + "_gate_bias", WeightRole::kExpertGateBias, gate, *routed);
      up = ExpertBias(name + "_up_bias", WeightRole::kExpertUpBias, up, *routed);
    }
    return Gated(name, gate, up);
  }

  /// x [n, pairs] + the bias of the expert of each pair; x itself where experts have none.
  NodeId ExpertBias(const std::string& name, WeightRole role, NodeId x, const Routed& routed) {
    const Weight* weight = weights_->Find(role);
    if (weight == nullptr) return x;
    const Shape shape = graph_.node(x).out.shape;
    const NodeId table = graph_.AddLeaf(prefix_ + name, LeafKind::kWeight, weight->view);
    const NodeId rows = Op(TensorOp::kEmbedding, name + "_rows", {table, routed.experts}, shape);
    return InPlace(TensorOp::kAdd, name + "_add", x, {x, rows});
  }

  /// activation(gate) * up.
  NodeId Gated(const std::string& name, NodeId gate, NodeId up) {
    const Shape shape = graph_.node(gate).out.shape;
    if (block_.activation == Activation::kClampedSwiGlu) {
      OpParams params;
      params.gate_limit = block_.gate_limit;
      return Op(TensorOp::kClampedSwiGlu, name + "_gated", {gate, up}, shape, params);
    }
    const NodeId activated = block_.activation == Activation::kSilu
                                 ? Op(TensorOp::kSilu, name + "_silu", {gate}, shape)
                                 : Op(TensorOp::kGelu, name + "_gelu", {gate}, shape);
    return Op(TensorOp::kMul, name + "_mul", {activated, up}, shape);
  }

  /// Gate (`half` 0) or up (1) in a product of merged weights: every other block of kGatedBlock
  /// columns, [kGatedBlock, blocks, rows].
  NodeId GatedHalf(const std::string& name, NodeId both, std::int64_t width, std::int64_t half) {
    return graph_.AddView(prefix_ + name, both, half * kGatedBlock,
                          {kGatedBlock, width / kGatedBlock, x_rows(both), 1},
                          {1, 2 * kGatedBlock, 2 * width, 0});
  }

  bool HasExpertBiases() const {
    using enum WeightRole;
    return std::ranges::any_of(std::array{kExpertGateBias, kExpertUpBias, kExpertDownBias},
                               [&](WeightRole role) { return weights_->Find(role) != nullptr; });
  }

  /// Which experts the rows go to.
  Routed Route(NodeId normed) {
    const std::int64_t used = config_.experts_used;
    const NodeId logits = Bias("ffn_router_bias", WeightRole::kRouterBias,
                               MulMat("ffn_router", normed, (*weights_)[WeightRole::kRouter]));
    const auto buffer = [&](const char* name, DataType type, Shape shape) {
      return graph_.AddOp(TensorOp::kBuffer, prefix_ + name, {}, type, shape);
    };
    Routed routed;
    routed.sources = buffer("ffn_sources", DataType::kI32, {used * rows_, 1, 1, 1});
    routed.places = buffer("ffn_places", DataType::kI32, {used, rows_, 1, 1});
    routed.weights = buffer("ffn_weights", types_.activations, {used, rows_, 1, 1});
    std::vector<NodeId> inputs = {logits, routed.sources, routed.places, routed.weights};
    if (HasExpertBiases()) {
      routed.experts = buffer("ffn_experts", DataType::kI32, {used * rows_, 1, 1, 1});
      inputs.push_back(routed.experts);
    }
    OpParams params;
    params.route_normalise = config_.normalise_experts;
    routed.offsets = graph_.AddOp(TensorOp::kRoute, prefix_ + "ffn_route", std::move(inputs),
                                  DataType::kI32, {config_.experts + 1, 1, 1, 1}, params);
    return routed;
  }

  /// The products of all experts with the rows that go to them: `gathered` from x, or its own.
  NodeId MulMatExperts(const std::string& name, NodeId x, const Weight& weight,
                       const Routed& routed, bool gathered) {
    std::vector<NodeId> inputs = {x, Leaf(name, weight), routed.offsets};
    if (gathered) inputs.push_back(routed.sources);
    const NodeId id = Op(TensorOp::kMulMatExperts, name, std::move(inputs),
                         {weight.view.shape[1], std::int64_t{config_.experts_used} * rows_, 1, 1});
    graph_.node(id).pack = weight.pack;
    return id;
  }

  /// A sparse feed-forward.
  NodeId Experts(NodeId normed) {
    const Routed routed = Route(normed);
    const NodeId gated = FeedForward(kExpertFfn, config_.expert_ffn, normed, &routed);
    const NodeId product =
        MulMatExperts("ffn_exps_down", gated, (*weights_)[WeightRole::kExpertDown], routed, false);
    const NodeId down =
        ExpertBias("ffn_exps_down_bias", WeightRole::kExpertDownBias, product, routed);
    std::vector<NodeId> inputs = {down, routed.places, routed.weights};
    if (const Weight* router = weights_->Find(WeightRole::kSharedRouter)) {
      const NodeId shared = FeedForward(kSharedFfn, config_.shared_ffn, normed);
      inputs.push_back(MulMat("ffn_shexp_down", shared, (*weights_)[WeightRole::kSharedDown]));
      inputs.push_back(MulMat("ffn_shexp_router", normed, *router));
    }
    return Op(TensorOp::kCombine, "ffn_combine", std::move(inputs), {config_.hidden, rows_, 1, 1});
  }

  const Model& model_;
  const ModelConfig& config_;
  const KvCache& cache_;
  const std::int32_t rows_;
  const PassTypes types_;
  Graph graph_;
  std::string prefix_;                  ///< "blk.3.": of the names of nodes
  const WeightSet* weights_ = nullptr;  ///< of the block
  BlockSpec block_;
  NodeId tokens_ = kNoNode, positions_ = kNoNode, slots_ = kNoNode, pages_ = kNoNode,
         factors_ = kNoNode;
};

}  // namespace

PassGraph BuildPass(const Model& model, const KvCache& cache, const PassInputs& inputs,
                    const PassesAhead& ahead, const PassShape& shape, const PassTypes& types) {
  const PassInputs::Places places = inputs.device();
  Builder builder(model, cache, places, shape, types);
  NodeId x = builder.Embed();
  for (std::int32_t i = 0; i < model.config().layers; ++i) x = builder.Block(i, x);
  PassGraph result;
  if (shape.logits_rows > 0)
    result.logits = builder.Logits(x, shape.pick ? places.wanted : nullptr, shape.logits_rows);
  if (shape.top > 0) builder.Top(shape, places.turns, ahead.found(shape.rows), result);
  result.graph = builder.Take();
  return result;
}

}  // namespace tilewright
