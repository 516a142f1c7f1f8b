// What is particular to each row of the table of fusions: the memory that a fused node takes, what
// it is not taken for, and what the verifier refuses.
#include "fusion_cases.h"

namespace tilewright {
namespace {

using namespace test_fusion;  // NOLINT(google-build-using-namespace): made for these tests

/// The only sum of a graph that was fused.
const TensorNode& SumOf(const FusedGraph& fused) {
  const auto nodes = fused.graph.nodes();
  const auto at = std::find_if(nodes.begin(), nodes.end(), [](const TensorNode& node) {
    return node.op == TensorOp::kMulMatAdd;
  });
  EXPECT_NE(at, nodes.end());
  return *at;
}

TEST(FusedResidual, takes_the_memory_of_the_residual_where_nothing_reads_that_later) {
  const Made made = Residual(DataType::kF32);
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  const TensorNode& sum = SumOf(fused);
  EXPECT_EQ(sum.alias_of, sum.inputs[2]);
  EXPECT_EQ(sum.name, "product");

  Made read_later = Residual(DataType::kF32);
  const NodeId residual = read_later.graph.node(read_later.result).inputs[1];
  read_later.Op(TensorOp::kMul, "later", {residual, read_later.result}, {kN, kRows, 1, 1});
  EXPECT_EQ(SumOf(Fuse(read_later.graph, FusionSet::All(), &Always)).alias_of, kNoNode);

  Made kept = Residual(DataType::kF32);
  kept.graph.node(kept.graph.node(kept.result).inputs[1]).keep = true;
  EXPECT_EQ(SumOf(Fuse(kept.graph, FusionSet::All(), &Always)).alias_of, kNoNode);
}

TEST(FusedResidual, never_takes_the_memory_of_a_leaf_or_of_the_product_operand) {
  Made leaf;
  const NodeId product = leaf.Product(leaf.Input(kK), kN, DataType::kF32);
  leaf.Op(TensorOp::kAdd, "sum", {leaf.Input(kN), product}, {kN, kRows, 1, 1});
  const FusedGraph of_leaf = Fuse(leaf.graph, FusionSet::All(), &Always);
  ExpectValid(of_leaf.graph);
  EXPECT_EQ(SumOf(of_leaf).alias_of, kNoNode);

  Made same;
  const NodeId x = same.Op(TensorOp::kSilu, "x", {same.Input(kK)}, {kK, kRows, 1, 1});
  const NodeId squared = same.Product(x, kK, DataType::kF32);
  const NodeId sum = same.Op(TensorOp::kAdd, "sum", {squared, x}, {kK, kRows, 1, 1});
  EXPECT_EQ(SumOf(Fuse(same.graph, FusionSet::All(), &Always)).alias_of, kNoNode);
  same.graph.node(sum).alias_of = x;
  ExpectValid(same.graph);
  ExpectSame(Fuse(same.graph, FusionSet::All(), &Always).graph, same.graph);
}

TEST(FusedResidual, a_residual_whose_rows_are_one_row_stays_a_sum) {
  Made made;
  const NodeId product = made.Product(made.Input(kK), kN, DataType::kF32);
  const NodeId bias = made.Leaf("bias", LeafKind::kWeight, {kN, 1, 1, 1});
  const NodeId rows = made.graph.AddView("rows", bias, 0, {kN, kRows, 1, 1}, {1, 0, 0, 0});
  made.Op(TensorOp::kAdd, "sum", {product, rows}, {kN, kRows, 1, 1});
  ExpectValid(made.graph);
  ExpectSame(Fuse(made.graph, FusionSet::All(), &Always).graph, made.graph);
}

TEST(FusedResidual, a_chain_of_sums_runs_in_one_place_with_the_bits_of_its_twin) {
  Cpu cpu(Precision::kF32);
  Made made = Residual(DataType::kF32);
  const NodeId first = made.result;
  const NodeId second = made.Product(made.Input(kK), kN, DataType::kF32);
  const NodeId sum = made.Op(TensorOp::kAdd, "sum2", {second, first}, {kN, kRows, 1, 1});
  made.graph.node(sum).keep = true;
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  ExpectValid(fused.graph);
  EXPECT_EQ(fused.graph.node(At(fused, sum)).alias_of, At(fused, first));
  EXPECT_NE(fused.graph.node(At(fused, first)).alias_of, kNoNode);
  EXPECT_EQ(BitsOf(fused.graph, At(fused, sum), cpu.dispatch()),
            BitsOf(made.graph, sum, cpu.dispatch()));
}

TEST(FusedMulMatSwiGlu, halves_that_lie_otherwise_are_not_taken_for_gate_and_up) {
  for (const bool swapped : {true, false}) {
    Made made = MulMatSwiGlu(DataType::kF32);
    TensorNode& gate = made.graph.node(made.between[1]);
    TensorNode& up = made.graph.node(made.between[2]);
    if (swapped) {
      std::swap(gate.params.view_offset, up.params.view_offset);
    } else {  // all of gate, then all of up
      gate.out.stride[1] = up.out.stride[1] = kGatedBlock;
      up.params.view_offset = kN;
    }
    ExpectValid(made.graph);
    const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
    EXPECT_FALSE(Has(fused.graph, TensorOp::kMulMatSwiGlu)) << swapped;
    EXPECT_TRUE(Has(fused.graph, TensorOp::kSwiGlu)) << swapped;
  }
}

TEST(FusedMulMatSwiGlu, a_pair_gated_by_gelu_stays_apart_from_its_product) {
  Made made = MulMatSwiGlu(DataType::kF32);
  for (const TensorNode& node : made.graph.nodes()) {
    if (node.op == TensorOp::kSilu) made.graph.node(node.id).op = TensorOp::kGelu;
  }
  ExpectValid(made.graph);
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  EXPECT_FALSE(Has(fused.graph, TensorOp::kMulMatSwiGlu));
  EXPECT_TRUE(Has(fused.graph, TensorOp::kGeGlu));
}

TEST(FusedMulMatSwiGlu, takes_a_pair_that_is_one_node_already) {
  const Made made = MulMatSwiGlu(DataType::kF32);
  const FusedGraph once = Fuse(made.graph, FusionSet::Of(Fusion::kSwiGlu), &Always);
  ASSERT_TRUE(Has(once.graph, TensorOp::kSwiGlu));
  const FusedGraph twice = Fuse(once.graph, FusionSet::Of(Fusion::kMulMatSwiGlu), &Always);
  ExpectValid(twice.graph);
  EXPECT_EQ(OpsOf(twice.graph), std::vector<TensorOp>{TensorOp::kMulMatSwiGlu});
}

TEST(FusedRopeScatter, rows_that_are_placed_by_other_positions_are_turned_first) {
  Made made = RopeScatterWhole(DataType::kF32);
  ASSERT_TRUE(Has(Fuse(made.graph, FusionSet::All(), &Always).graph, TensorOp::kRopeScatter));
  // The slots are a list of as many integers.
  TensorNode& scatter = made.graph.node(made.result);
  scatter.inputs[2] = scatter.inputs[3];
  ExpectValid(made.graph);
  ExpectSame(Fuse(made.graph, FusionSet::All(), &Always).graph, made.graph);
}

/// As in a model: everything in the memory of the product.
MadeQkv InPlaceQkv() {
  return RopeQkv(DataType::kF32, {.paged = true, .queries_in_place = true, .keys_in_place = true});
}

TEST(FusedRopeQkv, queries_stay_in_the_product_and_keys_in_their_cache) {
  Cpu cpu(Precision::kF32);
  MadeQkv made = InPlaceQkv();
  made.graph.node(made.attention).keep = true;
  ExpectValid(made.graph);
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  ExpectValid(fused.graph);
  EXPECT_EQ(
      OpsOf(fused.graph),
      (std::vector<TensorOp>{TensorOp::kSilu, TensorOp::kView, TensorOp::kView, TensorOp::kView,
                             TensorOp::kView, TensorOp::kBuffer, TensorOp::kBuffer,
                             TensorOp::kRopeQkvScatter, TensorOp::kAttention}));
  const TensorNode& node = fused.graph.node(At(fused, made.result));
  EXPECT_EQ(fused.graph.node(At(fused, made.q)).alias_of, node.inputs[0]);
  EXPECT_EQ(fused.graph.node(fused.graph.node(At(fused, made.keys)).alias_of).leaf,
            LeafKind::kCache);
  EXPECT_EQ(BitsOf(fused.graph, At(fused, made.attention), cpu.dispatch()),
            BitsOf(made.graph, made.attention, cpu.dispatch()));
}

TEST(FusedRopeQkv, keys_and_queries_of_other_angles_or_places_stay_apart) {
  const auto apart = [](auto change) {
    MadeQkv made = InPlaceQkv();
    change(made);
    ExpectValid(made.graph);
    EXPECT_FALSE(Has(Fuse(made.graph, FusionSet::All(), &Always).graph, TensorOp::kRopeQkvScatter));
  };
  apart([](MadeQkv& m) { m.graph.node(m.q).params.rope.base = 500; });
  // The slots are a list of as many integers.
  apart([](MadeQkv& m) { m.graph.node(m.q).inputs[1] = m.graph.node(m.keys).inputs[3]; });
  apart([](MadeQkv& m) { m.graph.node(m.q).inputs[2] = kNoNode; });
  apart([](MadeQkv& m) { m.graph.node(m.result).inputs[3] = m.graph.node(m.keys).inputs[2]; });
  // Turned values.
  apart([](MadeQkv& m) { m.graph.node(m.result).inputs[0] = m.k; });
}

TEST(FusedRopeQkv, what_runs_between_keeps_them_apart) {
  for (const bool runs : {false, true}) {
    MadeQkv made = RopeQkv(DataType::kF32, {.queries_in_place = true, .runs_between = runs});
    ExpectValid(made.graph);
    EXPECT_EQ(Has(Fuse(made.graph, FusionSet::All(), &Always).graph, TensorOp::kRopeQkvScatter),
              !runs);
  }
}

TEST(FusedRopeQkv, the_verifier_refuses_to_read_what_was_turned_under_its_old_name) {
  const MadeQkv made = InPlaceQkv();
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  const NodeId node = At(fused, made.result), attention = At(fused, made.attention);
  const auto refused = [&](auto change, const char* words) {
    Graph graph = fused.graph;
    change(graph);
    const Status status = VerifyGraph(graph);
    ASSERT_FALSE(status) << words;
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  };
  refused([&](Graph& g) { g.node(attention).inputs[0] = g.node(node).inputs[0]; },
          "was overwritten by node");
  refused([&](Graph& g) { g.node(attention).inputs[1] = g.node(At(fused, made.keys)).alias_of; },
          "was overwritten by node");
  refused([&](Graph& g) { g.node(At(fused, made.q)).alias_of = At(fused, made.q_again); },
          "which is no operand");
  refused([&](Graph& g) { g.node(At(fused, made.q)).alias_of = g.node(node).inputs[1]; },
          "alias_of.shape[1]");
}

TEST(FusedAddNorm, a_sum_that_is_read_or_overwritten_before_its_norm_stays_a_sum) {
  const Shape shape{kN, kRows, 1, 1};
  for (const bool reads : {true, false}) {
    Made made;
    const NodeId a = made.Op(TensorOp::kSilu, "a", {made.Input(kN)}, shape);
    const NodeId sum = made.Op(TensorOp::kAdd, "sum", {a, made.Input(kN)}, shape);
    const NodeId other = made.Op(TensorOp::kSilu, "other", {reads ? sum : a}, shape);
    if (!reads) made.graph.node(other).alias_of = a;
    const NodeId weight = made.Leaf("weight", LeafKind::kWeight, {kN, 1, 1, 1});
    made.graph.node(made.Op(TensorOp::kRmsNorm, "norm", {sum, weight}, shape)).keep = true;
    ExpectValid(made.graph);
    ExpectSame(Fuse(made.graph, FusionSet::All(), &Always).graph, made.graph);
  }
}

TEST(FusedAddNorm, the_verifier_refuses_a_buffer_that_is_read_before_it_is_written) {
  const Made made = AddNorm(DataType::kF32);
  FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  ExpectValid(fused.graph);
  const NodeId sum = At(fused, made.more[0]), norm = At(fused, made.result);
  ASSERT_EQ(fused.graph.node(sum).op, TensorOp::kBuffer);
  Graph early = fused.graph;
  early.node(norm).inputs[0] = sum;
  Status status = VerifyGraph(early);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("no earlier node wrote"), std::string::npos);
  Graph twice = fused.graph;
  TensorNode again = twice.node(norm);
  twice.node(twice.AddOp(again.op, "again", again.inputs, again.out.dtype, again.out.shape)).keep =
      true;
  status = VerifyGraph(twice);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("an earlier node wrote"), std::string::npos);
  Graph nowhere = fused.graph;
  nowhere.node(norm).inputs[3] = nowhere.node(norm).inputs[0];
  status = VerifyGraph(nowhere);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("expected a buffer"), std::string::npos);
}

