#include "device/cuda/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace tilewright::cuda {
namespace {

using ::testing::HasSubstr;

TensorMapDesc Matrix() {
  TensorMapDesc desc{.type = DataType::kBF16, .address = 0x1000};
  desc.dims = {200, 100};
  desc.strides = {400};
  desc.box = {64, 128};
  return desc;
}

/// "" when the map can be encoded, else what is said of it after a change.
template <class Change>
std::string After(Change change) {
  TensorMapDesc desc = Matrix();
  change(desc);
  const auto no = CheckTensorMap("A", desc);
  return no ? no->ToString() : "";
}

TEST(CheckTensorMap, TakesWhatTheCopyEngineCanAddress) {
  EXPECT_EQ(After([](TensorMapDesc&) {}), "");
  EXPECT_EQ(After([](TensorMapDesc& d) { d.box = {64, 256}; }), "");
  EXPECT_EQ(After([](TensorMapDesc& d) { d.dims[1] = std::uint64_t{1} << 32; }), "");
  EXPECT_EQ(After([](TensorMapDesc& d) { d.rank = 1, d.strides = {}; }), "");
  EXPECT_EQ(After([](TensorMapDesc& d) { d.swizzled = false, d.box[0] = 136; }), "");
  EXPECT_EQ(After([](TensorMapDesc& d) { d.type = DataType::kI8, d.box[0] = 48; }), "");
}

TEST(CheckTensorMap, RefusesAMisalignedBase) {
  EXPECT_THAT(After([](TensorMapDesc& d) { d.address = 0x1008; }),
              HasSubstr("A at 0x1008, needs a multiple of 16 bytes"));
  EXPECT_THAT(After([](TensorMapDesc& d) { d.address = 0; }), HasSubstr("A at 0x0"));
}

TEST(CheckTensorMap, RefusesStridesThatAreNoMultipleOf16Bytes) {
  EXPECT_THAT(After([](TensorMapDesc& d) { d.strides[0] = 408; }),
              HasSubstr("A: lines of 408 bytes, needs a multiple of 16"));
  EXPECT_THAT(After([](TensorMapDesc& d) { d.strides[0] = 0; }), HasSubstr("lines of 0 bytes"));
  EXPECT_THAT(After([](TensorMapDesc& d) { d.strides[0] = std::uint64_t{1} << 40; }),
              HasSubstr("less than 2^40"));
}

TEST(CheckTensorMap, RefusesBoxesAndTensorsBeyondTheLimits) {
  EXPECT_THAT(After([](TensorMapDesc& d) { d.box[1] = 257; }),
              HasSubstr("A: box 1 = 257, needs 1 to 256"));
  EXPECT_THAT(After([](TensorMapDesc& d) { d.box[1] = 0; }), HasSubstr("box 1 = 0"));
  EXPECT_THAT(After([](TensorMapDesc& d) { d.box[0] = 72; }), HasSubstr("lines of 144 bytes"));
  EXPECT_THAT(After([](TensorMapDesc& d) { d.box[0] = 60; }), HasSubstr("lines of 120 bytes"));
  EXPECT_THAT(After([](TensorMapDesc& d) { d.swizzled = false, d.box[0] = 132; }),
              HasSubstr("lines of 264 bytes, needs a multiple of 16"));
  EXPECT_THAT(After([](TensorMapDesc& d) { d.dims[0] = 0; }), HasSubstr("dimension 0 = 0"));
  EXPECT_THAT(After([](TensorMapDesc& d) { d.rank = 6; }), HasSubstr("rank 6"));
  EXPECT_THAT(After([](TensorMapDesc& d) { d.type = DataType::kQ8_0; }), HasSubstr("A q8_0"));
}

struct Block {
  int before;
  alignas(16) std::byte map[kTensorMapBytes];
  int after;
};

/// A launch of two CTAs with a tensor map.
CudaLaunch Launch() {
  CudaLaunch launch;
  launch.grid = {2, 1, 1};
  launch.block = {128, 1, 1};
  Block block{};
  block.before = 1;
  block.after = 2;
  launch.params = KernelParams(block);
  launch.map_slots[launch.map_count++] = {offsetof(Block, map), "A", Matrix()};
  return launch;
}

TEST(CheckedLaunch, RefusesWhatNoGpuTakes) {
  EXPECT_TRUE(CheckedLaunch(Launch()));
  const auto refused = [](auto change, const char* words) {
    CudaLaunch launch = Launch();
    change(launch);
    const LaunchResult no = CheckedLaunch(launch);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), HasSubstr(words));
  };
  refused([](CudaLaunch& l) { l.block = {33, 32, 1}; }, "1056 threads a CTA, needs 1 to 1024");
  refused([](CudaLaunch& l) { l.block[0] = 0; }, "0 threads a CTA");
  refused([](CudaLaunch& l) { l.grid[0] = 0; }, "0 CTAs along x");
  refused([](CudaLaunch& l) { l.grid[0] = 0x80000000; }, "2147483648 CTAs along x");
  refused([](CudaLaunch& l) { l.grid[1] = 65536; }, "65536 CTAs along y, needs 1 to 65535");
  refused([](CudaLaunch& l) { l.grid[2] = 65536; }, "65536 CTAs along z");
  refused([](CudaLaunch& l) { l.grid[0] = 3, l.cluster[0] = 2; }, "a multiple of the cluster, 2");
  refused([](CudaLaunch& l) { l.map_slots[0].desc.address = 8; }, "A at 0x8");
}

TEST(EncodeMaps, WritesEachMapAtItsPlaceInTheBlock) {
  CudaLaunch launch = Launch();
  std::vector<TensorMapDesc> seen;
  ASSERT_TRUE(EncodeMaps(
      launch, [&](const TensorMapDesc& desc, std::span<std::byte, kTensorMapBytes> out) -> Status {
        seen.push_back(desc);
        std::fill(out.begin(), out.end(), std::byte{0x5a});
        return {};
      }));
  EXPECT_EQ(seen, std::vector<TensorMapDesc>{Matrix()});
  const auto block = launch.params.As<Block>();
  ASSERT_TRUE(block);
  EXPECT_EQ(block->before, 1);
  EXPECT_EQ(block->after, 2);
  for (const std::byte byte : block->map) EXPECT_EQ(byte, std::byte{0x5a});
}

TEST(EncodeMaps, GivesTheEncodersErrorBack) {
  CudaLaunch launch = Launch();
  const Status failed =
      EncodeMaps(launch, [](const TensorMapDesc&, std::span<std::byte, kTensorMapBytes>) -> Status {
        return Fail(ErrorCode::kInvalidArgument, "the driver says no");
      });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "the driver says no");
}

TEST(KernelParams, ComeBackAsWhatTheyWereMadeOfOnly) {
  const KernelParams params(std::int64_t{7});
  EXPECT_EQ(params.size(), 8u);
  EXPECT_EQ(params.As<std::int64_t>(), 7);
  EXPECT_EQ(params.As<std::int32_t>(), std::nullopt);
}

}  // namespace
}  // namespace tilewright::cuda
