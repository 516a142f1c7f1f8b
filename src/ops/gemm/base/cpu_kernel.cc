#include "ops/gemm/base/cpu_kernel.h"

#include <cmath>

#include "core/text.h"

namespace tilewright::gemm {

std::vector<LaunchSpec> CpuKernel::Specs(const GemmDesc& problem, const DeviceSpec& device,
                                         const LaunchLimits& limits) const {
  std::vector<LaunchSpec> specs = Kernel::Specs(problem, device, limits);
  LaunchSpec first = specs.front();
  ForFewerThreads(device.cores, EstimateUs(problem, first, device), [&](int threads) {
    first.config = ThreadsConfig(threads);
    specs.push_back(first);
  });
  return specs;
}

Status CpuKernel::Launch(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                         Stream stream) {
  return LaunchOnThreads(spec.config, stream,
                         [&](Stream limited) { return LaunchOn(args, spec, workspace, limited); });
}

Status CheckOffsets(const MatrixLayout& a, std::string_view kernel) {
  const std::int32_t* const offsets = a.offsets;
  if (offsets == nullptr)
    return Fail(ErrorCode::kInvalidArgument, Format("{}: A has no group offsets", kernel));
  bool sound = offsets[0] == 0 && offsets[a.num] == a.rows;
  for (std::int32_t g = 0; g < a.num; ++g) sound = sound && offsets[g] <= offsets[g + 1];
  if (sound) return {};
  return Fail(ErrorCode::kInvalidArgument,
              Format("{}: the offsets of {} groups must ascend from 0 to the {} rows of A", kernel,
                     a.num, a.rows));
}

double MatricesUsed(int rows, int num) { return num * (1 - std::pow(1 - 1.0 / num, rows)); }

StridedPtr MatrixOf(const void* plain, const MatrixLayout& b, std::int32_t group) {
  if (b.ld == 0) return static_cast<const StridedPtr*>(plain)[group];
  const std::int64_t lines = b.order == Order::kColMajor ? b.cols : b.rows;
  return {static_cast<const std::byte*>(plain) +
              static_cast<std::size_t>(group) * BytesOf(b.type, b.ld * lines),
          b.ld};
}

}  // namespace tilewright::gemm
