#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ops/gemm/base/cpu_kernel.h"
#include "ops/gemm/cpu/amx/tile_ops.h"
#include "tilewright/gemm.h"

namespace tilewright::gemm_amx {

/// One row of the catalog.
struct AmxConfig {
  const TileOps* ops = nullptr;
  std::uint32_t features = 0;
  DataType type_b = DataType::kBF16;
  Pack pack = kPackPlain;
  /// Last word of the id, for kernels of tests; "" for the instructions.
  std::string_view flag = {};
};

/// GEMM of f32 activations by packed weights through bf16 tiles: both operands are rounded to bf16
/// (bf16 weights are as they are, f16 ones the sum of two), products are exact, sums f32. bf16
/// numbers below 2^-126 count as
/// zero. Weights are read in the layout that decoding reads, and unpacked a pair of panels at a
/// time.
///
/// An element of D depends on its row of A and its column of B alone, whatever rows, threads and
/// chunks: but batches of few rows get another kernel, so this is not declared batch invariant.
///
/// The tasks are (block of rows) x (run of panels that shrinks, see ShrinkingTasks), blocks innermost: a worker that
/// keeps pace stays with its block, which stays in its L2. Immutable; Launch may run on many threads, each with its own workspace.
class GemmAmx final : public gemm::CpuKernel {
 public:
  explicit GemmAmx(const AmxConfig& config);

  std::span<const ConfigField> ConfigFields() const override;
  /// Those of every CPU kernel; then, with all workers, other cuts that differ: blocks of rows, runs of
  /// panels, chunks of k, and for weights that are read from end to end how far ahead they are fetched.
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

 private:
  Status LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                  Stream stream) override;
  struct Plan;
  struct Stage;
  /// Whether weights lie as tiles, so that nothing is unpacked.
  bool ReadsTiles() const { return config_.type_b == DataType::kBF16; }
  const TileOps::Weights& WeightOps() const;
  Plan MakePlan(const GemmShape& shape, int workers, const LaunchConfig& config) const;

  AmxConfig config_;
  const BlockFormat* format_;  ///< nullptr for bf16 and f16
};

}  // namespace tilewright::gemm_amx
