// The small operations of a model as candidates of a CUDA device, without a GPU: chosen, compiled,
// loaded and launched through the stages. The compiler makes images without code, and the fake GPU
// runs the sources of the kernels on the host as they were launched.
#include "device/cuda/kernels/host_emulation.h"
// After it: the kernels use its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "artifact/store/fake_compiler.h"
#include "cuda_device_fixture.h"
#include "device/cuda/block_types.h"
#include "op_on_device.h"
#include "ops/copy/cuda/copy_cases.h"
#include "ops/copy/cuda/copy_kernel.cuh"
#include "ops/copy/cuda/families.h"
#include "ops/copy/cuda/kernels.h"
#include "ops/copy/cuda/kv_scatter_cases.h"
#include "ops/copy/cuda/kv_scatter_kernel.cuh"
#include "ops/elementwise/cuda/elementwise_cases.h"
#include "ops/elementwise/cuda/elementwise_kernel.cuh"
#include "ops/elementwise/cuda/families.h"
#include "ops/elementwise/cuda/kernels.h"
#include "ops/embedding/cuda/embedding_cases.h"
#include "ops/embedding/cuda/embedding_kernel.cuh"
#include "ops/embedding/cuda/families.h"
#include "ops/embedding/cuda/kernels.h"
#include "ops/experts/cuda/combine_cases.h"
#include "ops/experts/cuda/combine_kernel.cuh"
#include "ops/experts/cuda/families.h"
#include "ops/experts/cuda/kernels.h"
#include "ops/experts/cuda/route_cases.h"
#include "ops/experts/cuda/route_kernel.cuh"
#include "ops/rope/cuda/families.h"
#include "ops/rope/cuda/kernels.h"
#include "ops/rope/cuda/rope_cases.h"
#include "ops/rope/cuda/rope_kernel.cuh"
#include "ops/rope/cuda/rope_kv_kernel.cuh"
#include "ops/top_k/cuda/families.h"
#include "ops/top_k/cuda/kernels.h"
#include "ops/top_k/cuda/top_k_cases.h"
#include "ops/top_k/cuda/top_k_kernel.cuh"

namespace tilewright::cuda {
namespace {

using tw::Type;

/// Images that are whole by their header.
class ElfCompiler final : public KernelCompiler {
 public:
  const CompilerIdentity& identity() const override { return fake_.identity(); }
  tl::expected<CompileOutput, CompileFailure> Compile(const CompileJob& job,
                                                      const CancelFn& cancelled) const override {
    auto output = fake_.Compile(job, cancelled);
    if (output) output->cubin = "\177ELF" + std::string(60, '\0') + output->cubin;
    return output;
  }

 private:
  test::FakeCompiler fake_;
};

constexpr CudaArch kHopper{90, 'a'};
constexpr int kWarps = 4;      // of the kernels of these catalogs
constexpr int kTopKWarps = 8;  // but for these
constexpr int kRouteWarps = 16;

class SmallOps : public CudaDeviceTest {
 protected:
  SmallOps() {
    KernelFamilies families;
    EXPECT_TRUE(AddRopeFamilies(families) && AddElementwiseFamilies(families) &&
                AddCopyFamilies(families) && AddEmbeddingFamilies(families) &&
                AddTopKFamilies(families) && AddExpertsFamilies(families));
    store_ = test::OpenFake(test::FakeOptions(folder_.path(), compiler_), families);
    EXPECT_TRUE(rope::AddCudaKernels(rope_, *store_, kHopper));
    EXPECT_TRUE(elementwise::AddCudaKernels(elementwise_, *store_, kHopper));
    EXPECT_TRUE(copy::AddCudaKernels(copy_, *store_, kHopper));
    EXPECT_TRUE(kv_scatter::AddCudaKernels(kv_scatter_, *store_, kHopper));
    EXPECT_TRUE(embedding::AddCudaKernels(embedding_, *store_, kHopper));
    EXPECT_TRUE(top_k::AddCudaKernels(top_k_, *store_, kHopper));
    EXPECT_TRUE(route::AddCudaKernels(route_, *store_, kHopper));
    EXPECT_TRUE(combine::AddCudaKernels(combine_, *store_, kHopper));
    device_ = Make();
  }

