// The small operations of a model on a GPU, through the stages: every candidate of every problem
// against the float64 oracle of its room, twice, guard bands and paddings included. Skipped where
// there is no GPU; kernels come from NVRTC or from the bundle that TILEWRIGHT_GPU_BUNDLE names.
#include <gtest/gtest.h>

#include "device/cuda/block_types.h"
#include "engine/compiled/gpu_store.h"
#include "engine/verified_test_util.h"
#include "op_on_device.h"
#include "ops/copy/cuda/copy_cases.h"
#include "ops/copy/cuda/families.h"
#include "ops/copy/cuda/kernels.h"
#include "ops/copy/cuda/kv_scatter_cases.h"
#include "ops/elementwise/cuda/elementwise_cases.h"
#include "ops/elementwise/cuda/families.h"
#include "ops/elementwise/cuda/kernels.h"
#include "ops/embedding/cuda/embedding_cases.h"
#include "ops/embedding/cuda/families.h"
#include "ops/embedding/cuda/kernels.h"
#include "ops/experts/cuda/combine_cases.h"
#include "ops/experts/cuda/families.h"
#include "ops/experts/cuda/kernels.h"
#include "ops/experts/cuda/route_cases.h"
#include "ops/norm/cuda/families.h"
#include "ops/norm/cuda/kernels.h"
#include "ops/norm/cuda/norm_cases.h"
#include "ops/rope/cuda/families.h"
#include "ops/rope/cuda/kernels.h"
#include "ops/rope/cuda/rope_cases.h"
#include "ops/top_k/cuda/families.h"
#include "ops/top_k/cuda/kernels.h"
#include "ops/top_k/cuda/top_k_cases.h"

namespace tilewright::cuda {
namespace {

KernelFamilies Families() {
  KernelFamilies families;
  EXPECT_TRUE(AddNormFamilies(families) && AddRopeFamilies(families) &&
              AddElementwiseFamilies(families) && AddCopyFamilies(families) &&
              AddEmbeddingFamilies(families) && AddTopKFamilies(families) &&
              AddExpertsFamilies(families));
  return families;
}

/// What all tests share.
struct Machine : test::GpuStore {
  norm::Registry norm;
  rope::Registry rope;
  elementwise::Registry elementwise;
  copy::Registry copy;
  kv_scatter::Registry kv_scatter;
  embedding::Registry embedding;
  top_k::Registry top_k;
  route::Registry route;
  combine::Registry combine;

