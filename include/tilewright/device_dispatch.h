#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/kernel_dispatch.h"
#include "tilewright/kernels.h"
#include "tilewright/prepared_graph.h"
#include "tilewright/stages.h"
#include "tilewright/weight_packer.h"

namespace tilewright {

class ArtifactStore;

struct DispatchOptions {
  Precision activations = Precision::kAuto;
  Guarantee guarantee = Guarantee::kFastest;
  DispatchPolicy policy = DispatchPolicy::kDefault;
  FeasibleOptions feasible;
  TunedKernels tuned;          ///< tuning results; must outlive the dispatch
  const Pins* pins = nullptr;  ///< must outlive the dispatch
  bool strict = false;         ///< a GEMM without a record or pin is an error
  /// Where the kernels are compiled that compute several operations at once; must outlive the
  /// dispatch. nullptr: there are none.
  ArtifactStore* store = nullptr;
};

/// A GEMM problem and the decision that was made for it.
struct DecidedGemm {
  GemmPlan plan;
  std::string why;
};

/// Runs graphs on one device with the given kernels, each chosen by the stages of
/// tilewright/stages.h. Also packs a model's weights, since their layout is chosen together with
/// the kernels that will read it.
///
/// To run a graph, use PrepareGraph (prepared_graph.h), which asks this dispatch to bind every node
/// once. The named calls of KernelDispatch, meant for other engines and for decorators, look up or
/// make the plan for their problem first. One thread at a time; several instances may share
/// kernels, device and records.
class DeviceDispatch final : public KernelDispatch, public WeightPacker {
 public:
  DeviceDispatch(const Kernels& kernels, Device& device, const DispatchOptions& options);
  ~DeviceDispatch() override;

  std::string_view name() const override;
  Device* device() const override;
  std::optional<Rejection> Supports(const Graph& graph, const TensorNode& node) const override;
  Status Prepare(const Graph& graph) override;
  Result<BoundSteps> BindSteps(const Graph& graph) override;
  Result<BoundSteps> BindChained(const Graph& graph) override;

  /// Forgets every decision, for use after tuning: problems are decided anew, and graphs prepared
  /// before become stale.
  void Forget();

  Status DispatchMulMat(const TensorNode& node, const TensorView& x, const TensorView& w,
                        const TensorView& out, std::int64_t m, std::int64_t n,
                        std::int64_t k) override;
  Status DispatchRmsNorm(const TensorNode& node, const TensorView& in, const TensorView& weight,
                         const TensorView& out, std::int64_t hidden, std::int64_t m,
                         float epsilon) override;
  Status DispatchAdd(const TensorNode& node, const TensorView& a, const TensorView& b,
                     const TensorView& out, std::int64_t n) override;
  using KernelDispatch::DispatchRope;
  Status DispatchRope(const TensorNode& node, const TensorView& qk, const TensorView& positions,
                      const TensorView& factors, const TensorView& out, std::int64_t head_dim,
                      std::int64_t num_heads) override;
  Status DispatchAttention(const TensorNode& node, const TensorView& q, const TensorView& k_cache,
                           const TensorView& v_cache, const TensorView& positions,
                           const TensorView& slots, const TensorView& out, std::int64_t m,
                           std::int64_t num_heads, std::int64_t layer) override;
  Status DispatchCopy(const TensorNode& node, const TensorView& src,
                      const TensorView& dst) override;
  Status DispatchMul(const TensorNode& node, const TensorView& a, const TensorView& b,
                     const TensorView& out, std::int64_t n) override;
  Status DispatchSilu(const TensorNode& node, const TensorView& in, const TensorView& out,
                      std::int64_t n) override;
  Status DispatchExtra(const TensorNode& node, std::span<const TensorView> inputs,
                       const TensorView& out) override;

  Result<WeightPacker::Plan> PlanWeight(const WeightSpec& spec) override;
  Status PackWeight(const WeightSpec& spec, const WeightPacker::Plan& plan, const void* plain,
                    void* packed) override;

  /// The problem of a node under the options given; nullopt for a node of another operation, or one
  /// that its operation rejects. For every operation of AllOperations.
  template <class Op>
  std::optional<typename Op::Desc> ProblemOf(const Graph& graph, const TensorNode& node) const {
    typename Op::Desc desc;
    if (!PosesProblem(graph, node, Op::kName, &desc)) return std::nullopt;
    return desc;
  }
  /// The GEMM decisions made so far.
  std::vector<DecidedGemm> Decisions() const;

 private:
  /// `desc` is the Desc of the operation named `op`.
  bool PosesProblem(const Graph& graph, const TensorNode& node, std::string_view op,
                    void* desc) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The oracle: computes every operation in float64 on tensors of f64, f32, f16 or bf16. Weights,
/// caches and tables may have any type that decodes to floats; weights must not be packed. Slow,
/// allocates while running, host memory only.
std::unique_ptr<KernelDispatch> MakeReferenceDispatch(Executor* executor = nullptr);

}  // namespace tilewright
