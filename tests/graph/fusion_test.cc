// Every row of the table of fusions, on graphs made by hand: the same bits as its unfused twin, and
// only where it may be.
#include "fusion_cases.h"

namespace tilewright {
namespace {

using namespace test_fusion;  // NOLINT(google-build-using-namespace): made for these tests

TEST(Fusion, gives_what_its_unfused_twin_gives) {
  for (const Pattern& pattern : kPatterns) {
    ExpectEqualsTwin(pattern, DataType::kF32, Precision::kF32);
    ExpectEqualsTwin(pattern, DataType::kQ8_0, Precision::kF32);
    ExpectEqualsTwin(pattern, DataType::kQ8_0, Precision::kI8);
  }
}

TEST(Fusion, a_switch_that_is_off_leaves_the_graph_as_it_is) {
  for (const Pattern& pattern : kPatterns) {
    SCOPED_TRACE(FusionName(pattern.fusion));
    const Made made = pattern.make(DataType::kF32);
    ExpectSame(Fuse(made.graph, FusionSet::None(), &Always).graph, made.graph);
    for (const Pattern& other : kPatterns) {
      const FusedGraph fused = Fuse(made.graph, FusionSet::All().Without(other.fusion), &Always);
      ExpectValid(fused.graph);
      EXPECT_EQ(Has(fused.graph, pattern.op), other.fusion != pattern.fusion);
    }
  }
}

TEST(Fusion, is_not_done_where_nothing_runs_the_fused_node) {
  for (const Pattern& pattern : kPatterns) {
    SCOPED_TRACE(FusionName(pattern.fusion));
    const Made made = pattern.make(DataType::kF32);
    int asked = 0;
    const auto refuse = [&](const Graph&, const TensorNode& node) {
      EXPECT_EQ(node.op, pattern.op);
      ++asked;
      return false;
    };
    ExpectSame(Fuse(made.graph, FusionSet::Of(pattern.fusion), refuse).graph, made.graph);
    EXPECT_EQ(asked, 1);
  }
}

TEST(Fusion, is_not_done_where_another_node_reads_what_lies_between) {
  for (const Pattern& pattern : kPatterns) {
    const std::size_t between = pattern.make(DataType::kF32).between.size();
    for (std::size_t i = 0; i < between; ++i) {
      Made made = pattern.make(DataType::kF32);
      const TensorView view = made.graph.node(made.between[i]).out;
      const NodeId reader = made.Op(TensorOp::kSilu, "reader", {made.between[i]}, view.shape);
      made.graph.node(reader).keep = true;
      SCOPED_TRACE(made.graph.node(made.between[i]).name);
      ExpectValid(made.graph);
      ExpectSame(Fuse(made.graph, FusionSet::Of(pattern.fusion), &Always).graph, made.graph);
    }
  }
}

TEST(Fusion, is_not_done_where_what_lies_between_is_kept) {
  for (const Pattern& pattern : kPatterns) {
    const std::size_t between = pattern.make(DataType::kF32).between.size();
    for (std::size_t i = 0; i < between; ++i) {
      Made made = pattern.make(DataType::kF32);
      made.graph.node(made.between[i]).keep = true;
      SCOPED_TRACE(made.graph.node(made.between[i]).name);
      ExpectSame(Fuse(made.graph, FusionSet::Of(pattern.fusion), &Always).graph, made.graph);
    }
  }
}

/// The result of `rounded` in bf16, also where views show it.
void Round(Made& made, NodeId rounded) {
  for (std::size_t id = 0; id < made.graph.size(); ++id) {
    TensorNode& node = made.graph.node(static_cast<NodeId>(id));
    const bool view = node.op == TensorOp::kView && node.inputs[0] == rounded;
    if (node.id == rounded || view) node.out.dtype = DataType::kBF16;
  }
}

TEST(Fusion, drops_the_roundings_between_for_a_caller_that_allows_it) {
  for (const Pattern& pattern : kPatterns) {
    Made made = pattern.make(DataType::kF32);
    for (const NodeId between : made.between) {
      if (made.graph.node(between).op != TensorOp::kView) Round(made, between);
    }
    SCOPED_TRACE(FusionName(pattern.fusion));
    ExpectValid(made.graph);
    const FusedGraph fused =
        Fuse(made.graph, FusionSet::Of(pattern.fusion), &Always, BetweenFused::kUnrounded);
    ExpectValid(fused.graph);
    // A product with its residual takes as many launches as the sum with the norm behind it.
    EXPECT_EQ(Has(fused.graph, pattern.op), pattern.fusion != Fusion::kResidual);
    if (pattern.fusion != Fusion::kResidual) continue;
    ExpectSame(fused.graph, made.graph);
  }
}

TEST(Fusion, is_not_done_where_what_lies_between_is_rounded) {
  for (const Pattern& pattern : kPatterns) {
    const std::size_t between = pattern.make(DataType::kF32).between.size();
    for (std::size_t i = 0; i < between; ++i) {
      Made made = pattern.make(DataType::kF32);
      const NodeId rounded = made.between[i];
      if (made.graph.node(rounded).op == TensorOp::kView) continue;
      Round(made, rounded);
      SCOPED_TRACE(made.graph.node(rounded).name);
      ExpectValid(made.graph);
      ExpectSame(Fuse(made.graph, FusionSet::Of(pattern.fusion), &Always).graph, made.graph);
    }
  }
}

TEST(Fusion, an_operand_that_is_overwritten_before_the_sum_keeps_its_product_apart) {
  Made made;
  const Shape shape{kK, kRows, 1, 1};
  const NodeId x = made.Op(TensorOp::kSilu, "x", {made.Input(kK)}, shape);
  const NodeId product = made.Product(x, kK, DataType::kF32);
  const NodeId over = made.Op(TensorOp::kSilu, "over", {x}, shape);
  made.graph.node(over).alias_of = x;
  const NodeId sum = made.Op(TensorOp::kAdd, "sum", {product, over}, shape);
  made.graph.node(sum).keep = true;
  ExpectValid(made.graph);
  ExpectSame(Fuse(made.graph, FusionSet::All(), &Always).graph, made.graph);
}

TEST(FusionSet, reads_what_it_writes_and_names_a_word_it_does_not_know) {
  for (int i = 0; i < kFusions; ++i) {
    const FusionSet one = FusionSet::Of(static_cast<Fusion>(i));
    EXPECT_EQ(one.ToString(), FusionName(static_cast<Fusion>(i)));
    for (const FusionSet set : {one, FusionSet::All().Without(static_cast<Fusion>(i))})
      EXPECT_EQ(FusionSet::Parse(set.ToString()).value(), set) << set.ToString();
  }
  EXPECT_EQ(FusionSet::Parse("all").value(), FusionSet::All());
  EXPECT_EQ(FusionSet::Parse("none").value(), FusionSet::None());
  EXPECT_EQ(FusionSet::Parse("residual,swiglu").value(),
            FusionSet::Of(Fusion::kResidual).With(Fusion::kSwiGlu));
  for (const char* wrong : {"", "residual,", "swigloo", "residual,all"}) {
    const auto set = FusionSet::Parse(wrong);
    ASSERT_FALSE(set) << wrong;
    EXPECT_EQ(set.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(set.error().message.find("mul-mat-swiglu"), std::string::npos) << wrong;
  }
}

}  // namespace
}  // namespace tilewright
