#pragma once

#include "ops/gemm/cpu/panel_gemm.h"

namespace tilewright::gemm {

/// As PanelGemm, for rows in groups, each with packed weights of its own (num > 1): rows offsets[g] ..
/// offsets[g + 1] of A, or those that its indices name, times matrix g. The packed matrices follow each
/// other. A row's results have the same bits as those of PanelGemm with its matrix, whatever the other
/// rows are. Groups without rows cost a comparison; indices are not checked.
class GroupedPanelGemm final : public CpuKernel {
 public:
  explicit GroupedPanelGemm(const PanelConfig& config);

  std::optional<Rejection> IsFeasible(const GemmDesc& problem) const override;
  std::size_t PartialsBytes(const GemmDesc& problem, const LaunchSpec& spec,
                            const DeviceSpec& device) const override;
  double EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                    const DeviceSpec& device) const override;
  std::size_t PackedBytes(const MatrixLayout& b) const override;
  Status PackB(const void* plain, const MatrixLayout& b, void* packed,
               Stream stream) const override;

 private:
  Status LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                  Stream stream) override;
  /// The parts of the workspace, in bytes.
  struct Parts {
    int tiles = 0;  ///< of A that are staged at a time
    std::size_t pieces = 0, staged = 0, decode = 0, total = 0;
  };
  Parts PartsOf(const GemmShape& shape, int workers) const;

  PanelConfig config_;
};

}  // namespace tilewright::gemm
