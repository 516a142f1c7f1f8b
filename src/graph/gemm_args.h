#pragma once

#include "tilewright/gemm.h"
#include "tilewright/graph.h"

namespace tilewright {

/// The operands of a product node (kMulMat and its kin): x [k, m] and out [n', m] are row-major
/// matrices of m rows, w [k, n] is column-major and packed as the node says. `residual` [n', m],
/// nullptr for none, is added. No check and no allocation: VerifyGraph accepted the node.
inline GemmArgs GemmArgsOf(const TensorNode& node, const TensorView& x, const TensorView& w,
                           const TensorView* residual, const TensorView& out) {
  const auto m = static_cast<std::int32_t>(x.shape[1]);
  const auto k = static_cast<std::int32_t>(x.shape[0]);
  GemmArgs args;
  args.a = x.data;
  args.b = w.data;
  args.d = out.data;
  args.a_layout = {
      .type = x.dtype, .order = Order::kRowMajor, .rows = m, .cols = k, .ld = x.stride[1]};
  args.b_layout = {.type = w.dtype,
                   .order = Order::kColMajor,
                   .rows = k,
                   .cols = static_cast<std::int32_t>(w.shape[1]),
                   .ld = w.stride[1],
                   .pack = node.pack};
  args.d_layout = {.type = out.dtype,
                   .order = Order::kRowMajor,
                   .rows = m,
                   .cols = static_cast<std::int32_t>(out.shape[0]),
                   .ld = out.stride[1]};
  args.c_layout = args.d_layout;
  if (residual != nullptr) {
    args.beta = 1.0f;
    args.c = residual->data;
    args.c_layout.ld = residual->stride[1];
  }
  return args;
}

}  // namespace tilewright