  /// The GPU runs `kernel(params)` as every thread of every launch from now on.
  template <class Params, int kOwnWarps = kWarps, class Kernel>
  void SetKernel(Kernel kernel) {
    fake_.SetKernels([kernel](const FakeCuda::Launch& launch) {
      Params params;
      static_assert(sizeof params <= sizeof launch.params);
      std::memcpy(&params, launch.params.data(), sizeof params);
      const bool ran = launch.block[0] == kOwnWarps * 32 && launch.block[1] == 1 &&
                       launch.grid[2] == 1 &&
                       tw::emulation::Run({launch.grid[0], launch.grid[1], 1}, launch.block[0],
                                          [&] { kernel(params); });
      return ran ? 0 : 1;  // CUDA_ERROR_INVALID_VALUE
    });
  }
  template <class Op>
  void ExpectRight(const OpRegistry<Op>& registry,
                   const std::vector<test::ArenaCase<typename Op::Args>>& calls,
                   Status (*oracle)(const typename Op::Args&)) {
    for (const auto& call : calls) {
      EXPECT_EQ(test::ExpectRightOnDevice<Op>(registry, *device_, call, oracle), 1)
          << call.name << ": one kernel for each pair of types";
    }
  }
  template <class Op>
  int FeasibleCount(const OpRegistry<Op>& registry, const typename Op::Desc& desc) {
    return Feasible(Validate(desc).value(), registry, device_->spec()).feasible_count();
  }

