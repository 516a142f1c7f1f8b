#include "device/cuda/nvml.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>

namespace tilewright::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kThere = "00000000:18:00.0";

/// What limits the clocks of the GPU while it lives.
class Limits {
 public:
  explicit Limits(const char* mask) { setenv("FAKE_NVML_LIMITS", mask, 1); }
  ~Limits() { unsetenv("FAKE_NVML_LIMITS"); }
};

TEST(Nvml, TellsClocksPowerHeatAndWhoComputes) {
  const auto nvml = Nvml::Open(kThere, TILEWRIGHT_FAKE_NVML);
  ASSERT_TRUE(nvml) << nvml.error().message;
  const GpuState state = (*nvml)->Read();
  EXPECT_EQ(state.sm_mhz, 1755);
  EXPECT_EQ(state.sm_most_mhz, 1980);
  EXPECT_EQ(state.memory_mhz, 3201);
  EXPECT_DOUBLE_EQ(state.watts, 412.3);
  EXPECT_DOUBLE_EQ(state.most_watts, 700);
  EXPECT_EQ(state.celsius, 46);
  EXPECT_THAT(state.limits, IsEmpty());
  EXPECT_FALSE(state.slowed);
  ASSERT_EQ(state.processes.size(), 2u);
  EXPECT_EQ(state.processes[0].pid, getpid());
  EXPECT_EQ(state.processes[0].bytes, 512u << 20);
  EXPECT_EQ(state.processes[1].pid, 4242);
  EXPECT_EQ(state.processes[1].bytes, 0u) << "what NVML does not tell";
}

TEST(Nvml, APowerCapLimitsAndHeatIsAFault) {
  const auto nvml = Nvml::Open(kThere, TILEWRIGHT_FAKE_NVML);
  ASSERT_TRUE(nvml) << nvml.error().message;
  {
    const Limits cap("0x4");
    EXPECT_THAT((*nvml)->Read().limits, ElementsAre("power cap"));
    EXPECT_FALSE((*nvml)->Read().slowed);
    EXPECT_FALSE((*nvml)->Slowed());
  }
  {
    const Limits hot("0x44");
    EXPECT_THAT((*nvml)->Read().limits, ElementsAre("power cap", "heat (hardware)"));
    EXPECT_TRUE((*nvml)->Read().slowed);
    EXPECT_TRUE((*nvml)->Slowed());
  }
  EXPECT_FALSE((*nvml)->Slowed());
}

TEST(Nvml, IsEndedAndClosedWithItsObject) {
  { ASSERT_TRUE(Nvml::Open(kThere, TILEWRIGHT_FAKE_NVML)); }
  EXPECT_EQ(dlopen(TILEWRIGHT_FAKE_NVML, RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST(Nvml, WithoutOneAndForAnUnknownGpuTheErrorSaysWhy) {
  const auto missing = Nvml::Open(kThere, "/no/such/libnvidia-ml.so.1");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(missing.error().message, HasSubstr("/no/such/libnvidia-ml.so.1"));
  const auto other = Nvml::Open(kThere, TILEWRIGHT_FAKE_CUDA);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("is not NVML"));
  const auto elsewhere = Nvml::Open("00000000:99:00.0", TILEWRIGHT_FAKE_NVML);
  ASSERT_FALSE(elsewhere);
  EXPECT_THAT(elsewhere.error().message, HasSubstr("Not Found (6)"));
}

}  // namespace
}  // namespace tilewright::cuda
