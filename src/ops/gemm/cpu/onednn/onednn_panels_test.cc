#include "ops/gemm/cpu/onednn/onednn_panels.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/formats/formats.h"
#include "ops/gemm/cpu/w8a8/gemm_w8a8.h"
#include "ops/gemm/test_problem.h"
#include "ops/gemm/test_registry.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

using gemm::OneDnnPanels;
using test::CallOptions;
using test::Device;
using test::Pool;
using test::TestProblem;

struct Case {
  DataType type;
  Precision precision;
};

/// Those that this machine can run.
std::vector<Case> Cases() {
  std::vector<Case> cases = {{DataType::kF32, Precision::kF32},
                             {DataType::kBF16, Precision::kBF16},
                             {DataType::kF32, Precision::kW8A8},
                             {DataType::kF16, Precision::kW8A8},
                             {DataType::kBF16, Precision::kW8A8}};
  for (const BlockFormat& format : kFormats) cases.push_back({format.type, Precision::kW8A8});
  std::erase_if(cases, [](const Case& c) {
    return OneDnnPanels(c.type, c.precision).CheckDevice(Device()).has_value();
  });
  return cases;
}

GemmDesc Problem(const Case& c, int m, int n, int k) {
  GemmDesc d;
  d.m = m, d.n = n;
  const int block = GetTypeInfo(c.type).block_elements;
  d.k = (k + block - 1) / block * block;
  d.type_b = c.type, d.precision = c.precision;
  return d;
}

class OneDnnPanelsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Cases().empty()) GTEST_SKIP() << "needs AVX-512";
  }
};

TEST_F(OneDnnPanelsTest, IsRightInEveryCutAtEveryTail) {
  Random random(77);
  for (const Case& c : Cases()) {
    OneDnnPanels kernel(c.type, c.precision);
    for (int turn = 0; turn < 5; ++turn) {
      GemmDesc d =
          Problem(c, 1 + static_cast<int>(random.Below(turn < 2 ? 5 : 300)),
                  1 + static_cast<int>(random.Below(400)), 1 + static_cast<int>(random.Below(200)));
      d.scaling = Scaling::kAny;
      if (turn % 2 == 1) {
        d.epilogue = Epilogue::kGatedSilu;
        d.n = (d.n + 31) / 32 * 32;
      }
      CallOptions options;
      options.alpha = turn == 2 ? -0.5f : 1.0f, options.beta = turn >= 3 ? 2.0f : 0.0f;
      options.pad_a = turn, options.pad_b = turn % 2, options.pad_c = 3,
      options.misalign = turn % 2;
      options.c_is_d = turn == 3, options.seed = random.Next() % 100000;
      TestProblem problem(d, options);
      for (const LaunchSpec& spec : kernel.Specs(d, Device(), {}))
        ASSERT_EQ(problem.RunAndCheck(kernel, spec, Pool(3)), "")
            << SpecText(spec) << " " << problem.Repro();
    }
  }
}

TEST_F(OneDnnPanelsTest, StagesRowsInPartsWhereTheyAreLong) {
  OneDnnPanels kernel(DataType::kF32, Precision::kF32);
  // 32 MiB are 511 rows of 16,400 floats.
  TestProblem problem(Problem({DataType::kF32, Precision::kF32}, 601, 33, 16390), {});
  EXPECT_EQ(problem.RunAndCheck(kernel, {}, Pool(2)), "") << problem.Repro();
}

TEST_F(OneDnnPanelsTest, GivesTheBitsOfOurOwnInt8Products) {
  const gemm_w8a8::IsaConfig scalar{.word = "scalar", .ops = &gemm_w8a8::OpsScalar()};
  for (const Case& c : Cases()) {
    if (c.precision != Precision::kW8A8) continue;
    OneDnnPanels kernel(c.type, c.precision);
    gemm_w8a8::GemmW8A8 own(scalar, c.type);
    for (GemmDesc d : {Problem(c, 1, 200, 300), Problem(c, 37, 130, 77)}) {
      TestProblem problem(d, {});
      ASSERT_EQ(problem.Run(own, {}, Pool(1)), "");
      const auto bits = problem.ResultBytes();
      ASSERT_EQ(problem.Run(kernel, {}, Pool(2)), "");
      EXPECT_EQ(problem.ResultBytes(), bits) << problem.Repro();
    }
  }
}