/// Products of `x` by weights of int8 layouts: plain, with a residual, gated.
struct Consumers {
  Made made;
  NodeId x = kNoNode;
  std::vector<NodeId> products;
};
Consumers MakeConsumers(const Cpu& cpu, DataType x_type = DataType::kF32) {
  Consumers c;
  Made& made = c.made;
  c.x = made.Op(TensorOp::kSilu, "x", {made.Input(kK)}, {kK, kRows, 1, 1});
  made.graph.node(c.x).out.dtype = x_type;
  const NodeId residual = made.Input(kN);
  const auto product = [&](TensorOp op, DataType type, std::int64_t rows, std::int64_t n) {
    const NodeId w = made.Leaf("w", LeafKind::kWeight, {kK, rows, 1, 1}, type);
    std::vector<NodeId> inputs = {c.x, w};
    if (op == TensorOp::kMulMatAdd) inputs.push_back(residual);
    c.products.push_back(made.Op(op, "product", std::move(inputs), {n, kRows, 1, 1}));
    made.graph.node(c.products.back()).keep = true;
    cpu.Pack(made, w);
  };
  product(TensorOp::kMulMat, DataType::kQ8_0, kN, kN);
  product(TensorOp::kMulMatAdd, DataType::kQ4_1, kN, kN);
  product(TensorOp::kMulMatSwiGlu, DataType::kQ4_0, 2 * kN, kN);
  return c;
}

