#include "device/fake/fake_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

namespace tilewright {
namespace {

std::unique_ptr<FakeDevice> Make(std::uint64_t seed = 1, std::size_t bytes = std::size_t{1} << 24) {
  return FakeDevice::Create(DeviceSpec{}, {.seed = seed, .memory_bytes = bytes}).value();
}

TEST(FakeDeviceDeathTest, TheHostCannotTouchItsMemory) {
  const auto device = Make();
  const DeviceMemory memory = device->Allocate(100).value();
  EXPECT_DEATH(*memory.as<volatile char>() = 1, "");
  EXPECT_DEATH(static_cast<void>(*memory.as<volatile char>()), "");
  // Neither after it has been used by work of its own.
  ASSERT_TRUE(device->Fill(memory.data(), 7, 100, device->default_stream()));
  ASSERT_TRUE(device->Synchronize(device->default_stream()));
  EXPECT_DEATH(static_cast<void>(*memory.as<volatile char>()), "");
}

TEST(FakeDevice, WorkWaitsUntilSomebodySynchronises) {
  const auto device = Make();
  const Stream stream = device->default_stream();
  const DeviceMemory memory = device->Allocate(4).value();
  const std::array<char, 4> from{1, 2, 3, 4};
  std::array<char, 4> to{};
  ASSERT_TRUE(device->Upload(memory.data(), from.data(), 4, stream));
  ASSERT_TRUE(device->Download(to.data(), memory.data(), 4, stream));
  EXPECT_EQ(to, (std::array<char, 4>{}));
  EXPECT_EQ(device->pending(), 2u);
  ASSERT_TRUE(device->Synchronize(stream));
  EXPECT_EQ(to, from);
  EXPECT_EQ(device->pending(), 0u);
}

/// The order in which two streams' letters come out.
std::string Interleaving(std::uint64_t seed, bool with_event) {
  const auto device = Make(seed);
  const auto a = device->CreateStream().value(), b = device->CreateStream().value();
  const auto event = device->CreateEvent().value();
  std::string order;
  const auto say = [&](Stream stream, char letter) {
    device->Submit(stream, [&order, letter]() -> Status {
      order += letter;
      return {};
    });
  };
  for (const char letter : {'a', 'b', 'c'}) say(a->stream(), letter);
  if (with_event) {
    EXPECT_TRUE(device->Record(*event, a->stream()));
    EXPECT_TRUE(device->Wait(b->stream(), *event));
  }
  for (const char letter : {'x', 'y', 'z'}) say(b->stream(), letter);
  EXPECT_TRUE(device->Synchronize(a->stream()));
  EXPECT_TRUE(device->Synchronize(b->stream()));
  return order;
}

TEST(FakeDevice, StreamsRunInAnyOrderThatTheirEventsAllow) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const std::string order = Interleaving(seed, false);
    EXPECT_LT(order.find('a'), order.find('b'));
    EXPECT_LT(order.find('y'), order.find('z'));
    orders.insert(order);
    EXPECT_EQ(Interleaving(seed, true), "abcxyz");
  }
  EXPECT_GT(orders.size(), 10u);  // of the 20 there are
}

TEST(FakeDevice, AnErrorOfAStreamIsToldBySynchronizeOnce) {
  const auto device = Make();
  const Stream stream = device->default_stream();
  device->Submit(stream, [] { return Status(Fail(ErrorCode::kInternal, "kernel fault")); });
  const Status status = device->Synchronize(stream);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "kernel fault");
  EXPECT_TRUE(device->Synchronize(stream));
}

TEST(FakeDevice, AnEventIsWaitedForAcrossStreams) {
  const auto device = Make();
  const auto a = device->CreateStream().value(), b = device->CreateStream().value();
  const auto one = device->CreateEvent().value(), two = device->CreateEvent().value();
  EXPECT_TRUE(device->WaitOnHost(*one));  // never recorded: holds nobody up
  ASSERT_TRUE(device->Record(*one, a->stream()));
  ASSERT_TRUE(device->Synchronize(a->stream()));
  EXPECT_TRUE(device->WaitOnHost(*one));
  ASSERT_TRUE(device->Record(*one, b->stream()));
  ASSERT_TRUE(device->Wait(a->stream(), *one));
  ASSERT_TRUE(device->Record(*two, a->stream()));
  EXPECT_TRUE(device->WaitOnHost(*two));
}

TEST(FakeDevice, AWaitIsForTheRecordBeforeItWhateverBecomesOfTheEvent) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto device = Make(seed);
    const auto a = device->CreateStream().value(), b = device->CreateStream().value(),
               c = device->CreateStream().value();
    auto event = device->CreateEvent().value();
    std::string order;
    const auto say = [&](Stream stream, char letter) {
      device->Submit(stream, [&order, letter]() -> Status {
        order += letter;
        return {};
      });
    };
    say(a->stream(), 'a');
    ASSERT_TRUE(device->Record(*event, a->stream()));
    ASSERT_TRUE(device->Wait(c->stream(), *event));
    ASSERT_TRUE(device->Record(*event, b->stream()));
    event.reset();
    say(c->stream(), 'c');
    ASSERT_TRUE(device->Synchronize(c->stream()));
    EXPECT_EQ(order, "ac") << "seed " << seed;
  }
}

TEST(FakeDevice, MemoryIsFreedAfterTheWorkThatUsesIt) {
  const auto device = Make();
  const auto stream = device->CreateStream().value();
  DeviceMemory memory = device->Allocate(4).value(), staging = device->AllocateStaging(4).value();
  std::array<char, 4> to{};
  std::fill_n(staging.as<char>(), 4, 5);
  ASSERT_TRUE(device->Upload(memory.data(), staging.data(), 4, stream->stream()));
  ASSERT_TRUE(device->Download(to.data(), memory.data(), 4, stream->stream()));
  staging = DeviceMemory();
  memory = DeviceMemory();
  EXPECT_EQ(to, (std::array<char, 4>{5, 5, 5, 5}));
}

TEST(FakeDevice, MemoryEndsAndComesBack) {
  const auto device = Make(1, 1 << 20);
  std::vector<DeviceMemory> held;
  while (true) {
    Result<DeviceMemory> memory = device->Allocate(60000);
    if (!memory) {
      EXPECT_EQ(memory.error().code, ErrorCode::kOutOfMemory);
      break;
    }
    held.push_back(std::move(*memory));
  }
  EXPECT_EQ(held.size(), 16u);
  held.clear();
  EXPECT_TRUE(device->Allocate(1000000));
}

TEST(CpuDevice, DoesEverythingAtOnce) {
  Device& device = HostDevice();
  EXPECT_TRUE(device.host_accessible());
  const DeviceMemory memory = device.Allocate(100).value();
  ASSERT_TRUE(device.Fill(memory.data(), 9, 100, device.default_stream()));
  EXPECT_EQ(memory.as<char>()[99], 9);
  EXPECT_FALSE(device.LoadModule({}));
  EXPECT_FALSE(device.Allocate(0).value());
}

}  // namespace
}  // namespace tilewright
