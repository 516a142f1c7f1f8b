#pragma once

#include <array>
#include <span>

#include "tilewright/kernel_dispatch.h"

namespace tilewright {

/// Base of the decorators: every call of the interface arrives in one place, Around, as a callable
/// that makes the same call on any dispatch.
class ForwardingDispatch : public KernelDispatch {
 public:
  explicit ForwardingDispatch(KernelDispatch& inner) : inner_(inner) {}

  std::optional<Rejection> Supports(const Graph& graph, const TensorNode& node) const override {
    return inner_.Supports(graph, node);
  }
  Status Prepare(const Graph& graph) override { return inner_.Prepare(graph); }
  Device* device() const override { return inner_.device(); }

  Status DispatchMulMat(const TensorNode& node, const TensorView& x, const TensorView& w,
                        const TensorView& out, std::int64_t m, std::int64_t n,
                        std::int64_t k) override {
    return Forward(node, {x, w}, out,
                   [&](KernelDispatch& d) { return d.DispatchMulMat(node, x, w, out, m, n, k); });
  }
  Status DispatchRmsNorm(const TensorNode& node, const TensorView& in, const TensorView& weight,
                         const TensorView& out, std::int64_t hidden, std::int64_t m,
                         float epsilon) override {
    return Forward(node, {in, weight}, out, [&](KernelDispatch& d) {
      return d.DispatchRmsNorm(node, in, weight, out, hidden, m, epsilon);
    });
  }
  Status DispatchAdd(const TensorNode& node, const TensorView& a, const TensorView& b,
                     const TensorView& out, std::int64_t n) override {
    return Forward(node, {a, b}, out,
                   [&](KernelDispatch& d) { return d.DispatchAdd(node, a, b, out, n); });
  }
  using KernelDispatch::DispatchRope;
  Status DispatchRope(const TensorNode& node, const TensorView& qk, const TensorView& positions,
                      const TensorView& factors, const TensorView& out, std::int64_t head_dim,
                      std::int64_t num_heads) override {
    return Forward(node, {qk, positions}, out, [&](KernelDispatch& d) {
      return d.DispatchRope(node, qk, positions, factors, out, head_dim, num_heads);
    });
  }
  Status DispatchAttention(const TensorNode& node, const TensorView& q, const TensorView& k_cache,
                           const TensorView& v_cache, const TensorView& positions,
                           const TensorView& slots, const TensorView& out, std::int64_t m,
                           std::int64_t num_heads, std::int64_t layer) override {
    return Forward(node, {q, k_cache, v_cache, positions, slots}, out, [&](KernelDispatch& d) {
      return d.DispatchAttention(node, q, k_cache, v_cache, positions, slots, out, m, num_heads,
                                 layer);
    });
  }
  Status DispatchCopy(const TensorNode& node, const TensorView& src,
                      const TensorView& dst) override {
    return Forward(node, {src}, dst,
                   [&](KernelDispatch& d) { return d.DispatchCopy(node, src, dst); });
  }
  Status DispatchMul(const TensorNode& node, const TensorView& a, const TensorView& b,
                     const TensorView& out, std::int64_t n) override {
    return Forward(node, {a, b}, out,
                   [&](KernelDispatch& d) { return d.DispatchMul(node, a, b, out, n); });
  }
  Status DispatchSilu(const TensorNode& node, const TensorView& in, const TensorView& out,
                      std::int64_t n) override {
    return Forward(node, {in}, out,
                   [&](KernelDispatch& d) { return d.DispatchSilu(node, in, out, n); });
  }
  Status DispatchExtra(const TensorNode& node, std::span<const TensorView> inputs,
                       const TensorView& out) override {
    auto call = [&](KernelDispatch& d) { return d.DispatchExtra(node, inputs, out); };
    return Around(node, inputs, out, Call(call));
  }

 protected:
  /// A borrowed callable `Status(KernelDispatch&)`; valid during Around.
  class Call {
   public:
    template <class F>
    explicit Call(F& f)
        : object_(&f), run_([](void* object, KernelDispatch& dispatch) {
            return (*static_cast<F*>(object))(dispatch);
          }) {}
    Status operator()(KernelDispatch& dispatch) const { return run_(object_, dispatch); }

   private:
    void* object_;
    Status (*run_)(void*, KernelDispatch&);
  };

  virtual Status Around(const TensorNode& node, std::span<const TensorView> inputs,
                        const TensorView& out, Call call) = 0;
  KernelDispatch& inner() const { return inner_; }

 private:
  template <std::size_t N, class F>
  Status Forward(const TensorNode& node, const TensorView (&inputs)[N], const TensorView& out,
                 F&& f) {
    return Around(node, std::span<const TensorView>(inputs, N), out, Call(f));
  }

  KernelDispatch& inner_;
};

}  // namespace tilewright
