#include "graph/gemm_args.h"
#include "graph/node_views.h"
#include "ops/attention/attention.h"
#include "ops/copy/copy.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/gemm/reference.h"
#include "ops/norm/norm.h"
#include "ops/rope/rope.h"
#include "tilewright/cpu_dispatch.h"

namespace tilewright {
namespace {

class ReferenceDispatch final : public KernelDispatch {
 public:
  explicit ReferenceDispatch(Executor* executor) : executor_(executor) {}
  std::string_view name() const override { return "reference"; }

  std::optional<Rejection> Supports(const Graph& graph, const TensorNode& node) const override {
    const NodeViews views = ViewsForPlanning(graph, node);
    const Status status = Check(node, views.in, views.out);
    if (status) return std::nullopt;
    const Reason reason =
        status.error().code == ErrorCode::kInvalidArgument ? Reason::kShape : Reason::kType;
    return Rejection{reason, status.error().message, ""};
  }

  Status DispatchMulMat(const TensorNode& node, const TensorView& x, const TensorView& w,
                        const TensorView& out, std::int64_t, std::int64_t, std::int64_t) override {
    return Multiply(node, x, w, nullptr, out);
  }
  Status DispatchRmsNorm(const TensorNode&, const TensorView& in, const TensorView& weight,
                         const TensorView& out, std::int64_t, std::int64_t,
                         float epsilon) override {
    return ReferenceNorm(NormArgs{in, weight, out, epsilon});
  }
  Status DispatchAdd(const TensorNode&, const TensorView& a, const TensorView& b,
                     const TensorView& out, std::int64_t) override {
    return ReferenceElementwise(ElementwiseOf(ElementwiseOp::kAdd, a, b, out));
  }
  Status DispatchMul(const TensorNode&, const TensorView& a, const TensorView& b,
                     const TensorView& out, std::int64_t) override {
    return ReferenceElementwise(ElementwiseOf(ElementwiseOp::kMul, a, b, out));
  }
  Status DispatchSilu(const TensorNode&, const TensorView& in, const TensorView& out,
                      std::int64_t) override {
    return ReferenceElementwise(ElementwiseOf(ElementwiseOp::kSilu, in, TensorView{}, out));
  }
  using KernelDispatch::DispatchRope;
  Status DispatchRope(const TensorNode& node, const TensorView& qk, const TensorView& positions,
                      const TensorView& factors, const TensorView& out, std::int64_t,
                      std::int64_t) override {
    return ReferenceRope(RopeArgs{qk, positions, factors, out, node.params.rope, nullptr});
  }
  Status DispatchAttention(const TensorNode& node, const TensorView& q, const TensorView& k_cache,
                           const TensorView& v_cache, const TensorView& positions,
                           const TensorView& slots, const TensorView& out, std::int64_t,
                           std::int64_t, std::int64_t) override {
    return ReferenceAttention(AttentionArgs{q, k_cache, v_cache, positions, slots, out,
                                            node.params.attention_scale, nullptr, 0});
  }
  Status DispatchCopy(const TensorNode&, const TensorView& src, const TensorView& dst) override {
    return ReferenceCopy(CopyArgs{src, dst});
  }
  Status DispatchExtra(const TensorNode& node, std::span<const TensorView> in,
                       const TensorView& out) override {
    switch (node.op) {
      case TensorOp::kMulMatAdd:
        return Multiply(node, in[0], in[1], &in[2], out);
      case TensorOp::kMulMatSwiGlu:
        return Multiply(node, in[0], in[1], nullptr, out);
      case TensorOp::kSwiGlu:
        return ReferenceElementwise(ElementwiseOf(ElementwiseOp::kSwiGlu, in[0], in[1], out));
      case TensorOp::kKvScatter:
        return ReferenceKvScatter(KvScatterArgs{in[0], out, in[2], in[3]});
      case TensorOp::kEmbedding:
        return ReferenceEmbedding(EmbeddingArgs{in[0], in[1], out});
      default:
        return KernelDispatch::DispatchExtra(node, in, out);
    }
  }