TEST_F(OneDnnPanelsTest, GivesTheSameBitsOnAnyNumberOfWorkers) {
  for (const Case& c : Cases()) {
    if (c.precision == Precision::kW8A8 && c.type != DataType::kQ4_0) continue;
    OneDnnPanels kernel(c.type, c.precision);
    const GemmDesc d = Problem(c, 70, 500, 256);
    TestProblem problem(d, {});
    ASSERT_EQ(problem.Run(kernel, {}, SerialExecutor()), "");
    const auto first = problem.ResultBytes();
    for (const int threads : {2, 3, 5}) {
      ASSERT_EQ(problem.Run(kernel, {}, Pool(threads)), "");
      EXPECT_EQ(problem.ResultBytes(), first) << threads << " threads, " << problem.Repro();
    }
  }
}

TEST_F(OneDnnPanelsTest, APlanGivesTheSameBitsOnManyThreadsAtATime) {
  const Case c = {DataType::kF32, Precision::kF32};
  OneDnnPanels kernel(c.type, c.precision);
  const GemmDesc d = Problem(c, 40, 300, 100);
  TestProblem reference(d, {});
  ASSERT_EQ(reference.Run(kernel, {}, SerialExecutor()), "");
  const auto device = MakeCpuDevice(Device());
  const auto bound = kernel.BindLaunch(d, {}, *device);
  ASSERT_TRUE(bound);
  const std::size_t bytes = kernel.PartialsBytes(d, {}, Device());
  std::vector<std::thread> threads;
  std::vector<std::string> wrong(4);
  for (std::string& trouble : wrong) {
    threads.emplace_back([&] {
      TestProblem problem(d, {});
      GemmArgs args = problem.args();
      std::vector<std::byte> packed(kernel.PackedBytes(args.b_layout) + 64), scratch(bytes + 64);
      const auto aligned = [](std::vector<std::byte>& from) {
        return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(from.data()) + 63) /
                                            64 * 64);
      };
      if (!kernel.PackB(args.b, args.b_layout, aligned(packed), Stream{&SerialExecutor()}))
        trouble = "not packed";
      args.b = aligned(packed), args.b_layout.pack = kernel.desc().pack_b;
      for (int turn = 0; turn < 20 && trouble.empty(); ++turn) {
        Workspace workspace;
        workspace.partials = aligned(scratch), workspace.partials_size = bytes;
        if (!(*bound)->Launch(args, workspace, Stream{&SerialExecutor()})) trouble = "refused";
        if (problem.ResultBytes() != reference.ResultBytes()) trouble = "other bits";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& trouble : wrong) EXPECT_EQ(trouble, "");
}

TEST_F(OneDnnPanelsTest, StartsNoThreadAndLeavesTheCallersOpenMpAsItWas) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(3);
  for (const Case& c : Cases()) {
    OneDnnPanels kernel(c.type, c.precision);
    TestProblem problem(Problem(c, 200, 1000, 300), {});
    const auto threads = std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                                       std::filesystem::directory_iterator());
    EXPECT_EQ(problem.RunAndCheck(kernel, {}, SerialExecutor()), "") << problem.Repro();
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                            std::filesystem::directory_iterator()),
              threads);
    EXPECT_EQ(omp_get_max_threads(), 3);
  }
  omp_set_num_threads(before);
}

TEST_F(OneDnnPanelsTest, RefusesOtherDevicesPrecisionsAndWeights) {
  for (const Case& c : Cases()) {
    OneDnnPanels kernel(c.type, c.precision);
    for (const Isa cap : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
      const DeviceSpec capped = DetectCpuCappedAt(cap);
      EXPECT_EQ(kernel.CheckDevice(capped).has_value(), capped.isa != Device().isa) << IsaName(cap);
    }
    GemmDesc d = Problem(c, 8, 64, 256);
    d.pack_b = kPackAny;
    EXPECT_FALSE(kernel.IsFeasible(d));
    if (c.precision != Precision::kF32) {
      d.precision = Precision::kF32;
      ASSERT_TRUE(kernel.IsFeasible(d));
      EXPECT_EQ(kernel.IsFeasible(d)->reason, Reason::kPrecision);
    }
    TestProblem problem(Problem(c, 3, 64, 256), {});
    GemmArgs args = problem.args();  // plain weights
    std::vector<float> scratch(1 << 20);
    Workspace workspace;
    workspace.partials = scratch.data(), workspace.partials_size = scratch.size() * 4;
    const Status status = kernel.Launch(args, {}, workspace, Stream{&SerialExecutor()});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tilewright
