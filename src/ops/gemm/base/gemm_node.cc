#include <algorithm>

#include "core/text.h"
#include "ops/gemm/base/gemm_op.h"

namespace tilewright {
namespace {

/// x [k, *] times w [k, n, *]; only weights may be packed.
void CheckOperands(const NodeView& node, std::int64_t n, NodeCheck& check) {
  const TensorView& x = node.in(0);
  const TensorView& w = node.in(1);
  if (x.dtype != DataType::kI8X32) check.ExpectFloat("inputs[0]", x.dtype);
  check.Expect("inputs[1].shape[0]", w.shape[0], x.shape[0], "k");
  check.Expect("inputs[1].shape[1]", w.shape[1], n, "n");
  check.Expect("inputs[1].shape[3]", w.shape[3], 1, "1");
  for (std::size_t d = 2; d < 4; ++d) check.Expect("inputs[0].shape[2..3]", x.shape[d], 1, "1");
  check.ExpectFloat("out", node.out.dtype);
  if (node.pack != node.inputs[1].pack)
    check.Fault(Format("pack = {}, but that of inputs[1] is {}", node.pack, node.inputs[1].pack));
  // The pack of a product is that of its weights: it says nothing of the product's own layout.
  if (node.inputs[0].storage != LeafKind::kNotLeaf && node.inputs[0].pack != kPackPlain)
    check.Fault("inputs[0] is packed; only weights may be");
}

/// x [k, m] times w [k, n] to out [*, m].
void CheckProduct(const NodeView& node, std::int64_t n, NodeCheck& check) {
  CheckOperands(node, n, check);
  check.Expect("inputs[1].shape[2]", node.in(1).shape[2], 1, "1");
  check.Expect("out.shape[1]", node.out.shape[1], node.in(0).shape[1], "m");
}

/// Rows of x [k, *], those that sources [pairs] name where there are any, times w [k, n, experts].
void CheckExperts(const NodeView& node, std::int64_t n, NodeCheck& check) {
  CheckOperands(node, n, check);
  const std::int64_t pairs = node.out.shape[1];
  check.ExpectRows("inputs[2]", node.in(2), node.in(1).shape[2] + 1);
  if (node.inputs[3].present) {
    check.ExpectRows("inputs[3]", node.in(3), pairs);
  } else {
    check.Expect("inputs[0].shape[1]", node.in(0).shape[1], pairs, "pairs");
  }
}

void CheckMulMatExperts(const NodeView& node, NodeCheck& check) {
  CheckExperts(node, node.out.shape[0], check);
}

void CheckGatedBlocks(const NodeView& node, NodeCheck& check) {
  if (node.out.shape[0] % kGatedBlock != 0) {
    check.Fault(
        Format("out.shape[0] = {}, must be a multiple of {}", node.out.shape[0], kGatedBlock));
  }
}

void CheckMulMatExpertsSwiGlu(const NodeView& node, NodeCheck& check) {
  CheckExperts(node, 2 * node.out.shape[0], check);
  CheckGatedBlocks(node, check);
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
  CheckGatedBlocks(node, check);
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
                                .check = &CheckNormMulMatSwiGlu},
                               {.op = TensorOp::kMulMatExperts,
                                .name = "mul_mat_experts",
                                .min_inputs = 3,
                                .max_inputs = 4,
                                .check = &CheckMulMatExperts},
                               {.op = TensorOp::kMulMatExpertsSwiGlu,
                                .name = "mul_mat_experts_swiglu",
                                .min_inputs = 3,
                                .max_inputs = 4,
                                .check = &CheckMulMatExpertsSwiGlu}};

/// The rows of A and D in groups, one for each matrix of B.
void PutGroups(const NodeView& node, GemmArgs& args) {
  const auto pairs = static_cast<std::int32_t>(node.out.shape[1]);
  const auto num = static_cast<std::int32_t>(node.in(1).shape[2]);
  for (MatrixLayout* layout : {&args.a_layout, &args.c_layout, &args.d_layout}) {
    layout->rows = pairs;
    layout->num = num;
    layout->offsets = node.in(2).as<const std::int32_t>();
  }
  args.b_layout.num = num;
  if (node.inputs[3].present) args.a_layout.idxs = node.in(3).as<const std::int32_t>();
}

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
    // A bias repeats its row; where that is the only one, there is no distance to the next.
    const std::int64_t least = m == 1 ? args.c_layout.cols : 0;
    args.c_layout.ld = std::max(node.in(2).stride[1], least);
  }
  if (node.op == TensorOp::kMulMatSwiGlu || node.op == TensorOp::kNormMulMatSwiGlu ||
      node.op == TensorOp::kMulMatExpertsSwiGlu)
    args.epilogue = Epilogue::kGatedSilu;
  if (node.op == TensorOp::kMulMatExperts || node.op == TensorOp::kMulMatExpertsSwiGlu)
    PutGroups(node, args);
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
  if (a.num != b.num || a.num != d.num || (a.num == 1 && a.idxs != nullptr) || d.idxs != nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("gemm: {} groups of A, {} of B, {} of D, or indexed rows without groups or "
                       "of D: only Validate(Operation, args) poses such a problem",
                       a.num, b.num, d.num));
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
  if (a.num > 1) {
    desc.num = a.num;
    desc.group_axis = 0;
    desc.striding_a = a.idxs != nullptr ? Striding::kIndexed : Striding::kBlocked;
    desc.striding_b = desc.striding_c = Striding::kBlocked;
  }
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
