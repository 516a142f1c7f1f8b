#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "device/cuda/driver.h"
#include "device/cuda/launch.h"
#include "fake_cuda.h"
#include "tilewright/cuda_device.h"

namespace tilewright::cuda {

/// Every test counts the calls of its own device.
class CudaDeviceTest : public testing::Test {
 protected:
  CudaDeviceTest() { fake_.StartCounting(); }
  ~CudaDeviceTest() override {
    fake_.SetKernels({});
    EXPECT_EQ(fake_.alive(), "");
  }

  static std::unique_ptr<Device> Make(int ordinal = 0) {
    Result<std::unique_ptr<Device>> made =
        MakeCudaDevice(ordinal, {.library = TILEWRIGHT_FAKE_CUDA});
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  /// An image that is whole by its header; `name` tells it from others.
  static std::vector<std::byte> Cubin(std::string_view name) {
    std::vector<std::byte> image(100);
    std::memcpy(image.data(), "\177ELF", 4);
    std::memcpy(image.data() + 64, name.data(), name.size());
    return image;
  }
  static CudaLaunch SomeLaunch() {
    CudaLaunch launch;
    launch.grid = {4, 2, 1};
    launch.block = {128, 1, 1};
    launch.dynamic_smem_bytes = 1024;
    launch.params = KernelParams(std::int64_t{7});
    return launch;
  }

  FakeCuda& fake_ = LoadFakeCuda(TILEWRIGHT_FAKE_CUDA);
};

}  // namespace tilewright::cuda
