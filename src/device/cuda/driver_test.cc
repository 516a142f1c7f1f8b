// What can be told without a GPU: which library is refused, and in which words.
#include "device/cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tilewright::cuda {
namespace {

using ::testing::HasSubstr;

/// The toolkit's libcuda for linking; "" where there is no toolkit.
std::string Stub() {
  const std::string stub =
      std::filesystem::path(TILEWRIGHT_CUDA_INCLUDE).parent_path() / "lib64/stubs/libcuda.so";
  return std::filesystem::exists(stub) ? stub : "";
}

TEST(CudaDriver, MissingLibraryIsUnavailableAndNamed) {
  const auto driver = CudaDriver::Load("/nowhere/libcuda.so.1");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(driver.error().message, HasSubstr("/nowhere/libcuda.so.1"));
}

TEST(CudaDriver, AnotherLibraryIsRefusedByName) {
  const auto driver = CudaDriver::Load("libm.so.6");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(driver.error().message, HasSubstr("libm.so.6"));
  EXPECT_THAT(driver.error().message, HasSubstr("cuInit"));
}

TEST(CudaDriver, StubIsRefusedByItsFolder) {
  // Whether or not there is such a file: it is not opened.
  const auto driver = CudaDriver::Load("/opt/cuda/lib64/stubs/libcuda.so");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(driver.error().message, HasSubstr("stub"));
}

TEST(CudaDriver, StubUnderAnotherNameIsRefusedByItsAnswer) {
  if (Stub().empty()) GTEST_SKIP() << "no toolkit with a stub beside cuda.h";
  char folder[] = "/tmp/tilewright-stub-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string copy = std::string(folder) + "/libcuda.so.1";
  std::filesystem::copy_file(Stub(), copy);
  const auto driver = CudaDriver::Load(copy);
  std::filesystem::remove_all(folder);
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(driver.error().message, HasSubstr("stub"));
  EXPECT_THAT(driver.error().message, HasSubstr("34"));
}

TEST(CudaDriver, SecondLoadGivesTheSameAnswer) {
  const auto first = CudaDriver::Load();
  const auto second = CudaDriver::Load();
  ASSERT_EQ(first.has_value(), second.has_value());
  if (first) {
    EXPECT_EQ(*first, *second);
  } else {
    EXPECT_EQ(first.error(), second.error());
  }
}

TEST(CudaProbe, AnswersWithAGpuOrSaysWhatIsMissing) {
  EXPECT_TRUE(BuiltWithDriver());
  const Result<int> count = CudaDeviceCount();
  if (!count) {
    EXPECT_EQ(count.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(count.error().message, HasSubstr("libcuda"));
    EXPECT_EQ(CudaDeviceSpec(0).error(), count.error());
    return;
  }
  for (int i = 0; i < *count; ++i) {
    const Result<DeviceSpec> spec = CudaDeviceSpec(i);
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_EQ(spec->kind, DeviceKind::kCuda);
    EXPECT_FALSE(spec->name.empty());
    EXPECT_GE(spec->compute_capability, 50);
    EXPECT_GT(spec->sm_count, 0);
    EXPECT_GE(spec->smem_bytes, 48 << 10);
    EXPECT_FALSE(spec->driver.empty());
  }
  const Result<DeviceSpec> beyond = CudaDeviceSpec(*count);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tilewright::cuda
