// A norm that goes into the product that reads it, with the residual in front of it in the product
// that makes that.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>

#include "core/block_format.h"
#include "core/test_util.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

constexpr std::int64_t kK = 64, kN = 32, kRows = 2;
using Shape = std::array<std::int64_t, 4>;

/// x and a product with the residual r, their sum normalised, times a second weight.
struct Block {
  Graph graph;
  std::deque<std::vector<float>> memory;
  NodeId residual, product, sum, norm, result;

  NodeId Leaf(const char* name, LeafKind kind, Shape shape) {
    const auto count = static_cast<std::size_t>(shape[0] * shape[1]);
    memory.push_back(test::RandomFloats(count, memory.size() + 1));
    return graph.AddLeaf(name, kind, Contiguous(memory.back().data(), DataType::kF32, shape));
  }
  NodeId Product(const char* name, NodeId x, std::int64_t n, DataType type) {
    const NodeId w = Leaf("w", LeafKind::kWeight, {kK, n, 1, 1});
    return graph.AddOp(TensorOp::kMulMat, name, {x, w}, type, {n, kRows, 1, 1});
  }
  explicit Block(DataType type = DataType::kF32) {
    const Shape rows{kK, kRows, 1, 1};
    const NodeId x = Leaf("x", LeafKind::kInput, rows), y = Leaf("y", LeafKind::kInput, rows);
    residual = graph.AddOp(TensorOp::kSilu, "residual", {y}, type, rows);
    product = Product("product", x, kK, type);
    sum = graph.AddOp(TensorOp::kAdd, "sum", {product, residual}, type, rows);
    OpParams params;
    params.epsilon = 0.125f;
    const NodeId weight = Leaf("norm.weight", LeafKind::kWeight, {kK, 1, 1, 1});
    norm = graph.AddOp(TensorOp::kRmsNorm, "norm", {sum, weight}, type, rows, params);
    result = Product("result", norm, kN, type);
    graph.node(result).keep = true;
  }
};

bool Always(const Graph&, const TensorNode&) { return true; }

std::vector<TensorOp> OpsOf(const Graph& graph) {
  std::vector<TensorOp> ops;
  for (const TensorNode& node : graph.nodes()) {
    if (node.op != TensorOp::kNone) ops.push_back(node.op);
  }
  return ops;
}

const std::vector<TensorOp> kPlain = {TensorOp::kSilu, TensorOp::kMulMat, TensorOp::kAdd,
                                      TensorOp::kRmsNorm, TensorOp::kMulMat};

/// Fused by the one pattern, for a caller that drops roundings; the graph is valid.
std::vector<TensorOp> Fused(const Graph& graph, const SupportsNode& supports = &Always,
                            BetweenFused between = BetweenFused::kUnrounded,
                            FusionSet fusions = FusionSet::Of(Fusion::kNormMulMat)) {
  const Status valid = VerifyGraph(graph);
  EXPECT_TRUE(valid) << valid.error().message;
  const FusedGraph fused = Fuse(graph, fusions, supports, between);
  const Status still = VerifyGraph(fused.graph);
  EXPECT_TRUE(still) << still.error().message;
  return OpsOf(fused.graph);
}

std::vector<float> ValuesOf(const Graph& graph, NodeId id) {
  const auto oracle = MakeReferenceDispatch();
  Arena arena(*oracle->device());
  auto prepared = PrepareGraph(graph, *oracle, arena);
  EXPECT_TRUE(prepared) << prepared.error().message;
  if (!prepared) return {};
  const Status ran = (*prepared)->Run(oracle->device()->default_stream());
  EXPECT_TRUE(ran) << ran.error().message;
  const TensorView& out = (*prepared)->graph().node(id).out;
  std::vector<float> values(static_cast<std::size_t>(out.elements()));
  EXPECT_TRUE(DecodeRow(out.dtype, out.data, out.elements(), values.data()));
  return values;
}

