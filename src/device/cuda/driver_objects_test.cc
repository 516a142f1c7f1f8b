// What the driver's objects ask of libcuda, by a libcuda that is a handful of functions here: no
// GPU is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "device/cuda/driver.h"

namespace tilewright::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What was called since the test began, and what the next calls answer.
struct Calls {
  std::vector<std::string> log;
  CUresult answer = CUDA_SUCCESS;  ///< of the functions that can be made to fail
  CUlaunchConfig launch{};
  std::vector<CUlaunchAttribute> attributes;
  std::vector<std::byte> params;
  std::size_t params_bytes = 0;  ///< to be copied of the block of a launch
  TensorMapDesc map;
  CUtensorMapSwizzle swizzle{};
  CUtensorMapDataType type{};
};
Calls calls;

CUresult Log(const char* name) {
  calls.log.emplace_back(name);
  return CUDA_SUCCESS;
}

CUresult Launch(const CUlaunchConfig* config, CUfunction, void** params, void**) {
  calls.launch = *config;
  calls.attributes.assign(config->attrs, config->attrs + config->numAttrs);
  const auto* block = static_cast<const std::byte*>(params[0]);
  calls.params.assign(block, block + calls.params_bytes);
  return calls.answer;
}

CUresult Encode(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* address,
                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                const cuuint32_t* steps, CUtensorMapInterleave interleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  calls.type = type;
  calls.swizzle = swizzle;
  calls.map.rank = rank;
  calls.map.address = reinterpret_cast<std::uint64_t>(address);
  for (cuuint32_t i = 0; i < rank; ++i) {
    calls.map.dims[i] = dims[i];
    calls.map.box[i] = box[i];
    if (i + 1 < rank) calls.map.strides[i] = strides[i];
    EXPECT_EQ(steps[i], 1u);
  }
  EXPECT_EQ(interleave, CU_TENSOR_MAP_INTERLEAVE_NONE);
  EXPECT_EQ(fill, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  std::memset(out, 0x5a, sizeof *out);
  return calls.answer;
}

/// Handles are numbers that no function looks behind.
template <class Handle>
Handle Number(std::uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}

DriverApi FakeApi() {
  DriverApi api;
  api.cuGetErrorName = [](CUresult, const char** name) {
    *name = "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
  };
  api.cuGetErrorString = [](CUresult, const char** words) {
    *words = "as the test wants it";
    return CUDA_SUCCESS;
  };
  api.cuDeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  api.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    *context = Number<CUcontext>(1);
    return Log("retain");
  };
  api.cuDevicePrimaryCtxRelease = [](CUdevice) { return Log("release"); };
  api.cuCtxSetCurrent = [](CUcontext) { return calls.answer; };
  api.cuStreamCreate = [](CUstream* stream, unsigned int) {
    *stream = Number<CUstream>(2);
    return Log("stream");
  };
  api.cuStreamDestroy = [](CUstream) { return Log("stream gone"); };
  api.cuStreamBeginCapture = [](CUstream, CUstreamCaptureMode) { return Log("begin"); };
  api.cuStreamEndCapture = [](CUstream, CUgraph* graph) {
    *graph = Number<CUgraph>(3);
    return Log("end");
  };
  api.cuGraphInstantiateWithFlags = [](CUgraphExec* made, CUgraph, unsigned long long) {
    *made = Number<CUgraphExec>(4);
    Log("instantiate");
    return calls.answer;
  };
  api.cuGraphDestroy = [](CUgraph) { return Log("captured gone"); };
  api.cuGraphExecDestroy = [](CUgraphExec) { return Log("graph gone"); };
  api.cuMemAlloc = [](CUdeviceptr* memory, std::size_t) {
    *memory = 0x1000;
    Log("memory");
    return calls.answer;
  };
  // A release that fails, as after a fault in a kernel.
  api.cuMemFree = [](CUdeviceptr) {
    Log("memory gone");
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  };
  api.cuModuleLoadDataEx = [](CUmodule* module, const void*, unsigned int, CUjit_option*, void**) {
    *module = Number<CUmodule>(5);
    return Log("module");
  };
  api.cuModuleUnload = [](CUmodule) { return Log("module gone"); };
  api.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
    *function = Number<CUfunction>(6);
    return CUDA_SUCCESS;
  };
  api.cuLaunchKernelEx = &Launch;
  api.cuTensorMapEncodeTiled = &Encode;
  return api;
}

