// An attention that turns its rows and puts their keys and values into the caches. Only GPUs have
// kernels for it: here the float64 oracle runs it.
#include "fusion_cases.h"

namespace tilewright {
namespace {

using namespace test_fusion;  // NOLINT(google-build-using-namespace): made for these tests

/// As in a model, where everything lies in the memory of the product.
MadeQkv Rows(bool paged = true) {
  return RopeQkv(
      DataType::kF32,
      {.paged = paged, .queries_in_place = paged, .keys_in_place = paged, .queries_kept = false});
}

constexpr FusionSet kOwn = FusionSet::Of(Fusion::kRopeAttention);

FusedGraph Fused(const Graph& graph, FusionSet fusions = kOwn, const SupportsNode& runs = &Always) {
  ExpectValid(graph);
  FusedGraph fused = Fuse(graph, fusions, runs);
  ExpectValid(fused.graph);
  return fused;
}

TEST(FusedRopeAttention, is_one_node_that_writes_both_caches_and_leaves_the_queries) {
  for (const bool paged : {true, false}) {
    MadeQkv made = Rows(paged);
    made.graph.node(made.keys).keep = made.graph.node(made.result).keep = true;
    made.graph.node(made.attention).keep = true;
    const FusedGraph fused = Fused(made.graph);
    EXPECT_EQ(OpsOf(fused.graph),
              (std::vector<TensorOp>{TensorOp::kSilu, TensorOp::kView, TensorOp::kView,
                                     TensorOp::kView, TensorOp::kView, TensorOp::kBuffer,
                                     TensorOp::kBuffer, TensorOp::kRopeAttention}));
    EXPECT_EQ(At(fused, made.q), kNoNode);
    EXPECT_EQ(At(fused, made.k), kNoNode);
    const TensorNode& node = fused.graph.node(At(fused, made.attention));
    EXPECT_EQ(node.op, TensorOp::kRopeAttention);
    EXPECT_EQ(node.params.rope, made.graph.node(made.q).params.rope);
    EXPECT_EQ(node.params.attention_scale, made.graph.node(made.attention).params.attention_scale);
    const auto oracle = MakeReferenceDispatch();
    // Rows of padding attend to nothing, so what was in memory does not matter.
    EXPECT_EQ(BitsOf(fused.graph, At(fused, made.attention), *oracle),
              BitsOf(made.graph, made.attention, *oracle));
    for (const NodeId cache : {made.keys, made.result}) {
      EXPECT_EQ(BitsOf(fused.graph, At(fused, cache), *oracle), BitsOf(made.graph, cache, *oracle));
    }
  }
}

TEST(FusedRopeAttention, goes_before_rotation_and_scatter_alone_and_needs_none_of_their_switches) {
  const MadeQkv made = Rows();
  EXPECT_TRUE(Has(Fused(made.graph, FusionSet::All()).graph, TensorOp::kRopeAttention));
  const FusedGraph off = Fused(made.graph, FusionSet::All().Without(Fusion::kRopeAttention));
  EXPECT_FALSE(Has(off.graph, TensorOp::kRopeAttention));
  EXPECT_TRUE(Has(off.graph, TensorOp::kRopeQkvScatter));
  ExpectSame(Fused(made.graph, FusionSet::None()).graph, made.graph);
}

TEST(FusedRopeAttention, leaves_what_no_kernel_runs_to_rotation_and_scatter) {
  const MadeQkv made = Rows();
  const FusedGraph fused = Fused(
      made.graph, FusionSet::All(),
      [](const Graph&, const TensorNode& node) { return node.op != TensorOp::kRopeAttention; });
  EXPECT_EQ(OpsOf(fused.graph).back(), TensorOp::kAttention);
  EXPECT_TRUE(Has(fused.graph, TensorOp::kRopeQkvScatter));
  Cpu cpu(Precision::kF32);  // whose kernels are each their own
  const FusedGraph on_cpu =
      Fused(made.graph, FusionSet::All(), [&](const Graph& graph, const TensorNode& node) {
        return !cpu.dispatch().Supports(graph, node);
      });
  EXPECT_FALSE(Has(on_cpu.graph, TensorOp::kRopeAttention));
  EXPECT_TRUE(Has(on_cpu.graph, TensorOp::kRopeQkvScatter));
}

TEST(FusedRopeAttention, is_not_done_where_turned_rows_are_read_or_kept) {
  for (const bool keys : {false, true}) {
    for (const bool kept : {false, true}) {
      MadeQkv made = Rows();
      const NodeId turned = keys ? made.k : made.q;
      if (kept) {
        made.graph.node(turned).keep = true;
      } else {
        const TensorView view = made.graph.node(turned).out;
        made.graph.node(made.Op(TensorOp::kSilu, "reader", {turned}, view.shape)).keep = true;
      }
      ExpectSame(Fused(made.graph).graph, made.graph);
    }
  }
}

TEST(FusedRopeAttention, is_not_done_where_rows_attend_elsewhere_than_they_are_put) {
  const auto apart = [](auto change) {
    MadeQkv made = Rows();
    change(made);
    ExpectSame(Fused(made.graph).graph, made.graph);
  };
  const auto attention = [](MadeQkv& m) -> TensorNode& { return m.graph.node(m.attention); };
  // Positions and slots are lists of as many integers.
  apart([&](MadeQkv& m) { attention(m).inputs[3] = attention(m).inputs[4]; });
  apart([&](MadeQkv& m) { attention(m).inputs[4] = attention(m).inputs[3]; });
  apart([&](MadeQkv& m) { m.graph.node(m.q).params.rope.base = 500; });
  apart([&](MadeQkv& m) {
    const NodeId sinks = m.Leaf("sinks", LeafKind::kWeight, {4, 1, 1, 1});
    TensorNode& early =
        attention(m);  // a name for something instead: sinks come before their reader
    TensorNode late = early;
    late.inputs.push_back(sinks);
    const NodeId positions = late.inputs[3];
    early.op = TensorOp::kView;
    early.inputs = {positions};
    early.alias_of = positions;
    early.out = m.graph.node(positions).out;
    m.attention = m.graph.AddOp(late.op, "attention", late.inputs, late.out.dtype, late.out.shape,
                                late.params);
    attention(m).keep = true;
  });
}

TEST(FusedRopeAttention, is_not_done_where_something_runs_between) {
  const MadeQkv turned = RopeQkv(DataType::kF32, {.runs_between = true, .queries_kept = false});
  ExpectSame(Fused(turned.graph).graph, turned.graph);
  MadeQkv made = Rows(false);  // the attention behind something that takes its place
  const TensorNode first = made.graph.node(made.attention);
  const NodeId second = made.graph.AddOp(first.op, "late", first.inputs, first.out.dtype,
                                         first.out.shape, first.params);
  TensorNode& between = made.graph.node(made.attention);
  between.op = TensorOp::kSilu;
  between.inputs = {made.graph.node(made.q_again).inputs[0]};
  between.out = Contiguous(nullptr, DataType::kF32, made.graph.node(between.inputs[0]).out.shape);
  between.keep = made.graph.node(second).keep = true;
  ExpectSame(Fused(made.graph).graph, made.graph);
}

TEST(FusedRopeAttention, queries_that_are_rounded_as_they_are_turned_stay_apart) {
  MadeQkv made = RopeQkv(DataType::kF32, {.queries_kept = false});
  made.graph.node(made.q).out.dtype = DataType::kBF16;
  made.graph.node(made.attention).out.dtype = DataType::kBF16;
  ExpectValid(made.graph);
  for (const BetweenFused between : {BetweenFused::kRounded, BetweenFused::kUnrounded})
    ExpectSame(Fuse(made.graph, kOwn, &Always, between).graph, made.graph);
}

TEST(FusedRopeAttention, the_verifier_refuses_caches_that_are_read_under_their_old_names) {
  const MadeQkv made = Rows();
  const FusedGraph fused = Fused(made.graph);
  const NodeId node = At(fused, made.attention);
  const auto refused = [&](auto change, const char* words) {
    Graph graph = fused.graph;
    change(graph);
    const Status status = VerifyGraph(graph);
    ASSERT_FALSE(status) << words;
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  };
  const auto input = [&](Graph& g, std::size_t i) -> NodeId& { return g.node(node).inputs[i]; };
  refused([&](Graph& g) { input(g, 3) = g.node(input(g, 3)).alias_of; }, "expected a buffer");
  refused([&](Graph& g) { std::swap(input(g, 5), input(g, 7)); }, "inputs[5]");
  refused([&](Graph& g) { input(g, 1) = input(g, 0); }, "inputs[1].shape[1]");
  refused([&](Graph& g) { g.node(node).params.rope.dims = 3; }, "rope.dims = 3");
  refused(
      [&](Graph& g) {
        const NodeId keys = input(g, 3);
        g.node(g.AddOp(TensorOp::kSilu, "stale", {g.node(keys).alias_of}, DataType::kF32,
                       g.node(keys).out.shape))
            .keep = true;
      },
      "was overwritten by node");
}

}  // namespace
}  // namespace tilewright
