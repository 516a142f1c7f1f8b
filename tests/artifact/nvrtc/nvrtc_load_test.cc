// Finding and identifying NVRTC, and handling its results, with libraries that only look like it
// (fake_nvrtc.cc).

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/atomic_file.h"
#include "core/sha256.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/nvrtc_identity.h"

namespace tilewright::cuda {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A machine with nothing on it: a folder as its root, its own environment, no loader's path.
class Machine {
 public:
  Machine() {
    std::string name = (fs::temp_directory_path() / "nvrtc_load.XXXXXX").string();
    root_ = mkdtemp(name.data()) == nullptr ? "" : name;
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { fs::remove_all(root_); }

  const std::string& root() const { return root_; }
  void Set(const std::string& variable, const std::string& value) { env_[variable] = value; }
  /// Puts the libraries of a fake into a folder of this machine.
  std::string Install(const std::string& fake, const std::string& folder) {
    fs::create_directories(root_ + folder);
    for (const auto& file : fs::directory_iterator(std::string(FAKE_NVRTC "/") + fake))
      fs::copy_file(file.path(), root_ + folder + "/" + file.path().filename().string());
    return root_ + folder;
  }
  NvrtcSurroundings Surroundings() const {
    return {.env = [this](const char* name) -> std::optional<std::string> {
              const auto found = env_.find(name);
              if (found == env_.end()) return std::nullopt;
              return found->second;
            },
            .root = root_,
            .loader_path = false};
  }
  Result<std::shared_ptr<const KernelCompiler>> Load(const std::string& path = {}) const {
    return LoadNvrtcFrom({.path = path}, Surroundings());
  }
  std::string Error(const std::string& path = {}) const {
    const auto loaded = Load(path);
    if (loaded) return "loaded " + (*loaded)->identity().ToString();
    EXPECT_EQ(loaded.error().code, ErrorCode::kUnavailable);
    return loaded.error().message;
  }

 private:
  std::string root_;
  std::map<std::string, std::string> env_;
};

std::string VersionOf(const Result<std::shared_ptr<const KernelCompiler>>& compiler) {
  return compiler ? (*compiler)->identity().version : compiler.error().message;
}

TEST(NvrtcSearchTest, AMachineWithoutOneIsToldEveryPlaceThatWasLookedAt) {
  Machine machine;
  machine.Set("CUDA_HOME", machine.root() + "/opt/cuda");
  fs::create_directories(machine.root() + "/usr/local/cuda-12.9/lib64");
  fs::create_directories(machine.root() + "/usr/lib/python3.11/site-packages");
  EXPECT_THAT(
      machine.Error(),
      AllOf(
          HasSubstr("NVRTC 12.9 or newer was not found. Looked at:"),
          HasSubstr("\n  $TILEWRIGHT_NVRTC: not set"),
          HasSubstr("\n  $CUDA_HOME: " + machine.root() + "/opt/cuda/lib64 holds no libnvrtc.so.*"),
          HasSubstr("\n  $CUDA_PATH: not set"),
          HasSubstr("\n  " + machine.root() + "/usr/local/cuda/lib64: no such folder"),
          HasSubstr("\n  " + machine.root() + "/usr/local/cuda-12.9/lib64: holds no libnvrtc.so.*"),
          HasSubstr("\n  Python packages nvidia-cuda-nvrtc*: none in 2 folders"),
          HasSubstr("set TILEWRIGHT_NVRTC to")));
}

TEST(NvrtcSearchTest, PlacesComeInTheDocumentedOrderNewestToolkitFirst) {
  Machine machine;
  for (const char* folder : {"/usr/local/cuda-9.2", "/usr/local/cuda-13.0", "/usr/local/cuda-12.9"})
    fs::create_directories(machine.root() + folder);
  NvrtcSurroundings surroundings = machine.Surroundings();
  surroundings.loader_path = true;
  std::vector<std::string> names;
  for (const NvrtcPlace& place : NvrtcPlaces({}, surroundings)) {
    EXPECT_FALSE(place.given);
    names.push_back(place.name);
  }
  const std::string local = machine.root() + "/usr/local";
  EXPECT_THAT(names, ElementsAre("$TILEWRIGHT_NVRTC", "the loader's path", "$CUDA_HOME",
                                 "$CUDA_PATH", local + "/cuda/lib64", local + "/cuda-13.0/lib64",
                                 local + "/cuda-12.9/lib64", local + "/cuda-9.2/lib64",
                                 "Python packages nvidia-cuda-nvrtc*"));
}

TEST(NvrtcSearchTest, EveryPlaceIsUsed) {
  for (const char* place : {"/usr/local/cuda/lib64", "/usr/local/cuda-13.0/lib64",
                            "/usr/local/lib/python3.12/site-packages/nvidia/cu13/lib",
                            "/usr/lib/python3.11/dist-packages/nvidia/cuda_nvrtc/lib"}) {
    Machine machine;
    machine.Install("good", place);
    EXPECT_EQ(VersionOf(machine.Load()), "99.1") << place;
  }
  for (const auto& [variable, folder] : std::vector<std::pair<std::string, std::string>>{
           {"CUDA_HOME", "/lib64"},
           {"CUDA_PATH", "/lib"},
           {"TILEWRIGHT_NVRTC", ""},
           {"VIRTUAL_ENV", "/lib/python3.13/site-packages/nvidia/cu13/lib"},
           {"CONDA_PREFIX", "/lib/python3.9/site-packages/nvidia/cu13/lib"},
           {"HOME", "/.local/lib/python3.11/site-packages/nvidia/cu13/lib"}}) {
    Machine machine;
    machine.Install("good", "/place" + folder);
    machine.Set(variable, machine.root() + "/place");
    EXPECT_EQ(VersionOf(machine.Load()), "99.1") << variable;
  }
}

TEST(NvrtcSearchTest, APlaceThatDoesNotWorkIsPassedOverAndTold) {
  Machine machine;
  machine.Install("old", "/usr/local/cuda/lib64");
  machine.Install("partial", "/usr/local/cuda-13.9/lib64");
  EXPECT_THAT(machine.Error(), AllOf(HasSubstr("is NVRTC 12.8: 12.9 or newer is needed"),
                                     HasSubstr("it lacks nvrtcGetCUBIN")));
  machine.Install("good", "/usr/local/cuda-13.0/lib64");
  EXPECT_EQ(VersionOf(machine.Load()), "99.1");
}

TEST(NvrtcSearchTest, AGivenPlaceThatIsNotNvrtcIsAnErrorAndNothingElseIsTried) {
  Machine machine;
  machine.Install("good", "/usr/local/cuda/lib64");
  const std::string old = machine.Install("old", "/old");
  fs::create_directories(machine.root() + "/empty");
  std::ofstream(machine.root() + "/text.so") << "not a library";
  fs::copy_file(FAKE_NVRTC "/good/libnvrtc-builtins.so.99.1", machine.root() + "/libother.so");

  const std::map<std::string, std::string> cases = {
      {"/absent", "No such file or directory"},
      {"/empty", "holds no libnvrtc.so.*"},
      {"/text.so", "text.so"},
      {"/libother.so", "is not NVRTC 12.9 or newer: it lacks nvrtcVersion"},
      {"/old", "is NVRTC 12.8: 12.9 or newer is needed"},
  };
  for (const auto& [path, words] : cases) {
    EXPECT_THAT(machine.Error(machine.root() + path),
                AllOf(HasSubstr("the given path does not lead to NVRTC: "), HasSubstr(words),
                      Not(HasSubstr("Looked at"))));
    machine.Set("TILEWRIGHT_NVRTC", machine.root() + path);
    EXPECT_THAT(machine.Error(),
                AllOf(HasSubstr("$TILEWRIGHT_NVRTC does not lead to NVRTC: "), HasSubstr(words)));
  }
  machine.Set("TILEWRIGHT_NVRTC", machine.root() + "/absent");
  EXPECT_EQ(VersionOf(machine.Load(machine.root() + "/usr/local/cuda/lib64")), "99.1")
      << "the path goes before the variable";
}

TEST(NvrtcSearchTest, AFolderOffersItsNewestVersion) {
  Machine machine;
  const std::string folder = machine.Install("no_flow", "/both");
  machine.Install("good", "/both");
  EXPECT_EQ(VersionOf(machine.Load(folder)), "99.1");
  EXPECT_EQ(VersionOf(machine.Load(folder + "/libnvrtc.so.97")), "97.0");
}

TEST(NvrtcSearchTest, WithoutItsBuiltinsItCouldNotCompileSoItIsRefused) {
  Machine machine;
  const std::string folder = machine.Install("alone", "/alone");
  EXPECT_THAT(machine.Error(folder),
              AllOf(HasSubstr("libnvrtc-builtins.so.98.7 cannot be loaded"), HasSubstr(folder)));
}

TEST(NvrtcIdentityTest, ALibraryWithoutABuildIdIsKnownByItsDigest) {
  Machine machine;
  const std::string folder = machine.Install("good", "/lib");
  const auto compiler = machine.Load(folder);
  ASSERT_TRUE(compiler) << compiler.error().message;
  const Result<std::string> file = ReadFile(folder + "/libnvrtc.so.99");
  ASSERT_TRUE(file);
  const CompilerIdentity& identity = (*compiler)->identity();
  EXPECT_EQ(identity.backend, "nvrtc");
  EXPECT_EQ(identity.version, "99.1");
  EXPECT_EQ(identity.build_id, "sha256:" + Sha256Hex(*file).value_or(""));
  EXPECT_EQ(identity.builtins_version, "99.1");
  EXPECT_EQ(identity.builtins_build_id, "fedcba9876543210");
  EXPECT_EQ(identity.ToString(),
            "nvrtc 99.1 (" + identity.build_id.substr(0, 15) + ", builtins 99.1 fedcba98)");
}

TEST(NvrtcIdentityTest, IsTheSameInEveryFolderAndNamesNone) {
  Machine a, b;
  const auto one = a.Load(a.Install("newer", "/some/place"));
  const auto two = b.Load(b.Install("newer", "/another"));
  ASSERT_TRUE(one && two);
  EXPECT_EQ((*one)->identity(), (*two)->identity());
  EXPECT_EQ((*one)->identity().build_id, "0123456789abcdef");
  EXPECT_THAT((*one)->identity().ToString(), Not(HasSubstr("/")));
}

TEST(NvrtcIdentityTest, TwoVersionsInOneProcessStayApart) {
  Machine machine;
  const auto good = machine.Load(FAKE_NVRTC "/good");
  const auto newer = machine.Load(FAKE_NVRTC "/newer");
  ASSERT_TRUE(good && newer);
  EXPECT_EQ((*good)->identity().version, "99.1");
  EXPECT_EQ((*newer)->identity().version, "99.3");
  EXPECT_EQ((*newer)->identity().builtins_version, "99.3");
}

TEST(NvrtcIdentityTest, IsThatOfTheCodeInMemoryAfterTheFileWasReplaced) {
  Machine machine;
  const std::string folder = machine.Install("newer", "/lib");
  void* handle = dlopen((folder + "/libnvrtc.so.99").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr);
  fs::remove(folder + "/libnvrtc.so.99");
  std::ofstream(folder + "/libnvrtc.so.99") << "a newer version, half installed";
  const Result<LoadedLibrary> library = DescribeLibrary(handle);
  ASSERT_TRUE(library);
  EXPECT_EQ(library->build_id, "0123456789abcdef");
  dlclose(handle);
}

TEST(NvrtcIdentityTest, AFileIsLoadedOnceByWhateverName) {
  Machine machine;
  const std::string folder = machine.Install("good", "/lib");
  fs::create_symlink(folder + "/libnvrtc.so.99", machine.root() + "/link.so");
  const auto direct = machine.Load(folder);
  const auto linked = machine.Load(machine.root() + "/link.so");
  ASSERT_TRUE(direct && linked);
  EXPECT_EQ(direct->get(), linked->get());

  std::vector<const KernelCompiler*> seen(8);
  std::vector<std::thread> threads;
  for (auto& one : seen)
    threads.emplace_back([&] { one = machine.Load(folder).value_or(nullptr).get(); });
  for (std::thread& thread : threads) thread.join();
  for (const KernelCompiler* one : seen) EXPECT_EQ(one, direct->get());
}

class FakeCompile : public ::testing::Test {
 protected:
  static std::shared_ptr<const KernelCompiler> Compiler(const std::string& fake = "good") {
    const auto compiler = LoadNvrtc({.path = std::string(FAKE_NVRTC "/") + fake});
    return compiler ? *compiler : nullptr;
  }
  static tl::expected<CompileOutput, CompileFailure> Compile(const std::string& source,
                                                             const CancelFn& cancelled = {},
                                                             const std::string& fake = "good") {
    return Compiler(fake)->Compile(
        {.name = "unit.cu", .source = source, .headers = {}, .options = {}, .symbol = "k"},
        cancelled);
  }
};

TEST_F(FakeCompile, GivesTheCompilerTheUnitItsHeadersAndOptionsAndNothingElse) {
  const std::vector<SourceFile> headers = {{"spec.cuh", "one"}, {"device/x.cuh", "two"}};
  const std::vector<std::string> options = {"--std=c++17", "--gpu-architecture=sm_90a"};
  // Not followed by a NUL in memory.
  const std::string memory = "source text beyond";
  const auto made = Compiler()->Compile({.name = "ops/unit.cu",
                                         .source = std::string_view(memory).substr(0, 11),
                                         .headers = headers,
                                         .options = options,
                                         .symbol = "k"},
                                        {});
  ASSERT_TRUE(made) << made.error().error.message;
  EXPECT_EQ(made->cubin,
            "unit ops/unit.cu\nheader spec.cuh\none\nheader device/x.cuh\ntwo\n"
            "option --std=c++17\noption --gpu-architecture=sm_90a\nsource text");
  EXPECT_EQ(made->ptx, "// fake\n");
}

TEST_F(FakeCompile, OnlyARefusedSourceIsDeterministic) {
  struct Case {
    int result;
    ErrorCode code;
    bool deterministic;
  };
  for (const Case& one :
       {Case{1, ErrorCode::kOutOfMemory, false}, Case{3, ErrorCode::kInvalidArgument, false},
        Case{4, ErrorCode::kInternal, false}, Case{5, ErrorCode::kInvalidArgument, false},
        Case{6, ErrorCode::kUnsupported, true}, Case{7, ErrorCode::kUnavailable, false},
        Case{11, ErrorCode::kInternal, false}, Case{14, ErrorCode::kInternal, false},
        Case{16, ErrorCode::kCancelled, false}, Case{18, ErrorCode::kUnavailable, false},
        Case{999, ErrorCode::kInternal, false}}) {
    const auto made = Compile("fake: result " + std::to_string(one.result));
    ASSERT_FALSE(made) << one.result;
    EXPECT_EQ(made.error().deterministic, one.deterministic) << one.result;
    EXPECT_EQ(made.error().error.code, one.code) << one.result;
    EXPECT_THAT(made.error().error.message, HasSubstr("unit.cu"));
    EXPECT_THAT(made.error().log, HasSubstr("a remark\nfake.cu(1): error: asked for result"));
  }
}

TEST_F(FakeCompile, MemoryThatRanOutIsNotBlamedOnTheSource) {
  // NVRTC answers "compilation error" all the same, and in the last two cases no more than this.
  const struct {
    const char* log;
    ErrorCode code;
  } cases[] = {
      {"x.cu(2): catastrophic error: out of memory\n1 catastrophic error detected in the "
       "compilation of \"x.cu\".\n",
       ErrorCode::kOutOfMemory},
      {"ptxas fatal   : Memory allocation failure\n", ErrorCode::kOutOfMemory},
      {"1 catastrophic error detected in the compilation of \"x.cu\".\n", ErrorCode::kInternal},
      {"ptxas fatal   : Ptx assembly aborted due to errors\n", ErrorCode::kInternal},
      {"", ErrorCode::kInternal},
  };
  for (const auto& one : cases) {
    const auto made = Compile(std::string("fake: refuses\n") + one.log);
    ASSERT_FALSE(made) << one.log;
    EXPECT_FALSE(made.error().deterministic) << one.log;
    EXPECT_EQ(made.error().error.code, one.code) << one.log;
  }
}

TEST_F(FakeCompile, AnErrorTellsVersionUnitCodeAndTheFirstComplaint) {
  const auto made = Compile("fake: result 6");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().error.message,
            "NVRTC 99.1 refused unit.cu: FAKE_ERROR_COMPILATION (code 6): fake.cu(1): error: asked "
            "for result 6");
}

TEST_F(FakeCompile, MissingBuiltinsAreNamed) {
  const auto made = Compile("fake: result 7");
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().error.message, HasSubstr("libnvrtc-builtins.so.99.1"));
}

