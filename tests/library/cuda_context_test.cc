// A context on a GPU, over a libcuda that has none behind it: how it is opened, and what is said
// where it cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda_device_fixture.h"
#include "device/elf_compiler.h"
#include "models.h"

namespace tilewright {
namespace {

using cuda::ElfCompiler;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CudaContext : public cuda::CudaDeviceTest {
 protected:
  ContextOptions Options(const std::string& device = "cuda:0") {
    ContextOptions options;
    options.device = device;
    options.threads = 1;
    options.cache_dir = folder_ / "cache";
    options.cuda_library = TILEWRIGHT_FAKE_CUDA;
    options.artifacts.compiler = compiler_;
    return options;
  }
  static Error Refused(const ContextOptions& options) {
    const auto context = Context::Create(options);
    EXPECT_FALSE(context);
    return context ? Error{} : context.error();
  }

  test::TempDir folder_;
  std::shared_ptr<ElfCompiler> compiler_ = std::make_shared<ElfCompiler>();
};

TEST_F(CudaContext, is_opened_by_number_with_the_kernels_of_its_architecture) {
  const auto context = Context::Create(Options("cuda:1"));
  ASSERT_TRUE(context) << context.error().message;
  const Context& gpu = **context;
  EXPECT_EQ(gpu.device_name(), "cuda:1");
  EXPECT_EQ(gpu.device_note(), "");
  EXPECT_EQ(gpu.device_spec().kind, DeviceKind::kCuda);
  EXPECT_FALSE(gpu.calibrated());
  EXPECT_EQ(gpu.scope().device, gpu.device_spec().ClassId());
  EXPECT_EQ(gpu.scope().libraries, compiler_->identity().ToString());
  ASSERT_NE(gpu.artifacts(), nullptr);
  EXPECT_EQ(gpu.artifacts()->root(), folder_ / "cache/artifacts");
  EXPECT_GT(gpu.kernels().gemm().kernels().size(), 50u);
  gpu.kernels().ForEach([&](std::string_view, const KernelBase& kernel) {
    EXPECT_EQ(kernel.info().device, DeviceKind::kCuda) << kernel.name();
  });
  EXPECT_EQ(compiler_->compiles(), 0) << "nothing is compiled before it is bound";
  EXPECT_EQ(gpu.DefaultSession().activations, DataType::kBF16);
  EXPECT_EQ(gpu.DefaultSession().kv, DataType::kBF16);
  EXPECT_EQ(gpu.DefaultSession().logits, DataType::kF32);
}

TEST_F(CudaContext, on_the_cpu_is_what_it_was) {
  ContextOptions options = Options("cpu");
  const auto context = Context::Create(options);
  ASSERT_TRUE(context) << context.error().message;
  EXPECT_EQ((*context)->device_name(), "cpu");
  EXPECT_EQ((*context)->artifacts(), nullptr);
  EXPECT_EQ((*context)->DefaultSession().activations, SessionOptions{}.activations);
  EXPECT_EQ(fake_.calls(), 0u);
}

TEST_F(CudaContext, auto_is_the_first_gpu_and_says_so) {
  const auto context = Context::Create(Options("auto"));
  ASSERT_TRUE(context) << context.error().message;
  EXPECT_EQ((*context)->device_name(), "cuda:0");
  EXPECT_THAT((*context)->device_note(), StartsWith("cuda:0 (NVIDIA H200"));
}

TEST_F(CudaContext, auto_is_the_cpu_where_no_gpu_works_and_says_why) {
  ContextOptions options = Options("auto");
  options.cuda_library = folder_ / "libcuda.so.1";
  auto context = Context::Create(options);
  ASSERT_TRUE(context) << context.error().message;
  EXPECT_EQ((*context)->device_name(), "cpu");
  EXPECT_THAT((*context)->device_note(), StartsWith("cpu: no GPU: "));
  EXPECT_THAT((*context)->device_note(), HasSubstr("libcuda.so.1"));

  options = Options("auto");
  options.artifacts.compiler = nullptr;
  options.artifacts.nvrtc.path = folder_ / "nowhere";
  context = Context::Create(options);
  ASSERT_TRUE(context) << context.error().message;
  EXPECT_EQ((*context)->device_name(), "cpu");
  EXPECT_THAT((*context)->device_note(), HasSubstr("device cuda:0: no bundle"));
  EXPECT_THAT((*context)->device_note(), HasSubstr("device cuda:1: no bundle"));
}

TEST_F(CudaContext, a_device_that_is_not_there_is_an_error_of_one_line) {
  const auto expect = [](const Error& error, ErrorCode code, const char* words) {
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_THAT(error.message, HasSubstr(words));
    EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
  };
  expect(Refused(Options("cuda:2")), ErrorCode::kInvalidArgument,
         "device cuda:2: GPU 2: there are 2, counted from 0");
  for (const char* name : {"cuda", "cuda:", "cuda:-1", "cuda:1x", "cuda:1000", "gpu", ""}) {
    expect(Refused(Options(name)), ErrorCode::kInvalidArgument, "must be auto, cpu or cuda:N");
  }
  ContextOptions missing = Options();
  missing.cuda_library = folder_ / "libcuda.so.1";
  expect(Refused(missing), ErrorCode::kUnavailable, "device cuda:0: ");
  ContextOptions bare = Options();
  bare.artifacts.compiler = nullptr;
  bare.artifacts.nvrtc.path = folder_ / "nowhere";
  expect(Refused(bare), ErrorCode::kUnavailable,
         "device cuda:0: no bundle of compiled kernels is here, and no compiler for them");
  ContextOptions no_bundle = Options();
  no_bundle.artifacts.bundles = {folder_ / "none.twb"};
  expect(Refused(no_bundle), ErrorCode::kInvalidArgument, "none.twb");
  fake_.AnswerNext("cuDevicePrimaryCtxRetain", 2);  // CUDA_ERROR_OUT_OF_MEMORY
  expect(Refused(Options()), ErrorCode::kOutOfMemory, "device cuda:0: ");
}

TEST_F(CudaContext, two_of_a_process_are_independent) {
  const auto first = Context::Create(Options("cuda:0"));
  const auto second = Context::Create(Options("cuda:1"));
  ASSERT_TRUE(first && second);
  EXPECT_NE(&(*first)->device(), &(*second)->device());
  EXPECT_NE(&(*first)->kernels(), &(*second)->kernels());
  EXPECT_NE((*first)->artifacts(), (*second)->artifacts());
}

}  // namespace
}  // namespace tilewright
