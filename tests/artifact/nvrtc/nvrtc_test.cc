// The real NVRTC: its output is a pure function of the job, in any process and environment; its log
// is understood; it can be stopped; it leaves nothing behind. Skipped if there is none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "test_kernels.h"
#include "tilewright/compiler.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// What a shell command printed, and whether it ended well.
struct Ran {
  std::string output;
  bool well = false;
};
class Started {
 public:
  explicit Started(const std::string& command) : pipe_(popen(command.c_str(), "r")) {}
  Started(Started&& other) noexcept : pipe_(std::exchange(other.pipe_, nullptr)) {}
  Started& operator=(Started&&) = delete;
  ~Started() {
    if (pipe_ != nullptr) pclose(pipe_);
  }
  Ran Wait() {
    Ran ran;
    std::array<char, 4096> part;
    for (std::size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe_)) > 0;)
      ran.output.append(part.data(), n);
    ran.well = pclose(std::exchange(pipe_, nullptr)) == 0;
    return ran;
  }

 private:
  FILE* pipe_;
};
Ran RunShell(const std::string& command) { return Started(command).Wait(); }

class TempFolder {
 public:
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "nvrtc.XXXXXX").string();
    path_ = mkdtemp(name.data()) == nullptr ? "" : name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  std::string path_;
};

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto loaded = LoadNvrtc();
    if (!loaded) GTEST_SKIP() << loaded.error().message;
    compiler_ = *loaded;
  }
  tl::expected<CompileOutput, CompileFailure> Compile(const test::Kernel& kernel,
                                                      const std::string& arch = "sm_90a",
                                                      const CancelFn& cancelled = {}) const {
    const std::vector<std::string> options = test::Options(arch);
    return compiler_->Compile(test::Job(kernel, options), cancelled);
  }
  std::shared_ptr<const KernelCompiler> compiler_;
};

TEST_F(NvrtcTest, KnowsExactlyWhichOneItIs) {
  const CompilerIdentity& identity = compiler_->identity();
  EXPECT_EQ(identity.backend, "nvrtc");
  EXPECT_THAT(identity.version, ::testing::MatchesRegex("[0-9]+\\.[0-9]+"));
  EXPECT_EQ(identity.builtins_version, identity.version);
  EXPECT_GE(identity.build_id.size(), 16U);
  EXPECT_GE(identity.builtins_build_id.size(), 16U);
  EXPECT_NE(identity.build_id, identity.builtins_build_id);
  EXPECT_THAT(identity.ToString(), Not(HasSubstr("/")));
}