TEST_F(FakeCompile, NoMachineCodeIsNoSuccess) {
  const auto made = Compile("fake: no cubin");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().error.code, ErrorCode::kInternal);
  EXPECT_FALSE(made.error().deterministic);
}

TEST_F(FakeCompile, WithoutItsLogNothingIsKnownOfSpillsAndItIsNoSuccess) {
  const auto made = Compile("fake: no log");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().error.code, ErrorCode::kOutOfMemory);
  EXPECT_FALSE(made.error().deterministic);
}

TEST_F(FakeCompile, AHugeLogIsKeptWhole) {
  const auto made = Compile("fake: log 20000000");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->log.size(), 20000001U);  // and a line break
}

TEST_F(FakeCompile, ANulInTheSourceIsAnErrorNotAShorterSource) {
  const auto made = Compile(std::string("a\0b", 3));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().error.code, ErrorCode::kInvalidArgument);
}

TEST_F(FakeCompile, IsCancelledWhileItRuns) {
  std::atomic<int> asked{0};
  const auto made = Compile("fake: hang", [&] { return ++asked >= 3; });
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().error.code, ErrorCode::kCancelled);
  EXPECT_FALSE(made.error().deterministic);
  EXPECT_EQ(asked, 3) << "asked again after it said yes";
}

