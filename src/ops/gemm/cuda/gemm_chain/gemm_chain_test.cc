#include "device/cuda/kernels/hopper_emulation.h"
#include "device/cuda/kernels/hopper_registers_emulation.h"
#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/tensor_map_emulation.h"
// After it: the kernels use its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "core/test_util.h"
#include "device/cuda/block_types.h"
#include "ops/gemm/cuda/gemm_chain/chain_case.h"
#include "ops/gemm/cuda/gemm_chain/chain_launch.h"
#include "ops/gemm/cuda/gemm_chain/families.h"
#include "ops/gemm/cuda/gemm_chain/gemm_chain_kernel.cuh"
#include "ops/gemm/cuda/gemm_qw/families.h"

// The source of the kernels, run on the CPU as GemmChainLaunch launches them with CTAs side by side, against
// float64.

namespace tilewright {
namespace {

using test::ChainCase;
using test::ChainShape;
using ::testing::HasSubstr;
using tw::Type;
constexpr CudaArch kHopper{90, 'a'};
constexpr int kCtas =
    3;  // of which descriptors of wgmma, with 18 bits of an address, can name all shared memory

DeviceSpec Device() {
  DeviceSpec device;
  device.kind = DeviceKind::kCuda;
  device.sm_count = kCtas;
  return device;
}

KernelSpec SpecOf(DataType weight, int tile_m, int tile_n, int parts, int stages) {
  KernelSpec spec;
  spec.family = kGemmChain;
  spec.arch = kHopper;
  spec.type_a = spec.type_c = spec.type_d = DataType::kBF16;
  spec.type_b = weight;
  spec.order_a = Order::kRowMajor;
  spec.order_b = Order::kColMajor;
  spec.epilogue = SpecEpilogue::kAdd;
  spec.tile_m = static_cast<std::uint16_t>(tile_m);
  spec.tile_n = static_cast<std::uint16_t>(tile_n);
  spec.tile_k = cuda::kGemmQTileK;
  spec.params = {parts, 0, 0, 0};
  spec.stages = static_cast<std::uint8_t>(stages);
  spec.warps = static_cast<std::uint16_t>(4 * (tile_n / 64 * parts) + 1);
  return spec;
}

struct Memory {
  explicit Memory(const WorkspaceSize& size) : partials(size.partials), barriers(size.barriers) {
    std::memset(barriers.data(), 0, size.barriers);
    workspace.partials = partials.data();
    workspace.partials_size = size.partials;
    workspace.barriers = barriers.data();
    workspace.barriers_size = size.barriers;
  }
  bool BarriersAreZero() const {
    const auto* begin = static_cast<const std::byte*>(barriers.data());
    return std::all_of(begin, begin + barriers.size(),
                       [](std::byte b) { return b == std::byte{0}; });
  }
  test::GuardedBytes partials, barriers;
  Workspace workspace;
};

/// Launches it; `absent`: the last CTAs of the grid never run.
template <Type kW, int kTileM, int kTileN, int kParts, int kStages>
void Launch(ChainCase& chain, const KernelSpec& spec, Memory& memory, unsigned int& alarm,
            unsigned int absent = 0) {
  cuda::LaunchResult launch = GemmChainLaunch(spec, chain.products(), Device(), memory.workspace,
                                              {.word = &alarm, .wait_ns = 20'000'000});
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_TRUE(launch->cooperative);
  ASSERT_TRUE(cuda::EncodeMaps(*launch, &tw::emulation::EncodeMap));
  tw::emulation::barriers.clear();
  // CTAs that run side by side are a cluster, which lies in y.
  ASSERT_EQ(launch->grid[0], static_cast<unsigned>(kCtas));
  launch->grid = {1, kCtas, 1};
  constexpr unsigned int kThreads = 128 * (kTileN / 64 * kParts) + 32;
  tw::emulation::RunLaunch<tw::GemmChainParams>(
      *launch, kThreads,
      [&](const tw::GemmChainParams& p) {
        if (tw::emulation::cta.block.y >= kCtas - absent) return;
        tw::GemmChain<kW, kTileM, kTileN, kParts, kStages>::Run(p, tw::emulation::OwnSmem());
      },
      {1, kCtas, 1});
}

template <Type kW, int kTileM, int kTileN, int kParts, int kStages>
void ExpectChain(const ChainShape& shape) {
  SCOPED_TRACE(testing::Message() << "rows " << shape.m << " hidden " << shape.hidden << " ffn "
                                  << shape.ffn << " products " << shape.count);
  const DataType weight = static_cast<DataType>(kW);
  const KernelSpec spec = SpecOf(weight, kTileM, kTileN, kParts, kStages);
  const std::optional<Rejection> no = GemmChainFamily().check(spec);
  ASSERT_FALSE(no) << no->ToString();
  ChainCase chain(weight, shape);
  Memory memory(GemmChainWorkspace(spec, chain.products(), Device()));
  for (int launches = 0; launches < 2; ++launches) {
    chain.Poison();
    unsigned int alarm = 0;
    Launch<kW, kTileM, kTileN, kParts, kStages>(chain, spec, memory, alarm);
    EXPECT_FALSE(tw::emulation::fault) << "an illegal access, a surplus arrival or a hang";
    EXPECT_EQ(alarm, 0u);
    EXPECT_EQ(memory.partials.Damage() + memory.barriers.Damage(), "");
    EXPECT_TRUE(memory.BarriersAreZero()) << "the next launch would count from there";
    chain.Expect();
  }
}

TEST(GemmChainTest, ALayersProductsAreThoseOfFloat64) {
  ExpectChain<Type::kQ8_0, 16, 64, 1, 3>({.m = 16, .hidden = 256, .ffn = 256, .qkv = 384});
  ExpectChain<Type::kQ4_K, 32, 64, 2, 2>({.m = 32, .hidden = 256, .ffn = 512, .qkv = 192});
}

TEST(GemmChainTest, RowsAndTilesNeedNotBeFull) {
  ExpectChain<Type::kQ8_0, 16, 128, 1, 2>({.m = 11, .hidden = 288, .ffn = 416, .qkv = 224});
  ExpectChain<Type::kQ4_1, 64, 64, 1, 2>({.m = 50, .hidden = 256, .ffn = 288, .qkv = 130});
  ExpectChain<Type::kQ6_K, 32, 64, 2, 2>({.m = 25, .hidden = 512, .ffn = 768, .qkv = 130});
  ExpectChain<Type::kQ6_K, 32, 64, 1, 2>({.m = 32, .hidden = 512, .ffn = 2048, .qkv = 320});
}

TEST(GemmChainTest, AnyNumberOfProducts) {
  for (const int count : {1, 2, 3})
    ExpectChain<Type::kQ8_0, 16, 64, 1, 2>(
        {.m = 9, .hidden = 256, .ffn = 256, .qkv = 192, .count = count});
}

// Where f16 does not hold x, rows are divided by a power of two.
TEST(GemmChainTest, XOfAnySize) {
  for (const double scale : {1e6, 1e-7}) {
    ExpectChain<Type::kQ8_0, 16, 64, 1, 2>(
        {.m = 12, .hidden = 256, .ffn = 256, .qkv = 192, .x_scale = scale});
  }
}

// A CTA that never comes, as where another process has the multiprocessor: no hang, and the host learns of it.
TEST(GemmChainTest, AWaitInVainEndsAndIsTold) {
  const KernelSpec spec = SpecOf(DataType::kQ8_0, 16, 64, 1, 2);
  ChainCase chain(DataType::kQ8_0, {.m = 8, .hidden = 256, .ffn = 256, .qkv = 192, .count = 2});
  Memory memory(GemmChainWorkspace(spec, chain.products(), Device()));
  unsigned int alarm = 0;
  Launch<Type::kQ8_0, 16, 64, 1, 2>(chain, spec, memory, alarm, 1);
  EXPECT_EQ(alarm, 1u);
}

TEST(GemmChainFamilyTest, EverySpecOfTheCatalogPassesItsCheckOnce) {
  KernelFamilies families;
  ASSERT_TRUE(AddGemmChainFamily(families));
  EXPECT_FALSE(AddGemmChainFamily(families)) << "the name is taken";
  const KernelFamily& family = *families.Find(FamilyName(kGemmChain));
  const std::vector<KernelSpec> all = families.Catalog(kHopper);
  ASSERT_GE(all.size(), 8u);
  for (const KernelSpec& spec : all) {
    const auto no = family.check(spec);
    EXPECT_FALSE(no.has_value()) << no->ToString();
    EXPECT_EQ(family.launch(spec).threads, spec.warps * 32u);
    EXPECT_EQ(std::count(all.begin(), all.end(), spec), 1);
  }
  EXPECT_TRUE(families.Catalog({100, 'a'}).empty());
  EXPECT_TRUE(GemmChainSpecs(DataType::kQ8_0, kHopper, 65).empty());
  EXPECT_TRUE(GemmChainSpecs(DataType::kQ3_K, kHopper, 32).empty()) << "gemm_qw has none";
}

class GemmChainLaunchTest : public ::testing::Test {
 protected:
  std::string Reason() const {
    const auto no = CheckChain(spec_, chain_.products(), Device());
    return no ? no->ToString() : "";
  }
  KernelSpec spec_ = SpecOf(DataType::kQ8_0, 16, 64, 1, 2);
  ChainCase chain_{DataType::kQ8_0, {.m = 8, .hidden = 256, .ffn = 256, .qkv = 192}};
};

TEST_F(GemmChainLaunchTest, WhatItCannotComputeIsRejectedWithAReason) {
  EXPECT_EQ(Reason(), "");
  auto& products = chain_.products();
  const std::vector<GemmArgs> good = products;
  const auto expect = [&](const char* what, auto change) {
    products = good;
    change();
    EXPECT_THAT(Reason(), HasSubstr(what));
  };
  expect("0 products", [&] { products.clear(); });
  expect("5 products", [&] { products.push_back(products.back()); });
  expect("constant B", [&] { products[1].constant_b = false; });
  expect("A is not D", [&] { products[2].a = products[0].a; });
  expect("of the first product", [&] {
    products[0].prologue = Prologue::kRmsNorm;
    products[0].norm = products[1].norm;
    products[0].type_norm = DataType::kF32;
  });
  expect("behind gate and up", [&] {
    products[2].prologue = Prologue::kRmsNorm;
    products[2].norm = products[1].norm;
    products[2].type_norm = DataType::kF32;
  });
  expect("norm of bf16", [&] { products[1].type_norm = DataType::kBF16; });
  expect("norm at",
         [&] { products[1].norm = static_cast<const std::byte*>(products[1].norm) + 4; });
  expect("D overlaps C", [&] { products[0].c = static_cast<const std::byte*>(products[0].d) + 2; });
  expect("D overlaps A", [&] { products[1].d = const_cast<void*>(products[1].a); });
  products = good;
  spec_.tile_m = 64;
  EXPECT_EQ(Reason(), "") << "fewer rows than a tile has";
}

TEST_F(GemmChainLaunchTest, MoreRowsThanATileOrFewerKTilesThanMultiprocessorsAreRejected) {
  ChainCase rows(DataType::kQ8_0, {.m = 17, .hidden = 256, .ffn = 256, .qkv = 192});
  EXPECT_THAT(CheckChain(spec_, rows.products(), Device())->ToString(), HasSubstr("17 rows"));
  DeviceSpec large = Device();
  large.sm_count = 132;
  EXPECT_THAT(CheckChain(spec_, chain_.products(), large)->ToString(), HasSubstr("k-tiles"));
}

TEST_F(GemmChainLaunchTest, AWorkspaceThatIsTooSmallIsRejected) {
  Memory memory(GemmChainWorkspace(spec_, chain_.products(), Device()));
  unsigned int alarm = 0;
  const ChainAlarm told{.word = &alarm, .wait_ns = 1};
  EXPECT_TRUE(GemmChainLaunch(spec_, chain_.products(), Device(), memory.workspace, told));
  memory.workspace.partials_size -= 1;
  EXPECT_FALSE(GemmChainLaunch(spec_, chain_.products(), Device(), memory.workspace, told));
}

}  // namespace
}  // namespace tilewright