SupportsNode On(Cpu& cpu) {
  return [&](const Graph& graph, const TensorNode& node) {
    return !cpu.dispatch().Supports(graph, node);
  };
}

TEST(FusedQuantiseOnce, int8_products_of_the_same_rows_give_the_bits_of_their_twins) {
  Cpu cpu(Precision::kI8);
  Consumers c = MakeConsumers(cpu);
  // Readers that want the values themselves.
  const NodeId plain = c.made.Product(c.x, kN, DataType::kF32);
  const NodeId sum = c.made.Op(TensorOp::kMul, "mul", {c.x, c.x}, {kK, kRows, 1, 1});
  c.made.graph.node(plain).keep = c.made.graph.node(sum).keep = true;
  ExpectValid(c.made.graph);
  const FusedGraph fused = Fuse(c.made.graph, FusionSet::Of(Fusion::kQuantiseOnce), On(cpu));
  ExpectValid(fused.graph);
  EXPECT_EQ(fused.graph.size(), c.made.graph.size() + 1);
  EXPECT_EQ(fused.id_of.size(), c.made.graph.size());
  const NodeId rounded = fused.graph.node(At(fused, c.products[0])).inputs[0];
  EXPECT_EQ(fused.graph.node(rounded).op, TensorOp::kCopy);
  EXPECT_EQ(fused.graph.node(rounded).out.dtype, DataType::kI8X32);
  EXPECT_EQ(fused.graph.node(rounded).inputs, std::vector<NodeId>{At(fused, c.x)});
  for (const NodeId id : c.products) {
    EXPECT_EQ(fused.graph.node(At(fused, id)).inputs[0], rounded);
    EXPECT_EQ(BitsOf(fused.graph, At(fused, id), cpu.dispatch()),
              BitsOf(c.made.graph, id, cpu.dispatch()));
  }
  EXPECT_EQ(fused.graph.node(At(fused, plain)).inputs[0], At(fused, c.x));
  EXPECT_EQ(fused.graph.node(At(fused, sum)).inputs[0], At(fused, c.x));
  ExpectSame(Fuse(c.made.graph, FusionSet::All().Without(Fusion::kQuantiseOnce), On(cpu)).graph,
             c.made.graph);
}

