// What device.h promises, asked of every device: the CPU, the fake one, the CUDA device over a
// driver without a GPU, and over the real one where there is a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/fake/fake_device.h"
#include "tilewright/cuda_device.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

Bytes Pattern(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::uint8_t>((i * 2654435761u + seed * 40503u) >> 7);
  }
  return bytes;
}

Result<std::unique_ptr<Device>> MakeDevice(const std::string& which) {
  if (which == "cpu") return MakeCpuDevice(DetectCpuCappedAt(Isa::kAmx));
  if (which == "fake") {
    auto made = FakeDevice::Create(DeviceSpec{}, {.seed = 7});
    if (!made) return Fail(made.error());
    return std::unique_ptr<Device>(std::move(*made));
  }
  if (which == "cuda") return cuda::MakeCudaDevice(0);
#ifdef TILEWRIGHT_FAKE_CUDA
  return cuda::MakeCudaDevice(0, {.library = TILEWRIGHT_FAKE_CUDA});
#else
  return Fail(ErrorCode::kUnavailable, "this build has no CUDA device");
#endif
}

class DeviceContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> made = MakeDevice(GetParam());
    if (!made && made.error().code == ErrorCode::kUnavailable) {
      GTEST_SKIP() << "no such device here: " << made.error().message;
    }
    ASSERT_TRUE(made) << made.error().message;
    device_ = std::move(*made);
  }

  DeviceMemory Make(std::size_t bytes) {
    Result<DeviceMemory> made = device_->Allocate(bytes);
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : DeviceMemory();
  }
  static std::uint8_t* At(const DeviceMemory& memory, std::size_t offset) {
    return memory.as<std::uint8_t>() + offset;
  }
  Stream stream() { return device_->default_stream(); }

  std::unique_ptr<Device> device_;
};

TEST_P(DeviceContract, MemoryIsAlignedAndHoldsWhatIsUploaded) {
  EXPECT_FALSE(Make(0));
  EXPECT_EQ(Make(0).size(), 0u);
  for (const std::size_t size : {1u, 63u, 4097u, 1000003u}) {
    const DeviceMemory memory = Make(size);
    ASSERT_TRUE(memory);
    EXPECT_EQ(memory.size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 64, 0u);
    const Bytes from = Pattern(size, 1);
    Bytes to(size);
    ASSERT_TRUE(device_->Upload(memory.data(), from.data(), size, stream()));
    ASSERT_TRUE(device_->Download(to.data(), memory.data(), size, stream()));
    ASSERT_TRUE(device_->Synchronize(stream()));
    EXPECT_EQ(to, from);
  }
}

TEST_P(DeviceContract, AStreamDoesItsWorkInOrder) {
  const DeviceMemory a = Make(1000), b = Make(1000);
  const Bytes from = Pattern(1000, 2);
  Bytes first(1000), second(1000);
  ASSERT_TRUE(device_->Fill(a.data(), 9, 1000, stream()));
  ASSERT_TRUE(device_->Copy(b.data(), a.data(), 1000, stream()));
  ASSERT_TRUE(device_->Upload(At(a, 100), from.data(), 800, stream()));
  ASSERT_TRUE(device_->Download(first.data(), a.data(), 1000, stream()));
  ASSERT_TRUE(device_->Fill(At(a, 500), 3, 17, stream()));
  ASSERT_TRUE(device_->Copy(At(b, 600), At(a, 500), 17, stream()));
  ASSERT_TRUE(device_->Download(second.data(), b.data(), 1000, stream()));
  ASSERT_TRUE(device_->Synchronize(stream()));

  Bytes want(1000, 9);
  std::copy_n(from.begin(), 800, want.begin() + 100);
  EXPECT_EQ(first, want);
  want.assign(1000, 9);
  std::fill_n(want.begin() + 600, 17, std::uint8_t{3});
  EXPECT_EQ(second, want);
}

TEST_P(DeviceContract, NothingNeedsNoAddresses) {
  ASSERT_TRUE(device_->Upload(nullptr, nullptr, 0, stream()));
  ASSERT_TRUE(device_->Download(nullptr, nullptr, 0, stream()));
  ASSERT_TRUE(device_->Copy(nullptr, nullptr, 0, stream()));
  ASSERT_TRUE(device_->Fill(nullptr, 1, 0, stream()));
  EXPECT_TRUE(device_->Synchronize(stream()));
}

