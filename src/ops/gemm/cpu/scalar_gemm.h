#pragma once

#include <cstdint>

#include "ops/gemm/base/cpu_kernel.h"
#include "ops/gemm/cpu/common.h"
#include "tilewright/gemm.h"

namespace tilewright::gemm {

/// What a portable kernel takes; the four of them differ in nothing else (catalog.cc).
enum class ScalarKind : std::uint8_t {
  kPlain,    ///< every plain and GGUF type, one dense matrix: the reference kernel, chosen when
             ///< nothing else can run
  kU4,       ///< B of u4 with scale/zero pairs for groups of 32, 64 or 128 k
  kFp8,      ///< A of e4m3 scaled by 1 x 128, B of e4m3 scaled by 128 x 128
  kGrouped,  ///< num > 1: blocked or indexed A and C over num weight matrices
};

/// Portable GEMM with f32 sums: decodes A once into workspace, then 16 columns of B at a time. Any
/// m, n, k, leading dimension and alignment, both orders of every matrix, any alpha and beta.
class ScalarGemm : public CpuKernel {
 public:
  explicit ScalarGemm(ScalarKind kind);

  std::optional<Rejection> IsFeasible(const GemmDesc& problem) const override;
  std::size_t PartialsBytes(const GemmDesc& problem, const LaunchSpec& spec,
                            const DeviceSpec& device) const override;
  double EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                    const DeviceSpec& device) const override;

 private:
  Status LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                  Stream stream) override;
  ScalarKind kind_;
};

}  // namespace tilewright::gemm
