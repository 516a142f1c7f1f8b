#include <fmt/format.h>

#include <array>
#include <utility>

#include "graph/node_view.h"
#include "tilewright/kernel_dispatch.h"

namespace tilewright {
namespace {

tl::unexpected<Error> Unsupported(const KernelDispatch& dispatch, const TensorNode& node) {
  return Fail(ErrorCode::kUnsupported, fmt::format("the {} dispatch does not implement {}",
                                                   dispatch.name(), TensorOpName(node.op)));
}

}  // namespace

Status KernelDispatch::Prepare(const Graph& graph) {
  for (const TensorNode& node : graph.nodes()) {
    if (!Computes(node.op)) continue;
    if (const std::optional<Rejection> no = Supports(graph, node)) {
      return AtNode(node, {ErrorCode::kUnsupported,
                           fmt::format("the {} dispatch: {}", name(), no->ToString())});
    }
  }
  return {};
}

Status KernelDispatch::DispatchMulMat(const TensorNode& node, const TensorView&, const TensorView&,
                                      const TensorView&, std::int64_t, std::int64_t, std::int64_t) {
  return Unsupported(*this, node);
}
Status KernelDispatch::DispatchRmsNorm(const TensorNode& node, const TensorView&, const TensorView&,
                                       const TensorView&, std::int64_t, std::int64_t, float) {
  return Unsupported(*this, node);
}
Status KernelDispatch::DispatchAdd(const TensorNode& node, const TensorView&, const TensorView&,
                                   const TensorView&, std::int64_t) {
  return Unsupported(*this, node);
}
Status KernelDispatch::DispatchRope(const TensorNode& node, const TensorView&, const TensorView&,
                                    const TensorView&, const TensorView&, std::int64_t,
                                    std::int64_t) {
  return Unsupported(*this, node);
}
Status KernelDispatch::DispatchAttention(const TensorNode& node, const TensorView&,
                                         const TensorView&, const TensorView&, const TensorView&,
                                         const TensorView&, const TensorView&, std::int64_t,
                                         std::int64_t, std::int64_t) {
  return Unsupported(*this, node);
}
Status KernelDispatch::DispatchCopy(const TensorNode& node, const TensorView&, const TensorView&) {
  return Unsupported(*this, node);
}
Status KernelDispatch::DispatchMul(const TensorNode& node, const TensorView&, const TensorView&,
                                   const TensorView&, std::int64_t) {
  return Unsupported(*this, node);
}
Status KernelDispatch::DispatchSilu(const TensorNode& node, const TensorView&, const TensorView&,
                                    std::int64_t) {
  return Unsupported(*this, node);
}
Status KernelDispatch::DispatchExtra(const TensorNode& node, std::span<const TensorView>,
                                     const TensorView&) {
  return Unsupported(*this, node);
}

Result<TensorView> KernelDispatch::StageInts(std::span<const std::int32_t> values) {
  Device& on = *device();
  if (staged_.size() < values.size_bytes()) {
    Result<DeviceMemory> larger = on.Allocate(values.size_bytes());
    if (!larger) return Fail(larger.error());
    staged_ = std::move(*larger);
  }
  const Stream stream = on.default_stream();
  if (Status s = on.Upload(staged_.data(), values.data(), values.size_bytes(), stream); !s)
    return Fail(s.error());
  // The caller's memory may be gone when this returns.
  if (Status s = on.Synchronize(stream); !s) return Fail(s.error());
  return Contiguous(staged_.data(), DataType::kI32,
                    {static_cast<std::int64_t>(values.size()), 1, 1, 1});
}

Status KernelDispatch::DispatchRope(const TensorNode& node, const TensorView& qk,
                                    std::span<const std::int32_t> positions,
                                    const TensorView& factors, const TensorView& out,
                                    std::int64_t head_dim, std::int64_t num_heads) {
  Result<TensorView> staged = StageInts(positions);
  if (!staged) return Fail(staged.error());
  return DispatchRope(node, qk, *staged, factors, out, head_dim, num_heads);
}

Status DispatchNode(const Graph& graph, const TensorNode& node, KernelDispatch& dispatch) {
  std::array<TensorView, NodeView::kMaxInputs> in;
  const std::size_t count = node.inputs.size();
  if (count > in.size())
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} inputs, at most {}", count, in.size()));
  for (std::size_t i = 0; i < count; ++i) {
    if (node.inputs[i] != kNoNode) in[i] = graph.node(node.inputs[i]).out;
  }
  const TensorView& out = node.out;
  switch (node.op) {
    case TensorOp::kNone:
    case TensorOp::kView:
    case TensorOp::kBuffer:
      return {};
    case TensorOp::kMulMat:
      return dispatch.DispatchMulMat(node, in[0], in[1], out, in[0].shape[1], out.shape[0],
                                     in[0].shape[0]);
    case TensorOp::kRmsNorm:
      return dispatch.DispatchRmsNorm(node, in[0], in[1], out, out.shape[0],
                                      out.elements() / out.shape[0], node.params.epsilon);
    case TensorOp::kAdd:
      return dispatch.DispatchAdd(node, in[0], in[1], out, out.elements());
    case TensorOp::kMul:
      return dispatch.DispatchMul(node, in[0], in[1], out, out.elements());
    case TensorOp::kSilu:
      return dispatch.DispatchSilu(node, in[0], out, out.elements());
    case TensorOp::kCopy:
      return dispatch.DispatchCopy(node, in[0], out);
    case TensorOp::kRope:
      return dispatch.DispatchRope(node, in[0], in[1], in[2], out, out.shape[0], out.shape[1]);
    case TensorOp::kAttention:
      // The named call supports contiguous caches only.
      if (in[5].data != nullptr)
        return dispatch.DispatchExtra(node, std::span<const TensorView>(in.data(), count), out);
      return dispatch.DispatchAttention(node, in[0], in[1], in[2], in[3], in[4], out,
                                        in[0].shape[2], in[0].shape[1], node.params.layer);
    default:  // without a named call
      return dispatch.DispatchExtra(node, std::span<const TensorView>(in.data(), count), out);
  }
}

Result<std::int64_t> ExecuteGraph(const Graph& graph, KernelDispatch& dispatch) {
  std::int64_t calls = 0;
  for (const TensorNode& node : graph.nodes()) {
    if (!Computes(node.op)) continue;
    if (Status status = DispatchNode(graph, node, dispatch); !status)
      return AtNode(node, status.error());
    ++calls;
  }
  return calls;
}

}  // namespace tilewright
