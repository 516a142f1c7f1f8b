#include "engine/tune/busy_watch.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;

void SpinUntil(Clock::time_point end) {
  while (Clock::now() < end) {
  }
}

// Runs `body` in a process of its own on one processor, so that no thread of this test takes part.
bool OnOneProcessor(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) _exit(2);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed)) continue;
      CPU_SET(cpu, &one);
      break;
    }
    if (sched_setaffinity(0, sizeof one, &one) != 0) _exit(2);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(BusyWatch, SeesThatTwoThreadsShareOneProcessor) {
  EXPECT_TRUE(OnOneProcessor([] {
    BusyWatch watch("/dev/null");
    const auto end = Clock::now() + std::chrono::milliseconds(300);
    std::thread neighbour([end] { SpinUntil(end); });
    // Two spinning threads displace each other every few milliseconds of their time.
    watch.Begin();
    SpinUntil(Clock::now() + std::chrono::milliseconds(150));
    const bool seen = watch.Disturbed();
    neighbour.join();
    return seen;
  }));
}

class StatFile {
 public:
  StatFile() {
    char name[] = "/tmp/tilewright-stat-XXXXXX";
    const int fd = mkstemp(name);
    EXPECT_GE(fd, 0);
    if (fd >= 0) close(fd);
    path_ = name;
  }
  ~StatFile() { std::remove(path_.c_str()); }
  void Write(int steal) const {
    std::ofstream(path_, std::ios::trunc) << "cpu  10 0 10 1000 5 0 0 " << steal << " 0 0\n"
                                          << "cpu0 5 0 5 500 2 0 0 0 0 0\n"
                                          << "cpu1 5 0 5 500 3 0 0 0 0 0\nintr 1 2 3\n";
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(BusyWatch, SeesTimeThatTheHostTook) {
  const StatFile stat;
  stat.Write(100);
  BusyWatch watch(stat.path());
  int disturbed_before = 0, disturbed_after = 0;
  // Ten tries each: another process may displace this thread in some, and steal is looked at in
  // all.
  for (int i = 0; i < 10; ++i) {
    watch.Begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    disturbed_before += watch.Disturbed() ? 1 : 0;
  }
  for (int i = 0; i < 10; ++i) {
    stat.Write(101 + i);  // a tick of 10 ms in 25, of two processors
    watch.Begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    disturbed_after += watch.Disturbed() ? 1 : 0;
  }
  EXPECT_LT(disturbed_before, 10);
  EXPECT_EQ(disturbed_after, 10);
}

TEST(BusyWatch, TakesAMissingFileForNoSteal) {
  BusyWatch watch("/no/such/file");
  int disturbed = 0;
  for (int i = 0; i < 10; ++i) {
    watch.Begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(22));
    disturbed += watch.Disturbed() ? 1 : 0;
  }
  EXPECT_LT(disturbed, 10);
}

}  // namespace
}  // namespace tilewright
