#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/block_format.h"
#include "core/text.h"
#include "graph/forwarding_dispatch.h"
#include "graph/node_view.h"
#include "serving.h"

/// A dispatch of the host's kernels for tensors in the memory of another device, for tests.

namespace tilewright::test {

/// Makes the calls it gets on `host`, with copies of the operands in host memory; the results go
/// back. So MakeCompareDispatch compares a device with the host node by node. `widen`: the copies of
/// 16-bit activations, caches and tables are f32, which the kernels of a CPU take; results are
/// rounded when they go back.
class OnHostDispatch final : public ForwardingDispatch {
 public:
  /// Both must outlive it.
  OnHostDispatch(KernelDispatch& host, Device& device, bool widen = false)
      : ForwardingDispatch(host), device_(device), widen_(widen) {}
  std::string_view name() const override { return "on host"; }
  Device* device() const override { return &device_; }
  /// What the views name is not there yet; each call prepares itself.
  Status Prepare(const Graph&) override { return {}; }

 protected:
  Status Around(const TensorNode& node, std::span<const TensorView> inputs, const TensorView& out,
                Call call) override {
    for (auto& [address, copy] : copies_) copy.StartCall();
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

  /// What a call sees of the memory from one address on. The buffers stay for the next call: those
  /// of weights are large, and fresh pages cost more than what is computed with them.
  struct Copy {
    void StartCall() {
      needed = fetched = 0;
      wide.clear();
    }
    std::vector<std::byte> bytes;  // at least `needed`
    std::vector<float> wide;       // the same in f32, where that was asked for
    std::size_t needed = 0, fetched = 0;
  };

  void Reserve(const TensorView& view) {
    if (view.data == nullptr) return;
    Copy& copy = copies_[view.data];
    copy.needed = std::max(copy.needed, SpanBytes(view));
    if (copy.bytes.size() < copy.needed) copy.bytes.resize(copy.needed);
  }
  /// The copy of a view, fetched when it is first named.
  TensorView At(const TensorView& view) {
    if (view.data == nullptr) return view;
    Reserve(view);
    Copy& copy = copies_[view.data];
    if (copy.fetched < copy.needed) {
      const Stream stream = device_.default_stream();
      const bool ok = device_.Download(copy.bytes.data(), view.data, copy.needed, stream) &&
                      device_.Synchronize(stream);
      EXPECT_TRUE(ok);
      copy.fetched = copy.needed;
    }
    TensorView there = view;
    there.data = copy.bytes.data();
    return there;
  }
  /// The same in f32, where that is asked for and the view is of 16 bits.
  TensorView WideAt(const TensorView& view) {
    TensorView there = At(view);
    const bool narrow = view.dtype == DataType::kBF16 || view.dtype == DataType::kF16;
    if (!widen_ || !narrow || view.data == nullptr) return there;
    Copy& copy = copies_[view.data];
    if (copy.wide.size() < copy.needed / 2) Decode(view.dtype, copy, copy.wide);
    there.data = copy.wide.data();
    there.dtype = DataType::kF32;
    return there;
  }
  static void Decode(DataType type, const Copy& copy, std::vector<float>& values) {
    values.resize(copy.needed / 2);
    const auto count = static_cast<std::int64_t>(values.size());
    EXPECT_TRUE(DecodeRow(type, copy.bytes.data(), count, values.data()));
  }
  /// Rounds what a call changed. What it did not keeps its bits, those of a NaN too.
  void Narrow(const TensorView& view) {
    Copy& copy = copies_[view.data];
    if (copy.wide.empty()) return;
    std::vector<float> before;
    Decode(view.dtype, copy, before);
    for (std::size_t i = 0; i < copy.wide.size(); ++i) {
      if (std::memcmp(&before[i], &copy.wide[i], sizeof(float)) == 0) continue;
      EXPECT_TRUE(EncodeRow(view.dtype, &copy.wide[i], 1, copy.bytes.data() + 2 * i));
    }
  }
  Status PutBack(const TensorView& view) {
    if (view.data == nullptr) return {};
    Narrow(view);
    const Stream stream = device_.default_stream();
    if (Status s =
            device_.Upload(view.data, copies_[view.data].bytes.data(), SpanBytes(view), stream);
        !s)
      return s;
    return device_.Synchronize(stream);
  }

  /// Makes the same call on the host's dispatch with the copies.
  class Translator final : public KernelDispatch {
   public:
    explicit Translator(OnHostDispatch& own) : own_(own) {}
    std::string_view name() const override { return "translator"; }
    std::optional<Rejection> Supports(const Graph&, const TensorNode&) const override { return {}; }

    Status DispatchMulMat(const TensorNode& node, const TensorView& x, const TensorView& w,
                          const TensorView& out, std::int64_t m, std::int64_t n,
                          std::int64_t k) override {
      return host().DispatchMulMat(node, Wide(x), At(w), Wide(out), m, n, k);
    }
    Status DispatchRmsNorm(const TensorNode& node, const TensorView& in, const TensorView& weight,
                           const TensorView& out, std::int64_t hidden, std::int64_t m,
                           float epsilon) override {
      return host().DispatchRmsNorm(node, Wide(in), Wide(weight), Wide(out), hidden, m, epsilon);
    }
    Status DispatchAdd(const TensorNode& node, const TensorView& a, const TensorView& b,
                       const TensorView& out, std::int64_t n) override {
      return host().DispatchAdd(node, Wide(a), Wide(b), Wide(out), n);
    }
    using KernelDispatch::DispatchRope;
    Status DispatchRope(const TensorNode& node, const TensorView& qk, const TensorView& positions,
                        const TensorView& factors, const TensorView& out, std::int64_t head_dim,
                        std::int64_t num_heads) override {
      return host().DispatchRope(node, Wide(qk), At(positions), At(factors), Wide(out), head_dim,
                                 num_heads);
    }
    Status DispatchAttention(const TensorNode& node, const TensorView& q, const TensorView& k_cache,
                             const TensorView& v_cache, const TensorView& positions,
                             const TensorView& slots, const TensorView& out, std::int64_t m,
                             std::int64_t num_heads, std::int64_t layer) override {
      return host().DispatchAttention(node, Wide(q), Wide(k_cache), Wide(v_cache), At(positions),
                                      At(slots), Wide(out), m, num_heads, layer);
    }
    Status DispatchCopy(const TensorNode& node, const TensorView& src,
                        const TensorView& dst) override {
      return host().DispatchCopy(node, Wide(src), Wide(dst));
    }
    Status DispatchMul(const TensorNode& node, const TensorView& a, const TensorView& b,
                       const TensorView& out, std::int64_t n) override {
      return host().DispatchMul(node, Wide(a), Wide(b), Wide(out), n);
    }
    Status DispatchSilu(const TensorNode& node, const TensorView& in, const TensorView& out,
                        std::int64_t n) override {
      return host().DispatchSilu(node, Wide(in), Wide(out), n);
    }
    Status DispatchExtra(const TensorNode& node, std::span<const TensorView> inputs,
                         const TensorView& out) override {
      // Kernels of a CPU compute them one after the other.
      if (own_.widen_ && IsNormProduct(node.op)) return NormThenProduct(node, inputs, out);
      if (own_.widen_ && node.op == TensorOp::kRopeAttention)
        return RopeThenAttention(node, inputs, out);
      std::vector<TensorView> copies;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        // Products read weights as they are.
        const bool weight = i == 1 && MultipliesByInput1(node.op);
        copies.push_back(weight ? At(inputs[i]) : Wide(inputs[i]));
      }
      return host().DispatchExtra(node, copies, Wide(out));
    }

   private:
    static bool MultipliesByInput1(TensorOp op) {
      return op == TensorOp::kMulMatAdd || op == TensorOp::kMulMatSwiGlu || IsNormProduct(op);
    }
    static bool IsNormProduct(TensorOp op) {
      return op == TensorOp::kNormMulMat || op == TensorOp::kNormMulMatSwiGlu;
    }
    Status NormThenProduct(const TensorNode& node, std::span<const TensorView> inputs,
                           const TensorView& out) {
      const TensorView x = Wide(inputs[0]);
      const std::int64_t k = x.shape[0], m = x.shape[1];
      std::vector<float> values(static_cast<std::size_t>(k * m));
      const TensorView normed = Contiguous(values.data(), DataType::kF32, x.shape);
      TensorNode step = node;
      step.op = TensorOp::kRmsNorm;
      if (Status done =
              host().DispatchRmsNorm(step, x, Wide(inputs[2]), normed, k, m, node.params.epsilon);
          !done)
        return done;
      const bool gated = node.op == TensorOp::kNormMulMatSwiGlu;
      step.op = gated ? TensorOp::kMulMatSwiGlu : TensorOp::kMulMat;
      const TensorView operands[] = {normed, At(inputs[1])};
      if (gated) return host().DispatchExtra(step, operands, Wide(out));
      return host().DispatchMulMat(step, operands[0], operands[1], Wide(out), m, out.shape[0], k);
    }
    Status RopeThenAttention(const TensorNode& node, std::span<const TensorView> inputs,
                             const TensorView& out) {
      const auto input = [&](std::size_t i) {
        return i < inputs.size() ? inputs[i] : TensorView{};
      };
      const TensorView q = Wide(inputs[0]), keys = Wide(inputs[3]), values = Wide(inputs[4]);
      const TensorView positions = At(inputs[5]), slots = At(inputs[6]), pages = At(input(7));
      std::vector<float> memory(static_cast<std::size_t>(q.elements()));
      const TensorView turned = Contiguous(memory.data(), DataType::kF32, q.shape);
      TensorNode step = node;
      step.op = TensorOp::kRopeQkvScatter;
      step.alias_of = kNoNode;
      const TensorView scatter[] = {q,      Wide(inputs[1]), Wide(inputs[2]), turned, keys,
                                    values, positions,       slots,           pages,  At(input(8))};
      step.inputs.resize(std::size(scatter));
      if (Status done = host().DispatchExtra(step, scatter, values); !done) return done;
      step.op = TensorOp::kAttention;
      const TensorView operands[] = {turned, keys, values, positions, slots, pages};
      step.inputs.resize(std::size(operands));
      return host().DispatchExtra(step, operands, Wide(out));
    }
    KernelDispatch& host() { return own_.inner(); }
    TensorView At(const TensorView& view) { return own_.At(view); }
    TensorView Wide(const TensorView& view) { return own_.WideAt(view); }
    OnHostDispatch& own_;
  };

