// Chains of products on a GPU, against float64. Skipped where there is no GPU; kernels come from NVRTC or from
// the bundle that TILEWRIGHT_GPU_BUNDLE names.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "engine/compiled/gpu_store.h"
#include "engine/compiled/loaded_kernel.h"
#include "ops/gemm/cuda/gemm_chain/chain_case.h"
#include "ops/gemm/cuda/gemm_chain/chain_launch.h"
#include "ops/gemm/cuda/gemm_chain/families.h"

namespace tilewright {
namespace {

using test::ChainCase;
using test::ChainShape;

KernelFamilies Families() {
  KernelFamilies families;
  EXPECT_TRUE(AddGemmChainFamily(families));
  return families;
}

struct Machine : test::GpuStore {
  Machine() : GpuStore(Families()) {
    if (!why_not.empty()) return;
    if (GemmChainSpecs(DataType::kQ8_0, arch(), 32).empty())
      why_not = "no chains on " + arch().ToString();
  }
};

class GemmChainGpu : public test::GpuFixture<Machine> {
 protected:
  Device& device() { return *machine_->device; }
  void Wait() {
    const Status done = device().Synchronize(device().default_stream());
    ASSERT_TRUE(done) << done.error().message;
  }
  DeviceMemory Upload(const void* from, std::size_t bytes) {
    DeviceMemory memory = device().Allocate(bytes).value();
    EXPECT_TRUE(device().Upload(memory.data(), from, bytes, device().default_stream()));
    Wait();
    return memory;
  }
  static std::size_t BytesOfRows(const MatrixLayout& rows) {
    return static_cast<std::size_t>(rows.rows) * static_cast<std::size_t>(rows.cols) * 2;
  }

  /// Runs the chain twice behind each other and holds it to float64, and both times to the same bits.
  void Expect(const KernelSpec& spec, DataType weight, const ChainShape& shape) {
    SCOPED_TRACE(testing::Message()
                 << DataTypeName(weight) << " rows " << shape.m << " products " << shape.count
                 << " tile " << spec.tile_m << "x" << spec.tile_n);
    ChainCase chain(weight, shape);
    std::vector<DeviceMemory> memory;
    std::vector<GemmArgs> args = chain.products();
    const auto place = [&](const void*& operand, std::size_t bytes) {
      memory.push_back(Upload(operand, bytes));
      operand = memory.back().data();
    };
    std::vector<void*> results;
    for (std::size_t i = 0; i < args.size(); ++i) {
      GemmArgs& product = args[i];
      memory.push_back(device().Allocate(BytesOfRows(product.d_layout)).value());
      results.push_back(product.d = memory.back().data());
      if (i == 0) {
        place(product.a, BytesOfRows(product.a_layout));
      } else {
        product.a = results[i - 1];
      }
      place(product.b, static_cast<std::size_t>(product.b_layout.cols) *
                           static_cast<std::size_t>(BytesOf(weight, product.b_layout.ld)));
      if (i == 0) place(product.c, BytesOfRows(product.c_layout));
      if (i == 2) product.c = results[0];
      if (product.norm != nullptr)
        place(product.norm, static_cast<std::size_t>(product.a_layout.cols) * sizeof(float));
    }
    const WorkspaceSize size = GemmChainWorkspace(spec, chain.products(), device().spec());
    const DeviceMemory partials = device().Allocate(size.partials).value();
    const DeviceMemory barriers = device().Allocate(size.barriers + sizeof(unsigned int)).value();
    EXPECT_TRUE(device().Fill(barriers.data(), 0, barriers.size(), device().default_stream()));
    Workspace workspace;
    workspace.partials = partials.data();
    workspace.partials_size = size.partials;
    workspace.barriers = barriers.data();
    workspace.barriers_size = size.barriers;
    auto* const alarm =
        reinterpret_cast<unsigned int*>(static_cast<std::byte*>(barriers.data()) + size.barriers);
    const auto kernel = LoadedKernel::Load(*machine_->store, spec, device());
    ASSERT_TRUE(kernel) << kernel.error().message;

    std::vector<std::vector<std::byte>> first;
    for (int run = 0; run < 2; ++run) {
      for (std::size_t i = 0; i < args.size(); ++i)
        EXPECT_TRUE(device().Fill(results[i], 0xff, BytesOfRows(args[i].d_layout),
                                  device().default_stream()));
      for (int launches = 0; launches < 2; ++launches) {
        const Status queued =
            kernel->Launch(GemmChainLaunch(spec, args, device().spec(), workspace,
                                           {.word = alarm, .wait_ns = 2'000'000'000}),
                           device().default_stream());
        ASSERT_TRUE(queued) << queued.error().message;
      }
      Wait();
      std::vector<std::byte> counters(barriers.size());
      EXPECT_TRUE(device().Download(counters.data(), barriers.data(), counters.size(),
                                    device().default_stream()));
      Wait();
      EXPECT_EQ(counters, std::vector<std::byte>(counters.size())) << "counters, and the alarm";
      for (std::size_t i = 0; i < args.size(); ++i) {
        std::vector<std::byte> bytes(BytesOfRows(args[i].d_layout));
        EXPECT_TRUE(
            device().Download(bytes.data(), results[i], bytes.size(), device().default_stream()));
        Wait();
        if (run == 0) {
          std::memcpy(chain.products()[i].d, bytes.data(), bytes.size());
          first.push_back(std::move(bytes));
        } else {
          EXPECT_EQ(bytes, first[i]) << "product " << i << " differs from run to run";
        }
      }
      if (run == 0) chain.Expect();
    }
  }
};

TEST_F(GemmChainGpu, ALayersProductsAreThoseOfFloat64) {
  for (const DataType weight :
       {DataType::kQ8_0, DataType::kQ4_K, DataType::kQ4_1, DataType::kQ5_K, DataType::kQ6_K}) {
    for (const int rows : {32, 21, 64, 40}) {
      for (const KernelSpec& spec : GemmChainSpecs(weight, machine_->arch(), rows)) {
        Expect(spec, weight, {.m = rows, .hidden = 3072, .ffn = 2816, .qkv = 3136});
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(GemmChainGpu, AnyNumberOfProductsAndXOfAnySize) {
  for (int count = 1; count <= 3; ++count) {
    for (const KernelSpec& spec : GemmChainSpecs(DataType::kQ8_0, machine_->arch(), 32))
      Expect(spec, DataType::kQ8_0,
             {.m = 13,
              .hidden = 3072,
              .ffn = 3072,
              .qkv = 3072,
              .count = count,
              .x_scale = count == 1   ? 1e6
                         : count == 2 ? 1e-7
                                      : 1});
  }
}

}  // namespace
}  // namespace tilewright