class DriverObjects : public testing::Test {
 protected:
  DriverObjects() { calls = {}; }
  const CudaDriver driver_{FakeApi()};
};

TEST_F(DriverObjects, EveryHandleIsReleasedOnceAndInTheOtherOrder) {
  {
    const Result<Context> context = Context::Retain(driver_, 0);
    ASSERT_TRUE(context);
    Result<StreamHandle> stream = StreamHandle::Create(*context);
    ASSERT_TRUE(stream);
    const StreamHandle moved = std::move(*stream);
    Result<DeviceBuffer> memory = DeviceBuffer::Allocate(*context, 16);
    ASSERT_TRUE(memory);
    memory = DeviceBuffer();
    EXPECT_TRUE(moved.get() == Number<CUstream>(2));
  }
  EXPECT_THAT(calls.log,
              ElementsAre("retain", "stream", "memory", "memory gone", "stream gone", "release"));
}

TEST_F(DriverObjects, WhatFailedToBeMadeIsNotReleased) {
  {
    const Result<Context> context = Context::Retain(driver_, 0);
    ASSERT_TRUE(context);
    calls.answer = CUDA_ERROR_OUT_OF_MEMORY;
    const Result<DeviceBuffer> memory = DeviceBuffer::Allocate(*context, 1 << 20);
    ASSERT_FALSE(memory);
    EXPECT_EQ(memory.error().code, ErrorCode::kOutOfMemory);
    EXPECT_THAT(memory.error().message, HasSubstr("CUDA_ERROR_FAKE"));
  }
  EXPECT_THAT(calls.log, ElementsAre("retain", "memory", "release"));
}

TEST_F(DriverObjects, AContextThatCannotBeMadeCurrentIsGivenBack) {
  calls.answer = CUDA_ERROR_DEVICE_UNAVAILABLE;
  EXPECT_FALSE(Context::Retain(driver_, 0));
  EXPECT_THAT(calls.log, ElementsAre("retain", "release"));
}

TEST_F(DriverObjects, WhatWasCapturedIsGivenBackAlsoWhereNoGraphCanBeMadeOfIt) {
  const Result<Context> context = Context::Retain(driver_, 0);
  ASSERT_TRUE(context);
  const Result<StreamHandle> stream = StreamHandle::Create(*context);
  ASSERT_TRUE(stream);
  const auto nothing = []() -> Status { return {}; };
  for (const CUresult answer : {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE}) {
    calls.log.clear();
    calls.answer = answer;
    { EXPECT_EQ(Graph::Capture(*context, *stream, nothing).has_value(), answer == CUDA_SUCCESS); }
    calls.log.resize(4);
    EXPECT_THAT(calls.log, ElementsAre("begin", "end", "instantiate", "captured gone"));
  }
}

