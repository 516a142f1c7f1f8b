#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/kernel_dispatch.h"
#include "tilewright/model.h"
#include "tilewright/stages.h"

namespace tilewright {

/// All kernels of all operations for the CPU (src/graph/cpu/kernels.h). Made by MakeCpuKernels in
/// tilewright.h.
struct CpuKernels;

struct CpuDispatchOptions {
  Precision activations = Precision::kAuto;
  Guarantee guarantee = Guarantee::kFastest;
  DispatchPolicy policy = DispatchPolicy::kDefault;
  FeasibleOptions feasible;
  const DispatchCache* records =
      nullptr;  ///< what was tuned; may be nullptr. Must outlive the dispatch
  const Pins* pins = nullptr;
  bool strict = false;           ///< a GEMM that neither records nor pins answer is an error
  Executor* executor = nullptr;  ///< nullptr: the calling thread
  Allocator* allocator = nullptr;
};

/// A GEMM problem as it was decided.
struct DecidedGemm {
  GemmPlan plan;
  std::string why;
};

/// Runs graphs with the CPU kernels, each chosen by the stages of tilewright/stages.h. Also the
/// packer of a model's weights: their layout is chosen with the kernels that will read it.
///
/// After Prepare(graph), running that graph allocates nothing, locks nothing and decides nothing.
/// One thread at a time; several instances may share kernels and records.
class CpuDispatch final : public KernelDispatch, public WeightPacker {
 public:
  CpuDispatch(const CpuKernels& kernels, DeviceSpec device, CpuDispatchOptions options);
  ~CpuDispatch() override;

  std::string_view name() const override { return "cpu"; }
  std::optional<Rejection> Supports(const Graph& graph, const TensorNode& node) const override;
  Status Prepare(const Graph& graph) override;

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

  Result<Plan> PlanWeight(const WeightSpec& spec) override;
  Status PackWeight(const WeightSpec& spec, const Plan& plan, const void* plain,
                    void* packed) override;

  /// The GEMM problem that a kMulMat, kMulMatAdd or kMulMatSwiGlu node poses here.
  GemmDesc ProblemOf(const Graph& graph, const TensorNode& node) const;
  /// Every distinct GEMM problem of a graph, in order of appearance.
  std::vector<GemmDesc> ProblemsOf(const Graph& graph) const;
  /// What was decided so far.
  std::vector<DecidedGemm> Decisions() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The oracle: every operation computed in float64 on tensors of f64, f32, f16 or bf16; weights,
/// caches and tables of any type that decodes to floats, weights plain. Slow; allocates as it
/// goes.
std::unique_ptr<KernelDispatch> MakeReferenceDispatch(Executor* executor = nullptr);

}  // namespace tilewright
