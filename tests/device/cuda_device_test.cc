// The CUDA device over a libcuda without a GPU: which functions it calls, in whose context, and
// what it gives back. What it does with data is in device_contract_test.cc.
#include "device/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "cuda_device_fixture.h"
#include "device/cuda/tensor_map_cache.h"

namespace tilewright::cuda {
namespace {

using ::testing::HasSubstr;

TEST_F(CudaDeviceTest, TheSpecIsTheBoards) {
  const auto device = Make();
  EXPECT_EQ(device->spec().kind, DeviceKind::kCuda);
  EXPECT_EQ(device->spec().ClassId(), "cuda/NVIDIA H200/sm_90/132 sms/l2 61440K/driver 13.0");
  EXPECT_EQ(device->spec().smem_bytes, 232448);
  EXPECT_EQ(device->spec().llc_bytes, 60 << 20);
  EXPECT_FALSE(device->host_accessible());
  // 2 x 3.201 GHz on 6,144 bits; 132 multiprocessors at 1.98 GHz.
  EXPECT_NEAR(device->spec().read_gb_s, 4917, 1);
  EXPECT_NEAR(device->spec().f32_gflop_s, 66908, 1);
}

TEST_F(CudaDeviceTest, EverythingIsGivenBack) {
  {
    const auto device = Make();
    {
      const DeviceMemory memory = device->Allocate(100).value();
      const DeviceMemory staging = device->AllocateStaging(100).value();
      const auto stream = device->CreateStream().value();
      const auto event = device->CreateEvent().value();
      const auto module = device->LoadModule(Cubin("a")).value();
      EXPECT_EQ(fake_.alive(), "1 contexts, 1 memory, 1 pinned, 2 streams, 1 events, 1 modules");
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0u);
    }
    EXPECT_EQ(fake_.alive(), "1 contexts, 1 streams, 1 modules") << "what the device keeps";
  }
  EXPECT_EQ(fake_.calls("cuModuleUnload"), 1u);
  EXPECT_EQ(fake_.calls("cuStreamDestroy"), 2u);
}

TEST_F(CudaDeviceTest, WorkIsQueuedAndNobodyWaits) {
  const auto device = Make();
  CudaDevice& cuda = *CudaDevice::Of(*device);
  const Stream stream = device->default_stream();
  const DeviceMemory memory = device->Allocate(100).value();
  const auto module = device->LoadModule(Cubin("a")).value();
  void* const function = module->Function("kernel").value();
  std::array<char, 100> host{};
  CudaLaunch launch = SomeLaunch();
  ASSERT_TRUE(device->Upload(memory.data(), host.data(), 100, stream));
  ASSERT_TRUE(device->Fill(memory.data(), 5, 50, stream));
  ASSERT_TRUE(device->Copy(memory.as<char>() + 50, memory.data(), 50, stream));
  ASSERT_TRUE(cuda.Launch(function, launch, stream));
  ASSERT_TRUE(device->Download(host.data(), memory.data(), 100, stream));
  EXPECT_EQ(fake_.pending(), 5u);
  EXPECT_EQ(fake_.calls("cuStreamSynchronize"), 0u);
  EXPECT_EQ(host[99], 0);
  ASSERT_TRUE(device->Synchronize(stream));
  EXPECT_EQ(fake_.pending(), 0u);
  EXPECT_EQ(host[99], 5);
}

TEST_F(CudaDeviceTest, ALaunchIsOneCallInTheRightContext) {
  const auto device = Make();
  CudaDevice& cuda = *CudaDevice::Of(*device);
  const auto module = device->LoadModule(Cubin("a")).value();
  void* const function = module->Function("kernel").value();
  const auto stream = device->CreateStream().value();
  CudaLaunch launch = SomeLaunch();
  const std::size_t before = fake_.calls();
  ASSERT_TRUE(cuda.Launch(function, launch, stream->stream()));
  EXPECT_EQ(fake_.calls("cuLaunchKernelEx"), 1u);
  EXPECT_EQ(fake_.calls() - before, 2u) << "beside the launch, which context is current";

  FakeCuda::Launch ran;
  fake_.SetKernels([&](const FakeCuda::Launch& seen) {
    ran = seen;
    return 0;
  });
  ASSERT_TRUE(device->Synchronize(stream->stream()));
  EXPECT_EQ(ran.symbol, "kernel");
  EXPECT_EQ(ran.grid, (std::array<unsigned, 3>{4, 2, 1}));
  EXPECT_EQ(ran.block, (std::array<unsigned, 3>{128, 1, 1}));
  EXPECT_EQ(ran.dynamic_smem_bytes, 1024u);
  EXPECT_EQ(ran.stream, reinterpret_cast<std::uintptr_t>(stream->stream().native));
}

TEST_F(CudaDeviceTest, ALaunchWhoseCtasWaitForEachOtherIsRefusedWhereTheyDoNotAllFit) {
  const auto device = Make();
  const auto module = device->LoadModule(Cubin("a")).value();
  void* const function = module->Function("kernel").value();
  const Stream stream = device->default_stream();
  std::vector<bool> cooperative;
  fake_.SetKernels([&](const FakeCuda::Launch& launch) {
    cooperative.push_back(launch.cooperative);
    return 0;
  });
  CudaLaunch launch = SomeLaunch();
  launch.grid = {132, 1, 1};
  EXPECT_TRUE(CudaDevice::Of(*device)->Launch(function, launch, stream));
  launch.cooperative = true;
  EXPECT_TRUE(CudaDevice::Of(*device)->Launch(function, launch, stream));
  launch.grid = {133, 1, 1};
  const Status refused = CudaDevice::Of(*device)->Launch(function, launch, stream);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("cuLaunchKernelEx"));
  EXPECT_TRUE(device->Synchronize(stream));
  EXPECT_EQ(cooperative, (std::vector<bool>{false, true}));
}