TEST(FusedNorm, goes_into_its_product_and_the_residual_into_the_one_before) {
  Block block;
  block.graph.node(block.sum).keep = true;
  const FusedGraph fused =
      Fuse(block.graph, FusionSet::Of(Fusion::kNormMulMat), &Always, BetweenFused::kRounded);
  EXPECT_EQ(OpsOf(fused.graph),
            (std::vector{TensorOp::kSilu, TensorOp::kMulMatAdd, TensorOp::kNormMulMat}));
  const auto now = [&](NodeId id) { return fused.id_of[static_cast<std::size_t>(id)]; };
  EXPECT_EQ(now(block.product), kNoNode);
  EXPECT_EQ(now(block.norm), kNoNode);
  EXPECT_EQ(fused.graph.node(now(block.sum)).alias_of, now(block.residual));
  EXPECT_EQ(fused.graph.node(now(block.result)).params.epsilon, 0.125f);
  for (const NodeId id : {block.sum, block.result}) {
    const std::vector<float> have = ValuesOf(fused.graph, now(id)),
                             want = ValuesOf(block.graph, id);
    ASSERT_EQ(have.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(have[i], want[i], 1e-5 * (1 + std::fabs(want[i]))) << i;
  }
}

TEST(FusedNorm, so_does_that_of_a_gated_product) {
  Block block;
  TensorNode& gated = block.graph.node(block.result);
  gated.op = TensorOp::kMulMatSwiGlu;
  gated.out = Contiguous(nullptr, DataType::kF32, {kN / 2, kRows, 1, 1});
  EXPECT_EQ(Fused(block.graph),
            (std::vector{TensorOp::kSilu, TensorOp::kMulMatAdd, TensorOp::kNormMulMatSwiGlu}));
}

TEST(FusedNorm, results_of_16_bits_are_fused_for_a_caller_that_drops_their_roundings) {
  const Block block(DataType::kBF16);
  EXPECT_EQ(Fused(block.graph, &Always, BetweenFused::kRounded), kPlain);
  const std::vector want = {TensorOp::kSilu, TensorOp::kMulMatAdd, TensorOp::kNormMulMat};
  EXPECT_EQ(Fused(block.graph), want);
  // Before the norm with its sum, which would leave the product without either.
  EXPECT_EQ(Fused(block.graph, &Always, BetweenFused::kUnrounded, FusionSet::All()), want);
}

TEST(FusedNorm, all_stays_as_it_is_where_one_of_the_two_products_cannot_run) {
  const Block block(DataType::kBF16);
  for (const TensorOp refused : {TensorOp::kMulMatAdd, TensorOp::kNormMulMat}) {
    int asked = 0;
    const auto supports = [&](const Graph&, const TensorNode& node) {
      asked += node.op == refused ? 1 : 0;
      return node.op != refused;
    };
    EXPECT_EQ(Fused(block.graph, supports), kPlain) << TensorOpName(refused);
    EXPECT_EQ(asked, 1) << TensorOpName(refused);
  }
}

TEST(FusedNorm, a_sum_of_no_product_keeps_its_norm) {
  Block block(DataType::kBF16);
  block.graph.node(block.product).keep = true;  // so its own result is wanted
  EXPECT_EQ(Fused(block.graph), kPlain);
  EXPECT_EQ(Fused(block.graph, &Always, BetweenFused::kUnrounded,
                  FusionSet::Of(Fusion::kNormMulMat).With(Fusion::kAddNorm)),
            (std::vector{TensorOp::kSilu, TensorOp::kMulMat, TensorOp::kBuffer,
                         TensorOp::kAddRmsNorm, TensorOp::kMulMat}));
}

TEST(FusedNorm, is_not_done_where_others_read_the_norm_or_it_is_kept) {
  Block twice(DataType::kBF16);
  twice.graph.node(twice.Product("other", twice.norm, kN, DataType::kBF16)).keep = true;
  std::vector<TensorOp> want = kPlain;
  want.push_back(TensorOp::kMulMat);
  EXPECT_EQ(Fused(twice.graph), want);
  Block kept(DataType::kBF16);
  kept.graph.node(kept.norm).keep = true;
  EXPECT_EQ(Fused(kept.graph), kPlain);
}

TEST(FusedNorm, rows_that_are_overwritten_before_the_product_are_not_those_that_were_normalised) {
  Block block;
  // In the memory of the sum, in front of the product.
  Graph graph;
  for (const TensorNode& node : block.graph.nodes()) {
    if (node.id == block.result) {
      const NodeId over =
          graph.AddOp(TensorOp::kSilu, "over", {block.sum}, DataType::kF32, {kK, kRows, 1, 1});
      graph.node(over).alias_of = block.sum;
      graph.node(over).keep = true;
    }
    const NodeId id = graph.AddLeaf({}, node.leaf, node.out);
    graph.node(id) = node;
    graph.node(id).id = id;
  }
  std::vector<TensorOp> want = kPlain;
  want.insert(want.end() - 1, TensorOp::kSilu);
  EXPECT_EQ(Fused(graph), want);
}

}  // namespace
}  // namespace tilewright