  Device& device_;
  bool widen_;
  std::map<void*, Copy> copies_;  // by the address on the device
};

/// What comparing nodes found.
struct NodeDifferences {
  int nodes = 0;
  std::string first;  ///< the first one that differs too much, and by how much; "": none does
};

/// Runs a prompt, tokens of two sequences and of one, and the search for the best logits on
/// `dispatch` and, node by node from the same inputs, on `host`. Relative L2 is at most `bound`;
/// ids are the same.
inline NodeDifferences CompareNodes(const Model& model, KernelDispatch& dispatch,
                                    OnHostDispatch& host, SessionOptions options, double bound) {
  options.slots = 2;
  NodeDifferences found;
  std::map<std::string, double> worst;
  const auto compare = MakeCompareDispatch(dispatch, host, [&](const NodeComparison& node) {
    ++found.nodes;
    double& most = worst[std::string(TensorOpName(node.op))];
    most = std::max(most, node.relative_l2);
    const double allowed = node.op == TensorOp::kTopK ? 0 : bound;
    if (node.relative_l2 <= allowed || !found.first.empty()) return;
    found.first = Format("{} ({}): relative L2 {}, at most {}", node.name, TensorOpName(node.op),
                         node.relative_l2, allowed);
  });
  auto session = Session::Create(model, *compare, options);
  EXPECT_TRUE(session) << session.error().message;
  if (!session) return found;
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
  const std::vector<Row> alone = {{tokens[24], 23, 0, true}};
  const auto best = (*session)->ForwardTop(alone, 1);
  EXPECT_TRUE(best) << best.error().message;
  for (const auto& [op, most] : worst)
    testing::Test::RecordProperty("worst_" + op, std::to_string(most));
  return found;
}

/// Every node of `dispatch` is what the float64 oracle makes of its inputs. The weights of `model`
/// are plain. How many nodes there were.
inline int ExpectNodesOfOracle(const Model& model, KernelDispatch& dispatch,
                               const SessionOptions& options, double bound) {
  const auto oracle = MakeReferenceDispatch();
  OnHostDispatch host(*oracle, *dispatch.device());
  const NodeDifferences found = CompareNodes(model, dispatch, host, options, bound);
  EXPECT_EQ(found.first, "") << "against the oracle";
  return found.nodes;
}

/// The same of the CPU's kernels, which compute in f32.
inline int ExpectNodesOfCpu(const Model& model, KernelDispatch& dispatch,
                            const SessionOptions& options, double bound) {
  const std::unique_ptr<Kernels> kernels = MakeCpuKernels();
  DispatchOptions precise;
  precise.activations = Precision::kF32;
  DeviceDispatch cpu(*kernels, HostDevice(), precise);
  OnHostDispatch host(cpu, *dispatch.device(), true);
  const NodeDifferences found = CompareNodes(model, dispatch, host, options, bound);
  EXPECT_EQ(found.first, "") << "against the CPU's kernels";
  return found.nodes;
}

/// ExpectNodesOfOracle and ExpectNodesOfCpu. Operations that the CPU's kernels do not fuse are seen
/// one by one there.
inline int ExpectNodesOfBoth(const Model& model, KernelDispatch& dispatch,
                             const SessionOptions& options, double bound) {
  const int nodes = ExpectNodesOfOracle(model, dispatch, options, bound);
  EXPECT_GE(ExpectNodesOfCpu(model, dispatch, options, bound), nodes);
  return nodes;
}

}  // namespace tilewright::test