TEST_F(CudaDeviceTest, SharedMemoryBeyond48KiBIsAskedFor) {
  const auto device = Make();
  CudaDevice& cuda = *CudaDevice::Of(*device);
  const auto module = device->LoadModule(Cubin("a")).value();
  void* const function = module->Function("kernel").value();
  CudaLaunch launch = SomeLaunch();
  launch.dynamic_smem_bytes = 200000;
  const Status refused = cuda.Launch(function, launch, device->default_stream());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("GPU 0 (NVIDIA H200): cuLaunchKernelEx"));
  ASSERT_TRUE(cuda.AllowDynamicSmem(function, 200000));
  EXPECT_TRUE(cuda.Launch(function, launch, device->default_stream()));
  const Status beyond = cuda.AllowDynamicSmem(function, 232449);
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message, HasSubstr("232449 bytes"));
}

TEST_F(CudaDeviceTest, ATensorMapIsEncodedOnceForEveryDescription) {
  const auto device = Make();
  CudaDevice& cuda = *CudaDevice::Of(*device);
  const auto module = device->LoadModule(Cubin("a")).value();
  void* const function = module->Function("kernel").value();
  const auto launch_of = [](const TensorMapDesc& desc) {
    CudaLaunch launch = SomeLaunch();
    launch.params = KernelParams(std::array<std::byte, kTensorMapBytes>{});
    launch.map_slots[launch.map_count++] = {0, "A", desc};
    return launch;
  };
  TensorMapDesc base{.type = DataType::kBF16, .address = 0x2000};
  base.dims = {64, 100}, base.strides = {128}, base.box = {64, 64};
  std::vector<TensorMapDesc> descs(6, base);
  descs[1].address = 0x2010;
  descs[2].dims[1] = 99;
  descs[3].strides[0] = 256;
  descs[4].box[1] = 32;
  descs[5].type = DataType::kF16;
  for (std::size_t round = 1; round <= 3; ++round) {
    for (const TensorMapDesc& desc : descs) {
      CudaLaunch launch = launch_of(desc);
      ASSERT_TRUE(cuda.Launch(function, launch, device->default_stream()));
      // The fake's maps begin with the address, and its extents follow.
      std::array<std::uint64_t, 16> map{};
      std::memcpy(map.data(), launch.params.data(), sizeof map);
      EXPECT_EQ(map[0], desc.address);
      EXPECT_EQ(map[3], desc.dims[1]);
      EXPECT_EQ(map[6], desc.strides[0]);
      EXPECT_EQ(map[11], desc.box[1]);
    }
    EXPECT_EQ(fake_.calls("cuTensorMapEncodeTiled"), descs.size());
  }
}

