#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "engine/cpu_threads.h"
#include "tilewright/gemm.h"

namespace tilewright::gemm {

/// Base of the GEMM kernels that run on an executor: how many of its workers is their launch
/// configuration.
class CpuKernel : public Kernel {
 public:
  using Kernel::Kernel;
  std::span<const ConfigField> ConfigFields() const override { return kThreadsField; }

  /// All workers with every swizzle and number of splits; then, if that takes little time, fewer
  /// workers with the first of these. More combinations for fewer workers would only cost the tuner
  /// time.
  std::vector<LaunchSpec> Specs(const GemmDesc& problem, const DeviceSpec& device,
                                const LaunchLimits& limits) const override;
  Status Launch(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                Stream stream) final;

 protected:
  /// Launch on all workers of `stream`.
  virtual Status LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                          Stream stream) = 0;
};

/// The most that `bytes_of(workers)` says for one worker up to those of `spec`: a stream may have fewer
/// than the device, whose tasks are larger.
template <class BytesOf>
std::size_t MostBytes(const LaunchSpec& spec, const DeviceSpec& device, const BytesOf& bytes_of) {
  std::size_t most = 0;
  for (int workers = 1; workers <= WorkersOf(spec.config, device.cores); ++workers)
    most = std::max(most, bytes_of(workers));
  return most;
}

/// GB/s at which `bytes` are read call after call: what fits the last-level cache comes about four
/// times as fast as memory.
inline double ReadRate(const DeviceSpec& device, double bytes) {
  return bytes < static_cast<double>(device.llc_bytes) / 2 ? 4 * device.read_gb_s
                                                           : device.read_gb_s;
}

/// kInvalidArgument unless `a` has offsets that ascend from 0 to its rows, as kernels of groups need
/// that write to the rows which they name. An operation in front has computed them.
Status CheckOffsets(const MatrixLayout& a, std::string_view kernel);

/// Matrices that at least one of `rows` rows uses, where each row is as likely to use any of `num`.
double MatricesUsed(int rows, int num);

/// Matrix `group` of grouped weights that lie as `b` says (StridedPtr in gemm.h).
StridedPtr MatrixOf(const void* plain, const MatrixLayout& b, std::int32_t group);

}  // namespace tilewright::gemm