TEST(FusedQuantiseOnce, takes_two_products_that_can_read_what_was_rounded) {
  Cpu cpu(Precision::kI8);
  const Consumers c = MakeConsumers(cpu);
  const auto without = [&](std::vector<NodeId> refused) {
    return Fuse(c.made.graph, FusionSet::All(), [&, refused](const Graph&, const TensorNode& node) {
      return std::find(refused.begin(), refused.end(), node.id) == refused.end();
    });
  };
  const FusedGraph two = without({c.products[0]});
  ExpectValid(two.graph);
  EXPECT_EQ(two.graph.node(At(two, c.products[0])).inputs[0], At(two, c.x));
  const NodeId rounded = two.graph.node(At(two, c.products[1])).inputs[0];
  EXPECT_EQ(two.graph.node(rounded).op, TensorOp::kCopy);
  EXPECT_EQ(two.graph.node(At(two, c.products[2])).inputs[0], rounded);
  ExpectSame(without({c.products[0], c.products[2]}).graph, c.made.graph);
  // The node that would be new is refused.
  ExpectSame(without({static_cast<NodeId>(c.made.graph.size())}).graph, c.made.graph);
}

TEST(FusedQuantiseOnce,
     rows_that_are_overwritten_before_a_product_are_not_those_that_were_rounded) {
  Cpu cpu(Precision::kI8);
  Made made;
  const Shape shape{kK, kRows, 1, 1};
  const NodeId x = made.Op(TensorOp::kSilu, "x", {made.Input(kK)}, shape);
  const NodeId first = made.Product(x, kN, DataType::kQ8_0);
  const NodeId second = made.Product(x, kN, DataType::kQ8_0);
  const NodeId over = made.Op(TensorOp::kSilu, "over", {x}, shape);
  made.graph.node(over).alias_of = x;
  const NodeId third = made.Product(over, kN, DataType::kQ8_0);
  for (const NodeId id : {first, second, third}) {
    made.graph.node(id).keep = true;
    cpu.Pack(made, made.graph.node(id).inputs[1]);
  }
  ExpectValid(made.graph);
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), On(cpu));
  ExpectValid(fused.graph);
  EXPECT_EQ(fused.graph.size(), made.graph.size() + 1);
  EXPECT_EQ(fused.graph.node(At(fused, third)).inputs[0], At(fused, over));
  for (const NodeId id : {first, second, third})
    EXPECT_EQ(BitsOf(fused.graph, At(fused, id), cpu.dispatch()),
              BitsOf(made.graph, id, cpu.dispatch()));
}

TEST(FusedQuantiseOnce, rows_of_another_type_stay_as_they_are) {
  Cpu cpu(Precision::kI8);
  const Consumers c = MakeConsumers(cpu, DataType::kBF16);
  ExpectSame(Fuse(c.made.graph, FusionSet::All(), &Always).graph, c.made.graph);
}

TEST(FusedQuantiseOnce, an_oracle_is_not_asked_for_int8) {
  Made made;
  const NodeId x = made.Op(TensorOp::kSilu, "x", {made.Input(kK)}, {kK, kRows, 1, 1});
  for (int i = 0; i < 2; ++i) made.graph.node(made.Product(x, kN, DataType::kQ8_0)).keep = true;
  ExpectValid(made.graph);
  ExpectSame(Fuse(made.graph, FusionSet::All(), &Always).graph, made.graph);
}

}  // namespace
}  // namespace tilewright