TEST(TensorMapCache, NeverGivesTheMapOfAnother) {
  TensorMapCache cache;
  TensorMapDesc desc{.type = DataType::kBF16, .address = 0x2000};
  std::size_t found = 0;
  constexpr std::size_t kMore = 2 * TensorMapCache::kSlots;
  const auto map_of = [](std::size_t i) {
    TensorMapCache::Map map{};
    std::memcpy(map.data(), &i, sizeof i);
    return map;
  };
  for (std::size_t i = 0; i < kMore; ++i) {
    desc.dims[1] = i;
    EXPECT_EQ(cache.Find(desc), nullptr);
    cache.Insert(desc, map_of(i));
  }
  for (std::size_t i = 0; i < kMore; ++i) {
    desc.dims[1] = i;
    const TensorMapCache::Map* map = cache.Find(desc);
    if (map == nullptr) continue;
    ++found;
    ASSERT_EQ(*map, map_of(i));
  }
  EXPECT_GT(found, TensorMapCache::kSlots * 9 / 10);
}

TEST_F(CudaDeviceTest, AModuleIsLoadedOnceForADevice) {
  const auto device = Make();
  void* first = nullptr;
  {
    const auto module = device->LoadModule(Cubin("a")).value();
    first = module->Function("kernel").value();
  }
  const auto again = device->LoadModule(Cubin("a")).value();
  EXPECT_EQ(again->Function("kernel").value(), first);
  EXPECT_EQ(fake_.calls("cuModuleLoadDataEx"), 1u);
  EXPECT_EQ(fake_.calls("cuModuleUnload"), 0u) << "its kernels may still run";
  const auto other = device->LoadModule(Cubin("b")).value();
  EXPECT_NE(other->Function("kernel").value(), first);
  EXPECT_EQ(fake_.calls("cuModuleLoadDataEx"), 2u);

  const auto missing = again->Function("nowhere");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("nowhere"));
}

TEST_F(CudaDeviceTest, AnImageThatEndsTooEarlyNeverReachesTheDriver) {
  const auto device = Make();
  std::vector<std::byte> image = Cubin("a");
  const std::uint64_t sections_at = image.size();  // e_shoff, with 1 section of 64 bytes
  const std::uint16_t size = 64, count = 1;
  std::memcpy(image.data() + 40, &sections_at, 8);
  std::memcpy(image.data() + 58, &size, 2);
  std::memcpy(image.data() + 60, &count, 2);
  const auto refused = device->LoadModule(image);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  image.resize(image.size() + 63);
  EXPECT_FALSE(device->LoadModule(image));
  EXPECT_EQ(fake_.calls("cuModuleLoadDataEx"), 0u);
  image.resize(image.size() + 1);
  EXPECT_TRUE(device->LoadModule(image));
}

