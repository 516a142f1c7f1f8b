// Products of rows in groups on a GPU, through the stages: every candidate of every problem against
// float64, twice. Skipped where there is no GPU; kernels come from NVRTC or from the bundle that
// TILEWRIGHT_GPU_BUNDLE names.
#include <gtest/gtest.h>

#include <vector>

#include "device/cuda/block_types.h"
#include "engine/compiled/gpu_store.h"
#include "ops/gemm/base/alignment.h"
#include "ops/gemm/base/verified_test_util.h"
#include "ops/gemm/cuda/grouped/grouped_case.h"
#include "ops/gemm/cuda/kernels/kernels.h"
#include "tilewright/gemm_stages.h"
#include "tilewright/tilewright.h"

namespace tilewright::cuda {
namespace {

using test::GroupedCase;
using test::GroupedShape;

/// What all tests share.
struct Machine : test::GpuStore {
  Registry gemm;

  Machine() : GpuStore(AllKernelFamilies()) {
    if (device == nullptr) return;
    EXPECT_TRUE(AddCudaGemm(gemm, *store, arch()));
  }
};

class GroupedGpuTest : public test::GpuFixture<Machine> {
 protected:
  static Device& device() { return *machine_->device; }

  static DeviceMemory Upload(const void* data, std::size_t bytes) {
    DeviceMemory memory = device().Allocate(bytes).value();
    EXPECT_TRUE(device().Upload(memory.data(), data, bytes, device().default_stream()));
    EXPECT_TRUE(device().Synchronize(device().default_stream()));
    return memory;
  }
  template <class T>
  static DeviceMemory Upload(const T* data, std::int32_t count) {
    return Upload(static_cast<const void*>(data), static_cast<std::size_t>(count) * sizeof(T));
  }

  /// What a plan makes of poisoned memory.
  static std::vector<std::byte> RunPlan(const Plan<GemmOp>& plan, GemmArgs args,
                                        std::size_t bytes) {
    constexpr std::size_t kBand = 4096;
    const Stream stream = device().default_stream();
    const DeviceMemory y = device().Allocate(bytes + 2 * kBand).value();
    EXPECT_TRUE(device().Fill(y.data(), 0xff, y.size(), stream));
    args.d = y.as<std::byte>() + kBand;
    Workspace none;
    const Status ran = tilewright::Run(plan, args, none, stream);
    EXPECT_TRUE(ran) << ran.error().message;
    std::vector<std::byte> all(y.size());
    EXPECT_TRUE(device().Download(all.data(), y.data(), all.size(), stream));
    const Status done = device().Synchronize(stream);
    EXPECT_TRUE(done) << done.error().message;
    const auto begin = all.begin() + kBand, end = begin + static_cast<std::ptrdiff_t>(bytes);
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xff}; };
    EXPECT_TRUE(std::all_of(all.begin(), begin, untouched) &&
                std::all_of(end, all.end(), untouched))
        << "written outside of y";
    return {begin, end};
  }

  /// Runs every feasible candidate; how many there were.
  static int Check(DataType x, DataType w, const GroupedShape& shape) {
    GroupedCase one(x, w, shape);
    std::vector<std::byte> unused(one.y_bytes());
    GemmArgs args = one.Args(unused.data());
    const std::int32_t rows = args.d_layout.rows;
    const DeviceMemory dev_x = Upload(one.x().data(), one.x().size()),
                       dev_w = Upload(one.w().data(), one.w().size()),
                       offsets = Upload(args.a_layout.offsets, args.a_layout.num + 1);
    DeviceMemory sources;
    if (args.a_layout.idxs != nullptr) {
      sources = Upload(args.a_layout.idxs, rows);
      args.a_layout.idxs = sources.as<std::int32_t>();
    }
    args.a = dev_x.data(), args.b = dev_w.data();
    for (MatrixLayout* layout : {&args.a_layout, &args.c_layout, &args.d_layout})
      layout->offsets = offsets.as<std::int32_t>();
    GemmDesc desc = DescOf(args, {}).value();
    PromiseAlignment(args, desc);
    const GemmCandidates all = Feasible(Validate(desc).value(), machine_->gemm, device().spec());
    int ran = 0;
    for (const auto& candidate : all.all()) {
      if (!candidate.feasible()) continue;
      const std::string name(candidate.kernel->name());
      Pins pins;
      pins.by_problem[{"gemm", KeyOf(desc)}] = {name, SpecText(candidate.specs[0])};
      const auto plan = Bind(Choose(all, nullptr, &pins).value(), device());
      EXPECT_TRUE(plan) << plan.error().message;
      if (!plan) continue;
      const std::vector<std::byte> first = RunPlan(*plan, args, one.y_bytes());
      const bool int8 = candidate.kernel->desc().activations == Precision::kI8;
      EXPECT_EQ(one.Judge(first, int8), "") << name << ": " << one.name();
      EXPECT_EQ(first, RunPlan(*plan, args, one.y_bytes()))
          << name << " gives other bits the second time";
      test::NoteProduct(candidate.kernel->info(), candidate.kernel->desc(), desc, device().spec());
      ++ran;
    }
    return ran;
  }
};

