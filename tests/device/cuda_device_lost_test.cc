// What happens when a kernel destroys its context: one report, then every call says that the GPU is
// lost, and the driver is left alone.
#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <thread>

#include "cuda_device_fixture.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/device_health.h"

namespace tilewright::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A device with one of everything, which a kernel will destroy.
struct Victim {
  explicit Victim(std::unique_ptr<Device> made)
      : device(std::move(made)),
        cuda(*CudaDevice::Of(*device)),
        memory(device->Allocate(100).value()),
        staging(device->AllocateStaging(100).value()),
        stream(device->CreateStream().value()),
        event(device->CreateEvent().value()) {}

  Status Launch() {
    const auto module = device->LoadModule(image).value();
    CudaLaunch launch;
    return cuda.Launch(module->Function("kernel").value(), launch, stream->stream());
  }

  std::vector<std::byte> image;
  std::unique_ptr<Device> device;
  CudaDevice& cuda;
  DeviceMemory memory, staging;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<DeviceEvent> event;
};

class LostCudaDeviceTest : public CudaDeviceTest {
 protected:
  LostCudaDeviceTest() {
    fake_.SetKernels([](const FakeCuda::Launch&) { return int{CUDA_ERROR_ILLEGAL_ADDRESS}; });
  }
  static Victim MakeVictim() {
    Victim victim(Make());
    victim.image = Cubin("a");
    return victim;
  }
};

