// Programmatic dependent launch, as a libcuda without a GPU sees it: which launches carry the
// attribute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "cuda_device_fixture.h"
#include "device/cuda/cuda_device.h"

namespace tilewright::cuda {
namespace {

using ::testing::ElementsAre;

/// Which launches may start before what is in front of them has ended.
class EarlyLaunches : public CudaDeviceTest {
 protected:
  EarlyLaunches() {
    fake_.SetKernels([this](const FakeCuda::Launch& launch) {
      early_.push_back(launch.programmatic);
      return 0;
    });
  }
  static Status Launch(Device& device, Stream stream, bool programmatic = true) {
    const auto module = device.LoadModule(Cubin("a")).value();
    CudaLaunch launch = SomeLaunch();
    launch.programmatic = programmatic;
    return CudaDevice::Of(device)->Launch(module->Function("kernel").value(), launch, stream);
  }
  /// Of the launches since the last time.
  std::vector<bool> Early(Device& device, Stream stream) {
    early_.clear();
    EXPECT_TRUE(device.Synchronize(stream));
    return early_;
  }

  std::vector<bool> early_;
};

TEST_F(EarlyLaunches, AreThoseThatDeclareItBehindAKernel) {
  const auto device = Make();
  const Stream stream = device->default_stream();
  for (const bool declares : {true, true, false, true, true})
    ASSERT_TRUE(Launch(*device, stream, declares));
  EXPECT_THAT(Early(*device, stream), ElementsAre(false, true, false, true, true));
}

TEST_F(EarlyLaunches, AreNotBehindAnythingElse) {
  const auto device = Make();
  const auto own = device->CreateStream().value();
  const auto other = device->CreateStream().value();
  const auto event = device->CreateEvent().value();
  const DeviceMemory memory = device->Allocate(64).value();
  const Stream stream = own->stream();
  std::array<std::byte, 64> host{};
  const auto graph =
      device->Capture(other->stream(), [&] { return Launch(*device, other->stream()); }).value();
  const std::function<Status()> others[] = {
      [&] { return device->Upload(memory.data(), host.data(), 64, stream); },
      [&] { return device->Download(host.data(), memory.data(), 64, stream); },
      [&] { return device->Copy(memory.as<char>() + 32, memory.data(), 32, stream); },
      [&] { return device->Fill(memory.data(), 1, 64, stream); },
      [&] { return device->Record(*event, stream); },
      [&] { return device->Wait(stream, *event); },
      [&] { return graph->Launch(stream); },
      [&]() -> Status {
        CudaDevice::Of(*device)->GaveOtherWork(stream);
        return {};
      }};
  for (const auto& submit : others) {
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(Launch(*device, stream));
    ASSERT_TRUE(submit());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(Launch(*device, stream));
    const std::vector<bool> early = Early(*device, stream);
    // The last two, whatever the graph had.
    EXPECT_THAT(std::vector<bool>(early.end() - 2, early.end()), ElementsAre(false, true))
        << &submit - others;
    EXPECT_EQ(early.at(1), true);
  }
}

TEST_F(EarlyLaunches, ArePartOfAGraphButForItsFirst) {
  const auto device = Make();
  const auto own = device->CreateStream().value();
  const Stream stream = own->stream();
  const DeviceMemory memory = device->Allocate(64).value();
  ASSERT_TRUE(Launch(*device, stream));
  const auto graph = device->Capture(stream, [&]() -> Status {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(Launch(*device, stream));
    EXPECT_TRUE(device->Fill(memory.data(), 1, 64, stream));
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(Launch(*device, stream));
    return {};
  });
  ASSERT_TRUE(graph);
  ASSERT_TRUE(Launch(*device, stream));
  EXPECT_THAT(Early(*device, stream), ElementsAre(false, false)) << "a graph is not captured work";
  ASSERT_TRUE((*graph)->Launch(stream));
  EXPECT_THAT(Early(*device, stream), ElementsAre(false, true, true, false, true));
}

TEST_F(EarlyLaunches, AreKnownOfEachStreamByItself) {
  const auto device = Make();
  const auto first = device->CreateStream().value(), second = device->CreateStream().value();
  ASSERT_TRUE(Launch(*device, first->stream()));
  ASSERT_TRUE(Launch(*device, second->stream()));
  ASSERT_TRUE(Launch(*device, first->stream()));
  EXPECT_THAT(Early(*device, first->stream()), ElementsAre(false, true));
  EXPECT_THAT(Early(*device, second->stream()), ElementsAre(false));
  // Streams that are not the device's, and more than it keeps in mind, stay without.
  const Stream legacy{};
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Launch(*device, legacy));
  EXPECT_THAT(Early(*device, legacy), ElementsAre(false, false));
  std::vector<std::unique_ptr<DeviceStream>> many;
  for (int i = 0; i < 40; ++i) many.push_back(device->CreateStream().value());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Launch(*device, many.back()->stream()));
  EXPECT_THAT(Early(*device, many.back()->stream()), ElementsAre(false, false));
  many.clear();
  const auto next = device->CreateStream().value();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Launch(*device, next->stream()));
  EXPECT_THAT(Early(*device, next->stream()), ElementsAre(false, true));
}

TEST_F(EarlyLaunches, AreNotWhereTheyAreSwitchedOffOrFailed) {
  const auto launch_twice = [&](Device& device) {
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(Launch(device, device.default_stream()));
    return Early(device, device.default_stream());
  };
  const auto without =
      MakeCudaDevice(0, {.library = TILEWRIGHT_FAKE_CUDA, .programmatic_launches = false}).value();
  EXPECT_THAT(launch_twice(*without), ElementsAre(false, false));
  ASSERT_EQ(setenv("TILEWRIGHT_PDL", "0", 1), 0);
  EXPECT_THAT(launch_twice(*Make()), ElementsAre(false, false));
  ASSERT_EQ(setenv("TILEWRIGHT_PDL", "1", 1), 0);
  const auto with = Make();
  EXPECT_THAT(launch_twice(*with), ElementsAre(false, true));
  ASSERT_EQ(unsetenv("TILEWRIGHT_PDL"), 0);
  fake_.AnswerNext("cuLaunchKernelEx", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_FALSE(Launch(*with, with->default_stream()));
  EXPECT_THAT(launch_twice(*with), ElementsAre(false, true));
}

}  // namespace
}  // namespace tilewright::cuda