TEST_F(DriverObjects, ALaunchIsPassedOnWhole) {
  const Result<Context> context = Context::Retain(driver_, 0);
  const Result<StreamHandle> stream = StreamHandle::Create(*context);
  std::string cubin = "\177ELF";
  cubin.resize(64);
  const Result<Module> module = Module::Load(*context, cubin);
  ASSERT_TRUE(module);
  const Result<Function> function = module->Get("kernel");
  ASSERT_TRUE(function);
  CudaLaunch launch;
  launch.grid = {6, 4, 2};
  launch.block = {128, 2, 1};
  launch.dynamic_smem_bytes = 4096;
  launch.params = KernelParams(std::int64_t{0x0102030405060708});
  calls.params_bytes = 8;
  ASSERT_TRUE(function->Launch(launch, *stream));
  EXPECT_EQ(calls.launch.gridDimX, 6u);
  EXPECT_EQ(calls.launch.gridDimY, 4u);
  EXPECT_EQ(calls.launch.gridDimZ, 2u);
  EXPECT_EQ(calls.launch.blockDimX, 128u);
  EXPECT_EQ(calls.launch.blockDimY, 2u);
  EXPECT_EQ(calls.launch.blockDimZ, 1u);
  EXPECT_EQ(calls.launch.sharedMemBytes, 4096u);
  EXPECT_TRUE(calls.launch.hStream == Number<CUstream>(2));
  EXPECT_TRUE(calls.attributes.empty());
  std::int64_t params = 0;
  std::memcpy(&params, calls.params.data(), 8);
  EXPECT_EQ(params, 0x0102030405060708);

  launch.cluster = {2, 1, 1};
  ASSERT_TRUE(function->Launch(launch, *stream));
  ASSERT_EQ(calls.attributes.size(), 1u);
  EXPECT_EQ(calls.attributes[0].id, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(calls.attributes[0].value.clusterDim.x, 2u);

  launch.programmatic = true;
  ASSERT_TRUE(function->Launch(launch, *stream));
  ASSERT_EQ(calls.attributes.size(), 2u);
  EXPECT_EQ(calls.attributes[0].id, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(calls.attributes[1].id, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(calls.attributes[1].value.programmaticStreamSerializationAllowed, 1);

  calls.answer = CUDA_ERROR_INVALID_VALUE;
  const Status refused = function->Launch(launch, *stream);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("cuLaunchKernelEx"));
}

TEST_F(DriverObjects, ATensorMapIsEncodedAsDescribed) {
  TensorMapDesc desc{.address = 0x2000};
  desc.dims = {200, 100};
  desc.strides = {816};
  desc.box = {32, 64};
  std::array<std::byte, kTensorMapBytes> out{};
  const std::pair<DataType, CUtensorMapDataType> types[] = {
      {DataType::kF32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32},
      {DataType::kF16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16},
      {DataType::kI8, CU_TENSOR_MAP_DATA_TYPE_UINT8},
      {DataType::kBF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16}};
  for (const auto& [type, name] : types) {
    desc.type = type;
    ASSERT_TRUE(EncodeTensorMap(driver_, desc, out));
    EXPECT_EQ(calls.type, name);
    calls.map.type = type;
    EXPECT_EQ(calls.map, desc);
    EXPECT_EQ(calls.swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
  }
  desc.swizzled = false;
  ASSERT_TRUE(EncodeTensorMap(driver_, desc, out));
  EXPECT_EQ(calls.swizzle, CU_TENSOR_MAP_SWIZZLE_NONE);
  EXPECT_EQ(out[0], std::byte{0x5a});
  EXPECT_EQ(out[kTensorMapBytes - 1], std::byte{0x5a});

  calls.answer = CUDA_ERROR_INVALID_VALUE;
  const Status refused = EncodeTensorMap(driver_, desc, out);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("bf16, 200x100 elements, 816 bytes a row"));
}

TEST(TensorMap, OfASmallTensorIsNotSaidToBeLargeByOldDrivers) {
  DriverApi api = FakeApi();
  api.cuTensorMapEncodeTiled = [](CUtensorMap* out, CUtensorMapDataType, cuuint32_t, void*,
                                  const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                  const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                  CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    std::memset(out, 0xff, sizeof *out);
    return CUDA_SUCCESS;
  };
  // Whether the bit is set, for `rows` lines of 1,024 bytes of which 1,000 count.
  const auto large = [&](int version, std::uint64_t rows) {
    TensorMapDesc desc{.type = DataType::kBF16, .address = 0x2000};
    desc.dims = {500, rows};
    desc.strides = {1024};
    desc.box = {64, 64};
    std::array<std::byte, kTensorMapBytes> out{};
    EXPECT_TRUE(EncodeTensorMap(CudaDriver(api, version), desc, out));
    std::array<std::uint64_t, kTensorMapBytes / 8> words{};
    std::memcpy(words.data(), out.data(), sizeof words);
    const bool set = (words[1] >> 21 & 1) != 0;
    words[1] |= std::uint64_t{1} << 21;
    for (const std::uint64_t word : words) EXPECT_EQ(word, ~std::uint64_t{0});
    return set;
  };
  EXPECT_FALSE(large(13010, 128));  // 127 lines and 1,000 bytes: less than 128 KiB
  EXPECT_TRUE(large(13010, 129));
  EXPECT_TRUE(large(13020, 128));
}

}  // namespace
}  // namespace tilewright::cuda
