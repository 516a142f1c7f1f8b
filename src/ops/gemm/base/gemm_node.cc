#include "core/text.h"
#include "ops/gemm/base/gemm_op.h"

namespace tilewright {
namespace {

/// x [k, m] times w [k, n] to out [*, m]; only weights may be packed.
void CheckProduct(const NodeView& node, std::int64_t n, NodeCheck& check) {
  const TensorView& x = node.in(0);
  const TensorView& w = node.in(1);
  if (x.dtype != DataType::kI8X32) check.ExpectFloat("inputs[0]", x.dtype);
  check.Expect("inputs[1].shape[0]", w.shape[0], x.shape[0], "k");
  check.Expect("inputs[1].shape[1]", w.shape[1], n, "n");
  check.Expect("out.shape[1]", node.out.shape[1], x.shape[1], "m");
  for (std::size_t d = 2; d < 4; ++d) {
    check.Expect("inputs[0].shape[2..3]", x.shape[d], 1, "1");
    check.Expect("inputs[1].shape[2..3]", w.shape[d], 1, "1");
  }
  check.ExpectFloat("out", node.out.dtype);
  if (node.pack != node.inputs[1].pack)
    check.Fault(Format("pack = {}, but that of inputs[1] is {}", node.pack, node.inputs[1].pack));
  // The pack of a product is that of its weights: it says nothing of the product's own layout.
  if (node.inputs[0].storage != LeafKind::kNotLeaf && node.inputs[0].pack != kPackPlain)
    check.Fault("inputs[0] is packed; only weights may be");
}

void CheckMulMat(const NodeView& node, NodeCheck& check) {
  CheckProduct(node, node.out.shape[0], check);
}

void CheckMulMatAdd(const NodeView& node, NodeCheck& check) {
  CheckProduct(node, node.out.shape[0], check);
  check.ExpectSameShape("inputs[2]", node.in(2), node.out);
  check.ExpectType("inputs[2]", node.in(2).dtype, node.out.dtype);
}

void CheckMulMatSwiGlu(const NodeView& node, NodeCheck& check) {
  CheckProduct(node, 2 * node.out.shape[0], check);
  if (node.out.shape[0] % kGatedBlock != 0) {
    check.Fault(
        Format("out.shape[0] = {}, must be a multiple of {}", node.out.shape[0], kGatedBlock));
  }
}

void CheckNormWeight(const NodeView& node, NodeCheck& check) {
  const TensorView& weight = node.in(2);
  check.ExpectFloat("inputs[0]", node.in(0).dtype);
  check.Expect("inputs[2].shape[0]", weight.shape[0], node.in(0).shape[0], "k");
  for (std::size_t d = 1; d < 4; ++d)
    check.Expect("inputs[2].shape[1..3]", weight.shape[d], 1, "1");
  check.ExpectFloat("inputs[2]", weight.dtype);
  if (!(node.params.epsilon >= 0.0f))
    check.Fault(Format("epsilon = {}, must be >= 0", node.params.epsilon));
}

void CheckNormMulMat(const NodeView& node, NodeCheck& check) {
  CheckMulMat(node, check);
  CheckNormWeight(node, check);
}

void CheckNormMulMatSwiGlu(const NodeView& node, NodeCheck& check) {
  CheckMulMatSwiGlu(node, check);
  CheckNormWeight(node, check);
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kMulMat,
                                .name = "mul_mat",
                                .min_inputs = 2,
                                .max_inputs = 2,
                                .check = &CheckMulMat},
                               {.op = TensorOp::kMulMatAdd,
                                .name = "mul_mat_add",
                                .min_inputs = 3,
                                .max_inputs = 3,
                                .in_place = 1u << 2,
                                .check = &CheckMulMatAdd},
                               {.op = TensorOp::kMulMatSwiGlu,
                                .name = "mul_mat_swiglu",
                                .min_inputs = 2,
                                .max_inputs = 2,
                                .check = &CheckMulMatSwiGlu},
                               {.op = TensorOp::kNormMulMat,
                                .name = "norm_mul_mat",
                                .min_inputs = 3,
                                .max_inputs = 3,
                                .check = &CheckNormMulMat},
                               {.op = TensorOp::kNormMulMatSwiGlu,
                                .name = "norm_mul_mat_swiglu",
                                .min_inputs = 3,
                                .max_inputs = 3,
                                .check = &CheckNormMulMatSwiGlu}};

Scaling ScalingOf(const GemmArgs& args) {
  if (args.alpha != 1.0f) return Scaling::kAny;
  if (args.beta == 0.0f) return Scaling::kOneZero;
  return args.beta == 1.0f ? Scaling::kOneOne : Scaling::kAny;
}

}  // namespace

std::span<const NodeRule> GemmOp::NodeRules() { return kRules; }

