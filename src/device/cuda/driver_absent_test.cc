#include <gtest/gtest.h>

#include "tilewright/cuda_device.h"

namespace tilewright::cuda {
namespace {

TEST(CudaProbe, SaysThatTheBuildHasNoCudaDevice) {
  EXPECT_FALSE(BuiltWithDriver());
  const Result<int> count = CudaDeviceCount();
  ASSERT_FALSE(count);
  EXPECT_EQ(count.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(count.error().message.find("cuda.h"), std::string::npos);
  EXPECT_FALSE(CudaDeviceSpec(0));
  EXPECT_FALSE(MakeCudaDevice(0));
}

}  // namespace
}  // namespace tilewright::cuda