  Machine() : GpuStore(Families()) {
    if (device == nullptr) return;
    EXPECT_TRUE(norm::AddCudaKernels(norm, *store, arch()));
    EXPECT_TRUE(rope::AddCudaKernels(rope, *store, arch()));
    EXPECT_TRUE(elementwise::AddCudaKernels(elementwise, *store, arch()));
    EXPECT_TRUE(copy::AddCudaKernels(copy, *store, arch()));
    EXPECT_TRUE(kv_scatter::AddCudaKernels(kv_scatter, *store, arch()));
    EXPECT_TRUE(embedding::AddCudaKernels(embedding, *store, arch()));
    EXPECT_TRUE(top_k::AddCudaKernels(top_k, *store, arch()));
    EXPECT_TRUE(route::AddCudaKernels(route, *store, arch()));
    EXPECT_TRUE(combine::AddCudaKernels(combine, *store, arch()));
  }
};

class SmallOpsGpuTest : public test::GpuFixture<Machine> {
 protected:
  template <class Op>
  static void ExpectRight(const OpRegistry<Op>& registry,
                          const std::vector<test::ArenaCase<typename Op::Args>>& calls,
                          Status (*oracle)(const typename Op::Args&)) {
    for (const auto& call : calls)
      test::ExpectRightOnDevice<Op>(registry, *machine_->device, call, oracle);
  }
  static void Note(std::string_view operation, DataType weights, DataType result) {
    test::NoteVerified({.operation = operation,
                        .subject = DataTypeName(weights),
                        .device = test::GpuLevel(machine_->device->spec()),
                        .how = DataTypeName(result)});
  }
  static void EmbeddingIsRight(DataType table, DataType out) {
    ExpectRight(machine_->embedding, embedding::CudaCases(table, out), &embedding::Reference);
    Note("embedding", table, out);
  }
};

constexpr DataType kFloats[] = {DataType::kF32, DataType::kBF16, DataType::kF16};

TEST_F(SmallOpsGpuTest, EveryEmbeddingIsRight) {
  for (const DataType out : kFloats) {
    for (const DataType table : kFloats) EmbeddingIsRight(table, out);
    for (const DataType table : cuda::kBlockTypes) EmbeddingIsRight(table, out);
  }
}

TEST_F(SmallOpsGpuTest, EveryRotationIsRight) {
  for (const DataType in : kFloats) {
    for (const DataType out : kFloats)
      ExpectRight(machine_->rope, rope::CudaCases(in, out), &rope::Reference);
  }
}

TEST_F(SmallOpsGpuTest, QueriesKeysAndValuesAreRightTogether) {
  for (const DataType in : kFloats) {
    for (const DataType cache : kFloats)
      ExpectRight(machine_->rope, rope::CudaKvCases(in, cache), &rope::Reference);
  }
}

TEST_F(SmallOpsGpuTest, EveryRowGetsItsPlaceInTheCache) {
  for (const DataType x : kFloats) {
    for (const DataType cache : kFloats) {
      ExpectRight(machine_->kv_scatter, kv_scatter::CudaCases(x, cache), &kv_scatter::Reference);
    }
  }
}

TEST_F(SmallOpsGpuTest, EveryElementwiseFunctionIsRight) {
  using elementwise::Function;
  for (const Function function :
       {Function::kAdd, Function::kMul, Function::kSilu, Function::kSwiGlu, Function::kGelu,
        Function::kGeGlu, Function::kSoftcap, Function::kClampedSwiGlu}) {
    for (const DataType a : kFloats) {
      for (const DataType b : kFloats) {
        for (const DataType out : kFloats) {
          if (elementwise::IsUnary(function) && a != b) continue;
          ExpectRight(machine_->elementwise, elementwise::CudaCases(function, a, b, out),
                      &elementwise::Reference);
        }
      }
    }
  }
}

TEST_F(SmallOpsGpuTest, EveryCopyIsRight) {
  for (const DataType to : kFloats) {
    for (const DataType from : kFloats)
      ExpectRight(machine_->copy, copy::CudaCases(from, to), &copy::Reference);
    for (const DataType from : cuda::kBlockTypes) {
      ExpectRight(machine_->copy, copy::CudaCases(from, to), &copy::Reference);
      Note("unpack", from, to);
    }
  }
  for (const DataType type : {DataType::kI32, DataType::kI8, DataType::kF64, DataType::kQ4_0,
                              DataType::kQ4_K, DataType::kQ6_K}) {
    ExpectRight(machine_->copy, copy::CudaCases(type, type), &copy::Reference);
  }
}

TEST_F(SmallOpsGpuTest, EveryNormOfEveryTypeIsRight) {
  constexpr DataType kF32 = DataType::kF32, kNone = DataType::kNone;
  const auto expect = [](DataType in, DataType weight, DataType sum, DataType out) {
    ExpectRight(machine_->norm, norm::CudaCases(in, weight, sum, out), &norm::Reference);
  };
  for (const DataType in : kFloats) {
    for (const DataType sum : {kNone, in}) {
      expect(in, kF32, sum, in);
      expect(in, in, sum, in);
    }
  }
  for (const DataType narrow : {DataType::kBF16, DataType::kF16}) {
    expect(kF32, kF32, kNone, narrow);
    expect(kF32, kF32, kF32, narrow);
    expect(narrow, kF32, kNone, kF32);
    expect(narrow, kF32, kF32, narrow);
  }
}

TEST_F(SmallOpsGpuTest, TheBestOfEveryRowAreFound) {
  using top_k::CaseValues;
  for (const DataType in : kFloats) {
    ExpectRight(machine_->top_k, top_k::CudaCases(in), &top_k::Reference);
    std::vector<test::ArenaCase<top_k::Args>> wide;
    wide.push_back(top_k::MakeCase(in, {262144, 1, 64}, true, 1));
    wide.push_back(top_k::MakeCase(in, {262144, 2, 1, CaseValues::kTies}, false, 2));
    wide.push_back(top_k::MakeCase(in, {49152, 33, 40, CaseValues::kTies}, true, 3));
    wide.push_back(top_k::MakeCase(in, {32000, 256, 1}, false, 4));
    wide.push_back(top_k::MakeCase(in, {9001, 256, 20}, true, 5));
    ExpectRight(machine_->top_k, wide, &top_k::Reference);
  }
}

TEST_F(SmallOpsGpuTest, EveryRowGoesToItsExpertsAndIsSummedUp) {
  using route::CaseLogits;
  for (const DataType type : kFloats) {
    ExpectRight(machine_->route, route::CudaCases(type), &route::Reference);
    std::vector<test::ArenaCase<route::Args>> many;
    many.push_back(route::MakeCase(type, {128, 8, 2048}, true, false, 1));
    many.push_back(route::MakeCase(type, {60, 4, 4097, CaseLogits::kTies}, false, true, 2));
    many.push_back(route::MakeCase(type, {128, 4, 4096, CaseLogits::kHot}, true, true, 3));
    many.push_back(route::MakeCase(type, {1024, 32, 513}, false, false, 4));
    ExpectRight(machine_->route, many, &route::Reference);
    ExpectRight(machine_->combine, combine::CudaCases(type), &combine::Reference);
    std::vector<test::ArenaCase<combine::Args>> large;
    large.push_back(combine::MakeCase(type, {2048, 8, 300}, 5));
    large.push_back(combine::MakeCase(type, {2880, 4, 77, true}, 50));
    ExpectRight(machine_->combine, large, &combine::Reference);
  }
}

/// `rows` adjacent rows of `cols` elements.
struct Whole {
  std::array<std::int64_t, 4> shape, stride;
  Whole(std::int64_t cols, std::int64_t rows)
      : shape{cols, rows, 1, 1}, stride{1, cols, cols * rows, cols * rows} {}
};

TEST_F(SmallOpsGpuTest, ManyCtasShareOutALargeTensor) {
  constexpr std::int64_t kCols = 4096, kRows = 300;
  const Whole whole(kCols, kRows);
  constexpr DataType kBF16 = DataType::kBF16;
  {
    using elementwise::Args;
    test::ArenaCase<Args> one{
        .name = "a large swiglu over its first operand",
        .arena = test::Arena(std::size_t{8} << 20),
        .args = {.function = elementwise::Function::kSwiGlu, .a = {}, .b = {}, .out = {}},
        .views = {&Args::a, &Args::b, &Args::out},
        .outputs = {&Args::out},
        .relative = 0x1p-7,
        .absolute = 1e-6};
    one.args.a = one.args.out = one.arena.Random(kBF16, whole.shape, whole.stride, 1);
    one.args.b = one.arena.Random(kBF16, whole.shape, whole.stride, 2);
    test::ExpectRightOnDevice<elementwise::Op>(machine_->elementwise, *machine_->device, one,
                                               &elementwise::Reference);
  }
  for (const DataType block : cuda::kBlockTypes) {
    using copy::Args;
    test::ArenaCase<Args> one{.name = Format("a large matrix of {}", DataTypeName(block)),
                              .arena = test::Arena(std::size_t{8} << 20),
                              .args = {},
                              .views = {&Args::src, &Args::dst},
                              .outputs = {&Args::dst},
                              .relative = 0x1p-7,
                              .absolute = 0x1p-24};
    one.args.src = one.arena.Random(block, whole.shape, whole.stride, 3);
    one.args.dst = one.arena.Add(kBF16, whole.shape, whole.stride);
    test::ExpectRightOnDevice<copy::Op>(machine_->copy, *machine_->device, one, &copy::Reference);
  }
}

}  // namespace
}  // namespace tilewright::cuda