TEST_F(CudaDeviceTest, TheCallersContextStaysCurrent) {
  const DriverApi& api = CudaDriver::Load(TILEWRIGHT_FAKE_CUDA).value()->api();
  CUcontext own = nullptr;
  ASSERT_EQ(api.cuDevicePrimaryCtxRetain(&own, 1), CUDA_SUCCESS);
  ASSERT_EQ(api.cuCtxSetCurrent(own), CUDA_SUCCESS);
  const auto current = [&] {
    CUcontext context = nullptr;
    EXPECT_EQ(api.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    return context;
  };
  {
    const auto device = Make();
    EXPECT_EQ(current(), own);
    DeviceMemory memory = device->Allocate(100).value();
    EXPECT_EQ(current(), own);
    ASSERT_TRUE(device->Fill(memory.data(), 1, 100, device->default_stream()));
    ASSERT_TRUE(device->Synchronize(device->default_stream()));
    EXPECT_EQ(current(), own);
    memory = DeviceMemory();
    EXPECT_EQ(current(), own);
  }
  EXPECT_EQ(current(), own);
  ASSERT_EQ(api.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(api.cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
}

TEST_F(CudaDeviceTest, TwoGpusInTurns) {
  const auto first = Make(0), second = Make(1);
  const DeviceMemory a = first->Allocate(8).value(), b = second->Allocate(8).value();
  std::uint64_t of_a = 0, of_b = 0;
  ASSERT_TRUE(first->Fill(a.data(), 1, 8, first->default_stream()));
  ASSERT_TRUE(second->Fill(b.data(), 2, 8, second->default_stream()));
  ASSERT_TRUE(first->Download(&of_a, a.data(), 8, first->default_stream()));
  ASSERT_TRUE(second->Download(&of_b, b.data(), 8, second->default_stream()));
  ASSERT_TRUE(first->Synchronize(first->default_stream()));
  ASSERT_TRUE(second->Synchronize(second->default_stream()));
  EXPECT_EQ(of_a, 0x0101010101010101u);
  EXPECT_EQ(of_b, 0x0202020202020202u);
  const auto module = first->LoadModule(Cubin("a")).value();
  const auto other = second->LoadModule(Cubin("a")).value();
  EXPECT_EQ(fake_.calls("cuModuleLoadDataEx"), 2u) << "each context has modules of its own";
}

TEST_F(CudaDeviceTest, WithoutMemoryItSaysWhatWasAskedForAndWhatIsFree) {
  const auto device = Make();
  const DeviceMemory held = device->Allocate(std::size_t{768} << 20).value();
  const auto refused = device->Allocate(std::size_t{512} << 20);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(
      refused.error().message,
      "GPU 0 (NVIDIA H200): cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): the fake driver's words "
      "(512 MiB; 256 MiB of 1.00 GiB are free)");
  EXPECT_TRUE(device->Allocate(std::size_t{256} << 20));
}

TEST_F(CudaDeviceTest, ThreadsLaunchIntoStreamsOfTheirOwn) {
  const auto device = Make();
  CudaDevice& cuda = *CudaDevice::Of(*device);
  const auto module = device->LoadModule(Cubin("a")).value();
  void* const function = module->Function("kernel").value();
  std::atomic<int> ran = 0;
  fake_.SetKernels([&](const FakeCuda::Launch&) {
    ++ran;
    return 0;
  });
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const auto stream = device->CreateStream().value();
      for (std::uint64_t round = 0; round < 100; ++round) {
        CudaLaunch launch = SomeLaunch();
        launch.params = KernelParams(std::array<std::byte, kTensorMapBytes>{});
        TensorMapDesc desc{.type = DataType::kBF16, .address = 0x1000 * (1 + round % 10)};
        desc.dims = {64, 100}, desc.strides = {128}, desc.box = {64, 64};
        launch.map_slots[launch.map_count++] = {0, "A", desc};
        ASSERT_TRUE(cuda.Launch(function, launch, stream->stream()));
        std::uint64_t address = 0;
        std::memcpy(&address, launch.params.data(), 8);
        ASSERT_EQ(address, desc.address);
      }
      ASSERT_TRUE(device->Synchronize(stream->stream())) << i;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran, 600);
}

TEST_F(CudaDeviceTest, WhatThereIsNotIsNamed) {
  for (const int ordinal : {-1, 2, 1000}) {
    const auto beyond = MakeCudaDevice(ordinal, {.library = TILEWRIGHT_FAKE_CUDA});
    ASSERT_FALSE(beyond);
    EXPECT_EQ(beyond.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(beyond.error().message,
              "GPU " + std::to_string(ordinal) + ": there are 2, counted from 0");
  }
  const auto nowhere = MakeCudaDevice(0, {.library = "/nowhere/libcuda.so.1"});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(nowhere.error().message, HasSubstr("/nowhere/libcuda.so.1"));
  EXPECT_EQ(fake_.alive(), "");
}

TEST_F(CudaDeviceTest, ADriverThatIsTooOldOrSeesNoGpuIsRefused) {
  char folder[] = "/tmp/tilewright-cuda-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const auto with = [&](const char* name, int init, int version) {
    const std::string copy = std::string(folder) + "/" + name;  // a library of its own
    std::filesystem::copy_file(TILEWRIGHT_FAKE_CUDA, copy);
    LoadFakeCuda(copy).SetDriver(init, version);
    const auto refused = MakeCudaDevice(0, {.library = copy});
    EXPECT_FALSE(refused);
    if (refused) return std::string();
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    return refused.error().message;
  };
  EXPECT_THAT(with("old.so", CUDA_SUCCESS, 11080),
              HasSubstr("is driver 11.8: CUDA 12.0 or newer required"));
  EXPECT_THAT(with("none.so", CUDA_ERROR_NO_DEVICE, 13000), HasSubstr("cuInit"));
  std::filesystem::remove_all(folder);
}

TEST_F(CudaDeviceTest, AFailedStartLeavesNothingBehind) {
  for (const char* function : {"cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuStreamCreate"}) {
    fake_.AnswerNext(function, CUDA_ERROR_OUT_OF_MEMORY);
    const auto failed = MakeCudaDevice(1, {.library = TILEWRIGHT_FAKE_CUDA});
    ASSERT_FALSE(failed) << function;
    EXPECT_EQ(failed.error().code, ErrorCode::kOutOfMemory);
    EXPECT_THAT(failed.error().message, HasSubstr("GPU 1 (NVIDIA H200): "));
    EXPECT_EQ(fake_.alive(), "") << function;
  }
}

}  // namespace
}  // namespace tilewright::cuda