TEST_F(LostCudaDeviceTest, IsReportedOnceAndThenByEveryCallWithoutTheDriver) {
  Victim victim = MakeVictim();
  Device& device = *victim.device;
  const Stream stream = victim.stream->stream();
  const auto module = device.LoadModule(victim.image).value();
  void* const function = module->Function("kernel").value();
  ASSERT_TRUE(victim.Launch());
  const Status report = device.Synchronize(stream);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kInternal);
  EXPECT_EQ(report.error().message,
            "GPU 0 (NVIDIA H200) is lost, nothing runs on it any more: cuStreamSynchronize: "
            "CUDA_ERROR_ILLEGAL_ADDRESS (700): the fake driver's words");

  const std::size_t before = fake_.calls();
  CudaLaunch launch = SomeLaunch();
  launch.params = KernelParams(std::array<std::byte, kTensorMapBytes>{});
  launch.map_slots[launch.map_count++] = {0, "A", {.type = DataType::kBF16, .address = 0x2000}};
  char host[100];
  void* data = victim.memory.data();
  const auto status = [](const auto& result) {
    return result ? Status() : Status(Fail(result.error()));
  };
  const std::pair<const char*, std::function<Status()>> calls[] = {
      {"cuMemAlloc", [&] { return status(device.Allocate(8)); }},
      {"cuMemHostAlloc", [&] { return status(device.AllocateStaging(8)); }},
      {"cuMemcpyHtoDAsync", [&] { return device.Upload(data, host, 100, stream); }},
      {"cuMemcpyDtoHAsync", [&] { return device.Download(host, data, 100, stream); }},
      {"cuMemcpyDtoDAsync", [&] { return device.Copy(data, data, 10, stream); }},
      {"cuMemsetD8Async", [&] { return device.Fill(data, 1, 100, stream); }},
      {"cuStreamCreate", [&] { return status(device.CreateStream()); }},
      {"cuEventCreate", [&] { return status(device.CreateEvent()); }},
      {"cuEventRecord", [&] { return device.Record(*victim.event, stream); }},
      {"cuStreamWaitEvent", [&] { return device.Wait(stream, *victim.event); }},
      {"cuEventSynchronize", [&] { return device.WaitOnHost(*victim.event); }},
      {"cuStreamSynchronize", [&] { return device.Synchronize(stream); }},
      {"cuModuleLoadDataEx", [&] { return status(device.LoadModule(Cubin("b"))); }},
      {"cuModuleGetFunction", [&] { return status(module->Function("kernel")); }},
      {"cuFuncSetAttribute", [&] { return victim.cuda.AllowDynamicSmem(function, 8); }},
      {"cuLaunchKernelEx", [&] { return victim.cuda.Launch(function, launch, stream); }}};
  for (const auto& [name, call] : calls) {
    const Status said = call();
    ASSERT_FALSE(said) << name;
    EXPECT_EQ(said.error().code, ErrorCode::kUnavailable) << name;
    EXPECT_THAT(
        said.error().message,
        StartsWith(std::string(name) + ": GPU 0 (NVIDIA H200) is lost since cuStreamSynchronize: "
                                       "CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  }
  EXPECT_EQ(fake_.calls(), before);
}

TEST_F(LostCudaDeviceTest, GivesBackItsContextAndNothingElse) {
  std::size_t before = 0;
  {
    Victim victim = MakeVictim();
    ASSERT_TRUE(victim.Launch());
    ASSERT_FALSE(victim.device->Synchronize(victim.stream->stream()));
    before = fake_.calls();
  }
  EXPECT_EQ(fake_.calls() - before, 1u);
  EXPECT_EQ(fake_.calls("cuDevicePrimaryCtxRelease"), 1u);
  EXPECT_EQ(fake_.alive(), "");
  // The context that is made next works.
  const auto device = Make();
  EXPECT_TRUE(device->Allocate(100));
  EXPECT_TRUE(device->Synchronize(device->default_stream()));
}

TEST_F(LostCudaDeviceTest, LeavesTheOtherGpuAlone) {
  const auto other = Make(1);
  Victim victim = MakeVictim();
  ASSERT_TRUE(victim.Launch());
  ASSERT_FALSE(victim.device->Synchronize(victim.stream->stream()));
  const DeviceMemory memory = other->Allocate(100).value();
  ASSERT_TRUE(other->Fill(memory.data(), 1, 100, other->default_stream()));
  EXPECT_TRUE(other->Synchronize(other->default_stream()));
}

TEST_F(LostCudaDeviceTest, OfTwoCallsThatMeetItTheSecondIsLate) {
  const CudaDriver& driver = *CudaDriver::Load(TILEWRIGHT_FAKE_CUDA).value();
  DeviceHealth health(driver, "GPU 3 (H200)");
  EXPECT_TRUE(health.Alive("cuMemAlloc"));
  const Status first = health.Check(CUDA_ERROR_ILLEGAL_ADDRESS, "cuMemAlloc");
  const Status second = health.Check(CUDA_ERROR_LAUNCH_FAILED, "cuMemFree");
  EXPECT_EQ(first.error().code, ErrorCode::kInternal);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(second.error().message,
              StartsWith("cuMemFree: GPU 3 (H200) is lost since cuMemAlloc: "));
}

TEST_F(LostCudaDeviceTest, OneThreadOfManyReportsIt) {
  Victim victim = MakeVictim();
  ASSERT_TRUE(victim.Launch());
  std::atomic<int> reports = 0, later = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Status said = victim.device->Synchronize(victim.stream->stream());
      ASSERT_FALSE(said);
      const bool report = said.error().message.find("nothing runs on it") != std::string::npos;
      ++(report ? reports : later);
      EXPECT_EQ(said.error().code, report ? ErrorCode::kInternal : ErrorCode::kUnavailable);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(reports, 1);
  EXPECT_EQ(later, 7);
}

TEST_F(LostCudaDeviceTest, OnlyWhatEndsAContextLosesIt) {
  const auto lost_by = [&](int result) {
    const auto device = Make();
    fake_.AnswerNext("cuStreamSynchronize", result);
    const Status failed = device->Synchronize(device->default_stream());
    EXPECT_FALSE(failed) << result;
    const bool named = !failed && failed.error().message.find(" is lost") != std::string::npos;
    EXPECT_EQ(device->Allocate(8).has_value(), !named) << result;
    return named;
  };
  for (const int result :
       {4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999}) {
    EXPECT_TRUE(lost_by(result)) << result;
  }
  for (const int result : {1, 2, 100, 200, 209, 400, 500, 600, 701, 801, 900, 901, 912}) {
    EXPECT_FALSE(lost_by(result)) << result;
  }
}

}  // namespace
}  // namespace tilewright::cuda
