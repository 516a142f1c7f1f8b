// The kernels of Precision::kW8A8: what they compute, on every instruction set and by emulated tiles, and
// that nobody gets them who did not ask.

#include "ops/gemm/cpu/w8a8/gemm_w8a8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/gemm/base/packs.h"
#include "ops/gemm/cpu/w8a8/epilogue.h"
#include "ops/gemm/cpu/w8a8/tile_products.h"
#include "ops/gemm/reference.h"
#include "ops/gemm/test_problem.h"
#include "ops/gemm/test_registry.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {
namespace {

using test::AllKernels;
using test::CallOptions;
using test::Device;
using test::Pool;
using test::TestProblem;

/// Kernels with emulated tiles, for any processor.
Registry& Emulated() {
  static Registry& registry = *[] {
    static constexpr gemm_w8a8::IsaOps kOps = {
        "ops/gemm/cpu/w8a8/w8a8_amx.cc", gemm_w8a8::PackRows<0>,
        gemm_w8a8::MultiplyByTiles<EmulatedTiles>, gemm_w8a8::FinishRows};
    auto* r = new Registry;
    AddGemmW8A8(
        *r,
        {.word = "amx", .ops = &kOps, .tile_rows = 32, .tile_columns = 32, .flag = ".emulated"});
    return r;
  }();
  return registry;
}

bool IsW8A8(const Kernel& kernel) { return kernel.desc().activations == Precision::kW8A8; }

/// Those for weights of `type` that this machine can run, the emulated one first.
std::vector<Kernel*> KernelsOf(DataType type) {
  std::vector<Kernel*> kernels;
  for (Registry* registry : {&Emulated(), &AllKernels()}) {
    for (Kernel* kernel : registry->kernels()) {
      if (IsW8A8(*kernel) && kernel->desc().type_b == Bit(type) && !kernel->CheckDevice(Device()))
        kernels.push_back(kernel);
    }
  }
  return kernels;
}

std::vector<DataType> Types() {
  std::vector<DataType> types = {DataType::kF32, DataType::kF16, DataType::kBF16};
  for (const BlockFormat& format : kFormats) types.push_back(format.type);
  return types;
}

TEST(GemmW8A8Test, IsTheProductOfTheRoundedOperandsToTheSameBitsOnEveryInstructionSet) {
  Random random(811);
  for (const DataType type : Types()) {
    const std::vector<Kernel*> kernels = KernelsOf(type);
    ASSERT_GE(kernels.size(), 2u);
    for (int turn = 0; turn < 6; ++turn) {
      GemmDesc d;
      d.type_b = type;
      d.precision = Precision::kW8A8;
      d.scaling = Scaling::kAny;
      d.epilogue = turn % 3 == 2 ? Epilogue::kGatedSilu : Epilogue::kNone;
      d.m = 1 + static_cast<int>(random.Below(turn == 0 ? 4 : 90));
      d.n = d.epilogue == Epilogue::kGatedSilu ? 32 * (1 + static_cast<int>(random.Below(9)))
                                               : 1 + static_cast<int>(random.Below(300));
      d.k = kernels[0]->desc().align_k * (1 + static_cast<int>(random.Below(3)));
      CallOptions options;
      options.seed = random.Next() % 100000;
      options.alpha = turn % 2 == 0 ? 1.0f : -0.5f;
      options.beta = turn >= 4 ? 1.0f : 0.0f;
      TestProblem problem(d, options);
      ASSERT_EQ(problem.RunAndCheck(*kernels[0], {}, Pool(1)), "") << problem.Repro();
      const auto bits = problem.ResultBytes();
      for (Kernel* kernel : kernels) {
        ASSERT_EQ(problem.Run(*kernel, {}, Pool(1 + turn % 3)), "") << problem.Repro();
        EXPECT_EQ(problem.ResultBytes(), bits) << kernel->name() << " " << problem.Repro();
      }
    }
  }
}

TEST(GemmW8A8Test, EveryCutGivesTheSameBits) {
  for (Kernel* kernel : KernelsOf(DataType::kQ8_0)) {
    GemmDesc d;
    d.type_b = DataType::kQ8_0;
    d.precision = Precision::kW8A8;
    d.m = 300, d.n = 700, d.k = 320;
    TestProblem problem(d, {});
    DeviceSpec device = Device();
    device.cores = 2;
    std::vector<unsigned char> bits;
    const auto specs = kernel->Specs(d, device, {});
    EXPECT_GE(specs.size(), 4u);
    for (const LaunchSpec& spec : specs) {
      ASSERT_EQ(problem.Run(*kernel, spec, Pool(2)), "") << problem.Repro();
      if (bits.empty()) bits = problem.ResultBytes();
      ASSERT_EQ(problem.ResultBytes(), bits) << SpecText(spec) << " " << problem.Repro();
    }
  }
}

TEST(GemmW8A8Test, OnlyThoseWhoAskGetIt) {
  for (const DataType type : Types()) {
    GemmDesc d;
    d.m = 512, d.n = 4096, d.k = 4096;
    d.type_b = type, d.pack_b = kPackAny;
    for (const Precision allowed :
         {Precision::kAuto, Precision::kF32, Precision::kBF16, Precision::kI8, Precision::kW8A8}) {
      d.precision = allowed;
      int offered = 0, more_accurate = 0;  // of our own
      for (Kernel* kernel : AllKernels().kernels()) {
        if (kernel->info().provider == Provider::kVendor) continue;
        const auto no = kernel->IsFeasible(d);
        offered += IsW8A8(*kernel) && !no ? 1 : 0;
        more_accurate += !IsW8A8(*kernel) && !no ? 1 : 0;
        if (IsW8A8(*kernel) && kernel->desc().type_b == Bit(type) && allowed != Precision::kW8A8) {
          ASSERT_TRUE(no);
          EXPECT_EQ(no->reason, Reason::kPrecision);
        }
      }
      EXPECT_EQ(offered, allowed == Precision::kW8A8 ? 3 : 0) << DataTypeName(type);
      EXPECT_GT(more_accurate, 0) << DataTypeName(type);
    }
  }
}

TEST(GemmW8A8Test, WhatIsReservedServesFewerWorkersToo) {
  Kernel& kernel = *KernelsOf(DataType::kQ4_0)[0];
  GemmDesc problem;
  problem.m = 96, problem.k = 1024, problem.type_b = DataType::kQ4_0;
  for (const int n : {64, 1000}) {
    problem.n = n;
    DeviceSpec device = Device();
    device.cores = 16;
    const std::size_t reserved = kernel.PartialsBytes(problem, {}, device);
    for (device.cores = 1; device.cores < 16; ++device.cores)
      EXPECT_LE(kernel.PartialsBytes(problem, {}, device), reserved) << device.cores;
  }
}

TEST(GemmW8A8Test, RefusesALongerKThanInt32Holds) {
  Kernel& kernel = *KernelsOf(DataType::kF32)[0];
  GemmDesc problem;
  problem.precision = Precision::kW8A8;
  problem.m = problem.n = 1, problem.pack_b = kPackAny;
  problem.k = gemm_w8a8::kMostK;
  EXPECT_FALSE(kernel.IsFeasible(problem));
  ++problem.k;
  ASSERT_TRUE(kernel.IsFeasible(problem));
  EXPECT_EQ(kernel.IsFeasible(problem)->reason, Reason::kShape);
}

}  // namespace
}  // namespace tilewright
