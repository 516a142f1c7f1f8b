#include "core/cpu_quota.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tilewright/executor.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

class CpuQuotaTest : public testing::Test {
 protected:
  void SetUp() override {
    mount_ = fs::temp_directory_path() / ("tilewright_quota_test_" + std::to_string(getpid()));
    fs::create_directories(mount_);
  }
  void TearDown() override { fs::remove_all(mount_); }

  void Put(const std::string& file, const std::string& text) {
    fs::create_directories((mount_ / file).parent_path());
    std::ofstream(mount_ / file) << text;
  }
  double Quota(const char* groups) const { return CgroupCpuQuota(groups, mount_.string()); }

  fs::path mount_;
};

TEST_F(CpuQuotaTest, NoFilesMeansNoLimit) {
  EXPECT_EQ(Quota("0::/user/session\n"), 0);
  EXPECT_EQ(Quota(""), 0);
  EXPECT_EQ(Quota("garbage\n:::\n"), 0);
}

TEST_F(CpuQuotaTest, TheSmallestQuotaOfAGroupAndItsParentsCounts) {
  Put("a/cpu.max", "150000 100000\n");
  Put("a/b/cpu.max", "max 100000\n");
  Put("a/b/c/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(Quota("0::/a/b/c\n"), 1.5);
  EXPECT_DOUBLE_EQ(Quota("0::/a/b\n"), 1.5);
}

TEST_F(CpuQuotaTest, AContainerWhosePathIsNotMountedUsesTheMountItself) {
  Put("cpu.max", "200000 100000\n");
  EXPECT_DOUBLE_EQ(Quota("0::/kubepods/pod1/x\n"), 2);
}

TEST_F(CpuQuotaTest, VersionOneQuotaIsRead) {
  Put("cpu,cpuacct/g/cpu.cfs_quota_us", "300000\n");
  Put("cpu,cpuacct/g/cpu.cfs_period_us", "100000\n");
  Put("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Put("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  Put("memory/g/cpu.cfs_quota_us", "1\n");
  Put("memory/g/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(Quota("4:memory:/g\n3:cpu,cpuacct:/g\n2:cpuset:/g\n"), 3);
}

TEST(DefaultThreadsTest, FollowsTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_GE(DefaultThreads(), 1);
  EXPECT_LE(DefaultThreads(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(DefaultThreads(), 1);
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace tilewright
