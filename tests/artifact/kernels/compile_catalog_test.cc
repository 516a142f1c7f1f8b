// Compiles the catalog: every kernel for sm_90a and one per family for each other architecture, or,
// with TILEWRIGHT_FULL in the environment, every kernel for every architecture. Another process
// compiles every tenth of them again (all with TILEWRIGHT_FULL) and must get the same bytes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "artifact/build.h"
#include "core/sha256.h"
#include "cubin.h"
#include "ptx_waits.h"
#include "tilewright/artifact_key.h"
#include "tilewright/compiler.h"
#include "tilewright/tilewright.h"

extern char** environ;

namespace tilewright {
namespace {

constexpr const char* kArchs[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"};
constexpr const char* kTuned = "sm_90a";

bool Full() {
  const char* full = std::getenv("TILEWRIGHT_FULL");
  return full != nullptr && *full != '\0' && std::string_view(full) != "0";
}

/// What is compiled, in a fixed order: two processes agree on it.
std::vector<KernelSpec> Chosen(const KernelFamilies& families) {
  std::vector<KernelSpec> chosen;
  for (const char* name : kArchs) {
    std::set<std::string> seen;
    for (const KernelSpec& spec : families.Catalog(*ParseCudaArch(name))) {
      const bool first = seen.insert(std::string(spec.family.view())).second;
      if (first || Full() || std::string_view(name) == kTuned) chosen.push_back(spec);
    }
  }
  return chosen;
}

/// Of those, what the other process compiles as well: kernels of a family differ in little that
/// could make the compiler waver.
std::vector<KernelSpec> ChosenAgain(const KernelFamilies& families) {
  std::vector<KernelSpec> again;
  const std::vector<KernelSpec> chosen = Chosen(families);
  for (std::size_t i = 0; i < chosen.size(); i += Full() ? 1 : 10) again.push_back(chosen[i]);
  return again;
}

struct Compiled {
  KernelSpec spec;
  std::string symbol;
  CompileOutput output;
  std::string trouble;
};

class Catalog {
 public:
  Catalog() : families_(AllKernelFamilies()), sources_(KernelSources::Make(families_)) {}

  const KernelFamilies& families() const { return families_; }

  /// Compiles `specs` on `threads` threads.
  std::vector<Compiled> Compile(const std::vector<KernelSpec>& specs, int threads) const {
    std::vector<Compiled> all(specs.size());
    const auto compiler = LoadNvrtc();
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < specs.size(); i = next++) {
        all[i].spec = specs[i];
        if (!sources_) {
          all[i].trouble = sources_.error().message;
        } else if (!compiler) {
          all[i].trouble = compiler.error().message;
        } else {
          CompileOne(**compiler, all[i]);
        }
      }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    for (std::thread& thread : others) thread.join();
    return all;
  }

 private:
  void CompileOne(const KernelCompiler& compiler, Compiled& one) const {
    const KernelFamily* family = families_.Find(one.spec.family);
    if (family == nullptr) {
      one.trouble = "no such family";
      return;
    }
    const Result<CompileInput> input = PrepareCompile(one.spec, *family, *sources_);
    if (!input) {
      one.trouble = input.error().message;
      return;
    }
    one.symbol = input->symbol;
    auto output = compiler.Compile(input->Job(), nullptr);
    if (!output) {
      one.trouble = output.error().error.message + "\n" + output.error().log;
      return;
    }
    one.output = std::move(*output);
  }

  KernelFamilies families_;
  Result<KernelSources> sources_;
};

std::string Digest(std::string_view bytes) { return Sha256Hex(bytes).value_or("none"); }

std::string DigestLine(const Compiled& one) {
  return SpecName(one.spec) + " " +
         (one.trouble.empty() ? Digest(one.output.cubin) + " " + Digest(one.output.ptx) : "failed");
}

/// The same program as another process, in another folder and with another HOME: its digest lines.
class OtherProcess {
 public:
  OtherProcess() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addchdir_np(&actions, "/");
    std::vector<std::string> words;
    for (char** at = environ; *at != nullptr; ++at) {
      if (std::string_view(*at).substr(0, 5) != "HOME=") words.emplace_back(*at);
    }
    words.emplace_back("HOME=/nonexistent");
    std::vector<char*> environment;
    for (std::string& word : words) environment.push_back(word.data());
    environment.push_back(nullptr);
    std::string self = "/proc/self/exe";
    std::string flag = "--digests";
    char* const argv[] = {self.data(), flag.data(), nullptr};
    if (posix_spawn(&pid_, self.c_str(), &actions, nullptr, argv, environment.data()) != 0) {
      pid_ = -1;
    }
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    reader_ = std::thread([this, fd = ends[0]] {
      char piece[4096];
      for (ssize_t got; (got = read(fd, piece, sizeof piece)) > 0;) {
        output_.append(piece, static_cast<std::size_t>(got));
      }
      close(fd);
    });
  }
  ~OtherProcess() { Wait(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  /// What it printed; "" if it failed.
  std::string Wait() {
    if (reader_.joinable()) reader_.join();
    if (pid_ < 0) return output_;
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) output_.clear();
    return output_;
  }

 private:
  pid_t pid_ = -1;
  std::string output_;
  std::thread reader_;
};

/// All cores; the other process, unless it compiles as much, keeps to one.
int Threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }
int ThreadsOfOther() { return Full() ? Threads() : 1; }

class CompileCatalogTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!LoadNvrtc()) return;
    catalog_ = new Catalog;
    OtherProcess other;
    compiled_ =
        new std::vector<Compiled>(catalog_->Compile(Chosen(catalog_->families()), Threads()));
    digests_ = new std::string(other.Wait());
  }
  static void TearDownTestSuite() {
    delete catalog_;
    delete compiled_;
    delete digests_;
  }
  void SetUp() override {
    if (catalog_ == nullptr) GTEST_SKIP() << LoadNvrtc().error().message;
  }

  static inline Catalog* catalog_ = nullptr;
  static inline std::vector<Compiled>* compiled_ = nullptr;
  static inline std::string* digests_ = nullptr;
};

