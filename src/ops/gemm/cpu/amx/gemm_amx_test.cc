// What only the kernels of AMX promise: that the emulation computes what the instructions do, when
// they are chosen, and why they are not.

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>

#include "core/formats/formats.h"
#include "ops/gemm/base/packs.h"
#include "ops/gemm/cpu/amx/emulated_kernels.h"
#include "ops/gemm/test_problem.h"
#include "ops/gemm/test_registry.h"
#include "tilewright/device.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {
namespace {

using test::AllKernels;
using test::CallOptions;
using test::Device;
using test::EmulatedKernels;
using test::Pool;
using test::TestProblem;

/// The kernels of the same weights: by plain C++, and by the others that this processor can run.
struct Siblings {
  Kernel* emulated;
  std::vector<Kernel*> others;
};

std::vector<Siblings> AllSiblings() {
  std::vector<Siblings> all;
  const std::string suffix = test::kEmulated;
  for (Kernel* kernel : EmulatedKernels().kernels()) {
    const std::string name(kernel->name());
    if (!name.ends_with(suffix)) continue;
    const std::string stem = name.substr(0, name.size() - suffix.size());
    Siblings siblings{kernel, {}};
    for (Kernel* other :
         {EmulatedKernels().Find(stem + test::kEmulatedVectors), AllKernels().Find(stem)}) {
      if (other != nullptr && !other->CheckDevice(Device())) siblings.others.push_back(other);
    }
    all.push_back(siblings);
  }
  return all;
}

TEST(GemmAmxTest, EmulationVectorsAndInstructionsGiveTheSameBits) {
  ASSERT_GE(AllSiblings().size(), 13u);
  Random random(301);
  int compared = 0;
  for (const Siblings& siblings : AllSiblings()) {
    const KernelDesc& takes = siblings.emulated->desc();
    for (int turn = 0; turn < 8; ++turn) {
      GemmDesc d;
      d.type_b = test::First<DataType>(takes.type_b);
      d.precision = takes.activations;
      d.epilogue = turn % 3 == 2 ? Epilogue::kGatedSilu : Epilogue::kNone;
      d.m = 1 + static_cast<int>(random.Below(150));
      d.n = d.epilogue == Epilogue::kGatedSilu ? 32 * (1 + static_cast<int>(random.Below(3)))
                                               : 1 + static_cast<int>(random.Below(90));
      // Some beyond a chunk, where sums wait in memory.
      d.k = takes.align_k * (1 + static_cast<int>(random.Below(turn == 0 ? 9 : 3)));
      if (turn == 1) d.k = 2048 + 256 * (1 + static_cast<int>(random.Below(9)));
      CallOptions options;
      options.seed = random.Next() % 100000;
      options.alpha = turn % 2 == 0 ? 1.0f : -0.5f;
      options.beta = turn % 4 == 3 ? 1.0f : 0.0f;
      d.scaling = Scaling::kAny;
      TestProblem problem(d, options);
      ASSERT_EQ(problem.RunAndCheck(*siblings.emulated, {}, Pool(1)), "") << problem.Repro();
      const auto bits = problem.ResultBytes();
      for (Kernel* other : siblings.others) {
        ASSERT_EQ(problem.Run(*other, {}, Pool(1 + turn % 3)), "") << problem.Repro();
        EXPECT_EQ(problem.ResultBytes(), bits) << other->name() << " " << problem.Repro();
        ++compared;
      }
    }
  }
  if (compared == 0) GTEST_SKIP() << "no AVX-512 BF16";
}

TEST(GemmAmxTest, ARowHasTheSameBitsInAnyBatchAndChunk) {
  Random random(302);
  for (const Siblings& siblings : AllSiblings()) {
    GemmDesc d;
    d.type_b = test::First<DataType>(siblings.emulated->desc().type_b);
    d.precision = siblings.emulated->desc().activations;
    d.m = 70, d.n = 40, d.k = 512;
    TestProblem whole(d, {});
    ASSERT_EQ(whole.Run(*siblings.emulated, {}, Pool(2)), "");
    const auto all = whole.ResultBytes();
    for (const int m : {1, 16, 17, 48, 49}) {
      d.m = m;  // the first m rows of the same random matrix
      TestProblem part(d, {});
      ASSERT_EQ(part.Run(*siblings.emulated, {}, Pool(1)), "");
      const auto some = part.ResultBytes();
      ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << "m = " << m;
    }
  }
}

}  // namespace
}  // namespace tilewright
