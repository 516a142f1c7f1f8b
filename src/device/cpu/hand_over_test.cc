#include "tilewright/hand_over.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

/// Says that it has workers and runs everything on the calling thread.
class OneThread final : public Executor {
 public:
  int workers() const override { return 4; }
  void ParallelFor(int count, Task task, void* context) override {
    for (int i = 0; i < count; ++i) task(context, i, 0);
  }
};

TEST(HandOverTest, WorkersThatNeverRunAtTheSameTimeHandNothingOver) {
  OneThread one;
  EXPECT_EQ(MeasureHandOverNs(one), 0);
  EXPECT_EQ(MeasureHandOverNs(SerialExecutor()), 0);
}

TEST(HandOverTest, TwoWorkersTakeTurns) {
  const auto pool = MakeThreadPool(2);
  double ns = 0;
  // On a busy machine the second may come late.
  for (int i = 0; i < 1000 && ns == 0; ++i) ns = MeasureHandOverNs(*pool);
  EXPECT_GT(ns, 0);
}

}  // namespace
}  // namespace tilewright