TEST_P(DeviceContract, TheHostReadsAndWritesStagingMemory) {
  Result<DeviceMemory> staging = device_->AllocateStaging(5000);
  ASSERT_TRUE(staging) << staging.error().message;
  EXPECT_FALSE(device_->AllocateStaging(0).value());
  const DeviceMemory memory = Make(5000);
  const Bytes from = Pattern(5000, 3);
  std::memcpy(staging->data(), from.data(), 5000);
  ASSERT_TRUE(device_->Upload(memory.data(), staging->data(), 5000, stream()));
  ASSERT_TRUE(device_->Synchronize(stream()));
  std::memset(staging->data(), 0, 5000);
  ASSERT_TRUE(device_->Download(staging->data(), memory.data(), 5000, stream()));
  ASSERT_TRUE(device_->Synchronize(stream()));
  EXPECT_EQ(std::memcmp(staging->data(), from.data(), 5000), 0);
}

TEST_P(DeviceContract, AnEventOrdersTwoStreams) {
  const auto one = device_->CreateStream().value(), two = device_->CreateStream().value();
  const auto event = device_->CreateEvent().value();
  const DeviceMemory memory = Make(300000);
  Bytes to(300000);
  // Recorded again in every round: a wait is for the last record before it.
  for (unsigned round = 0; round < 5; ++round) {
    const Bytes from = Pattern(300000, round);
    ASSERT_TRUE(device_->Upload(memory.data(), from.data(), 300000, one->stream()));
    ASSERT_TRUE(device_->Record(*event, one->stream()));
    ASSERT_TRUE(device_->Wait(two->stream(), *event));
    ASSERT_TRUE(device_->Download(to.data(), memory.data(), 300000, two->stream()));
    ASSERT_TRUE(device_->Synchronize(two->stream()));
    ASSERT_EQ(to, from) << "round " << round;
  }
}

TEST_P(DeviceContract, TheHostWaitsForAnEvent) {
  const auto event = device_->CreateEvent().value();
  const DeviceMemory memory = Make(1000);
  const Bytes from = Pattern(1000, 4);
  Bytes to(1000);
  ASSERT_TRUE(device_->Upload(memory.data(), from.data(), 1000, stream()));
  ASSERT_TRUE(device_->Download(to.data(), memory.data(), 1000, stream()));
  ASSERT_TRUE(device_->Record(*event, stream()));
  ASSERT_TRUE(device_->WaitOnHost(*event));
  EXPECT_EQ(to, from);
}

TEST_P(DeviceContract, TwoTimersTellTheTimeOfTheWorkBetweenThemIfThereAreTimers) {
  auto begin = device_->CreateTimer(), end = device_->CreateTimer();
  if (!begin) {
    EXPECT_EQ(begin.error().code, ErrorCode::kUnsupported) << begin.error().message;
    return;
  }
  ASSERT_TRUE(end) << end.error().message;
  const DeviceMemory memory = Make(16 << 20);
  const Stream stream = device_->default_stream();
  ASSERT_TRUE(device_->Record(**begin, stream));
  ASSERT_TRUE(device_->Fill(memory.data(), 1, memory.size(), stream));
  ASSERT_TRUE(device_->Record(**end, stream));
  ASSERT_TRUE(device_->Synchronize(stream));
  const Result<double> us = device_->MicrosBetween(**begin, **end);
  ASSERT_TRUE(us) << us.error().message;
  EXPECT_GT(*us, 0);
}

TEST_P(DeviceContract, AnEventThatWasNeverRecordedHoldsNobodyUp) {
  const auto event = device_->CreateEvent().value();
  EXPECT_TRUE(device_->WaitOnHost(*event));
  EXPECT_TRUE(device_->Wait(stream(), *event));
  EXPECT_TRUE(device_->Synchronize(stream()));
}

TEST_P(DeviceContract, AStreamThatGoesHasDoneItsWork) {
  const DeviceMemory memory = Make(1000);
  const Bytes from = Pattern(1000, 5);
  Bytes to(1000);
  {
    const auto own = device_->CreateStream().value();
    ASSERT_TRUE(device_->Upload(memory.data(), from.data(), 1000, own->stream()));
    ASSERT_TRUE(device_->Download(to.data(), memory.data(), 1000, own->stream()));
  }
  EXPECT_EQ(to, from);
}

