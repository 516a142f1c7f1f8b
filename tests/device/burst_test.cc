// How launches are timed on a GPU: what is submitted, and that nothing but the burst is between the
// timers.
#include "engine/tune/burst.h"

#include <cstdlib>

#include "cuda_device_fixture.h"
#include "device/cuda/cuda_device.h"

namespace tilewright::cuda {
namespace {

class Burst : public CudaDeviceTest {
 protected:
  Burst() : device_(Make()), module_(device_->LoadModule(Cubin("k")).value()) {
    function_ = module_->Function("kernel").value();
    fake_.SetKernels([this](const FakeCuda::Launch&) {
      ++run_;
      return 0;
    });
  }
  Tuner::Outcome Time(const BurstTimer::Burst& burst) {
    submitted_ = run_ = 0;
    fake_.StartCounting();
    return timer_.Time(burst, [this]() -> Status {
      ++submitted_;
      CudaLaunch launch = SomeLaunch();
      return CudaDevice::Of(*device_)->Launch(function_, launch, device_->default_stream());
    });
  }

  int submitted_ = 0, run_ = 0;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceModule> module_;
  void* function_ = nullptr;
  BurstTimer timer_{*device_, device_->default_stream()};
};

TEST_F(Burst, is_captured_once_and_replayed_between_two_timers_after_a_first_time) {
  ASSERT_TRUE(timer_.usable());
  const Tuner::Outcome outcome = Time({.reps = 5});
  EXPECT_EQ(outcome.verdict, Verdict::kOk) << outcome.evidence;
  EXPECT_EQ(submitted_, 1 + 5);  // one ahead, to load what is loaded lazily
  EXPECT_EQ(run_, 1 + 2 * 5);
  EXPECT_EQ(fake_.calls("cuGraphLaunch"), 2u);
  EXPECT_EQ(fake_.calls("cuMemsetD8Async"), 0u);
  // A millisecond is what the fake driver has between any two events.
  EXPECT_DOUBLE_EQ(outcome.us, 1000.0 / 5);
  EXPECT_FALSE(outcome.disturbed);
}

TEST_F(Burst, on_a_gpu_that_is_slowed_by_heat_is_disturbed) {
  setenv("TILEWRIGHT_NVML", TILEWRIGHT_FAKE_NVML, 1);
  ASSERT_TRUE(timer_.usable());
  EXPECT_FALSE(Time({.reps = 5}).disturbed);
  setenv("FAKE_NVML_LIMITS", "0x4", 1);
  EXPECT_FALSE(Time({.reps = 5}).disturbed) << "a power cap is met by every heavy product";
  setenv("FAKE_NVML_LIMITS", "0x20", 1);
  EXPECT_TRUE(Time({.reps = 5}).disturbed);
  unsetenv("FAKE_NVML_LIMITS");
  EXPECT_FALSE(Time({.reps = 5}).disturbed);
  unsetenv("TILEWRIGHT_NVML");
}

TEST_F(Burst, of_very_many_launches_is_replayed_several_times) {
  ASSERT_TRUE(timer_.usable());
  const int most = BurstTimer::kMostLaunches;
  const Tuner::Outcome outcome = Time({.reps = 2 * most + 1});
  EXPECT_EQ(submitted_, 1 + most);
  EXPECT_EQ(run_, 1 + 4 * most);
  EXPECT_DOUBLE_EQ(outcome.us, 1000.0 / (3 * most));
}

TEST_F(Burst, that_reads_little_begins_with_a_cache_of_other_bytes) {
  ASSERT_TRUE(timer_.usable());
  Time({.reps = 4, .rotating_bytes = 99, .cold_bytes = 400});
  EXPECT_EQ(fake_.calls("cuMemsetD8Async"), 1u);
  Time({.reps = 4, .rotating_bytes = 100, .cold_bytes = 400});
  EXPECT_EQ(fake_.calls("cuMemsetD8Async"), 0u);
}

TEST_F(Burst, whose_launch_fails_is_the_launchs_error) {
  ASSERT_TRUE(timer_.usable());
  int calls = 0;
  const Tuner::Outcome outcome = timer_.Time({.reps = 3}, [&]() -> Status {
    return ++calls < 3 ? Status() : Fail(ErrorCode::kInternal, "no luck");
  });
  EXPECT_EQ(outcome.verdict, Verdict::kError);
  EXPECT_EQ(outcome.evidence, "no luck");
  EXPECT_EQ(Time({.reps = 2}).verdict, Verdict::kOk) << "the stream still captures";
}

}  // namespace
}  // namespace tilewright::cuda