TEST_F(NvrtcTest, CompilesForEveryArchitectureWeShip) {
  for (const char* arch : {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
    const auto made = Compile(test::kTrivial, arch);
    ASSERT_TRUE(made) << arch << ": " << made.error().error.message;
    EXPECT_EQ(made->cubin.substr(0, 4),
              "\x7f"
              "ELF");
    EXPECT_THAT(made->ptx,
                AllOf(HasSubstr(std::string(".target ") + arch), HasSubstr(".entry k(")));
    EXPECT_EQ(made->ptx.find('\0'), std::string::npos);
    EXPECT_GT(made->compile_ms, 0);
  }
}

TEST_F(NvrtcTest, ReportsWhatAKernelUses) {
  const auto made = Compile(test::kShared);
  ASSERT_TRUE(made) << made.error().error.message;
  EXPECT_EQ(made->resources.static_smem_bytes, 128U);
  EXPECT_EQ(made->resources.barriers, 1U);
  EXPECT_GE(made->resources.registers, 4U);
  EXPECT_GT(made->resources.constant_bytes, 0U);
  EXPECT_EQ(made->resources.spill_store_bytes, 0U);
  EXPECT_EQ(made->resources.stack_bytes, 0U);
}

TEST_F(NvrtcTest, WithoutItsLogTheCubinTells) {
  // sm_80: from sm_90 on the cubin counts a KiB of shared memory that the system reserves.
  for (const test::Kernel& kernel : {test::kShared, test::kSpilling}) {
    std::vector<std::string> options = test::Options("sm_80");
    std::erase(options, "--ptxas-options=-v");
    const auto silent = compiler_->Compile(test::Job(kernel, options), {});
    const auto told = Compile(kernel, "sm_80");
    ASSERT_TRUE(silent && told);
    EXPECT_EQ(silent->log, "");
    ResourceUsage expected = told->resources;
    expected.barriers = 0;
    // Nothing is spilled without a frame; how much of a frame is spills only the log tells.
    if (expected.stack_bytes != 0) {
      expected.spill_load_bytes = expected.spill_store_bytes = std::nullopt;
    }
    EXPECT_EQ(silent->resources, expected) << kernel.name;
  }
}

TEST_F(NvrtcTest, SpillsAreSeen) {
  const auto made = Compile(test::kSpilling);
  ASSERT_TRUE(made) << made.error().error.message;
  EXPECT_EQ(made->resources.registers, 32U);
  ASSERT_TRUE(made->resources.SpillBytes());
  EXPECT_GE(*made->resources.spill_store_bytes, 64U);
  EXPECT_GE(*made->resources.spill_load_bytes, 64U);
  EXPECT_GT(made->resources.stack_bytes, 0U);
}

TEST_F(NvrtcTest, HeadersAreFoundByTheirVirtualNamesAndNowhereElse) {
  const std::vector<SourceFile> headers = {
      {"spec.cuh", "#pragma once\n#include \"device/cuda/x.cuh\"\n"},
      {"device/cuda/x.cuh", "#pragma once\nconstexpr float kTwo = 2.0f;\n"}};
  const std::vector<std::string> options = test::Options("sm_80");
  CompileJob job{.name = "ops/unit.cu",
                 .source =
                     "#include \"spec.cuh\"\n#include \"device/cuda/x.cuh\"\n"
                     "extern \"C\" __global__ void k(float* p) { *p = kTwo; }\n",
                 .headers = headers,
                 .options = options,
                 .symbol = "k"};
  EXPECT_TRUE(compiler_->Compile(job, {}));
  job.headers = std::span(headers).first(1);
  const auto made = compiler_->Compile(job, {});
  ASSERT_FALSE(made);
  EXPECT_TRUE(made.error().deterministic) << made.error().log;
  EXPECT_THAT(made.error().error.message, HasSubstr("device/cuda/x.cuh"));
}

TEST_F(NvrtcTest, ARefusedSourceIsDeterministicAndExplained) {
  const std::vector<test::Kernel> refused = {
      {"syntax.cu", "extern \"C\" __global__ void k() { undeclared = 1; }"},
      {"instruction.cu", "extern \"C\" __global__ void k() { asm volatile(\"nonsense;\"); }"},
      // 400,000 bytes of shared memory: refused by the assembler.
      {"shared.cu",
       "extern \"C\" __global__ void k(float* o) { __shared__ float s[100000]; "
       "s[threadIdx.x] = 1; __syncthreads(); o[0] = s[3]; }"},
  };
  for (const test::Kernel& kernel : refused) {
    const auto made = Compile(kernel);
    ASSERT_FALSE(made) << kernel.name;
    EXPECT_TRUE(made.error().deterministic) << kernel.name;
    EXPECT_EQ(made.error().error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(made.error().error.message, HasSubstr(std::string(kernel.name)));
  }
  EXPECT_THAT(Compile(refused[0]).error().log, HasSubstr("undeclared"));
  EXPECT_THAT(Compile(refused[2]).error().error.message,
              HasSubstr("400000 bytes of static shared"));
  EXPECT_THAT(Compile(refused[2]).error().log, StartsWith("error: 400000 bytes"));
}

TEST_F(NvrtcTest, MemoryThatRanOutIsNotBlamedOnTheSource) {
  // Enough to do for the front end and for the assembler.
  const test::Kernel large = {
      "large.cu",
      "template <int N> struct F { static __device__ float f(float x) {"
      " return F<N - 1>::f(x * 1.01f + N) + x; } };"
      "template <> struct F<0> { static __device__ float f(float x) { return x; } };"
      "extern \"C\" __global__ void k(float* p) { float s = 0;\n"
      "#pragma unroll\n"
      "for (int i = 0; i < 100; i++) s += F<200>::f(p[i]); p[threadIdx.x] = s; }"};
  constexpr int kBlamed = 77;
  for (const rlim_t left : {4, 12, 20}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(120);
      long pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlim_t bytes =
          static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (left << 20);
      const rlimit memory{bytes, bytes}, no_core{0, 0};
      setrlimit(RLIMIT_AS, &memory);
      setrlimit(RLIMIT_CORE, &no_core);
      const auto made = Compile(large);
      _exit(!made && made.error().deterministic ? kBlamed : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    // In places NVRTC itself, or a sanitizer, ends the process.
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == kBlamed) << left << " MiB";
  }
}

TEST_F(NvrtcTest, AnUnknownOptionIsNoVerdictOnTheSource) {
  std::vector<std::string> options = test::Options("sm_90a");
  options.emplace_back("--no-such-option");
  const auto made = compiler_->Compile(test::Job(test::kTrivial, options), {});
  ASSERT_FALSE(made);
  EXPECT_FALSE(made.error().deterministic);
  EXPECT_EQ(made.error().error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(made.error().error.message, HasSubstr("--no-such-option"));
}

TEST_F(NvrtcTest, IsCancelledInTheMiddle) {
  // A second of work: each of 60 functions is a hundred lines of arithmetic.
  std::string source;
  for (int f = 0; f < 60; ++f) {
    source += "__device__ float f" + std::to_string(f) + "(float x, float y) {\n";
    for (int i = 0; i < 100; ++i)
      source += "x = x * y + " + std::to_string(f + i) + ".5f; y = sinf(x) - y;\n";
    source += "return x; }\n";
  }
  source += "extern \"C\" __global__ void k(float* p) { float s = 0;\n";
  for (int f = 0; f < 60; ++f) source += "s += f" + std::to_string(f) + "(p[threadIdx.x], s);\n";
  source += "*p = s; }\n";
  // The first question comes before it starts, the others, 20 ms apart, while it works.
  int asked = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto made = Compile({"long.cu", source}, "sm_90a", [&] { return ++asked == 3; });
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  ASSERT_FALSE(made) << "compiled in " << made->compile_ms << " ms, asked " << asked << " times";
  EXPECT_EQ(made.error().error.code, ErrorCode::kCancelled) << made.error().error.message;
  EXPECT_FALSE(made.error().deterministic);
  EXPECT_EQ(asked, 3) << "asked again after it said yes";
  RecordProperty("cancelled_after_ms", static_cast<int>(took.count()));
  // And the compiler is well afterwards.
  EXPECT_TRUE(Compile(test::kTrivial));
}

TEST_F(NvrtcTest, EightProcessesMakeTheSameBytes) {
  std::vector<Started> processes;
  for (int i = 0; i < 8; ++i) processes.emplace_back(NVRTC_PROBE);
  const Ran first = processes[0].Wait();
  ASSERT_TRUE(first.well) << first.output;
  EXPECT_THAT(first.output, HasSubstr(compiler_->identity().ToString()));
  for (std::size_t i = 1; i < processes.size(); ++i) {
    const Ran other = processes[i].Wait();
    EXPECT_TRUE(other.well);
    EXPECT_EQ(other.output, first.output);
  }
}

TEST_F(NvrtcTest, SurroundingsDoNotChangeTheBytes) {
  const TempFolder folder;
  const std::string probe = NVRTC_PROBE;
  const Ran plain = RunShell(probe);
  ASSERT_TRUE(plain.well) << plain.output;
  fs::create_symlink(probe, folder.path() + "/another-name");
  const std::vector<std::string> ways = {
      "cd / && " + probe,
      "cd " + folder.path() + " && env PWD=/nowhere ./another-name",
      "env HOME=/nonexistent TMPDIR=/nonexistent USER=nobody " + probe,
      "env LANG=de_DE.UTF-8 LC_ALL=C.UTF-8 TZ=Asia/Tokyo " + probe,
      "env -u HOME -u PWD -u LANG MAKEFLAGS=-j4 " + probe,
      "env NVRTC_DISABLE_PCH=1 NVRTC_PCH_HEAP_SIZE=1000000 NVRTC_DISABLE_CONCURRENT_NVVM=1 " +
          probe,
      "env NVRTC_INTERNAL_GLOBAL_LOCK=1 CUDA_CACHE_DISABLE=1 CUDA_CACHE_PATH=/nonexistent " + probe,
      "env EDG_BASE=/nonexistent LLVM_OVERRIDE_PRODUCER=other CPATH=/usr/include " + probe,
      // Where the surroundings of the test allow it: containers may not.
      "if setarch -R true 2>&-; then exec setarch -R " + probe + "; else exec " + probe + "; fi",
      "umask 0 && exec " + probe + " </dev/null",
      probe + " --threads 4",
  };
  for (const std::string& way : ways) {
    const Ran other = RunShell(way + " 2>&1");
    EXPECT_TRUE(other.well) << way;
    EXPECT_EQ(other.output, plain.output) << way;
  }
  EXPECT_EQ(folder.entries(), 1U);
}

TEST_F(NvrtcTest, TheSeedIsWhatInternalNamesDependOn) {
  // Names of symbols with internal linkage are made from the seed; without one from the text of the
  // unit and, in some versions, from the process. Documented, not relied on: every job has a seed.
  std::vector<std::string> one = test::Options("sm_90a", false), two = one;
  one.emplace_back("--frandom-seed=0000000000000001");
  two.emplace_back("--frandom-seed=0000000000000002");
  const auto a = compiler_->Compile(test::Job(test::kStatics, one), {});
  const auto b = compiler_->Compile(test::Job(test::kStatics, two), {});
  const auto again = compiler_->Compile(test::Job(test::kStatics, one), {});
  ASSERT_TRUE(a && b && again);
  EXPECT_EQ(a->cubin, again->cubin);
  EXPECT_EQ(a->ptx, again->ptx);
  const Ran unseeded = RunShell(std::string(NVRTC_PROBE) + " --no-seed");
  const Ran unseeded_again = RunShell(std::string(NVRTC_PROBE) + " --no-seed");
  ASSERT_TRUE(unseeded.well && unseeded_again.well);
  RecordProperty("seed_changes_bytes", a->cubin != b->cubin ? 1 : 0);
  RecordProperty("unseeded_processes_differ", unseeded.output != unseeded_again.output ? 1 : 0);
}

TEST_F(NvrtcTest, ThreadsCompileSideBySide) {
  const auto alone = Compile(test::kStatics);
  ASSERT_TRUE(alone);
  std::vector<std::string> cubins(8);
  std::vector<std::thread> threads;
  for (std::string& cubin : cubins) {
    threads.emplace_back([&] {
      const auto made = Compile(test::kStatics);
      if (made) cubin = made->cubin;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& cubin : cubins) EXPECT_EQ(cubin, alone->cubin);
}

TEST_F(NvrtcTest, TwoHundredCompilationsLeaveNothingBehind) {
  const TempFolder folder;
  const char* before = getenv("TMPDIR");
  const std::string old = before == nullptr ? "" : before;
  setenv("TMPDIR", folder.path().c_str(), 1);
  const auto descriptors = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  ASSERT_TRUE(Compile(test::kShared));
  const auto open = descriptors();
  int failed = 0;
  for (int i = 0; i < 200; ++i) {
    // Every fourth is refused, every fourth cancelled.
    const auto made = i % 4 == 0
                          ? Compile({"bad.cu", "extern \"C\" __global__ void k() { x = 1; }"})
                          : Compile(test::kTrivial, "sm_90a", [&] { return i % 4 == 1; });
    failed += made ? 0 : 1;
  }
  EXPECT_EQ(failed, 100);
  EXPECT_EQ(descriptors(), open);
  EXPECT_EQ(folder.entries(), 0U);
  if (before == nullptr) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", old.c_str(), 1);
  }
}

/// A second version beside the first: $TILEWRIGHT_NVRTC_OTHER.
class OtherNvrtcTest : public NvrtcTest {
 protected:
  void SetUp() override {
    NvrtcTest::SetUp();
    if (compiler_ == nullptr) return;
    const char* path = getenv("TILEWRIGHT_NVRTC_OTHER");
    if (path == nullptr || !fs::exists(path))
      GTEST_SKIP() << "TILEWRIGHT_NVRTC_OTHER is not there: " << (path == nullptr ? "" : path);
    const auto loaded = LoadNvrtc({.path = path});
    ASSERT_TRUE(loaded) << loaded.error().message;
    other_ = *loaded;
  }
  std::shared_ptr<const KernelCompiler> other_;
};

TEST_F(OtherNvrtcTest, TwoVersionsInOneProcessEachMakeTheirOwnBytes) {
  EXPECT_NE(other_->identity(), compiler_->identity());
  EXPECT_NE(other_->identity().version, compiler_->identity().version);
  EXPECT_NE(other_->identity().builtins_build_id, compiler_->identity().builtins_build_id);
  const std::vector<std::string> options = test::Options("sm_90a");
  const auto here = compiler_->Compile(test::Job(test::kStatics, options), {});
  const auto there = other_->Compile(test::Job(test::kStatics, options), {});
  const auto here_again = compiler_->Compile(test::Job(test::kStatics, options), {});
  ASSERT_TRUE(here && there && here_again);
  EXPECT_NE(here->cubin, there->cubin);
  EXPECT_EQ(here->cubin, here_again->cubin);
  EXPECT_EQ(there->resources.registers == 0, false);
}

TEST_F(OtherNvrtcTest, BesideAnotherVersionItMakesWhatItMakesAlone) {
  const Ran alone = RunShell(std::string("TILEWRIGHT_NVRTC=") + getenv("TILEWRIGHT_NVRTC_OTHER") +
                             " " + NVRTC_PROBE);
  ASSERT_TRUE(alone.well) << alone.output;
  EXPECT_THAT(alone.output, HasSubstr(other_->identity().ToString()));
}

}  // namespace
}  // namespace tilewright
