#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "device/cuda/cublaslt_library.h"
#include "tilewright/gemm.h"

namespace tilewright {

/// NVIDIA's cuBLASLt over plain f32, f16 or bf16 operands in any order: a provider in the race like
/// any other. The library is loaded when a plan is bound, not before. Its launch configuration is
/// the place of an algorithm in the list that the library's heuristic gives for the problem, which
/// for one version of the library is always the same list; the fingerprint says which library file
/// it is, so records of another version are stale. Deterministic: the library's results are the
/// same from run to run with one algorithm on one GPU. Not batch-invariant: the algorithm depends
/// on m.
///
/// Immutable but for the handles that plans share; any thread.
class CublasLtGemm final : public Kernel {
 public:
  /// `file`: what FindCublasLt found. Where there is none, the kernel is feasible all the same, as
  /// for a device elsewhere (explain --device-spec), unless `required`: then CheckDevice rejects
  /// every device and says where the library was looked for.
  CublasLtGemm(cuda::CublasLtFile file, bool required);

  std::optional<Rejection> CheckDevice(const DeviceSpec& device) const override;
  std::optional<Rejection> IsFeasible(const GemmDesc& problem) const override;
  std::span<const ConfigField> ConfigFields() const override;
  std::vector<LaunchSpec> Specs(const GemmDesc& problem, const DeviceSpec& device,
                                const LaunchLimits& limits) const override;
  double EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                    const DeviceSpec& device) const override;
  std::size_t PartialsBytes(const GemmDesc& problem, const LaunchSpec& spec,
                            const DeviceSpec& device) const override;
  /// kUnavailable where the library cannot be loaded, kUnsupported for a device of another kind or
  /// where the library names no algorithm.
  Result<std::shared_ptr<const BoundLaunch<GemmOp>>> BindLaunch(const GemmDesc& problem,
                                                                const LaunchSpec& spec,
                                                                Device& device) const override;
  Status Launch(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                Stream stream) override;

 private:
  class Handle;
  class Bound;
  Result<std::shared_ptr<const Handle>> HandleFor(const cuda::CublasLtLibrary& library,
                                                  Device& device) const;

  const cuda::CublasLtFile file_;
  const bool required_;
  mutable std::mutex mutex_;
  /// One for each device, as long as a plan needs it.
  mutable std::map<Device*, std::weak_ptr<const Handle>> handles_;
};

}  // namespace tilewright