TEST_P(DeviceContract, MemoryThatThereIsNotIsRefusedAndNothingElseIs) {
  const std::size_t most = std::size_t{1} << 56;
  const Result<DeviceMemory> refused = device_->Allocate(most);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("64.0 PiB"));
  EXPECT_TRUE(device_->Allocate(1000));
}

TEST_P(DeviceContract, WhatIsNoModuleIsRefused) {
  const std::vector<std::byte> junk(100, std::byte{1});
  const auto refused = device_->LoadModule(junk);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().code == ErrorCode::kUnsupported ||
              refused.error().code == ErrorCode::kInvalidArgument)
      << refused.error().message;
  EXPECT_FALSE(device_->LoadModule({}));
}

TEST_P(DeviceContract, CapturedWorkRunsWhenItIsLaunchedWithWhatItsMemoryHoldsThen) {
  constexpr std::size_t kSize = 4096;
  const DeviceMemory from = Make(kSize), to = Make(kSize);
  const auto copy = [&] { return device_->Copy(to.data(), from.data(), kSize, stream()); };
  ASSERT_TRUE(device_->Fill(to.data(), 9, kSize, stream()));
  auto graph = device_->Capture(stream(), copy);
  if (!device_->can_capture()) {
    ASSERT_FALSE(graph);
    EXPECT_EQ(graph.error().code, ErrorCode::kUnsupported);
    return;
  }
  ASSERT_TRUE(graph) << graph.error().message;
  Bytes got(kSize);
  ASSERT_TRUE(device_->Download(got.data(), to.data(), kSize, stream()));
  ASSERT_TRUE(device_->Synchronize(stream()));
  EXPECT_EQ(got, Bytes(kSize, 9)) << "captured work does not run";
  for (const std::uint8_t value : {1, 2, 3}) {
    ASSERT_TRUE(device_->Fill(from.data(), value, kSize, stream()));
    ASSERT_TRUE((*graph)->Launch(stream()));
    ASSERT_TRUE(device_->Download(got.data(), to.data(), kSize, stream()));
    ASSERT_TRUE(device_->Synchronize(stream()));
    EXPECT_EQ(got, Bytes(kSize, value));
  }
}

TEST_P(DeviceContract, ACaptureThatFailsLeavesTheStreamAsItWas) {
  if (!device_->can_capture()) GTEST_SKIP() << "this device captures nothing";
  const DeviceMemory memory = Make(64);
  const auto fail = [&]() -> Status {
    EXPECT_TRUE(device_->Fill(memory.data(), 1, 64, stream()));
    return Fail(ErrorCode::kInternal, "as the caller says");
  };
  const auto graph = device_->Capture(stream(), fail);
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("as the caller says"));
  Bytes got(64);
  ASSERT_TRUE(device_->Fill(memory.data(), 2, 64, stream()));
  ASSERT_TRUE(device_->Download(got.data(), memory.data(), 64, stream()));
  ASSERT_TRUE(device_->Synchronize(stream()));
  EXPECT_EQ(got, Bytes(64, 2));
}

TEST_P(DeviceContract, ThreadsWorkSideBySide) {
  constexpr int kThreads = 6, kRounds = 20;
  const auto work = [this](unsigned thread) {
    const auto own = device_->CreateStream().value();
    const auto event = device_->CreateEvent().value();
    for (unsigned round = 0; round < kRounds; ++round) {
      const std::size_t size = 1000 + 37 * thread + round;
      const DeviceMemory a = device_->Allocate(size).value(), b = device_->Allocate(size).value();
      const Bytes from = Pattern(size, thread * 100 + round);
      Bytes to(size);
      ASSERT_TRUE(device_->Upload(a.data(), from.data(), size, own->stream()));
      ASSERT_TRUE(device_->Copy(b.data(), a.data(), size, own->stream()));
      ASSERT_TRUE(device_->Download(to.data(), b.data(), size, own->stream()));
      ASSERT_TRUE(device_->Record(*event, own->stream()));
      ASSERT_TRUE(device_->WaitOnHost(*event));
      ASSERT_EQ(to, from);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceContract,
                         testing::Values("cpu", "fake", "cuda_without_gpu", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tilewright
