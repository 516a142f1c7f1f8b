#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ops/gemm/base/cpu_kernel.h"
#include "ops/gemm/cpu/w8a8/layout.h"
#include "tilewright/gemm.h"

namespace tilewright::gemm_w8a8 {

/// One instruction set of the catalog.
struct IsaConfig {
  std::string_view word;  ///< as kernel ids spell it
  const IsaOps* ops = nullptr;
  std::uint32_t features = 0;
  int tile_rows = kTileRowCount, tile_columns = kColumns;  ///< that one inner loop computes
  bool amx = false;  ///< measured by amx_i8_gop_s, else by i8_gop_s
  double share = 1;  ///< of that rate that the loops reach
  /// Last word of the id, for kernels of tests; "" for those of the library.
  std::string_view flag = {};
};

/// GEMM of f32 activations by weights of any type through int8, for Precision::kW8A8: a row of
/// activations is rounded with one scale, a column of weights too (when it is packed), the products are
/// summed exactly over all of k and scaled once. Every instruction set, cut and number of threads
/// gives the same bits. A NaN or an infinity makes its whole row or column of D NaN.
///
/// Less accurate than the kernels of kI8, which problems that allow kW8A8 may get as well; so the row
/// of a batch may come from another kernel than a row alone, and this is not declared batch invariant.
///
/// The tasks are (block of rows) x (run of panels that shrinks, see ShrinkingTasks), blocks innermost: a worker that
/// keeps pace stays with its block, which stays in its L2. Immutable; Launch may run on many threads, each with its own
/// workspace.
class GemmW8A8 final : public gemm::CpuKernel {
 public:
  GemmW8A8(const IsaConfig& isa, DataType type_b);

  std::span<const ConfigField> ConfigFields() const override;
  /// Those of every CPU kernel; then, with all workers, other blocks of rows and runs of panels.
  std::vector<LaunchSpec> Specs(const GemmDesc& problem, const DeviceSpec& device,
                                const LaunchLimits& limits) const override;
  std::optional<Rejection> IsFeasible(const GemmDesc& problem) const override;
  std::size_t PartialsBytes(const GemmDesc& problem, const LaunchSpec& spec,
                            const DeviceSpec& device) const override;
  double EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                    const DeviceSpec& device) const override;
  std::size_t PackedBytes(const MatrixLayout& b) const override;
  /// `b`: plain, column-major, whole blocks. Columns are decoded to f32, then rounded.
  Status PackB(const void* plain, const MatrixLayout& b, void* packed,
               Stream stream) const override;

 private:
  Status LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                  Stream stream) override;
  struct Plan;
  static Plan MakePlan(const GemmShape& shape, int workers, const LaunchConfig& config);

  IsaConfig isa_;
  DataType type_b_;
};

}  // namespace tilewright::gemm_w8a8

namespace tilewright {

/// Adds the kernels of `isa`, one for each type of weights. They live as long as `registry`.
void AddGemmW8A8(Registry& registry, const gemm_w8a8::IsaConfig& isa);

/// Those of every instruction set.
void AddGemmW8A8(Registry& registry);

}  // namespace tilewright