TEST_F(FakeCompile, IsNotStartedWhereItIsCancelledAlready) {
  // Without a flow callback nothing could stop it once it runs.
  const auto made = Compile(
      "fake: hang", [] { return true; }, "no_flow");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().error.code, ErrorCode::kCancelled);
}

TEST_F(FakeCompile, AnExceptionOfTheCallerCancels) {
  int asked = 0;
  const auto made = Compile("fake: hang", [&]() -> bool {
    if (++asked == 2) throw std::runtime_error("caller's trouble");
    return false;
  });
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().error.code, ErrorCode::kCancelled);
}

TEST_F(FakeCompile, TheCallerIsAskedByOneThreadAtATimeAndNotTooOften) {
  std::atomic<int> inside{0}, most{0}, asked{0};
  const auto start = std::chrono::steady_clock::now();
  const auto made = Compile("fake: threads", [&] {
    most = std::max(most.load(), ++inside);
    std::this_thread::yield();
    --inside;
    ++asked;
    return false;
  });
  EXPECT_TRUE(made);
  EXPECT_EQ(most, 1);
  // Of 4,000 questions one at once and one each 20 ms.
  EXPECT_LE(asked, 1 + (std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(20));
}

TEST_F(FakeCompile, VariablesThatChangeTheCodeUnseenAreRefused) {
  ASSERT_TRUE(Compile("fine"));
  setenv("NVRTC_APPEND_FLAGS", "--maxrregcount=16", 1);
  const auto made = Compile("fine");
  unsetenv("NVRTC_APPEND_FLAGS");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().error.code, ErrorCode::kUnavailable);
  EXPECT_FALSE(made.error().deterministic);
  EXPECT_THAT(made.error().error.message, HasSubstr("NVRTC_APPEND_FLAGS is set"));
  EXPECT_TRUE(Compile("fine"));
}

}  // namespace
}  // namespace tilewright::cuda
