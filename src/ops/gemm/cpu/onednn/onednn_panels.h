#pragma once

#include <memory>
#include <vector>

#include "ops/gemm/base/cpu_kernel.h"
#include "tilewright/gemm.h"

namespace tilewright::gemm {

/// oneDNN's inner product over weights in its own packed layout: a provider in the race like any
/// other. Activations are f32, and become by `activations` what oneDNN multiplies:
///   kF32    f32 weights, nothing is rounded
///   kBF16   bf16 weights; activations rounded to bf16, sums f32
///   kW8A8   weights of any type, rounded as by gemm_w8a8 when they are packed, and to the bits of
///           its kernels: the sums are exact
///
/// Packed weights are strips of 64 columns, [strip][k / g][64][g] with g = 1, 2 and 4 members side by
/// side, k filled up with zeros to 16 g and columns to 64: what oneDNN calls OI16i64o, OI16i64o2i and
/// OI16i64o4i, and, where it would rather have shorter blocks of k, the same bytes. Of kW8A8 behind all
/// strips f32 scales and int32 sums of codes, [strip][64] each.
///
/// D is cut into pieces by the shape and the configuration alone, never by the workers, so that the bits do
/// not depend on these; each is one call of a primitive, run as a task of the caller's executor. BindLaunch
/// makes the primitives, at most four, and every launch of the plan reuses them; a launch without a plan
/// makes its own. No OpenMP thread is started, and the caller's OpenMP settings are as before after the
/// call. Needs the whole instruction-set level of this machine, as OneDnnGemm does, with AVX-512 at least.
/// Immutable; Launch may run on many threads, each with its own workspace.
class OneDnnPanels final : public CpuKernel {
 public:
  OneDnnPanels(DataType type_b, Precision activations);

  std::span<const ConfigField> ConfigFields() const override;
  /// Those of every CPU kernel; then, with all workers, other pieces.
  std::vector<LaunchSpec> Specs(const GemmDesc& problem, const DeviceSpec& device,
                                const LaunchLimits& limits) const override;
  std::optional<Rejection> IsFeasible(const GemmDesc& problem) const override;
  std::size_t PartialsBytes(const GemmDesc& problem, const LaunchSpec& spec,
                            const DeviceSpec& device) const override;
  double EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                    const DeviceSpec& device) const override;
  std::size_t PackedBytes(const MatrixLayout& b) const override;
  Status PackB(const void* plain, const MatrixLayout& b, void* packed,
               Stream stream) const override;
  Result<std::shared_ptr<const BoundLaunch<GemmOp>>> BindLaunch(const GemmDesc& problem,
                                                                const LaunchSpec& spec,
                                                                Device& device) const override;

 private:
  struct Cut;
  class Products;
  class Bound;
  Status LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                  Stream stream) override;
  Status Execute(const GemmArgs& args, const LaunchSpec& spec, const Products& products,
                 Workspace& workspace, Stream stream) const;
  Cut MakeCut(const GemmShape& shape, const LaunchConfig& config) const;

  DataType type_b_;
  Precision activations_;
};

}  // namespace tilewright::gemm
