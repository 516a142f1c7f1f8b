#include "device/cpu/reference_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/test_executor.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

TEST(ReferenceLoopTest, TakesAboutTheSameAgainAndNothingWhereThereIsNone) {
  const DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
  if (!device.Has(kFeatureAvx2)) GTEST_SKIP() << "no AVX2";
  const ReferenceLoop loop(device);
  // The least of a hundred times each: what interrupts and neighbours leave alone.
  const auto least = [&](Executor& executor) {
    double us = 1e9;
    for (int i = 0; i < 100; ++i) us = std::min(us, loop.Us(executor));
    return us;
  };
  const double first = least(SerialExecutor()), second = least(SerialExecutor());
  EXPECT_GT(first, 0.5);
  EXPECT_LT(std::max(first, second) / std::min(first, second), 3);
  DeviceSpec none = device;
  none.features = 0;
  EXPECT_EQ(ReferenceLoop(none).Us(SerialExecutor()), 0);
  DeviceSpec gpu = device;
  gpu.kind = DeviceKind::kCuda;
  EXPECT_EQ(ReferenceLoop(gpu).Us(SerialExecutor()), 0);
}

TEST(ReferenceLoopTest, AsksEveryWorker) {
  test::CallersThread executor(3);
  static_cast<void>(ReferenceLoop(DetectCpuCappedAt(Isa::kAmx)).Us(executor));
  if (executor.calls() == 0) GTEST_SKIP() << "no AVX2";
  EXPECT_EQ(executor.calls(), 1);
  EXPECT_EQ(executor.tasks(), 3);
}

}  // namespace
}  // namespace tilewright
