#pragma once

#include "ops/gemm/cpu/int8/gemm_int8.h"

namespace tilewright::gemm_int8 {

/// The product of groups of rows, each with a weight matrix of its own (the experts of a sparse
/// model): rows offsets[g] .. offsets[g + 1] of A, or those that its indices name, times matrix g.
/// f32 activations. A row's results have the same bits as those of GemmInt8 with its matrix,
/// whatever the other rows are.
///
/// The packed matrices follow each other, each as GemmInt8 packs it. The tasks are (group that has
/// rows) x (chunk of panels), of a group as many as its rows are of all: a group without rows costs a
/// comparison, no weights are read for it. Indices are not checked. Immutable; Launch may run on many threads, each with its own workspace.
class GroupedGemmInt8 final : public gemm::CpuKernel {
 public:
  GroupedGemmInt8(const IsaConfig& isa, const BlockFormat& format);

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
  /// A group that has rows. Its row tiles are as even as they go.
  struct Group {
    std::int32_t matrix, first_row, rows;
    std::int32_t first_tile, first_task;  ///< counted over all groups

    /// Row of A at which tile `i` of its `tiles` begins.
    int RowOf(int i, int tiles) const {
      return first_row + static_cast<int>(static_cast<std::int64_t>(i) * rows / tiles);
    }
  };
  struct Parts;
  Parts PartsOf(int m, int k, int num, bool indexed, int workers) const;
  void FillTile(const GemmArgs& args, int row, int rows, float* staging, std::uint8_t* to) const;

  IsaConfig isa_;
  const BlockFormat& format_;
};

}  // namespace tilewright::gemm_int8
