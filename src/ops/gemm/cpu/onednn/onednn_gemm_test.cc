#include "ops/gemm/cpu/onednn/onednn_gemm.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "core/test_executor.h"
#include "ops/gemm/test_problem.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

std::ptrdiff_t ThreadsOfThisProcess() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

GemmDesc Problem(int m, int n, int k) {
  GemmDesc d;
  d.m = m, d.n = n, d.k = k;
  return d;
}

TEST(OneDnnGemm, StartsNoThreadAndLeavesTheCallersOpenMpAsItWas) {
  gemm::OneDnnGemm kernel;
  const int before = omp_get_max_threads();
  omp_set_num_threads(3);
  for (const GemmDesc& d : {Problem(1, 1000, 300), Problem(200, 1000, 300), Problem(900, 70, 64)}) {
    test::TestProblem problem(d, {});
    test::CallersThread executor(4);
    const auto threads = ThreadsOfThisProcess();
    EXPECT_EQ(problem.RunAndCheck(kernel, {}, executor), "") << problem.Repro();
    EXPECT_EQ(ThreadsOfThisProcess(), threads);
    EXPECT_EQ(omp_get_max_threads(), 3);
    EXPECT_GE(executor.tasks(), 4);  // there is work for every worker
  }
  omp_set_num_threads(before);
}

TEST(OneDnnGemm, IsRightInPiecesAlongRowsAndColumnsInEveryOrder) {
  gemm::OneDnnGemm kernel;
  const auto pool = MakeThreadPool(3);
  for (int orders = 0; orders < 8; ++orders) {
    for (GemmDesc d : {Problem(5, 777, 65), Problem(777, 5, 65), Problem(401, 399, 33)}) {
      d.order_a = static_cast<Order>(orders & 1), d.order_b = static_cast<Order>(orders >> 1 & 1);
      d.order_c = static_cast<Order>(orders >> 2);
      d.scaling = Scaling::kAny;
      test::CallOptions o;
      o.alpha = -0.5f, o.beta = 2.0f, o.pad_a = 1, o.pad_b = 2, o.pad_c = 3;
      test::TestProblem problem(d, o);
      EXPECT_EQ(problem.RunAndCheck(kernel, {}, *pool), "") << problem.Repro();
    }
  }
}

TEST(OneDnnGemm, GivesTheSameBitsOnAnyNumberOfWorkers) {
  gemm::OneDnnGemm kernel;
  for (const GemmDesc& d : {Problem(1, 2000, 300), Problem(130, 2000, 77), Problem(999, 90, 64)}) {
    test::TestProblem problem(d, {});
    ASSERT_EQ(problem.Run(kernel, {}, SerialExecutor()), "");
    const auto first = problem.ResultBytes();
    for (const int threads : {2, 3, 5}) {
      const auto pool = MakeThreadPool(threads);
      ASSERT_EQ(problem.Run(kernel, {}, *pool), "");
      EXPECT_EQ(problem.ResultBytes(), first) << threads << " threads, " << problem.Repro();
    }
  }
}

TEST(OneDnnGemm, IsRefusedBelowTheInstructionSetsThatItWouldUse) {
  gemm::OneDnnGemm kernel;
  const DeviceSpec real = DetectCpuCappedAt(Isa::kAmx);
  EXPECT_FALSE(kernel.CheckDevice(real));
  for (const Isa cap : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    const DeviceSpec capped = DetectCpuCappedAt(cap);
    EXPECT_EQ(kernel.CheckDevice(capped).has_value(), capped.isa != real.isa) << IsaName(cap);
  }
}

}  // namespace
}  // namespace tilewright
