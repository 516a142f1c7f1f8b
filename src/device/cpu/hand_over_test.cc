#include "tilewright/hand_over.h"

#include <gtest/gtest.h>

#include "core/test_executor.h"

namespace tilewright {
namespace {

TEST(HandOverTest, WorkersThatNeverRunAtTheSameTimeHandNothingOver) {
  test::CallersThread one(4);
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
