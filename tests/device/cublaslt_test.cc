// cuBLASLt as a kernel of the registry: found without being loaded, loaded by the plan that needs
// it, told of every order and type, over a library and a GPU that compute on the host.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "artifact/store/fake_compiler.h"
#include "cuda_device_fixture.h"
#include "fake_cublaslt.h"
#include "ops/gemm/cuda/cublaslt/cublaslt_gemm.h"
#include "ops/gemm/cuda/cublaslt/product.h"
#include "vendor_product.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

namespace tilewright::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

#if __has_include(<cublasLt.h>)
TEST(CublasLtHeader, HasTheNumbersAndSizesThatAreDeclaredHere) {
  EXPECT_EQ(sizeof(CublasLtLayout), sizeof(cublasLtMatrixLayoutOpaque_t));
  EXPECT_EQ(sizeof(CublasLtAlgo), sizeof(cublasLtMatmulAlgo_t));
  EXPECT_EQ(sizeof(CublasLtHeuristic), sizeof(cublasLtMatmulHeuristicResult_t));
  EXPECT_EQ(offsetof(CublasLtHeuristic, workspace_bytes),
            offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  EXPECT_EQ(offsetof(CublasLtHeuristic, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
  EXPECT_EQ(int{kCublasSuccess}, int{CUBLAS_STATUS_SUCCESS});
  EXPECT_EQ(int{kCublasOpN}, int{CUBLAS_OP_N});
  EXPECT_EQ(int{kCublasOpT}, int{CUBLAS_OP_T});
  EXPECT_EQ(int{kCublasTypeF32}, int{CUDA_R_32F});
  EXPECT_EQ(int{kCublasTypeF16}, int{CUDA_R_16F});
  EXPECT_EQ(int{kCublasTypeBF16}, int{CUDA_R_16BF});
  EXPECT_EQ(int{kCublasComputeF32}, int{CUBLAS_COMPUTE_32F});
  EXPECT_EQ(int{kCublasLtDescTransA}, int{CUBLASLT_MATMUL_DESC_TRANSA});
  EXPECT_EQ(int{kCublasLtDescTransB}, int{CUBLASLT_MATMUL_DESC_TRANSB});
  EXPECT_EQ(int{kCublasLtPreferMaxWorkspace}, int{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES});
  EXPECT_EQ(int{kCublasLtPreferReductions}, int{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK});
  EXPECT_EQ(int{kCublasLtPreferAlignA}, int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES});
  EXPECT_EQ(int{kCublasLtPreferAlignB}, int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES});
  EXPECT_EQ(int{kCublasLtPreferAlignC}, int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES});
  EXPECT_EQ(int{kCublasLtPreferAlignD}, int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES});
  EXPECT_EQ(int{kCublasLtReduceInF32}, int{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
}
#endif

/// A machine with a library of its own, which nothing has loaded before.
class CublasLt : public CudaDeviceTest {
 protected:
  CublasLt() {
    std::filesystem::copy_file(TILEWRIGHT_FAKE_CUBLASLT, path());
    device_ = Make();
  }
  std::string path() const { return folder_.path() + "/libcublasLt.so.13"; }
  LibrarySurroundings Surroundings(const std::string& file) const {
    return {.env = [file](const char* name) -> std::optional<std::string> {
              if (std::string_view(name) != "TILEWRIGHT_CUBLASLT") return std::nullopt;
              return file;
            },
            .root = folder_.path(),
            .loader_path = false};
  }
  CublasLtFile File() const { return FindCublasLt(Surroundings(path())); }
  bool loaded() const {
    void* const library = dlopen(path().c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (library != nullptr) dlclose(library);
    return library != nullptr;
  }
  FakeCublasLt& Fake() {
    void* const library = dlopen(path().c_str(), RTLD_NOW | RTLD_LOCAL);
    auto& fake = *reinterpret_cast<FakeCublasLtFunction>(dlsym(library, "fake_cublaslt"))();
    fake.cuda = &fake_;
    return fake;
  }
  static GemmDesc Problem(int m, int n, int k, DataType type, DataType d) {
    GemmDesc desc;
    desc.m = m, desc.n = n, desc.k = k;
    desc.type_a = desc.type_b = type;
    desc.type_c = d;
    desc.align_a = desc.align_b = desc.align_c = 4;
    return desc;
  }
  GemmCandidates Look(const GemmDesc& desc, const DeviceSpec& device) {
    return Feasible(Validate(desc).value(), registry_, device);
  }
  void AddKernel(bool required = true) {
    ASSERT_TRUE(registry_.Add(std::make_unique<CublasLtGemm>(File(), required)));
  }
  Result<Plan<GemmOp>> PlanOf(const GemmDesc& desc,
                              const char* spec = "swizzle=0 splits=1 algo=0") {
    Pins pins;
    pins.by_problem[{"gemm", KeyOf(desc)}] = {"gemm.any_any_any.xx.cublaslt.any.plain", spec};
    const Result<Choice<GemmOp>> choice = Choose(Look(desc, device_->spec()), nullptr, &pins);
    if (!choice) return Fail(choice.error());
    return Bind(*choice, *device_);
  }

  test::TemporaryFolder folder_;
  Registry registry_;
  std::unique_ptr<Device> device_;
};

TEST_F(CublasLt, IsLoadedByThePlanThatNeedsItAndNotBefore) {
  AddKernel();
  const GemmDesc desc = Problem(64, 64, 64, DataType::kBF16, DataType::kBF16);
  const GemmCandidates all = Look(desc, device_->spec());
  ASSERT_EQ(all.feasible_count(), 1) << all.RejectionText();
  EXPECT_EQ(all.all()[0].specs.size(), 8u);
  EXPECT_GT(all.all()[0].specs[0].predicted_us, 0);
  const auto choice = Choose(all, nullptr);
  ASSERT_TRUE(choice);
  EXPECT_EQ(SpecText(choice->spec()), "swizzle=0 splits=1 algo=0");
  EXPECT_FALSE(loaded()) << "feasibility, prediction and choice are made without the library";
  Fake();
  EXPECT_TRUE(Bind(*choice, *device_));
  EXPECT_TRUE(loaded());
}

TEST_F(CublasLt, ComputesEveryOrderAndTypeWithAlphaBetaAndLongLines) {
  AddKernel();
  FakeCublasLt& fake = Fake();
  using enum DataType;
  const Order orders[] = {Order::kRowMajor, Order::kColMajor};
  for (const auto& [type, d] :
       {std::pair{kBF16, kBF16}, {kBF16, kF32}, {kF16, kF16}, {kF16, kF32}, {kF32, kF32}}) {
    for (int bits = 0; bits < 8; ++bits) {
      for (const DeviceProduct::Factors factors :
           {DeviceProduct::Factors{1, 0}, {1, 1}, {0.5f, -2}}) {
        GemmDesc desc = Problem(16, 24, 40, type, d);
        desc.order_a = orders[bits & 1], desc.order_b = orders[bits >> 1 & 1];
        desc.order_c = orders[bits >> 2];
        desc.scaling = factors.beta == 0   ? Scaling::kOneZero
                       : factors.beta == 1 ? Scaling::kOneOne
                                           : Scaling::kAny;
        const auto plan = PlanOf(desc);
        ASSERT_TRUE(plan) << plan.error().message;
        EXPECT_EQ(fake.alignment, 16u);
        EXPECT_EQ(fake.reductions, 2u) << "partial sums in f32";
        const DeviceProduct product(*device_, desc, factors, 8);
        PlanMemory memory(*device_, plan->workspace());
        const Status ran =
            tilewright::Run(*plan, product.args(), memory.workspace, device_->default_stream());
        ASSERT_TRUE(ran) << ran.error().message;
        product.Check();
      }
    }
  }
}

TEST_F(CublasLt, ItsAlgorithmsAreLaunchConfigurationsOfOneVersion) {
  AddKernel();
  FakeCublasLt& fake = Fake();
  const GemmDesc desc = Problem(16, 24, 40, DataType::kF32, DataType::kF32);
  const DeviceProduct product(*device_, desc, {}, 0);
  for (const auto& [spec, algorithm] : {std::pair{"swizzle=0 splits=1 algo=0", 0},
                                        {"swizzle=0 splits=1 algo=2", 2},
                                        {"swizzle=0 splits=1 algo=7", 2}}) {
    const auto plan = PlanOf(desc, spec);
    ASSERT_TRUE(plan) << plan.error().message;
    PlanMemory memory(*device_, plan->workspace());
    ASSERT_TRUE(
        tilewright::Run(*plan, product.args(), memory.workspace, device_->default_stream()));
    EXPECT_EQ(fake.last_algorithm, algorithm);
    product.Check();
  }
  // What was recorded with one version of the library is stale with another.
  const std::string before = registry_.kernels()[0]->info().fingerprint;
  EXPECT_THAT(before, StartsWith("cublaslt-13-"));
  EXPECT_EQ(File().identity, before);
  const std::string newer = folder_.path() + "/newer";
  std::filesystem::create_directory(newer);
  std::filesystem::copy_file(path(), newer + "/libcublasLt.so.13");
  std::ofstream(newer + "/libcublasLt.so.13", std::ios::app) << "more";
  EXPECT_NE(FindCublasLt(Surroundings(newer)).identity, before);
  fake.algorithms = 0;
  const auto none = PlanOf(desc);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(none.error().message, HasSubstr("names no algorithm"));
}

TEST_F(CublasLt, PlansShareAHandleThatGoesWithTheLastOfThem) {
  AddKernel();
  FakeCublasLt& fake = Fake();
  {
    const auto first = PlanOf(Problem(16, 24, 40, DataType::kF16, DataType::kF16));
    const auto second = PlanOf(Problem(32, 24, 40, DataType::kF16, DataType::kF16));
    ASSERT_TRUE(first && second);
    EXPECT_EQ(fake.creates, 1);
    EXPECT_EQ(fake.descs, 2);
  }
  EXPECT_EQ(fake.destroys, 1);
  EXPECT_EQ(fake.descs, 0);
}

TEST_F(CublasLt, IsCapturedAndReplayedAndItsFailureNamesTheCall) {
  AddKernel();
  FakeCublasLt& fake = Fake();
  const GemmDesc desc = Problem(16, 24, 40, DataType::kBF16, DataType::kF32);
  const auto plan = PlanOf(desc);
  ASSERT_TRUE(plan);
  const DeviceProduct product(*device_, desc, {}, 0);
  PlanMemory memory(*device_, plan->workspace());
  const auto stream = device_->CreateStream().value();
  const auto run = [&] {
    return tilewright::Run(*plan, product.args(), memory.workspace, stream->stream());
  };
  const auto graph = device_->Capture(stream->stream(), run);
  ASSERT_TRUE(graph) << graph.error().message;
  const int products = fake.products;
  ASSERT_TRUE((*graph)->Launch(stream->stream()));
  ASSERT_TRUE(device_->Synchronize(stream->stream()));
  EXPECT_EQ(fake.products, products) << "replayed without the library";
  product.Check();

  fake.next_status = 15;
  const Status refused = run();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message,
              HasSubstr("cuBLASLt 13.1.2: cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED (15)"));
  EXPECT_TRUE(run()) << "the next one";
  ASSERT_TRUE(device_->Synchronize(stream->stream()));
}

TEST_F(CublasLt, TakesOnlyWhatTheLibraryComputesInF32SumsAndFast) {
  AddKernel();
  const auto why_not = [&](const GemmDesc& desc) {
    return Look(desc, device_->spec()).RejectionText();
  };
  GemmDesc desc = Problem(16, 24, 40, DataType::kBF16, DataType::kBF16);
  EXPECT_EQ(why_not(desc), "");
  desc.align_b = 3;
  EXPECT_THAT(why_not(desc), HasSubstr("B aligned to 8 bytes that the problem promises, needs 16"));
  desc = Problem(16, 24, 40, DataType::kBF16, DataType::kBF16);
  desc.type_b = DataType::kF32;
  EXPECT_THAT(why_not(desc), HasSubstr("type_a = bf16, type_b = f32, needs one type"));
  EXPECT_THAT(why_not(Problem(16, 24, 40, DataType::kF32, DataType::kBF16)),
              HasSubstr("type_c = bf16, needs f32"));
  desc = Problem(16, 24, 40, DataType::kBF16, DataType::kBF16);
  desc.guarantee = Guarantee::kBatchInvariant;
  EXPECT_THAT(why_not(desc), HasSubstr("guarantee"));
  desc.guarantee = Guarantee::kDeterministic;
  EXPECT_EQ(why_not(desc), "");
  DeviceSpec older = device_->spec();
  older.driver = "12.8";
  desc = Problem(16, 24, 40, DataType::kBF16, DataType::kBF16);
  EXPECT_THAT(Look(desc, older).RejectionText(), HasSubstr("driver 12.8, needs 13.0 or newer"));
}

TEST_F(CublasLt, IsFoundOnTheLoadersPathThenInToolkitsAndNeverAnOldOne) {
  namespace fs = std::filesystem;
  const std::string toolkit = folder_ / "usr/local/cuda-13.0/lib64", old = folder_ / "old";
  LibrarySurroundings machine{.env = [](const char*) { return std::optional<std::string>(); },
                              .root = folder_.path(),
                              .loader_path = true};
  EXPECT_THAT(FindCublasLt(machine).why_not,
              AllOf(HasSubstr("$TILEWRIGHT_CUBLASLT: not set"),
                    HasSubstr("/usr/lib64: no such folder"), HasSubstr("$CUDA_HOME: not set")));
  for (const std::string& folder : {toolkit, old}) fs::create_directories(folder);
  fs::copy_file(path(), toolkit + "/libcublasLt.so.13");
  fs::copy_file(path(), old + "/libcublasLt.so.11");
  EXPECT_EQ(FindCublasLt(machine).path, fs::canonical(toolkit + "/libcublasLt.so.13"));
  EXPECT_EQ(FindCublasLt(machine).major, 13);
  const std::string search = old + ":" + folder_.path();
  machine.env = [search](const char* name) -> std::optional<std::string> {
    if (std::string_view(name) != "LD_LIBRARY_PATH") return std::nullopt;
    return search;
  };
  EXPECT_EQ(FindCublasLt(machine).path, fs::canonical(path()));
  EXPECT_FALSE(loaded());
}

TEST_F(CublasLt, ThatIsMissingIsToldOnThisMachineAndAssumedElsewhere) {
  const CublasLtFile none = FindCublasLt(Surroundings(folder_.path() + "/nothing"));
  EXPECT_EQ(none.path, "");
  EXPECT_THAT(none.why_not, HasSubstr("nothing: No such file or directory"));
  const GemmDesc desc = Problem(16, 24, 40, DataType::kBF16, DataType::kBF16);
  ASSERT_TRUE(registry_.Add(std::make_unique<CublasLtGemm>(none, true)));
  EXPECT_THAT(Look(desc, device_->spec()).RejectionText(), HasSubstr("no cuBLASLt here ($TILE"));

  Registry elsewhere;
  ASSERT_TRUE(elsewhere.Add(std::make_unique<CublasLtGemm>(none, false)));
  const GemmCandidates all = Feasible(Validate(desc).value(), elsewhere, device_->spec());
  EXPECT_EQ(all.feasible_count(), 1);
  const auto plan = Bind(Choose(all, nullptr).value(), *device_);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(plan.error().message, HasSubstr("no cuBLASLt here"));

  std::ofstream(folder_.path() + "/libcublasLt.so.14") << "no library";
  Registry damaged;
  const CublasLtFile file = FindCublasLt(Surroundings(folder_.path() + "/libcublasLt.so.14"));
  ASSERT_TRUE(damaged.Add(std::make_unique<CublasLtGemm>(file, false)));
  DeviceSpec newer = device_->spec();
  newer.driver = "14.0";
  const auto broken =
      Bind(Choose(Feasible(Validate(desc).value(), damaged, newer), nullptr).value(), *device_);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(broken.error().message, HasSubstr("libcublasLt.so.14"));
}

TEST_F(CublasLt, OnALostDeviceIsNotCalled) {
  AddKernel();
  FakeCublasLt& fake = Fake();
  const GemmDesc desc = Problem(16, 24, 40, DataType::kBF16, DataType::kBF16);
  const auto plan = PlanOf(desc);
  ASSERT_TRUE(plan);
  const DeviceProduct product(*device_, desc, {}, 0);
  PlanMemory memory(*device_, plan->workspace());
  fake_.AnswerNext("cuStreamSynchronize", 700);
  ASSERT_FALSE(device_->Synchronize(device_->default_stream()));
  const int products = fake.products;
  const Status ran =
      tilewright::Run(*plan, product.args(), memory.workspace, device_->default_stream());
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(ran.error().message, HasSubstr("cublasLtMatmul: GPU 0 (NVIDIA H200) is lost since"));
  EXPECT_EQ(fake.products, products);
}

}  // namespace
}  // namespace tilewright::cuda
