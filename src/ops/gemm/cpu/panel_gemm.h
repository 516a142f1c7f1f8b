#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "ops/gemm/base/cpu_kernel.h"
#include "ops/gemm/cpu/common.h"
#include "ops/gemm/cpu/panel_layout.h"
#include "tilewright/gemm.h"

namespace tilewright::gemm {

/// One row of the catalog of panel kernels (catalog.cc).
struct PanelConfig {
  const PanelOps* ops = nullptr;
  IsaTraits isa;
  DataType type_b = DataType::kF32;
  Pack pack = kPackPlain;  ///< kPackPlain: B is read as it lies, in either order for plain types
  /// kBF16: A is rounded to bf16 as it is staged, then multiplied in f32, or, with `pairs`, in bf16.
  Precision activations = Precision::kF32;
  const PairOps* pairs = nullptr;  ///< for packed bf16 with activations in bf16
  bool split_k = false;
};

/// What a kernel of panels is; `grouped` ones are for num > 1.
KernelInfo PanelInfo(const PanelConfig& config, std::string_view driver_tu, bool grouped);
KernelDesc PanelDesc(const PanelConfig& config);

/// Rows of A as the tiles of panel kernels read them: [tile][k][tile_rows], rows beyond the last not
/// written and not read.
struct Staging {
  const GemmArgs* args;
  int tile_rows;
  bool to_bf16;
  float* out;
  const PairOps* pairs =
      nullptr;  ///< if given, `out` is [tile][pair of k][tile_rows] as it stages them
};
/// k `first_k` .. of tile `tile`, `count` of them: `rows` rows from `first_row`, or those that A's indices name there.
/// With `pairs` first_k is even.
void StageTile(const Staging& staging, int first_row, int rows, int tile, int first_k, int count);

/// Rows of a task: 144 rows x 256 k of staged A are 147 KB, which stays in the L2 beside the panels.
inline constexpr int kBlockRows = 144;
/// k of a chunk: two decoded panels take 32 KB. A multiple of every block. Panels that are multiplied where they
/// lie are not cut: to stream them from the L2 costs less than sums that wait in memory. (Two cores of a Zen 5, us, with 256
/// k at a time and with all: 128 rows of bf16, 2048 x 2048, 1,465 and 1,311, 512 of f32, 2048 x 8192, 45,100 and 41,100.)
inline constexpr int kChunkK = 256;
/// Rows staged at a time, in bytes of staged A.
inline constexpr std::int64_t kStageBytes = 8 << 20;

/// f32 GEMM over 16-column panels. A is staged in row tiles ([tile][k][tile_rows], rounded to bf16
/// if the config says so), then a grid of (panel pair, row block, k split) tasks multiplies it;
/// compressed panels are decoded a k chunk at a time into scratch that stays in the L2, once for
/// all rows of a block. Every element is one fma chain over ascending k, so results do not depend
/// on tiling, swizzle or threads; with split-K, splits are summed in ascending order. With `pairs` of
/// the config A is staged as pairs of bf16, and bf16 panels are multiplied where they lie.
class PanelGemm : public CpuKernel {
 public:
  explicit PanelGemm(const PanelConfig& config);

  std::optional<Rejection> IsFeasible(const GemmDesc& problem) const override;
  int GetMaxSwizzle(const GemmShape& shape) const override;
  int GetMaxSplits(const GemmShape& shape, int swizzle, std::size_t barriers_size,
                   std::size_t partials_size) const override;
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
  Plan MakePlan(const GemmShape& shape, int workers, int splits) const;

  PanelConfig config_;
};

/// As PanelGemm for one to three rows: reads the packed panels once, straight into registers.
class PanelGemv : public CpuKernel {
 public:
  explicit PanelGemv(const PanelConfig& config);

  /// Also, of weights that are not in blocks: "ahead=N", KiB ahead of the arithmetic that software fetches into the L2;
  /// "panels=8", of one row: so many panels are read side by side, each by the processor's own fetching.
  std::span<const ConfigField> ConfigFields() const override;
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
  PanelConfig config_;
};

}  // namespace tilewright::gemm
