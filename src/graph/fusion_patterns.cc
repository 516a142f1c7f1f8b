#include <algorithm>
#include <array>

#include "graph/fusion.h"
#include "graph/liveness.h"

namespace tilewright {
namespace {

/// Whether the elements of `view` lie as strides [1, stride1, stride2] say; the stride of a
/// dimension of one element says nothing.
bool LiesAs(const TensorView& view, std::array<std::int64_t, 3> stride) {
  for (std::size_t d = 0; d < 3; ++d) {
    if (view.shape[d] != 1 && view.stride[d] != stride[d]) return false;
  }
  return view.shape[3] == 1;
}

/// A product is read as rows of n contiguous elements.
bool IsPlainMatrix(const TensorView& view) {
  return view.shape[2] == 1 && view.shape[3] == 1 &&
         LiesAs(view, {1, std::max(view.stride[1], view.shape[0]), 0});
}

/// A fused operation does not round intermediate results, so the operations that it replaces must
/// not either, unless the caller has no use for their roundings. A product with its residual does
/// not ask that: a sum that is fused with the norm behind it costs as many launches, and leaves the
/// product to any kernel.
bool IsUnrounded(const TensorNode& between) {
  return between.out.dtype == DataType::kF32 || between.out.dtype == DataType::kF64;
}

/// Whether a fused operation may leave out what rounds `between`.
bool NeedsNoRounding(const FusionGraph& graph, const TensorNode& between) {
  const DataType type = between.out.dtype;
  return IsUnrounded(between) || (graph.between() == BetweenFused::kUnrounded &&
                                  (type == DataType::kBF16 || type == DataType::kF16));
}

/// Whether the operands of a product may be read where `to` runs.
bool ProductMovesTo(const FusionGraph& graph, const TensorNode& product, NodeId to) {
  return std::all_of(product.inputs.begin(), product.inputs.end(),
                     [&](NodeId input) { return graph.UnchangedBetween(input, product.id, to); });
}

/// `last`, named and multiplying as `product` does.
TensorNode AsProduct(const TensorNode& last, const TensorNode& product, TensorOp op) {
  TensorNode fused = last;
  fused.op = op;
  fused.name = product.name;
  fused.inputs = product.inputs;
  fused.pack = product.pack;
  fused.params = product.params;
  return fused;
}

/// `node`, which another computes too, as the memory that it writes.
TensorNode AsBuffer(const TensorNode& node) {
  TensorNode buffer = node;
  buffer.op = TensorOp::kBuffer;
  buffer.inputs.clear();
  return buffer;
}

/// A sum whose operand `i` is a product that no other node reads, and which `may_drop` the rounding of.
std::optional<FusionMatch> ResidualAt(const FusionGraph& graph, const TensorNode& sum,
                                      std::size_t i, bool may_drop) {
  const TensorNode& product = graph.node(sum.inputs[i]);
  const TensorNode& residual = graph.node(sum.inputs[1 - i]);
  if (product.op != TensorOp::kMulMat || !graph.ReadOnce(product.id)) return std::nullopt;
  if (!(may_drop ? NeedsNoRounding(graph, product) : IsUnrounded(product))) return std::nullopt;
  if (!IsPlainMatrix(sum.out) || !IsPlainMatrix(residual.out)) return std::nullopt;
  if (!ProductMovesTo(graph, product, sum.id)) return std::nullopt;
  // A kernel writes the sum while it still reads the operands of the product.
  const NodeId storage = StorageOf(graph.graph(), residual.id);
  const bool apart = std::none_of(product.inputs.begin(), product.inputs.end(), [&](NodeId input) {
    return StorageOf(graph.graph(), input) == storage;
  });
  if (sum.alias_of == residual.id && !apart) return std::nullopt;
  TensorNode fused = AsProduct(sum, product, TensorOp::kMulMatAdd);
  fused.inputs.push_back(residual.id);
  if (fused.alias_of == product.id) fused.alias_of = kNoNode;
  if (fused.alias_of == kNoNode && apart && residual.out.stride == sum.out.stride &&
      graph.FreeAfter(residual.id, sum.id))
    fused.alias_of = residual.id;
  return FusionMatch{std::move(fused), {product.id}};
}

std::optional<FusionMatch> ResidualOf(const FusionGraph& graph, const TensorNode& sum,
                                      bool may_drop) {
  std::optional<FusionMatch> match = ResidualAt(graph, sum, 0, may_drop);
  return match ? match : ResidualAt(graph, sum, 1, may_drop);
}

std::optional<FusionMatch> MatchResidual(const FusionGraph& graph, const TensorNode& sum) {
  return ResidualOf(graph, sum, false);
}

/// activation(gate) * up as kMul of a kSilu or kGelu that no other node reads; `activation` is
/// kNoNode where one node, `fused`, computes both already.
struct GatedPair {
  TensorOp fused = TensorOp::kSwiGlu;
  NodeId gate = kNoNode, up = kNoNode, activation = kNoNode;
};
std::optional<GatedPair> GatedPairOf(const FusionGraph& graph, const TensorNode& node) {
  if (node.op == TensorOp::kSwiGlu || node.op == TensorOp::kGeGlu)
    return GatedPair{node.op, node.inputs[0], node.inputs[1], kNoNode};
  if (node.op != TensorOp::kMul) return std::nullopt;
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    const TensorNode& activation = graph.node(node.inputs[i]);
    const bool silu = activation.op == TensorOp::kSilu;
    if ((silu || activation.op == TensorOp::kGelu) && NeedsNoRounding(graph, activation) &&
        graph.ReadOnce(activation.id)) {
      return GatedPair{silu ? TensorOp::kSwiGlu : TensorOp::kGeGlu, activation.inputs[0],
                       node.inputs[1 - i], activation.id};
    }
  }
  return std::nullopt;
}

std::optional<FusionMatch> MatchSwiGlu(const FusionGraph& graph, const TensorNode& mul) {
  const std::optional<GatedPair> pair = GatedPairOf(graph, mul);
  if (!pair || !graph.UnchangedBetween(pair->gate, pair->activation, mul.id)) return std::nullopt;
  TensorNode fused = mul;
  fused.op = pair->fused;
  fused.inputs = {pair->gate, pair->up};
  if (fused.alias_of == pair->activation) fused.alias_of = graph.node(pair->activation).alias_of;
  // In place on one operand while it still reads the other from the same memory, elsewhere in it.
  if (fused.alias_of != kNoNode && pair->gate != pair->up &&
      StorageOf(graph.graph(), pair->gate) == StorageOf(graph.graph(), pair->up))
    return std::nullopt;
  return FusionMatch{std::move(fused), {pair->activation}};
}

/// Whether `id` is the half of a merged product that starts at row `first` of each pair of blocks:
/// [kGatedBlock, n / kGatedBlock, m], read once.
bool IsHalf(const FusionGraph& graph, NodeId id, std::int64_t first) {
  const TensorNode& half = graph.node(id);
  if (half.op != TensorOp::kView || half.params.view_offset != first) return false;
  const TensorView& product = graph.node(half.inputs[0]).out;
  return half.out.shape[0] == kGatedBlock &&
         2 * kGatedBlock * half.out.shape[1] == product.shape[0] &&
         half.out.shape[2] == product.shape[1] &&
         LiesAs(half.out, {1, 2 * kGatedBlock, product.shape[0]}) && graph.ReadOnce(id);
}

/// Ends with the view that reads the blocks of the result as rows again.
std::optional<FusionMatch> MatchMulMatSwiGlu(const FusionGraph& graph, const TensorNode& rows) {
  const TensorNode& gated = graph.node(rows.inputs[0]);
  const std::optional<GatedPair> pair = GatedPairOf(graph, gated);
  if (!pair || pair->fused != TensorOp::kSwiGlu || !graph.ReadOnce(gated.id)) return std::nullopt;
  if (!IsHalf(graph, pair->gate, 0) || !IsHalf(graph, pair->up, kGatedBlock)) return std::nullopt;
  const TensorNode& product = graph.node(graph.node(pair->gate).inputs[0]);
  const bool experts = product.op == TensorOp::kMulMatExperts;
  if ((product.op != TensorOp::kMulMat && !experts) ||
      graph.node(pair->up).inputs[0] != product.id || !NeedsNoRounding(graph, product) ||
      !graph.ReadBy(product.id, 2) || !IsPlainMatrix(product.out))
    return std::nullopt;
  const std::int64_t n = product.out.shape[0] / 2, m = product.out.shape[1];
  const std::array<std::int64_t, 4> shape{n, m, 1, 1};
  if (rows.params.view_offset != 0 || rows.out.shape != shape || !LiesAs(rows.out, {1, n, 0}) ||
      !LiesAs(gated.out, {1, kGatedBlock, n}) || gated.out.dtype != product.out.dtype)
    return std::nullopt;
  if (!ProductMovesTo(graph, product, rows.id)) return std::nullopt;
  TensorNode fused =
      AsProduct(rows, product, experts ? TensorOp::kMulMatExpertsSwiGlu : TensorOp::kMulMatSwiGlu);
  fused.alias_of = kNoNode;
  fused.out.stride = {1, n, n * m, n * m};
  FusionMatch match{std::move(fused), {product.id, pair->gate, pair->up, gated.id}};
  if (pair->activation != kNoNode) match.absorbed.push_back(pair->activation);
  return match;
}

std::optional<FusionMatch> MatchRopeScatter(const FusionGraph& graph, const TensorNode& scatter) {
  const TensorNode& rope = graph.node(scatter.inputs[0]);
  if (rope.op != TensorOp::kRope || !NeedsNoRounding(graph, rope) || !graph.ReadOnce(rope.id) ||
      rope.inputs[1] != scatter.inputs[2] ||
      !graph.UnchangedBetween(rope.inputs[0], rope.id, scatter.id))
    return std::nullopt;
  TensorNode fused = scatter;
  fused.op = TensorOp::kRopeScatter;
  fused.inputs[0] = rope.inputs[0];
  fused.inputs.resize(5, kNoNode);  // without a page table
  fused.inputs.push_back(rope.inputs.size() > 2 ? rope.inputs[2] : kNoNode);
  fused.params.rope = rope.params.rope;
  return FusionMatch{std::move(fused), {rope.id}};
}

/// Input `i` of a node, or kNoNode.
NodeId InputOf(const TensorNode& node, std::size_t i) {
  return i < node.inputs.size() ? node.inputs[i] : kNoNode;
}

/// Ends with the attention that reads the turned queries and both caches; what the fused node takes
/// the place of is the scatter of the values. Queries and keys stay names of the memory they were
/// written to.
std::optional<FusionMatch> MatchRopeQkv(const FusionGraph& graph, const TensorNode& attention) {
  const TensorNode& q = graph.node(attention.inputs[0]);
  const TensorNode& keys = graph.node(attention.inputs[1]);
  const TensorNode& values = graph.node(attention.inputs[2]);
  if (q.op != TensorOp::kRope || keys.op != TensorOp::kKvScatter ||
      values.op != TensorOp::kKvScatter)
    return std::nullopt;
  const TensorNode& k = graph.node(keys.inputs[0]);
  if (k.op != TensorOp::kRope || !NeedsNoRounding(graph, k) || !graph.ReadOnce(k.id))
    return std::nullopt;
  // The same angles and the same places.
  for (const std::size_t i : {std::size_t{2}, std::size_t{3}, std::size_t{4}}) {
    if (InputOf(keys, i) != InputOf(values, i)) return std::nullopt;
  }
  if (q.params.rope != k.params.rope || q.inputs[1] != k.inputs[1] ||
      q.inputs[1] != keys.inputs[2] || InputOf(q, 2) != InputOf(k, 2))
    return std::nullopt;
  // One after the other: nothing reads or writes in between what is then written at another time.
  if (q.id >= k.id || k.id >= keys.id || keys.id >= values.id) return std::nullopt;
  for (NodeId id = q.id + 1; id < values.id; ++id) {
    const bool own = id == k.id || id == keys.id;
    if (!own && !graph.dead(id) && Computes(graph.node(id).op)) return std::nullopt;
  }
  TensorNode fused = values;
  fused.op = TensorOp::kRopeQkvScatter;
  fused.inputs = {q.inputs[0],      k.inputs[0],      values.inputs[0], q.id,
                  keys.id,          values.inputs[1], values.inputs[2], values.inputs[3],
                  InputOf(keys, 4), InputOf(q, 2)};
  fused.params.rope = q.params.rope;
  return FusionMatch{std::move(fused), {k.id}, {AsBuffer(q), AsBuffer(keys)}};
}

/// The same with the attention: it is the fused node, and both scatters stay names of the caches
/// that it writes. Queries keep their rounding: the rule of the node refuses those of another type
/// than the result, which has that of turned ones.
std::optional<FusionMatch> MatchRopeAttention(const FusionGraph& graph,
                                              const TensorNode& attention) {
  std::optional<FusionMatch> match = MatchRopeQkv(graph, attention);
  if (!match || InputOf(attention, 6) != kNoNode) return std::nullopt;  // with sinks
  const TensorNode& scatter = match->fused;
  const TensorNode& q = graph.node(attention.inputs[0]);
  if (!graph.ReadOnce(q.id)) return std::nullopt;
  // The rows attend where they are put.
  for (const std::size_t i : {std::size_t{3}, std::size_t{4}, std::size_t{5}}) {
    if (InputOf(attention, i) != scatter.inputs[i + 3]) return std::nullopt;
  }
  for (NodeId id = scatter.id + 1; id < attention.id; ++id) {
    if (!graph.dead(id) && Computes(graph.node(id).op)) return std::nullopt;
  }
  const NodeId keys = scatter.inputs[4];
  TensorNode fused = attention;
  fused.op = TensorOp::kRopeAttention;
  fused.inputs = {scatter.inputs[0], scatter.inputs[1], scatter.inputs[2], keys,
                  scatter.id,        scatter.inputs[6], scatter.inputs[7], scatter.inputs[8],
                  scatter.inputs[9]};
  fused.params.rope = scatter.params.rope;
  match->absorbed.push_back(q.id);
  return FusionMatch{std::move(fused),
                     std::move(match->absorbed),
                     {AsBuffer(graph.node(keys)), AsBuffer(graph.node(scatter.id))}};
}

/// The sum keeps its node, which becomes the memory that the norm writes it to.
std::optional<FusionMatch> MatchAddNorm(const FusionGraph& graph, const TensorNode& norm) {
  const TensorNode& sum = graph.node(norm.inputs[0]);
  if (sum.op != TensorOp::kAdd || sum.alias_of != kNoNode || norm.alias_of != kNoNode ||
      graph.ReadBetween(sum.id, sum.id, norm.id) ||
      !graph.UnchangedBetween(sum.inputs[0], sum.id, norm.id) ||
      !graph.UnchangedBetween(sum.inputs[1], sum.id, norm.id))
    return std::nullopt;
  TensorNode fused = norm;
  fused.op = TensorOp::kAddRmsNorm;
  fused.inputs = {sum.inputs[0], sum.inputs[1], norm.inputs[1], sum.id};
  return FusionMatch{std::move(fused), {}, {AsBuffer(sum)}};
}

/// A norm that one product alone reads. A residual in front of it goes into the epilogue of the
/// product that it is added to: a sum left alone would be a launch that `add-norm` does not need.
/// That product is not rounded on its own then, which is why `residual` does not do this where
/// results are of 16 bits.
std::optional<FusionMatch> MatchNormMulMat(const FusionGraph& graph, const TensorNode& product) {
  const TensorNode& norm = graph.node(product.inputs[0]);
  if (norm.op != TensorOp::kRmsNorm || norm.alias_of != kNoNode || !NeedsNoRounding(graph, norm) ||
      !graph.ReadOnce(norm.id))
    return std::nullopt;
  const TensorNode& x = graph.node(norm.inputs[0]);
  if (!IsPlainMatrix(x.out) || !graph.UnchangedBetween(x.id, norm.id, product.id) ||
      !graph.UnchangedBetween(norm.inputs[1], norm.id, product.id))
    return std::nullopt;
  FusionMatch match;
  if (x.op == TensorOp::kAdd) {
    std::optional<FusionMatch> sum = ResidualOf(graph, x, true);
    if (!sum) return std::nullopt;
    match.absorbed = std::move(sum->absorbed);
    match.others.push_back(std::move(sum->fused));
  }
  match.absorbed.push_back(norm.id);
  match.fused = product;
  match.fused.op =
      product.op == TensorOp::kMulMat ? TensorOp::kNormMulMat : TensorOp::kNormMulMatSwiGlu;
  match.fused.inputs = {x.id, product.inputs[1], norm.inputs[1]};
  match.fused.params.epsilon = norm.params.epsilon;
  return match;
}

bool IsProduct(TensorOp op) {
  return op == TensorOp::kMulMat || op == TensorOp::kMulMatAdd || op == TensorOp::kMulMatSwiGlu;
}

/// Activations that several products read. `first` must be the first of them. Only products with
/// packed weights count: their layout determines whether their kernels round activations to i8x32
/// anyway (no others accept them), while an oracle multiplies anything by plain weights.
std::optional<FusionMatch> MatchQuantiseOnce(const FusionGraph& graph, const TensorNode& first) {
  const TensorNode& x = graph.node(first.inputs[0]);
  if (x.out.dtype != DataType::kF32 || !IsPlainMatrix(x.out) ||
      x.out.shape[0] % GetTypeInfo(DataType::kI8X32).block_elements != 0)
    return std::nullopt;
  FusionMatch match;
  for (const TensorNode& node : graph.graph().nodes()) {
    if (graph.dead(node.id) || !IsProduct(node.op) || node.inputs[0] != x.id) continue;
    if (node.id < first.id) return std::nullopt;
    if (node.pack == kPackPlain || !graph.UnchangedBetween(x.id, first.id, node.id)) continue;
    match.readers.push_back(node);
    match.readers.back().inputs[0] = graph.next_id();
  }
  if (match.readers.size() < 2) return std::nullopt;
  match.fused.op = TensorOp::kCopy;
  match.fused.id = graph.next_id();
  match.fused.name = x.name + ".i8x32";
  match.fused.inputs = {x.id};
  match.fused.out = Contiguous(nullptr, DataType::kI8X32, x.out.shape);
  return match;
}

/// A pattern comes before those that are part of it: a merged product before its pair of
/// elementwise operations, a product with its residual before the sum, an attention with its
/// rotations and scatters before those alone, a product with its norm before the norm with its sum.
constexpr FusionPattern kPatterns[] = {
    {Fusion::kMulMatSwiGlu, TensorOp::kView, &MatchMulMatSwiGlu},
    {Fusion::kSwiGlu, TensorOp::kMul, &MatchSwiGlu},
    {Fusion::kResidual, TensorOp::kAdd, &MatchResidual},
    {Fusion::kNormMulMat, TensorOp::kMulMat, &MatchNormMulMat},
    {Fusion::kNormMulMat, TensorOp::kMulMatSwiGlu, &MatchNormMulMat},
    {Fusion::kAddNorm, TensorOp::kRmsNorm, &MatchAddNorm},
    {Fusion::kRopeAttention, TensorOp::kAttention, &MatchRopeAttention},
    {Fusion::kRopeQkv, TensorOp::kAttention, &MatchRopeQkv},
    {Fusion::kRopeScatter, TensorOp::kKvScatter, &MatchRopeScatter},
    {Fusion::kQuantiseOnce, TensorOp::kMulMat, &MatchQuantiseOnce},
    {Fusion::kQuantiseOnce, TensorOp::kMulMatAdd, &MatchQuantiseOnce},
    {Fusion::kQuantiseOnce, TensorOp::kMulMatSwiGlu, &MatchQuantiseOnce},
};

}  // namespace

std::span<const FusionPattern> FusionPatterns() { return kPatterns; }

}  // namespace tilewright
