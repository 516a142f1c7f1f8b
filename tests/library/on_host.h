#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "graph/forwarding_dispatch.h"
#include "graph/node_view.h"
#include "serving.h"

/// A dispatch of the host's kernels for tensors in the memory of another device, for tests.

namespace tilewright::test {

/// Makes the calls it gets on `host`, with copies of the operands in host memory; the results go
/// back. So MakeCompareDispatch compares a device with the host node by node.
class OnHostDispatch final : public ForwardingDispatch {
 public:
  /// Both must outlive it.
  OnHostDispatch(KernelDispatch& host, Device& device)
      : ForwardingDispatch(host), device_(device) {}
  std::string_view name() const override { return "on host"; }
  Device* device() const override { return &device_; }
  /// What the views name is not there yet; each call prepares itself.
  Status Prepare(const Graph&) override { return {}; }

 protected:
  Status Around(const TensorNode& node, std::span<const TensorView> inputs, const TensorView& out,
                Call call) override {
    copies_.clear();
    for (const TensorView& input : inputs) Reserve(input);
    Reserve(out);  // frequency factors, which are not among the inputs, when they are asked for
    Translator translator(*this);
    if (Status ran = call(translator); !ran) return ran;
    if (Status put = PutBack(out); !put) return put;
    const NodeRule* rule = RuleOf(node.op);
    for (std::size_t i = 0; rule != nullptr && i < inputs.size(); ++i) {
      if (((rule->writes >> i) & 1) == 0) continue;
      if (Status put = PutBack(inputs[i]); !put) return put;
    }
    return {};
  }

 private:
  static std::size_t SpanBytes(const TensorView& view) {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < 4; ++d) last += (view.shape[d] - 1) * view.stride[d];
    const std::int64_t block = GetTypeInfo(view.dtype).block_elements;
    return BytesOf(view.dtype, (last / block + 1) * block);
  }

  void Reserve(const TensorView& view) {
    if (view.data == nullptr) return;
    std::vector<std::byte>& copy = copies_[view.data];
    copy.resize(std::max(copy.size(), SpanBytes(view)));
  }
  /// The copy of a view, fetched when it is first named.
  TensorView At(const TensorView& view) {
    if (view.data == nullptr) return view;
    Reserve(view);
    std::vector<std::byte>& copy = copies_[view.data];
    if (fetched_[view.data] < copy.size()) {
      const Stream stream = device_.default_stream();
      const bool ok = device_.Download(copy.data(), view.data, copy.size(), stream) &&
                      device_.Synchronize(stream);
      EXPECT_TRUE(ok);
      fetched_[view.data] = copy.size();
    }
    TensorView there = view;
    there.data = copy.data();
    return there;
  }
  Status PutBack(const TensorView& view) {
    if (view.data == nullptr) return {};
    const Stream stream = device_.default_stream();
    if (Status s = device_.Upload(view.data, copies_[view.data].data(), SpanBytes(view), stream);
        !s)
      return s;
    return device_.Synchronize(stream);
  }

  /// Makes the same call on the host's dispatch with the copies.
  class Translator final : public KernelDispatch {
   public:
    explicit Translator(OnHostDispatch& own) : own_(own) { own.fetched_.clear(); }
    std::string_view name() const override { return "translator"; }
    std::optional<Rejection> Supports(const Graph&, const TensorNode&) const override { return {}; }