  test::TemporaryFolder folder_;
  std::shared_ptr<ElfCompiler> compiler_ = std::make_shared<ElfCompiler>();
  std::unique_ptr<ArtifactStore> store_;
  rope::Registry rope_;
  elementwise::Registry elementwise_;
  copy::Registry copy_;
  kv_scatter::Registry kv_scatter_;
  embedding::Registry embedding_;
  top_k::Registry top_k_;
  route::Registry route_;
  combine::Registry combine_;
  std::unique_ptr<Device> device_;
};

TEST_F(SmallOps, AreTheCatalogByNameAndRequestKey) {
  std::size_t found = 0;
  for (const KernelSpec& spec : store_->families().Catalog(kHopper)) {
    const std::string name = SpecName(spec);
    const KernelBase* kernel = nullptr;
    for (const KernelBase* one : {static_cast<const KernelBase*>(rope_.Find(name)),
                                  static_cast<const KernelBase*>(elementwise_.Find(name)),
                                  static_cast<const KernelBase*>(copy_.Find(name)),
                                  static_cast<const KernelBase*>(kv_scatter_.Find(name)),
                                  static_cast<const KernelBase*>(embedding_.Find(name)),
                                  static_cast<const KernelBase*>(top_k_.Find(name)),
                                  static_cast<const KernelBase*>(route_.Find(name)),
                                  static_cast<const KernelBase*>(combine_.Find(name))}) {
      if (one != nullptr) kernel = one;
    }
    ASSERT_NE(kernel, nullptr) << name;
    EXPECT_EQ(kernel->info().fingerprint, store_->Compile(spec).value()->request.Hex());
    EXPECT_EQ(kernel->info().device, DeviceKind::kCuda);
    ++found;
  }
  constexpr std::size_t kUnpacking = 3 * cuda::kBlockTypes.size();  // to three types
  EXPECT_EQ(found, 9 + 9 + 27 + (7 + kUnpacking) + 9 + (9 + kUnpacking) + 6 + 6 + 3);
}

TEST_F(SmallOps, RunWhatTheLauncherSays) {
  SetKernel<tw::EmbeddingParams>([](const tw::EmbeddingParams& p) {
    tw::Embedding<Type::kQ6_K, Type::kBF16, kWarps>{p, static_cast<int>(blockIdx.x)}.Run();
  });
  ExpectRight(embedding_, embedding::CudaCases(DataType::kQ6_K, DataType::kBF16),
              &embedding::Reference);
  SetKernel<tw::RopeHeadsParams>([](const tw::RopeHeadsParams& p) {
    __shared__ tw::RopeTables tables;
    tw::RopeHeads<Type::kF32, Type::kF16, kWarps>{p, tables, static_cast<int>(blockIdx.x)}.Run();
  });
  ExpectRight(rope_, rope::CudaCases(DataType::kF32, DataType::kF16), &rope::Reference);
  SetKernel<tw::RopeKvParams>([](const tw::RopeKvParams& p) {
    __shared__ tw::RopeTables tables;
    tw::RopeKv<Type::kBF16, Type::kF16, Type::kBF16, kWarps>{p, tables,
                                                             static_cast<int>(blockIdx.x)}
        .Run();
  });
  ExpectRight(rope_, rope::CudaKvCases(DataType::kBF16, DataType::kF16), &rope::Reference);
  SetKernel<tw::KvScatterParams>([](const tw::KvScatterParams& p) {
    tw::KvScatter<Type::kBF16, Type::kF16, kWarps>{p, static_cast<int>(blockIdx.x)}.Run();
  });
  ExpectRight(kv_scatter_, kv_scatter::CudaCases(DataType::kBF16, DataType::kF16),
              &kv_scatter::Reference);
  SetKernel<tw::ElementwiseParams>([](const tw::ElementwiseParams& p) {
    tw::Elementwise<Type::kBF16, Type::kBF16, Type::kF32>{p}.Run(blockIdx.x * (kWarps * 32u) +
                                                                 threadIdx.x);
  });
  for (const auto function : {elementwise::Function::kSilu, elementwise::Function::kSwiGlu}) {
    ExpectRight(elementwise_,
                elementwise::CudaCases(function, DataType::kBF16, DataType::kBF16, DataType::kF32),
                &elementwise::Reference);
  }
  SetKernel<tw::CopyParams>([](const tw::CopyParams& p) {
    tw::Convert<Type::kF16, Type::kBF16>{p}.Run(blockIdx.x * (kWarps * 32u) + threadIdx.x);
  });
  ExpectRight(copy_, copy::CudaCases(DataType::kF16, DataType::kBF16), &copy::Reference);
  SetKernel<tw::TopKParams, kTopKWarps>([](const tw::TopKParams& p) {
    using Kernel = tw::TopK<Type::kF16, 64, kTopKWarps>;
    __shared__ Kernel::Shared shared;
    Kernel{p, shared, static_cast<int>(blockIdx.y)}.Run(static_cast<int>(blockIdx.x));
  });
  std::vector<test::ArenaCase<top_k::Args>> rows;
  rows.push_back(top_k::MakeCase(DataType::kF16, {9000, 2, 40}, true, 1));
  ExpectRight(top_k_, rows, &top_k::Reference);
}

TEST_F(SmallOps, RunWhatTheLaunchersOfExpertsSay) {
  SetKernel<tw::RouteParams, kRouteWarps>([](const tw::RouteParams& p) {
    using Kernel = tw::Route<Type::kBF16, 1024, kRouteWarps>;
    __shared__ Kernel::Shared shared;
    Kernel{p, shared}.Run(static_cast<int>(blockIdx.x));
  });
  std::vector<test::ArenaCase<route::Args>> rows;
  rows.push_back(route::MakeCase(DataType::kBF16, {200, 3, 40}, true, true, 1));
  ExpectRight(route_, rows, &route::Reference);
  SetKernel<tw::CombineParams>([](const tw::CombineParams& p) {
    using Kernel = tw::Combine<Type::kF16>;
    const auto thread = static_cast<int>(blockIdx.x * (kWarps * 32u) + threadIdx.x);
    Kernel{p}.Run(static_cast<int>(blockIdx.y), thread * Kernel::kPack);
  });
  ExpectRight(combine_, combine::CudaCases(DataType::kF16), &combine::Reference);
}

TEST_F(SmallOps, ACopyOfAViewOntoItselfLaunchesNothing) {
  const DeviceMemory memory = device_->Allocate(256).value();
  copy::Args args{Contiguous(memory.data(), DataType::kBF16, {64, 1, 1, 1}), {}};
  args.dst = args.src;
  const auto all =
      Feasible(copy::Validate(copy::DescOf(args, {}).value()).value(), copy_, device_->spec());
  const auto plan = Bind(Choose(all, nullptr).value(), *device_);
  ASSERT_TRUE(plan) << plan.error().message;
  Workspace none;
  EXPECT_TRUE(tilewright::Run(*plan, args, none, device_->default_stream()));
  EXPECT_EQ(fake_.calls("cuLaunchKernelEx"), 0u);
}

TEST_F(SmallOps, TakeTheirProblemsOnly) {
  EXPECT_EQ(FeasibleCount(embedding_, {.type_table = DataType::kQ4_K, .hidden = 256}), 1);
  EXPECT_EQ(FeasibleCount(embedding_, {.type_table = DataType::kU4, .hidden = 256}), 0);
  EXPECT_EQ(FeasibleCount(embedding_, {.hidden = 1 << 23}), 0);

  EXPECT_EQ(FeasibleCount(top_k_, {.cols = 128256, .k = 1}), 1);
  EXPECT_EQ(FeasibleCount(top_k_, {.type_in = DataType::kBF16, .cols = 128256, .k = 40}), 1);
  EXPECT_EQ(FeasibleCount(top_k_, {.cols = 128256, .k = 65}), 0);

  EXPECT_EQ(FeasibleCount(route_, {.rows = 9, .experts = 128, .used = 8}), 2);
  EXPECT_EQ(FeasibleCount(route_, {.rows = 9, .experts = 129, .used = 8}), 1);
  EXPECT_EQ(FeasibleCount(route_, {.rows = 9, .experts = 1025, .used = 8}), 0);
  EXPECT_EQ(FeasibleCount(combine_, {.rows = 9, .cols = 2048, .used = 8}), 1);
  EXPECT_EQ(FeasibleCount(combine_, {.type_x = DataType::kBF16, .cols = 2048, .used = 8}), 0);

  EXPECT_EQ(FeasibleCount(rope_, {.type_in = DataType::kBF16, .scatter = true, .page_size = 16}),
            1);
  EXPECT_EQ(FeasibleCount(rope_, {.head_dim = 65}), 0) << "an odd head";
  EXPECT_EQ(FeasibleCount(rope_, {.type_out = DataType::kQ8_0, .scatter = true}), 0);

  EXPECT_EQ(FeasibleCount(kv_scatter_, {.type_cache = DataType::kF16, .page_size = 16}), 1);
  EXPECT_EQ(FeasibleCount(kv_scatter_, {.type_cache = DataType::kQ8_0}), 0);

  using elementwise::Function;
  EXPECT_EQ(FeasibleCount(elementwise_, {.type_b = DataType::kBF16}), 1);
  EXPECT_EQ(FeasibleCount(elementwise_, {.function = Function::kClampedSwiGlu}), 1);
  EXPECT_EQ(FeasibleCount(elementwise_, {.function = Function::kSilu, .type_b = DataType::kNone}),
            1);
  EXPECT_EQ(FeasibleCount(elementwise_, {.type_a = DataType::kF64}), 0);
  EXPECT_EQ(FeasibleCount(elementwise_, {.guarantee = Guarantee::kBatchInvariant}), 1);
  EXPECT_EQ(FeasibleCount(elementwise_, {.rows = std::int64_t{1} << 32}), 0);

  EXPECT_EQ(FeasibleCount(copy_, {.type_src = DataType::kI64, .type_dst = DataType::kI64}), 1);
  EXPECT_EQ(FeasibleCount(copy_, {.type_dst = DataType::kBF16, .adjacent = false}), 1);
  EXPECT_EQ(
      FeasibleCount(copy_, {.type_src = DataType::kQ4_K, .type_dst = DataType::kBF16, .cols = 256}),
      1);
  EXPECT_EQ(FeasibleCount(copy_, {.type_dst = DataType::kI8X32, .cols = 32}), 0);
  EXPECT_EQ(FeasibleCount(copy_, {.rows = std::int64_t{1} << 32}), 0);
}

TEST_F(SmallOps, ARotationWithoutATableIsAnError) {
  const DeviceMemory memory = device_->Allocate(4096).value();
  rope::Args args;
  args.qk = args.out = Contiguous(memory.data(), DataType::kF32, {64, 2, 1, 1});
  args.positions = Contiguous(memory.data(), DataType::kI32, {1, 1, 1, 1});
  args.params = {.mode = RopeMode::kInterleaved, .dims = 64};
  const auto all =
      Feasible(rope::Validate(rope::DescOf(args, {}).value()).value(), rope_, device_->spec());
  const auto plan = Bind(Choose(all, nullptr).value(), *device_);
  ASSERT_TRUE(plan) << plan.error().message;
  Workspace none;
  const Status ran = tilewright::Run(*plan, args, none, device_->default_stream());
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(ran.error().message, testing::HasSubstr("no table of rotations"));
}

}  // namespace
}  // namespace tilewright::cuda
