// The facade across processes: what one compiled, no other compiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "artifact/store/fake_compiler.h"

namespace tilewright::test {
namespace {

using ::testing::IsEmpty;

struct Surroundings {
  std::string cwd;
  std::map<std::string, std::string> environment;
};

/// A running store_probe.
class Probe {
 public:
  Probe(const TemporaryFolder& folder, std::vector<std::string> arguments,
        const Surroundings& around = {}) {
    static int number = 0;
    output_ = folder / ("probe" + std::to_string(++number) + ".out");
    std::vector<char*> argv = {const_cast<char*>(TILEWRIGHT_STORE_PROBE)};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    if (freopen(output_.c_str(), "w", stdout) == nullptr) _exit(3);
    if (freopen((output_ + ".err").c_str(), "w", stderr) == nullptr) _exit(3);
    if (!around.cwd.empty() && chdir(around.cwd.c_str()) != 0) _exit(3);
    for (const auto& [name, value] : around.environment) setenv(name.c_str(), value.c_str(), 1);
    execv(argv[0], argv.data());
    _exit(4);
  }
  Probe(Probe&& other) noexcept : pid_(std::exchange(other.pid_, 0)), output_(other.output_) {}
  ~Probe() {
    if (pid_ <= 0) return;
    kill(pid_, SIGCONT);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  /// The exit status, -signal where one ended it.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int Value(const std::string& name) const {
    const std::string text = "\n" + ReadWhole(output_);
    const std::size_t at = text.find("\n" + name + "=");
    return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + name.size() + 2);
  }
  std::string Errors() const { return ReadWhole(output_ + ".err"); }

 private:
  pid_t pid_ = 0;
  std::string output_;
};

class StoreProcesses : public ::testing::Test {
 protected:
  Probe Start(std::vector<std::string> more, const Surroundings& around = {}) {
    std::vector<std::string> arguments = {"root=" + root, "log=" + log};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Probe(folder, std::move(arguments), around);
  }
  /// Without an end of its own: the time that ctest gives the test is one.
  void AwaitLines(std::size_t lines, const std::string& file) {
    while (CountLines(file) < lines) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::set<std::string> Symbols() const {
    std::set<std::string> symbols;
    const std::string text = ReadWhole(log);
    for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      symbols.insert(text.substr(at, text.find(' ', at) - at));
    }
    return symbols;
  }

