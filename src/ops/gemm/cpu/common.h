#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "tilewright/gemm.h"

namespace tilewright::gemm {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t AlignUp(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}
constexpr int CeilDiv(int value, int by) { return (value + by - 1) / by; }

/// Parts of a kernel id (docs/kernel_ids.md).
struct KernelId {
  std::string_view a, b, c;
  std::string_view orders = "tn";
  std::string_view isa;
  std::string tile;
  std::string_view pack;
  std::string_view flag = {};
};
std::string FormatKernelId(const KernelId& id);

/// Fingerprint of a kernel that these kernel files make up together: 8 digits of each. A change of
/// any is a change of the kernel.
std::string JoinFingerprints(std::initializer_list<std::string_view> tus);
/// The file of the functions declared here.
std::string_view CommonTu();

/// Feature bits and the word of the id for the instruction sets of the panel kernels.
struct IsaTraits {
  std::string_view word;
  std::uint32_t features = 0;
  double relative_rate = 1;  ///< of DeviceSpec::f32_gflop_s, or bf16_gflop_s, that it reaches
};

/// Time to read weights from memory by the vectors of `isa`, over that by the widest of the device: more where they are
/// half as wide. Of bf16, one row, two cores of a Zen 5, us, by AVX2 and by AVX-512: 4096 x 4096 782 and 703, 16384 x 2048 1,475
/// and 1,366, 2048 x 8192 731 and 664, 128256 x 4096 22,700 and 21,400.
inline double ReadCost(const IsaTraits& isa, const DeviceSpec& device) {
  constexpr double kNarrow = 1.08;
  return device.Has(kFeatureAvx512) && (isa.features & kFeatureAvx512) == 0 ? kNarrow : 1;
}

/// Workers that a launch on `stream` can occupy.
inline int Workers(Stream stream) {
  return stream.exec().workers() > 0 ? stream.exec().workers() : 1;
}

/// acc[rows][ld] -> D[row0 ..][col0 ..], f32: alpha * acc + beta * C. `finished` accumulators (a
/// gated epilogue) have alpha in them.
struct TileStore {
  const GemmArgs* args = nullptr;
  int row0 = 0, rows = 0, col0 = 0, cols = 0;
  const float* acc = nullptr;
  int ld = 0;
  bool finished = false;
};
void StoreTile(const TileStore& store);

/// InvalidArgument unless the spec is within the kernel's limits and the workspace holds `needed`
/// aligned bytes.
Status CheckLaunch(const Kernel& kernel, const LaunchSpec& spec, const GemmShape& shape,
                   const Workspace& workspace, std::size_t needed);

/// What every dense kernel asks beyond its masks: positive dimensions, one group, no separate
/// scales, whole gate/up pairs.
std::optional<Rejection> CheckDense(const GemmDesc& problem);

/// D of a gated problem has half the columns of B; no other problem's has.
inline bool IsGated(const GemmArgs& args) { return args.d_layout.cols * 2 == args.b_layout.cols; }

/// Shape of the call: m, n, k as the layouts of A and B say.
inline GemmShape ShapeOf(const GemmArgs& args) {
  return {args.a_layout.rows, args.b_layout.cols, args.a_layout.cols, args.a_layout.num};
}

}  // namespace tilewright::gemm