TEST_F(CompileCatalogTest, ThereAreFiveFamiliesAndEachHasKernels) {
  std::map<std::string, int> kernels;
  for (const Compiled& one : *compiled_) ++kernels[std::string(one.spec.family.view())];
  EXPECT_GE(kernels.size(), 5u);
  EXPECT_EQ(kernels.size(), catalog_->families().all().size());
}

TEST_F(CompileCatalogTest, EveryKernelCompiles) {
  for (const Compiled& one : *compiled_) {
    EXPECT_EQ(one.trouble, "") << SpecName(one.spec);
    if (one.trouble.empty()) {
      EXPECT_FALSE(one.output.cubin.empty()) << SpecName(one.spec);
      EXPECT_FALSE(one.output.ptx.empty()) << SpecName(one.spec);
    }
  }
}

TEST_F(CompileCatalogTest, NoKernelNeedsMoreThanItsFamilyAllows) {
  for (const Compiled& one : *compiled_) {
    if (!one.trouble.empty()) continue;
    const ResourceLimits limits = catalog_->families().Find(one.spec.family)->limits(one.spec);
    const ResourceUsage& used = one.output.resources;
    SCOPED_TRACE(SpecName(one.spec));
    EXPECT_GT(used.registers, 0u) << "nothing was reported";
    EXPECT_LE(used.registers, limits.max_registers);
    ASSERT_TRUE(used.SpillBytes()) << "spills are unknown: " << one.output.log;
    EXPECT_LE(*used.SpillBytes(), limits.max_spill_bytes);
    EXPECT_LE(used.stack_bytes, limits.max_stack_bytes);
  }
}

TEST_F(CompileCatalogTest, TheCompilerWarnsOfNothing) {
  // Among its warnings: matrix instructions made to wait for each other (C7510, C7511), registers
  // that cannot be reassigned (C7508).
  for (const Compiled& one : *compiled_) {
    EXPECT_THAT(one.output.log, ::testing::Not(::testing::HasSubstr("arning")))
        << SpecName(one.spec);
    EXPECT_THAT(one.output.log, ::testing::Not(::testing::HasSubstr("serialized")))
        << SpecName(one.spec);
  }
}

