#include <fmt/format.h>

#include "graph/gemm_args.h"
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

  std::optional<Rejection> Supports(const TensorNode& node) const override {
    if (node.pack == kPackPlain) return std::nullopt;
    return Rejection{Reason::kPack, fmt::format("weights packed as {}", PackName(node.pack)),
                     "plain"};
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
    return Elementwise(ElementwiseOp::kAdd, a, b, out);
  }
  Status DispatchMul(const TensorNode&, const TensorView& a, const TensorView& b,
                     const TensorView& out, std::int64_t) override {
    return Elementwise(ElementwiseOp::kMul, a, b, out);
  }
  Status DispatchSilu(const TensorNode&, const TensorView& in, const TensorView& out,
                      std::int64_t) override {
    return Elementwise(ElementwiseOp::kSilu, in, TensorView{}, out);
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
        return Elementwise(ElementwiseOp::kSwiGlu, in[0], in[1], out);
      case TensorOp::kKvScatter:
        return ReferenceKvScatter(KvScatterArgs{in[0], out, in[2], in[3]});
      case TensorOp::kEmbedding:
        return ReferenceEmbedding(EmbeddingArgs{in[0], in[1], out});
      default:
        return KernelDispatch::DispatchExtra(node, in, out);
    }
  }

 private:
  Status Elementwise(ElementwiseOp op, const TensorView& a, const TensorView& b,
                     const TensorView& out) {
    ElementwiseArgs args;
    args.op = op;
    args.a = a;
    args.b = b;
    args.out = out;
    return ReferenceElementwise(args);
  }

  Status Multiply(const TensorNode& node, const TensorView& x, const TensorView& w,
                  const TensorView* residual, const TensorView& out) {
    if (auto no = Supports(node)) return Fail(ErrorCode::kUnsupported, no->ToString());
    GemmDesc desc;
    desc.m = static_cast<std::int32_t>(x.shape[1]);
    desc.n = static_cast<std::int32_t>(w.shape[1]);
    desc.k = static_cast<std::int32_t>(x.shape[0]);
    desc.type_a = x.dtype;
    desc.type_b = w.dtype;
    desc.type_c = out.dtype;
    desc.epilogue = node.op == TensorOp::kMulMatSwiGlu ? Epilogue::kGatedSilu : Epilogue::kNone;
    if (residual != nullptr) desc.scaling = Scaling::kOneOne;
    return ReferenceGemm(GemmArgsOf(node, x, w, residual, out), desc, executor_);
  }

  Executor* executor_;
};

}  // namespace

std::unique_ptr<KernelDispatch> MakeReferenceDispatch(Executor* executor) {
  return std::make_unique<ReferenceDispatch>(executor);
}

}  // namespace tilewright
