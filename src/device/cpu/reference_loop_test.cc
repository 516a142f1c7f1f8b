#include "device/cpu/reference_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

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

class Counting final : public Executor {
 public:
  int workers() const override { return 3; }
  void ParallelFor(int count, Task task, void* context) override {
    ++regions, tasks += count;
    for (int i = 0; i < count; ++i) task(context, i, i);
  }
  int regions = 0, tasks = 0;
};

TEST(ReferenceLoopTest, AsksEveryWorker) {
  Counting executor;
  static_cast<void>(ReferenceLoop(DetectCpuCappedAt(Isa::kAmx)).Us(executor));
  if (executor.regions == 0) GTEST_SKIP() << "no AVX2";
  EXPECT_EQ(executor.regions, 1);
  EXPECT_EQ(executor.tasks, 3);
}

}  // namespace
}  // namespace tilewright