/// A GEMV, gemm_q, gemm_qw, gemm_qr and gemm_chain read weights ahead where the arguments call them constant; attention
/// of few rows looks where its caches lie, and what turns its row.
test::ReadsAhead ReadAheadBy(const KernelSpec& spec) {
  const std::string_view family = spec.family.view();
  if (family.starts_with("gemv_") || family == "gemm_q" || family == "gemm_qw" ||
      family == "gemm_qr" || family == "gemm_chain")
    return test::ReadsAhead::kConstants;
  if (spec.family == "attention_decode" && spec.params[1] == 1)
    return test::ReadsAhead::kPlacesToPrefetch;
  return test::ReadsAhead::kNever;
}

TEST_F(CompileCatalogTest, WhatMayBeStartedEarlyWaitsBeforeItTouchesMemory) {
  int waiting = 0;
  for (const Compiled& one : *compiled_) {
    const KernelFamily* family = catalog_->families().Find(one.spec.family);
    if (!one.trouble.empty() || !family->waits_for_prerequisites) continue;
    SCOPED_TRACE(SpecName(one.spec));
    if (one.spec.arch.number < 90) {
      EXPECT_EQ(one.output.ptx.find("griddepcontrol"), std::string::npos);
      continue;
    }
    EXPECT_EQ(test::PtxWaitTrouble(one.output.ptx, ReadAheadBy(one.spec)), "");
    EXPECT_NE(one.output.ptx.find("griddepcontrol.launch_dependents"), std::string::npos);
    ++waiting;
  }
  EXPECT_GE(waiting, 100) << "kernels of sm_90a";
}

TEST_F(CompileCatalogTest, TheImageIsForItsArchitectureAndHasOneKernel) {
  for (const Compiled& one : *compiled_) {
    if (!one.trouble.empty()) continue;
    SCOPED_TRACE(SpecName(one.spec));
    const test::CubinInfo info = test::ReadCubin(one.output.cubin);
    EXPECT_EQ(info.sm, one.spec.arch.number);
    EXPECT_THAT(info.functions, ::testing::ElementsAre(one.symbol));
    // The suffix is in no flag of the image; the compiler's PTX names it.
    EXPECT_THAT(one.output.ptx, ::testing::HasSubstr(".target " + one.spec.arch.ToString()));
    EXPECT_THAT(one.output.ptx, ::testing::HasSubstr(".entry " + one.symbol));
  }
}

TEST_F(CompileCatalogTest, AnotherProcessMakesTheSameBytes) {
  std::map<KernelSpec, std::string> here;
  for (const Compiled& one : *compiled_) here[one.spec] = DigestLine(one);
  std::string expected;
  for (const KernelSpec& spec : ChosenAgain(catalog_->families())) expected += here[spec] + "\n";
  EXPECT_EQ(expected, *digests_);
}

TEST(CatalogTest, SpecsAreDistinctAcceptedAndKeepTheirNames) {
  const KernelFamilies families = AllKernelFamilies();
  std::set<KernelSpec> seen;
  for (const char* name : kArchs) {
    const CudaArch arch = *ParseCudaArch(name);
    for (const KernelSpec& spec : families.Catalog(arch)) {
      SCOPED_TRACE(SpecName(spec));
      EXPECT_EQ(spec.arch, arch);
      EXPECT_TRUE(seen.insert(spec).second) << "twice in the catalog";
      const KernelFamily* family = families.Find(spec.family);
      ASSERT_NE(family, nullptr);
      EXPECT_FALSE(family->check(spec).has_value());
      EXPECT_GT(family->launch(spec).threads, 0u);
      const Result<KernelSpec> parsed = ParseSpecName(SpecName(spec));
      ASSERT_TRUE(parsed) << parsed.error().message;
      EXPECT_EQ(*parsed, spec);
    }
  }
}

}  // namespace

/// The digest lines of what the test compiles.
int PrintDigests() {
  const Catalog catalog;
  for (const Compiled& one : catalog.Compile(ChosenAgain(catalog.families()), ThreadsOfOther())) {
    std::cout << DigestLine(one) << "\n";
  }
  return std::cout.flush() ? 0 : 1;
}

}  // namespace tilewright

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--digests") return tilewright::PrintDigests();
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
