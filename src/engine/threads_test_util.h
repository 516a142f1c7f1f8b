#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/test_executor.h"
#include "core/test_util.h"
#include "engine/cpu_threads.h"
#include "tilewright/device.h"
#include "tilewright/stages.h"

namespace tilewright::test {

/// This machine with another number of cores.
inline std::unique_ptr<Device> CpuWithCores(int cores) {
  DeviceSpec spec = HostDevice().spec();
  spec.cores = cores;
  return MakeCpuDevice(std::move(spec));
}

/// Launches a CPU kernel on all of five workers, then with every number of threads: none uses more
/// workers than it was given, and all leave the same bits in `out`, the memory that `args` name as
/// the result. `args` must be large enough that all five get work.
template <class Op>
void ExpectSameBitsOnAnyThreads(typename Op::KernelType& kernel, const typename Op::Args& args,
                                void* out, std::size_t bytes) {
  if (kernel.info().reference) return;  // on one thread, always
  constexpr int kWorkers = 5;
  DeviceSpec device;
  device.cores = kWorkers;
  const typename Op::Desc desc = DescOf(args, {}).value();
  ASSERT_FALSE(kernel.IsFeasible(desc)) << kernel.name();
  std::vector<unsigned char> all;
  for (const int threads : {0, 1, 2, 3, 4, 5, 9}) {
    typename Op::Spec spec;
    spec.kernel = &kernel;
    spec.config = ThreadsConfig(threads);
    GuardedBytes partials(kernel.WorkspaceFor(desc, spec, device).partials);
    Workspace workspace;
    workspace.partials = partials.data(), workspace.partials_size = partials.size();
    std::memset(out, 0xff, bytes);
    ForeignExecutor executor(kWorkers);
    const Status status = kernel.Launch(args, spec, workspace, Stream{&executor});
    ASSERT_TRUE(status) << kernel.name() << ": " << status.error().message;
    EXPECT_EQ(partials.Damage(), "") << kernel.name() << " on " << threads;
    if (threads == 0) {
      EXPECT_GE(executor.most_tasks(), kWorkers) << kernel.name() << ": the problem is too small";
      all.assign(static_cast<unsigned char*>(out), static_cast<unsigned char*>(out) + bytes);
      continue;
    }
    if (threads < kWorkers) {
      EXPECT_EQ(executor.most_tasks(), threads == 1 ? 0 : threads) << kernel.name();
    }
    EXPECT_EQ(std::memcmp(all.data(), out, bytes), 0)
        << kernel.name() << " on " << threads << " threads";
  }
}

}  // namespace tilewright::test