  const TemporaryFolder folder;
  const std::string root = folder / "root";
  const std::string log = folder / "compiles.log";
};

// The ancestor's bug: the key of the first run was not the key of later ones.
TEST_F(StoreProcesses, TheFirstRunCompilesFourAndLaterRunsNoneHoweverTheyAsk) {
  for (const std::string first : {"compile", "find-first", "all"}) {
    Probe one = Start({"how=" + first, "root=" + root + first});
    ASSERT_EQ(one.Wait(), 0) << one.Errors();
    EXPECT_EQ(one.Value("compiles"), 4);
    const std::vector<Surroundings> places = {
        {},
        {"/", {}},
        {folder.path(), {{"HOME", "/nonexistent"}}},
        {"", {{"HOME", folder.path()}, {"TMPDIR", folder.path()}, {"XDG_CACHE_HOME", "/x"}}},
        {"", {{"LC_ALL", "tr_TR.UTF-8"}, {"TZ", "Asia/Kathmandu"}, {"USER", "somebody"}}},
        {"", {{"TILEWRIGHT_LOG", "debug"}, {"TILEWRIGHT_CACHE_DIR", "/y"}}},
    };
    for (const Surroundings& around : places) {
      for (const std::string how : {"compile", "find-first", "all"}) {
        Probe later = Start({"how=" + how, "root=" + root + first, "log-level=debug",
                             "order=reversed", "threads=2"},
                            around);
        ASSERT_EQ(later.Wait(), 0) << later.Errors();
        EXPECT_EQ(later.Value("compiles"), 0) << first << " then " << how;
      }
    }
  }
  EXPECT_EQ(CountLines(log), 12u);
}

TEST_F(StoreProcesses, SixteenColdProcessesOfEightThreadsCompileEachKernelOnce) {
  for (const std::string how : {"all", "compile"}) {
    std::vector<Probe> probes;
    for (int i = 0; i < 16; ++i) {
      probes.push_back(Start({"how=" + how, "root=" + root + how, "log=" + log + how, "count=50",
                              "threads=8", "takes-ms=10"}));
    }
    int total = 0;
    for (Probe& probe : probes) {
      ASSERT_EQ(probe.Wait(), 0) << probe.Errors();
      total += probe.Value("compiles");
      EXPECT_EQ(probe.Value("lock_timeouts"), 0);
      EXPECT_EQ(probe.Value("warnings"), 0) << probe.Errors();
    }
    EXPECT_EQ(total, 50);
    EXPECT_EQ(CountLines(log + how), 50u);
  }
}

TEST_F(StoreProcesses, ColdProcessesWithOneListShareTheWork) {
  // The first compilation of each ends when all three compile: none may queue behind another.
  std::vector<Probe> probes;
  for (int i = 0; i < 3; ++i) {
    probes.push_back(Start({"how=all", "count=24", "compile-threads=1", "meet=3"}));
  }
  int total = 0;
  for (Probe& probe : probes) {
    ASSERT_EQ(probe.Wait(), 0) << probe.Errors();
    EXPECT_EQ(probe.Value("met"), 1);
    EXPECT_GT(probe.Value("compiles"), 0);
    total += probe.Value("compiles");
  }
  EXPECT_EQ(total, 24);
  EXPECT_EQ(CountLines(log), 24u);
}

TEST_F(StoreProcesses, WhenTheHolderIsKilledExactlyOneOfTheWaitingTakesOver) {
  Probe holder = Start({"count=1", "hangs=1"});
  AwaitLines(1, log);
  std::vector<Probe> waiters;
  for (int i = 0; i < 4; ++i) waiters.push_back(Start({"count=1", "takes-ms=20"}));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // they poll the lock
  EXPECT_EQ(CountLines(log), 1u);
  kill(holder.pid(), SIGKILL);
  EXPECT_EQ(holder.Wait(), -SIGKILL);
  for (Probe& waiter : waiters) EXPECT_EQ(waiter.Wait(), 0) << waiter.Errors();
  EXPECT_EQ(CountLines(log), 2u);
}

TEST_F(StoreProcesses, AHolderThatHangsIsWaitedForOnlySoLong) {
  Probe holder = Start({"count=1", "hangs=1"});
  AwaitLines(1, log);
  kill(holder.pid(), SIGSTOP);
  for (const std::string how : {"compile", "all"}) {
    Probe other = Start({"count=1", "how=" + how, "lock-wait-ms=150", "mode=normal"});
    ASSERT_EQ(other.Wait(), 0) << other.Errors();
    if (how == "compile") {
      EXPECT_EQ(other.Value("lock_timeouts"), 1);
      EXPECT_EQ(other.Value("compiles"), 1);
      EXPECT_EQ(other.Value("lock_waits"), 1);
    } else {
      EXPECT_EQ(other.Value("compiles"), 0);  // it is stored by now
    }
  }
}

TEST_F(StoreProcesses, MachinesThatShareAFolderCompileEachKernelOnce) {
  std::vector<Probe> probes;
  for (int i = 0; i < 6; ++i) {
    probes.push_back(Start({"how=all", "root=" + root + std::to_string(i),
                            "shared=" + folder.path() + "/shared", "count=20", "takes-ms=5"}));
  }
  for (Probe& probe : probes) ASSERT_EQ(probe.Wait(), 0) << probe.Errors();
  EXPECT_EQ(CountLines(log), 20u);
  EXPECT_EQ(Symbols().size(), 20u);
}

TEST_F(StoreProcesses, ProcessesInStrictModeNoteEachKernelOnce) {
  std::vector<Probe> probes;
  for (int i = 0; i < 6; ++i) probes.push_back(Start({"mode=strict", "count=12", "how=all"}));
  for (Probe& probe : probes) EXPECT_EQ(probe.Wait(), 1);
  EXPECT_THAT(ReadWhole(log), IsEmpty());
  const auto specs = ParseSpecList(ReadWhole(root + "/missing.txt"), "missing.txt");
  ASSERT_TRUE(specs);
  EXPECT_EQ(specs->size(), 12u);
  EXPECT_EQ(std::set<KernelSpec>(specs->begin(), specs->end()).size(), 12u);
}

}  // namespace
}  // namespace tilewright::test