constexpr DataType kFloats[] = {DataType::kF32, DataType::kBF16, DataType::kF16};

TEST_F(GroupedGpuTest, EverySpreadOfRowsOverGroupsIsRight) {
  for (const std::vector<std::int32_t>& offsets : test::GroupedSpreads()) {
    for (const bool indexed : {true, false}) {
      const GroupedShape shape{.n = 75, .k = 512, .offsets = offsets, .indexed = indexed};
      EXPECT_GE(Check(DataType::kBF16, DataType::kQ4_K, shape), 2);
      EXPECT_GE(Check(DataType::kBF16, DataType::kBF16, shape), 2);
      EXPECT_GE(Check(DataType::kF32, DataType::kF32, shape), 1);
    }
  }
}

TEST_F(GroupedGpuTest, WeightsOfEveryTypeAreMultiplied) {
  const std::vector<std::int32_t> offsets = {0, 0, 2, 2, 9, 30, 31};
  for (const DataType w : cuda::kBlockTypes) {
    for (const DataType x : {DataType::kF32, DataType::kBF16}) {
      for (const bool gated : {false, true}) {
        // A tail of rows, and of k parts of a segment and whole ones.
        const std::int32_t n = gated ? 96 : 99;
        for (const std::int32_t k : {768, 2048}) {
          EXPECT_GE(Check(x, w, {.n = n, .k = k, .offsets = offsets, .gated = gated}), 2)
              << DataTypeName(w);
        }
      }
    }
  }
  for (const DataType w : kFloats) {
    for (const DataType x : kFloats) {
      EXPECT_GE(Check(x, w, {.n = 99, .k = 520, .offsets = offsets}), 1) << DataTypeName(w);
      EXPECT_GE(Check(x, w, {.n = 45, .k = 333, .offsets = offsets, .indexed = false}), 1)
          << DataTypeName(w);
    }
    if (w == DataType::kF32) continue;
    for (const DataType x : {DataType::kF32, DataType::kBF16}) {
      EXPECT_GE(Check(x, w, {.n = 96, .k = 520, .offsets = offsets, .gated = true}), 1)
          << DataTypeName(w);
    }
  }
}

TEST_F(GroupedGpuTest, ManyRowsOverManyGroupsAreRight) {
  std::vector<std::int32_t> offsets = {0};
  for (int g = 0; g < 200; ++g) offsets.push_back(offsets.back() + (g % 7 == 3 ? 90 : g % 4));
  for (const bool gated : {false, true}) {
    const GroupedShape shape{.n = 160, .k = 256, .offsets = offsets, .gated = gated, .x_rows = 333};
    EXPECT_GE(Check(DataType::kBF16, DataType::kQ4_K, shape), 2);
    EXPECT_GE(Check(DataType::kBF16, DataType::kBF16, shape), 1);
  }
  EXPECT_GE(Check(DataType::kF32, DataType::kF32, {.n = 64, .k = 96, .offsets = offsets}), 2);
}

}  // namespace
}  // namespace tilewright::cuda