GemmArgs GemmOp::ArgsOf(const NodeView& node) {
  const TensorView& x = node.in(0);
  const TensorView& w = node.in(1);
  const auto m = static_cast<std::int32_t>(x.shape[1]);
  const auto k = static_cast<std::int32_t>(x.shape[0]);
  GemmArgs args;
  args.a = x.data;
  args.b = w.data;
  args.d = node.out.data;
  args.constant_b = node.inputs[1].storage == LeafKind::kWeight;
  args.a_layout = {
      .type = x.dtype, .order = Order::kRowMajor, .rows = m, .cols = k, .ld = x.stride[1]};
  args.b_layout = {.type = w.dtype,
                   .order = Order::kColMajor,
                   .rows = k,
                   .cols = static_cast<std::int32_t>(w.shape[1]),
                   .ld = w.stride[1],
                   .pack = node.pack};
  args.d_layout = {.type = node.out.dtype,
                   .order = Order::kRowMajor,
                   .rows = m,
                   .cols = static_cast<std::int32_t>(node.out.shape[0]),
                   .ld = node.out.stride[1]};
  args.c_layout = args.d_layout;
  if (node.op == TensorOp::kMulMatAdd) {
    args.beta = 1.0f;
    args.c = node.in(2).data;
    args.c_layout.ld = node.in(2).stride[1];
  }
  if (node.op == TensorOp::kMulMatSwiGlu || node.op == TensorOp::kNormMulMatSwiGlu)
    args.epilogue = Epilogue::kGatedSilu;
  if (node.op == TensorOp::kNormMulMat || node.op == TensorOp::kNormMulMatSwiGlu) {
    args.prologue = Prologue::kRmsNorm;
    args.norm = node.in(2).data;
    args.type_norm = node.in(2).dtype;
    args.epsilon = node.params.epsilon;
    args.constant_b = args.constant_b && node.inputs[2].storage == LeafKind::kWeight;
  }
  return args;
}

Result<GemmDesc> DescOf(const GemmArgs& args, const CallTerms& terms) {
  const MatrixLayout &a = args.a_layout, &b = args.b_layout, &d = args.d_layout;
  if (a.num != 1 || b.num != 1 || a.idxs != nullptr || d.idxs != nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("gemm: {} groups or indexed rows: only Validate(Operation, args) poses such "
                       "a problem",
                       a.num));
  }
  if (args.u != nullptr || args.v != nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                "gemm: scales beside the operands: only Validate(Operation, args) poses such a "
                "problem");
  }
  const std::int32_t width = args.epilogue == Epilogue::kGatedSilu ? b.cols / 2 : b.cols;
  if (b.rows != a.cols || d.rows != a.rows || d.cols != width) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("gemm: A {} x {}, B {} x {}, D {} x {}: must be m x k, k x n and m x {}",
                       a.rows, a.cols, b.rows, b.cols, d.rows, d.cols,
                       args.epilogue == Epilogue::kGatedSilu ? "n / 2" : "n"));
  }
  GemmDesc desc;
  desc.m = a.rows, desc.n = b.cols, desc.k = a.cols;
  desc.type_a = a.type, desc.type_b = b.type, desc.type_c = d.type;
  desc.order_a = a.order, desc.order_b = b.order, desc.order_c = d.order;
  desc.pack_a = a.pack, desc.pack_b = b.pack;
  desc.precision = terms.activations;
  desc.guarantee = terms.guarantee;
  desc.scaling = ScalingOf(args);
  desc.epilogue = args.epilogue;
  desc.prologue = args.prologue;
  if (args.prologue != Prologue::kNone) desc.type_norm = args.type_norm;
  return desc;
}

Result<GemmArgs> DenseGemm(std::span<const float> a, DataType type, std::span<const std::byte> w,
                           std::span<float> d, const GemmShape& shape) {
  const auto [m, n, k, num] = shape;
  if (m < 1 || n < 1 || k < 1 || num != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("gemm: m = {}, n = {}, k = {}, num = {}: must be at least 1, and num 1", m,
                       n, k, num));
  }
  const int block = GetTypeInfo(type).block_elements;
  if (block < 1 || k % block != 0) {
    return Fail(ErrorCode::kInvalidArgument, Format("gemm: k = {}: must be a multiple of {} for {}",
                                                    k, block, DataTypeName(type)));
  }
  const auto area = [](std::int32_t rows, std::int32_t cols) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
  };
  const std::size_t w_bytes = static_cast<std::size_t>(n) * BytesOf(type, k);
  if (a.size() < area(m, k) || w.size() < w_bytes || d.size() < area(m, n)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("gemm: A, W and D hold {} floats, {} bytes and {} floats: {}, {} and {} are "
                       "needed",
                       a.size(), w.size(), d.size(), area(m, k), w_bytes, area(m, n)));
  }
  GemmArgs args;
  args.a = a.data(), args.b = w.data(), args.d = d.data();
  args.a_layout = {.order = Order::kRowMajor, .rows = m, .cols = k, .ld = k};
  args.b_layout = {.type = type, .order = Order::kColMajor, .rows = k, .cols = n, .ld = k};
  args.d_layout = {.order = Order::kRowMajor, .rows = m, .cols = n, .ld = n};
  return args;
}

}  // namespace tilewright
