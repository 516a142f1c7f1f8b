#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "core/env.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

class DetectTest : public testing::Test {
 protected:
  void SetUp() override { before_ = GetEnv("TILEWRIGHT_ISA"); }
  void TearDown() override {
    if (before_) {
      setenv("TILEWRIGHT_ISA", before_->c_str(), 1);
    } else {
      unsetenv("TILEWRIGHT_ISA");
    }
  }
  std::optional<std::string> before_;
};

TEST_F(DetectTest, ThisMachineIsDescribed) {
  unsetenv("TILEWRIGHT_ISA");
  const DeviceSpec spec = DetectCpu().value();
  EXPECT_EQ(spec.kind, DeviceKind::kCpu);
  EXPECT_FALSE(spec.name.empty());
  EXPECT_EQ(spec.cores, DefaultThreads());
  EXPECT_GE(spec.l1d_bytes, 8 << 10);
  EXPECT_GE(spec.l2_bytes, spec.l1d_bytes);
  EXPECT_GE(spec.llc_bytes, spec.l2_bytes);
}

TEST_F(DetectTest, EveryLevelUpToTheProcessorsOwnCanBeAskedForAndNoneAbove) {
  unsetenv("TILEWRIGHT_ISA");
  const Isa highest = DetectCpu().value().isa;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    setenv("TILEWRIGHT_ISA", std::string(IsaName(isa)).c_str(), 1);
    const Result<DeviceSpec> spec = DetectCpu();
    if (isa <= highest) {
      ASSERT_TRUE(spec) << spec.error().message;
      EXPECT_EQ(spec->isa, isa);
      EXPECT_EQ(spec->ClassId(), DetectCpuCappedAt(isa).ClassId());
    } else {
      ASSERT_FALSE(spec);
      EXPECT_EQ(spec.error().code, ErrorCode::kUnavailable);
      EXPECT_NE(spec.error().message.find(IsaName(isa)), std::string::npos);
      EXPECT_NE(spec.error().message.find(IsaName(highest)), std::string::npos);
    }
  }
}

TEST_F(DetectTest, AnUnknownLevelIsRefusedByName) {
  setenv("TILEWRIGHT_ISA", "sse9", 1);
  const Result<DeviceSpec> spec = DetectCpu();
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(spec.error().message.find("sse9"), std::string::npos);
}

}  // namespace
}  // namespace tilewright