    Status DispatchMulMat(const TensorNode& node, const TensorView& x, const TensorView& w,
                          const TensorView& out, std::int64_t m, std::int64_t n,
                          std::int64_t k) override {
      return host().DispatchMulMat(node, At(x), At(w), At(out), m, n, k);
    }
    Status DispatchRmsNorm(const TensorNode& node, const TensorView& in, const TensorView& weight,
                           const TensorView& out, std::int64_t hidden, std::int64_t m,
                           float epsilon) override {
      return host().DispatchRmsNorm(node, At(in), At(weight), At(out), hidden, m, epsilon);
    }
    Status DispatchAdd(const TensorNode& node, const TensorView& a, const TensorView& b,
                       const TensorView& out, std::int64_t n) override {
      return host().DispatchAdd(node, At(a), At(b), At(out), n);
    }
    using KernelDispatch::DispatchRope;
    Status DispatchRope(const TensorNode& node, const TensorView& qk, const TensorView& positions,
                        const TensorView& factors, const TensorView& out, std::int64_t head_dim,
                        std::int64_t num_heads) override {
      return host().DispatchRope(node, At(qk), At(positions), At(factors), At(out), head_dim,
                                 num_heads);
    }
    Status DispatchAttention(const TensorNode& node, const TensorView& q, const TensorView& k_cache,
                             const TensorView& v_cache, const TensorView& positions,
                             const TensorView& slots, const TensorView& out, std::int64_t m,
                             std::int64_t num_heads, std::int64_t layer) override {
      return host().DispatchAttention(node, At(q), At(k_cache), At(v_cache), At(positions),
                                      At(slots), At(out), m, num_heads, layer);
    }
    Status DispatchCopy(const TensorNode& node, const TensorView& src,
                        const TensorView& dst) override {
      return host().DispatchCopy(node, At(src), At(dst));
    }
    Status DispatchMul(const TensorNode& node, const TensorView& a, const TensorView& b,
                       const TensorView& out, std::int64_t n) override {
      return host().DispatchMul(node, At(a), At(b), At(out), n);
    }
    Status DispatchSilu(const TensorNode& node, const TensorView& in, const TensorView& out,
                        std::int64_t n) override {
      return host().DispatchSilu(node, At(in), At(out), n);
    }
    Status DispatchExtra(const TensorNode& node, std::span<const TensorView> inputs,
                         const TensorView& out) override {
      std::vector<TensorView> copies;
      for (const TensorView& input : inputs) copies.push_back(At(input));
      return host().DispatchExtra(node, copies, At(out));
    }

   private:
    KernelDispatch& host() { return own_.inner(); }
    TensorView At(const TensorView& view) { return own_.At(view); }
    OnHostDispatch& own_;
  };

  Device& device_;
  std::map<void*, std::vector<std::byte>> copies_;  // by the address on the device
  std::map<void*, std::size_t> fetched_;            // bytes of them
};

/// Runs a prompt, tokens of two sequences and the search for the best logits on `dispatch` and,
/// node by node from the same inputs, on the float64 oracle. Every node's relative L2 is at most
/// `bound`; ids are the same. The weights of `model` are plain. How many nodes there were.
inline int ExpectNodesOfOracle(const Model& model, KernelDispatch& dispatch, SessionOptions options,
                               double bound) {
  options.slots = 2;
  const auto oracle = MakeReferenceDispatch();
  OnHostDispatch host(*oracle, *dispatch.device());
  int nodes = 0;
  std::map<std::string, double> worst;
  const auto compare = MakeCompareDispatch(dispatch, host, [&](const NodeComparison& node) {
    ++nodes;
    double& most = worst[std::string(TensorOpName(node.op))];
    most = std::max(most, node.relative_l2);
    EXPECT_LE(node.relative_l2, node.op == TensorOp::kTopK ? 0 : bound) << node.name;
  });
  auto session = Session::Create(model, *compare, options);
  EXPECT_TRUE(session) << session.error().message;
  if (!session) return 0;
  const std::vector<TokenId> tokens = RandomTokens(30, model.config().vocab, 12);
  const auto prompt = (*session)->Prefill(std::span(tokens).first(20), 0, 0);
  EXPECT_TRUE(prompt) << prompt.error().message;
  for (std::int32_t i = 0; i < 3; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::vector<Row> rows = {{tokens[20 + at], 20 + i, 0, true},
                                   {tokens[25 + at], i, 1, true}};
    const auto best = (*session)->ForwardTop(rows, i == 0 ? 1 : 8);
    EXPECT_TRUE(best) << best.error().message;
  }
  for (const auto& [op, most] : worst)
    testing::Test::RecordProperty("worst_" + op, std::to_string(most));
  return nodes;
}

}  // namespace tilewright::test