 private:
  /// What the call for `node` would answer before it reads an element: the check that the operation
  /// itself begins with.
  static Status Check(const TensorNode& node, std::span<const TensorView> in,
                      const TensorView& out) {
    switch (node.op) {
      case TensorOp::kNone:
      case TensorOp::kView:
        return {};
      case TensorOp::kMulMat:
      case TensorOp::kMulMatSwiGlu:
        return CheckReference(GemmArgsOf(node, in[0], in[1], nullptr, out),
                              Problem(node.op, in[0], in[1], out));
      case TensorOp::kMulMatAdd:
        return CheckReference(GemmArgsOf(node, in[0], in[1], &in[2], out),
                              Problem(node.op, in[0], in[1], out));
      case TensorOp::kRmsNorm:
        return CheckReference(NormArgs{in[0], in[1], out, node.params.epsilon});
      case TensorOp::kAdd:
        return CheckReference(ElementwiseOf(ElementwiseOp::kAdd, in[0], in[1], out));
      case TensorOp::kMul:
        return CheckReference(ElementwiseOf(ElementwiseOp::kMul, in[0], in[1], out));
      case TensorOp::kSilu:
        return CheckReference(ElementwiseOf(ElementwiseOp::kSilu, in[0], TensorView{}, out));
      case TensorOp::kSwiGlu:
        return CheckReference(ElementwiseOf(ElementwiseOp::kSwiGlu, in[0], in[1], out));
      case TensorOp::kRope:
        return CheckReference(RopeArgs{in[0], in[1], in[2], out, node.params.rope, nullptr});
      case TensorOp::kAttention:
        return CheckReference(AttentionArgs{in[0], in[1], in[2], in[3], in[4], out,
                                            node.params.attention_scale, nullptr, 0});
      case TensorOp::kCopy:
        return CheckReference(CopyArgs{in[0], out});
      case TensorOp::kKvScatter:
        return CheckReference(KvScatterArgs{in[0], out, in[2], in[3]});
      case TensorOp::kEmbedding:
        return CheckReference(EmbeddingArgs{in[0], in[1], out});
    }
    return Fail(ErrorCode::kInternal, "unknown operation");
  }

  static ElementwiseArgs ElementwiseOf(ElementwiseOp op, const TensorView& a, const TensorView& b,
                                       const TensorView& out) {
    ElementwiseArgs args;
    args.op = op;
    args.a = a;
    args.b = b;
    args.out = out;
    return args;
  }

  static GemmDesc Problem(TensorOp op, const TensorView& x, const TensorView& w,
                          const TensorView& out) {
    GemmDesc desc;
    desc.m = static_cast<std::int32_t>(x.shape[1]);
    desc.n = static_cast<std::int32_t>(w.shape[1]);
    desc.k = static_cast<std::int32_t>(x.shape[0]);
    desc.type_a = x.dtype;
    desc.type_b = w.dtype;
    desc.type_c = out.dtype;
    desc.epilogue = op == TensorOp::kMulMatSwiGlu ? Epilogue::kGatedSilu : Epilogue::kNone;
    if (op == TensorOp::kMulMatAdd) desc.scaling = Scaling::kOneOne;
    return desc;
  }

  Status Multiply(const TensorNode& node, const TensorView& x, const TensorView& w,
                  const TensorView* residual, const TensorView& out) {
    return ReferenceGemm(GemmArgsOf(node, x, w, residual, out), Problem(node.op, x, w, out),
                         executor_);
  }

  Executor* executor_;
};

}  // namespace

std::unique_ptr<KernelDispatch> MakeReferenceDispatch(Executor* executor) {
  return std::make_unique<ReferenceDispatch>(executor);
}

}  // namespace tilewright
