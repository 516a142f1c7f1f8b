#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/graph.h"
#include "tilewright/kernel.h"
#include "tilewright/prepared_graph.h"

namespace tilewright {

/// The interface between a tensor graph and the kernels. Parameters of the operation are taken from
/// the node; sizes are passed explicitly, so that another engine can call with views of its own
/// graph. Implement this interface to plug in your own kernels, or call one of the implementations
/// here from your own graph.
///
/// An implementation reports in Supports what it can run, and overrides the calls for those
/// operations. A graph with a node that Supports refuses is not prepared. Preparing believes what
/// Supports says: a call that it promises and that is not overridden returns kUnsupported when the
/// graph runs, never Ok. An instance may be used by one thread at a time. Positions, lengths and
/// slots are int32 tensors in device memory.
class KernelDispatch {
 public:
  virtual ~KernelDispatch() = default;
  virtual std::string_view name() const = 0;

  /// nullopt if `node` of `graph` can be dispatched, else why not. Prepare and the run agree with
  /// this, as far as types, shapes and packs are concerned. Memory need not be bound, and no
  /// element is read. Leaves and views are always supported. Precondition: VerifyGraph accepted the
  /// graph.
  virtual std::optional<Rejection> Supports(const Graph& graph, const TensorNode& node) const = 0;

  /// Chooses kernels and reserves workspace for every node, so that the run allocates nothing,
  /// locks nothing and decides nothing. Optional: a call that was not prepared is prepared on first
  /// use. The default fails with kUnsupported for the first node that Supports rejects, naming it.
  virtual Status Prepare(const Graph& graph);

  /// Binds every node of a verified graph whose memory is bound; called by PrepareGraph. The
  /// default calls Prepare and returns steps that run each node through the calls below. That suits
  /// other engines and decorators.
  virtual Result<BoundSteps> BindSteps(const Graph& graph);
  /// The same, with products that follow each other as one launch where there are such chains.
  /// kUnsupported with the reason where there is none, as by default.
  virtual Result<BoundSteps> BindChained(const Graph& graph);

  /// The device whose memory the views point to; HostDevice() unless overridden.
  virtual Device* device() const { return &HostDevice(); }

  /// out [n, m] = x [k, m] times w [k, n]; the node gives the type and pack of w.
  virtual Status DispatchMulMat(const TensorNode& node, const TensorView& x, const TensorView& w,
                                const TensorView& out, std::int64_t m, std::int64_t n,
                                std::int64_t k);
  /// m rows of `hidden` elements.
  virtual Status DispatchRmsNorm(const TensorNode& node, const TensorView& in,
                                 const TensorView& weight, const TensorView& out,
                                 std::int64_t hidden, std::int64_t m, float epsilon);
  /// n elements.
  virtual Status DispatchAdd(const TensorNode& node, const TensorView& a, const TensorView& b,
                             const TensorView& out, std::int64_t n);
  /// qk [head_dim, num_heads, m]; parameters in node.params.rope; `factors` may have no data.
  virtual Status DispatchRope(const TensorNode& node, const TensorView& qk,
                              const TensorView& positions, const TensorView& factors,
                              const TensorView& out, std::int64_t head_dim, std::int64_t num_heads);
  /// Row r attends to positions 0 .. positions[r] of slot slots[r]. Caches are [head_dim, kv_heads,
  /// context, slots]; query head h reads KV head h / (num_heads / kv_heads).
  virtual Status DispatchAttention(const TensorNode& node, const TensorView& q,
                                   const TensorView& k_cache, const TensorView& v_cache,
                                   const TensorView& positions, const TensorView& slots,
                                   const TensorView& out, std::int64_t m, std::int64_t num_heads,
                                   std::int64_t layer);
  virtual Status DispatchCopy(const TensorNode& node, const TensorView& src, const TensorView& dst);
  virtual Status DispatchMul(const TensorNode& node, const TensorView& a, const TensorView& b,
                             const TensorView& out, std::int64_t n);
  virtual Status DispatchSilu(const TensorNode& node, const TensorView& in, const TensorView& out,
                              std::int64_t n);
  /// Embedding, KV scatter, top-k, attention over a paged cache, and every fused node; `inputs` are in the
  /// node's order.
  virtual Status DispatchExtra(const TensorNode& node, std::span<const TensorView> inputs,
                               const TensorView& out);

  /// As DispatchRope, with positions in host memory. They are first copied into memory of device(),
  /// which is waited for, so this must not be used while a graph is captured.
  Status DispatchRope(const TensorNode& node, const TensorView& qk,
                      std::span<const std::int32_t> positions, const TensorView& factors,
                      const TensorView& out, std::int64_t head_dim, std::int64_t num_heads);

 protected:
  /// Brings host integers into memory that kernels can read. The default copies them into memory of
  /// device(), in the order of its default stream; the next call overwrites them in that order.
  virtual Result<TensorView> StageInts(std::span<const std::int32_t> values);

 private:
  DeviceMemory staged_;
};

/// Runs a verified graph whose memory is bound, node by node; returns the number of dispatch calls
/// made (leaves and views make none). Stops at the first error, which names the node.
Result<std::int64_t> ExecuteGraph(const Graph& graph, KernelDispatch& dispatch);

/// The call that ExecuteGraph makes for one node; for decorators.
Status DispatchNode(const Graph& graph, const TensorNode& node, KernelDispatch& dispatch);

// Decorators. Each forwards to `inner`, which must outlive it.

/// Passes one line per call to `sink`, such as
/// "17 blk.0.ffn_down mul_mat [576, 1] <- [1536, 1] [1536, 576] q4_1 8.1 us".
std::unique_ptr<KernelDispatch> MakeTraceDispatch(KernelDispatch& inner,
                                                  std::function<void(std::string_view)> sink);

/// One timed call.
struct ProfileEvent {
  std::string name;
  TensorOp op = TensorOp::kNone;
  double start_us = 0, duration_us = 0;
};
class ProfileSink {
 public:
  virtual ~ProfileSink() = default;
  virtual void Record(const ProfileEvent& event) = 0;
};
/// Times every call and passes the event to `sink`, which must outlive the decorator.
std::unique_ptr<KernelDispatch> MakeProfileDispatch(KernelDispatch& inner, ProfileSink& sink);
/// Writes the Chrome trace event format (chrome://tracing, Perfetto).
void WriteChromeTrace(std::span<const ProfileEvent> events, std::ostream& out);

/// How far the outputs of two dispatches differ for one node.
struct NodeComparison {
  NodeId node = kNoNode;
  std::string name;
  TensorOp op = TensorOp::kNone;
  double relative_l2 = 0;  ///< L2 norm of the difference, relative to that of `other`'s output
  double max_abs = 0;      ///< largest absolute difference
};
/// Runs every node on both dispatches, each time with the inputs that `inner` computed, and reports
/// the difference of the outputs. Both must run on one device, or both on host memory; otherwise
/// every node is unsupported.
std::unique_ptr<KernelDispatch> MakeCompareDispatch(
    KernelDispatch& inner, KernelDispatch& other,
    std::function<void(const NodeComparison&)> report);

}  // namespace tilewright
