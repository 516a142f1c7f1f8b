// The real cuBLASLt on a GPU against float64, in every order and type. Skipped without either.
#include <gmock/gmock.h>

#include "ops/gemm/cuda/cublaslt/cublaslt_gemm.h"
#include "tilewright/cuda_device.h"
#include "vendor_product.h"

namespace tilewright::cuda {
namespace {

TEST(CublasLtOnGpu, IsRightInEveryOrderAndTypeTwiceAndWhenReplayed) {
  Result<std::unique_ptr<Device>> made = MakeCudaDevice(0);
  if (!made) GTEST_SKIP() << made.error().message;
  const CublasLtFile file = FindCublasLt();
  if (file.path.empty()) GTEST_SKIP() << file.why_not;
  Device& device = **made;
  Registry registry;
  ASSERT_TRUE(registry.Add(std::make_unique<CublasLtGemm>(file, true)));
  const Stream stream = device.default_stream();
  using enum DataType;
  const Order orders[] = {Order::kRowMajor, Order::kColMajor};
  for (const auto& [type, d] :
       {std::pair{kBF16, kBF16}, {kBF16, kF32}, {kF16, kF16}, {kF16, kF32}, {kF32, kF32}}) {
    for (int bits = 0; bits < 8; ++bits) {
      for (const DeviceProduct::Factors factors :
           {DeviceProduct::Factors{1, 0}, {1, 1}, {0.5f, -2}}) {
        GemmDesc desc;
        desc.m = bits % 3 == 0 ? 8 : 136, desc.n = 264, desc.k = 520;
        desc.type_a = desc.type_b = type;
        desc.type_c = d;
        desc.align_a = desc.align_b = desc.align_c = 4;
        desc.order_a = orders[bits & 1], desc.order_b = orders[bits >> 1 & 1];
        desc.order_c = orders[bits >> 2];
        desc.scaling = factors.beta == 0   ? Scaling::kOneZero
                       : factors.beta == 1 ? Scaling::kOneOne
                                           : Scaling::kAny;
        const auto all = Feasible(Validate(desc).value(), registry, device.spec());
        const auto choice = Choose(all, nullptr);
        ASSERT_TRUE(choice) << choice.error().message;
        const auto plan = Bind(*choice, device);
        ASSERT_TRUE(plan) << KeyOf(desc) << ": " << plan.error().message;
        const DeviceProduct product(device, desc, factors, 8);
        PlanMemory memory(device, plan->workspace());
        const auto run = [&] {
          return tilewright::Run(*plan, product.args(), memory.workspace, stream);
        };
        Status ran = run();
        ASSERT_TRUE(ran) << KeyOf(desc) << ": " << ran.error().message;
        const std::vector<std::byte> first = product.Check();
        ASSERT_TRUE(run());
        EXPECT_EQ(product.Check(), first) << KeyOf(desc) << ": other bits the second time";
        const auto graph = device.Capture(stream, run);
        ASSERT_TRUE(graph) << graph.error().message;
        ASSERT_TRUE((*graph)->Launch(stream));
        EXPECT_EQ(product.Check(), first) << KeyOf(desc) << ": other bits when replayed";
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace tilewright::cuda
