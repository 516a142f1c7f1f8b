#include <gtest/gtest.h>

#include <string>

#include "tilewright/gemm.h"

namespace tilewright {
namespace {

/// x [64, 3] times w [64, 32] (packed as 7) to out, with a residual of the output's shape.
NodeView Product(TensorOp op) {
  static float memory[4];
  const bool gated = op == TensorOp::kMulMatSwiGlu || op == TensorOp::kNormMulMatSwiGlu;
  const bool normed = op == TensorOp::kNormMulMat || op == TensorOp::kNormMulMatSwiGlu;
  const std::int64_t n = gated ? 16 : 32;
  NodeView node;
  node.op = op;
  node.pack = 7;
  node.input_count = op == TensorOp::kMulMatAdd || normed ? 3 : 2;
  node.inputs[0] = {.view = Contiguous(memory, DataType::kF32, {64, 3, 1, 1}), .present = true};
  node.inputs[1] = {.view = Contiguous(memory + 1, DataType::kQ4_1, {64, 32, 1, 1}),
                    .pack = 7,
                    .storage = LeafKind::kWeight,
                    .present = true};
  node.inputs[2] = {.view = Contiguous(memory + 2, DataType::kF32, {n, 3, 1, 1}), .present = true};
  node.inputs[2].view.stride[1] = n + 5;
  if (normed) node.inputs[2].view = Contiguous(memory + 2, DataType::kF32, {64, 1, 1, 1});
  node.params.epsilon = 0.25f;
  node.out = Contiguous(memory + 3, DataType::kF32, {n, 3, 1, 1});
  return node;
}

std::string FaultOf(const NodeView& node) {
  NodeCheck check;
  for (const NodeRule& rule : GemmOp::NodeRules()) {
    if (rule.op == node.op) rule.check(node, check);
  }
  return check.fault();
}

TEST(GemmNode, EveryProductIsPosedAsItIsLaunched) {
  struct Case {
    TensorOp op;
    Scaling scaling;
    Epilogue epilogue;
    Prologue prologue = Prologue::kNone;
  };
  const CallTerms terms{.activations = Precision::kI8, .guarantee = Guarantee::kDeterministic};
  for (const Case& c :
       {Case{TensorOp::kMulMat, Scaling::kOneZero, Epilogue::kNone},
        Case{TensorOp::kMulMatAdd, Scaling::kOneOne, Epilogue::kNone},
        Case{TensorOp::kMulMatSwiGlu, Scaling::kOneZero, Epilogue::kGatedSilu},
        Case{TensorOp::kNormMulMat, Scaling::kOneZero, Epilogue::kNone, Prologue::kRmsNorm},
        Case{TensorOp::kNormMulMatSwiGlu, Scaling::kOneZero, Epilogue::kGatedSilu,
             Prologue::kRmsNorm}}) {
    const NodeView node = Product(c.op);
    EXPECT_EQ(FaultOf(node), "");
    const GemmArgs args = GemmOp::ArgsOf(node);
    EXPECT_EQ(args.a, node.in(0).data);
    EXPECT_EQ(args.b, node.in(1).data);
    EXPECT_EQ(args.d, node.out.data);
    EXPECT_EQ(args.c, c.op == TensorOp::kMulMatAdd ? node.in(2).data : nullptr);
    EXPECT_EQ(args.c_layout.ld,
              c.op == TensorOp::kMulMatAdd ? node.in(2).stride[1] : node.out.stride[1]);
    GemmDesc want;
    want.m = 3, want.n = 32, want.k = 64;
    want.type_b = DataType::kQ4_1;
    want.pack_b = 7;
    want.precision = Precision::kI8;
    want.guarantee = Guarantee::kDeterministic;
    want.scaling = c.scaling;
    want.epilogue = c.epilogue;
    want.prologue = c.prologue;
    if (c.prologue == Prologue::kRmsNorm) {
      want.type_norm = DataType::kF32;
      EXPECT_EQ(args.norm, node.in(2).data);
      EXPECT_EQ(args.epsilon, 0.25f);
      EXPECT_FALSE(args.constant_b) << "the norm's weights may be written by queued work";
    }
    EXPECT_EQ(DescOf(args, terms).value(), want) << KeyOf(DescOf(args, terms).value());
  }
}

TEST(GemmNode, ARepeatedRowIsAMatrixWhereItIsTheOnlyOne) {
  NodeView node = Product(TensorOp::kMulMatAdd);
  node.inputs[2].view.stride[1] = 0;
  EXPECT_EQ(GemmOp::ArgsOf(node).c_layout.ld, 0);
  node.inputs[0].view.shape[1] = node.inputs[2].view.shape[1] = node.out.shape[1] = 1;
  EXPECT_EQ(GemmOp::ArgsOf(node).c_layout.ld, 32);
}

TEST(GemmNode, TheScalingIsThatOfAlphaAndBeta) {
  GemmArgs args = GemmOp::ArgsOf(Product(TensorOp::kMulMat));
  args.beta = 0.5f;
  EXPECT_EQ(DescOf(args, {}).value().scaling, Scaling::kAny);
  args.beta = 1.0f;
  EXPECT_EQ(DescOf(args, {}).value().scaling, Scaling::kOneOne);
  args.alpha = 2.0f;
  EXPECT_EQ(DescOf(args, {}).value().scaling, Scaling::kAny);
}

TEST(GemmNode, MatricesThatDoNotFitAndProblemsThatArgumentsCannotTellAreRefused) {
  const GemmArgs good = GemmOp::ArgsOf(Product(TensorOp::kMulMat));
  GemmArgs args = good;
  args.b_layout.rows = 32;
  EXPECT_NE(DescOf(args, {}).error().message.find("B 32 x 32"), std::string::npos);
  args = good;
  args.d_layout.cols = 16;
  EXPECT_FALSE(DescOf(args, {}));
  args.epilogue = Epilogue::kGatedSilu;
  EXPECT_TRUE(DescOf(args, {}));
  args = good;
  args.a_layout.num = 4;
  EXPECT_NE(DescOf(args, {}).error().message.find("4 groups"), std::string::npos);
  args = good;
  args.v = args.b;
  EXPECT_NE(DescOf(args, {}).error().message.find("scales"), std::string::npos);
}

TEST(GemmNode, FaultsNameTheInputAndTheDimension) {
  NodeView node = Product(TensorOp::kMulMat);
  node.inputs[1].view.shape[0] = 32;
  EXPECT_EQ(FaultOf(node), "inputs[1].shape[0] = 32, expected k = 64");
  node = Product(TensorOp::kMulMat);
  node.inputs[1].pack = 0;
  EXPECT_EQ(FaultOf(node), "pack = 7, but that of inputs[1] is 0");
  node = Product(TensorOp::kMulMat);
  node.inputs[0].pack = 7;  // of the product that made it
  EXPECT_EQ(FaultOf(node), "");
  node.inputs[0].storage = LeafKind::kWeight;
  EXPECT_EQ(FaultOf(node), "inputs[0] is packed; only weights may be");
  node = Product(TensorOp::kMulMatAdd);
  node.inputs[2].view.shape[1] = 2;
  EXPECT_EQ(FaultOf(node), "inputs[2].shape[1] = 2, expected 3");
  node = Product(TensorOp::kMulMatSwiGlu);
  node.out.shape[0] = 8, node.inputs[1].view.shape[1] = 16;
  EXPECT_EQ(FaultOf(node), "out.shape[0] = 8, must be a multiple of 16");
  node = Product(TensorOp::kNormMulMat);
  node.inputs[2].view.shape[0] = 32;
  EXPECT_EQ(FaultOf(node), "inputs[2].shape[0] = 32, expected k = 64");
  node = Product(TensorOp::kNormMulMatSwiGlu);
  node.params.epsilon = -1;
  EXPECT_EQ(FaultOf(node), "epsilon = -1, must be >= 0");
}

}  // namespace
}  // namespace tilewright
