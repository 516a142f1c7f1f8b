#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ops/gemm/base/cpu_kernel.h"
#include "ops/gemm/cpu/int8/layout.h"
#include "tilewright/gemm.h"

namespace tilewright::gemm_int8 {

/// One instruction set of the catalog.
struct IsaConfig {
  std::string_view word;  ///< as kernel ids spell it
  std::string_view tu;    ///< its kernel file, for the fingerprint
  std::uint32_t features = 0;
  double peak = 1;    ///< of its int8 instructions, over that of VNNI with AVX-512
  bool vnni = false;  ///< else products are summed in int16 first
  const IsaOps* ops = nullptr;
};

/// What the kernels of a format on an instruction set are; `grouped` ones are for num > 1.
KernelInfo InfoOf(const IsaConfig& isa, DataType activations, const BlockFormat& format,
                  bool grouped);
KernelDesc DescOf(const IsaConfig& isa, DataType activations, const BlockFormat& format);

/// Time of a row and block over that of its eight dot products at the peak of the instruction set.
double BlockCost(const IsaConfig& isa, const BlockFormat& format);

/// Gop/s of a thread at the peak of `isa`. DeviceSpec::i8_gop_s is that of the best instruction of
/// the device, which may be another one.
double PeakOn(const IsaConfig& isa, const DeviceSpec& device);

/// Packed weights of a task that are to stay in the L2 while row tiles pass, where the launch does not say.
inline constexpr std::size_t kChunkBytes = 256 << 10;
/// Below this many elements the caller quantises alone: a parallel region costs as much, about 2
/// us.
inline constexpr std::int64_t kSerialQuantise = 8 << 10;
inline constexpr double kRegionUs = 1.0;  ///< a parallel region on spinning workers
/// Time for an element to go into a tile, from f32 and from i8x32.
inline constexpr double kQuantiseUs = 1.8e-4, kArrangeUs = 0.45e-4;

constexpr int CeilDiv(int value, int by) { return (value + by - 1) / by; }

/// kInvalidArgument unless `b` is of `format`, plain, column-major and of whole blocks.
Status CheckPlain(const BlockFormat& format, const MatrixLayout& b, std::int64_t ld,
                  std::string_view kernel);

/// kInvalidArgument unless `spec` is the one there is, B is packed as `kernel` reads it, k is whole
/// blocks, and the workspace has `needed` aligned bytes.
Status CheckCall(const Kernel& kernel, const BlockFormat& format, const GemmArgs& args,
                 const LaunchSpec& spec, const Workspace& workspace, std::size_t needed);

/// GEMM and GEMV of activations by block-quantised weights, through int8: every block of 32
/// activations of a row is rounded to int8 with an f32 scale (f32 activations) or was rounded so
/// before (i8x32), then multiplied in integers; both give the same bits. Any m.
/// All instruction sets, tile heights and thread counts give the same bits, so does any batch: see
/// micro_kernel.h. A block of activations with a NaN or an infinity makes its whole row of D NaN;
/// a block whose magnitudes are all below 2^-100 counts as zero.
///
/// The tasks are (chunk of panels) x (chunk of row tiles). Immutable; Launch may run on many
/// threads, each with its own workspace.
class GemmInt8 final : public gemm::CpuKernel {
 public:
  /// `activations`: f32 or i8x32. `format`: of the list of formats, with HasInt8.
  GemmInt8(const IsaConfig& isa, DataType activations, const BlockFormat& format);

  /// Also "chunk=N", KiB of packed weights of a task that are to stay in the L2 (kChunkBytes), "tasks=N" of a worker (eight;
  /// where one tile has all rows, so many pieces of its lane, see ShrinkingTasks::OfStream), and "panels=1": one row is multiplied by
  /// one panel at a time, not by several side by side. Other ones are offered with the best instruction set that the device has.
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
  struct Plan;
  Plan MakePlan(const GemmShape& shape, bool gated, int workers, const LaunchConfig& config) const;
  void FillTiles(const Plan& plan, const GemmArgs& args, std::uint8_t* scratch,
                 Executor& executor) const;

  IsaConfig isa_;
  const BlockFormat& format_;
};

}  // namespace tilewright::gemm_int8
