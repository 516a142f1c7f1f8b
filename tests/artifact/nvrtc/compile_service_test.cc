// Places, memory, cancellation and resource limits, with a compiler controlled by the test.

#include "artifact/store/compile_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tilewright/artifact.h"

namespace tilewright {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr SourceFile kFiles[] = {
    {"test/unit.cu",
     "#include \"spec.cuh\"\nextern \"C\" __global__ void TILEWRIGHT_KERNEL() {}\n"}};

KernelFamily Family() {
  KernelFamily family;
  family.name = "service_test";
  family.source = "test/unit.cu";
  family.files = kFiles;
  family.check = [](const KernelSpec& spec) -> std::optional<Rejection> {
    if (spec.tile_m != 13) return std::nullopt;
    Rejection rejection;
    return rejection;
  };
  family.launch = [](const KernelSpec&) { return KernelLaunchShape{.threads = 32}; };
  family.limits = [](const KernelSpec& spec) {
    return ResourceLimits{.max_registers = 168,
                          .max_spill_bytes = static_cast<std::uint32_t>(spec.params[0]),
                          .max_stack_bytes = 16};
  };
  family.catalog = [](CudaArch) { return std::vector<KernelSpec>(); };
  return family;
}

KernelSpec Spec(int number, int spill = 0) {
  KernelSpec spec;
  spec.family = "service_test";
  spec.arch = {.number = 90, .suffix = 'a'};
  spec.tile_n = static_cast<std::uint16_t>(number);
  spec.params[0] = spill;
  return spec;
}

ResourceUsage Uses(std::uint32_t registers, std::uint32_t stack = 0, std::uint32_t stores = 0,
                   std::uint32_t loads = 0) {
  return {.registers = registers,
          .stack_bytes = stack,
          .spill_store_bytes = stores,
          .spill_load_bytes = loads};
}

/// Calls the test's function and counts how many run at once.
class FakeCompiler : public KernelCompiler {
 public:
  using Act = std::function<tl::expected<CompileOutput, CompileFailure>(const CompileJob&,
                                                                        const CancelFn&)>;
  explicit FakeCompiler(Act act = {}) : act_(std::move(act)) {
    identity_ = {.backend = "fake",
                 .version = "1.0",
                 .build_id = "0123",
                 .builtins_version = "1.0",
                 .builtins_build_id = "4567"};
  }
  const CompilerIdentity& identity() const override { return identity_; }
  tl::expected<CompileOutput, CompileFailure> Compile(const CompileJob& job,
                                                      const CancelFn& cancelled) const override {
    const int now = ++inside_;
    for (int most = most_; now > most && !most_.compare_exchange_weak(most, now);) {
    }
    auto result = act_ ? act_(job, cancelled) : Output();
    --inside_;
    return result;
  }
  static CompileOutput Output(const ResourceUsage& resources = Uses(40)) {
    CompileOutput output;
    output.cubin =
        "\x7f"
        "ELF cubin";
    output.ptx = "ptx";
    output.log = "log";
    output.resources = resources;
    output.compile_ms = 5;
    return output;
  }
  int inside() const { return inside_; }
  int most() const { return most_; }

 private:
  CompilerIdentity identity_;
  Act act_;
  mutable std::atomic<int> inside_{0}, most_{0};
};

class CompileServiceTest : public ::testing::Test {
 protected:
  CompileServiceTest() {
    KernelFamilies families;
    EXPECT_TRUE(families.Add(family_));
    auto sources = KernelSources::Make(families);
    EXPECT_TRUE(sources) << sources.error().message;
    if (sources) sources_ = std::make_unique<KernelSources>(std::move(*sources));
  }
  tl::expected<CompileService::Kernel, CompileFailure> Build(CompileService& service,
                                                             const KernelSpec& spec,
                                                             const KernelCompiler& compiler,
                                                             const CancelFn& cancelled = {}) {
    return service.Build(spec, family_, *sources_, compiler, cancelled);
  }
  KernelFamily family_ = Family();
  std::unique_ptr<KernelSources> sources_;
};

/// Waits until `true_by_then()`; the time that ctest gives the test is what ends it otherwise.
template <class F>
void Await(F&& true_by_then) {
  while (!true_by_then()) std::this_thread::yield();
}

TEST_F(CompileServiceTest, ABuiltKernelIsASoundEntry) {
  CompileService service({.threads = 1});
  const FakeCompiler compiler;
  const auto kernel = Build(service, Spec(8), compiler);
  ASSERT_TRUE(kernel) << kernel.error().error.message;
  const auto data = DecodeArtifact(kernel->entry);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->spec, Spec(8));
  EXPECT_EQ(data->compiler, compiler.identity());
  EXPECT_EQ(data->cubin,
            "\x7f"
            "ELF cubin");
  EXPECT_EQ(kernel->resources.registers, 40U);
  EXPECT_EQ(kernel->compile_ms, 5);
}

TEST_F(CompileServiceTest, AKernelOverItsLimitsIsADeterministicErrorThatNamesThem) {
  CompileService service({.threads = 1});
  struct Case {
    ResourceUsage used;
    const char* words;
  };
  for (const Case& one :
       {Case{Uses(40, 0, 8, 4),
             "spills 12 bytes per thread (stores and loads), at most 0 are allowed"},
        Case{Uses(169), "uses 169 registers per thread, at most 168 are allowed"},
        Case{Uses(40, 24), "uses 24 bytes of stack per thread, at most 16 are allowed"}}) {
    const FakeCompiler compiler(
        [&](const CompileJob&, const CancelFn&) { return FakeCompiler::Output(one.used); });
    const auto kernel = Build(service, Spec(8), compiler);
    ASSERT_FALSE(kernel);
    EXPECT_TRUE(kernel.error().deterministic);
    EXPECT_EQ(kernel.error().error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(kernel.error().error.message, HasSubstr(one.words));
    EXPECT_THAT(kernel.error().error.message, HasSubstr("service_test."));
    // Why first, so that a refusal remembered by its first line says it.
    EXPECT_EQ(kernel.error().log, std::string(one.words) + "\nlog");
  }
  const FakeCompiler compiler([](const CompileJob&, const CancelFn&) {
    return FakeCompiler::Output(Uses(168, 16, 0, 12));
  });
  EXPECT_TRUE(Build(service, Spec(8, 12), compiler)) << "exactly at the limits";
}

TEST_F(CompileServiceTest, SpillsThatNobodyKnowsDoNotPassAndAreNotRemembered) {
  CompileService service({.threads = 1});
  for (const ResourceUsage& used :
       {ResourceUsage{.registers = 40}, ResourceUsage{.registers = 40, .spill_store_bytes = 0},
        ResourceUsage{.registers = 40, .spill_load_bytes = 0}}) {
    const FakeCompiler compiler(
        [&](const CompileJob&, const CancelFn&) { return FakeCompiler::Output(used); });
    const auto kernel = Build(service, Spec(8, 1000), compiler);
    ASSERT_FALSE(kernel);
    EXPECT_FALSE(kernel.error().deterministic);
    EXPECT_EQ(kernel.error().error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(
        kernel.error().error.message,
        HasSubstr("spills an unknown amount (the compiler's log could not be parsed), at most "
                  "1000 bytes are allowed"));
  }
}

TEST_F(CompileServiceTest, SpillsThatOverflowTogetherAreStillTooMany) {
  EXPECT_THAT(OverLimits({.spill_store_bytes = 0xffffffff, .spill_load_bytes = 1}, {}),
              HasSubstr("spills 4294967296 bytes"));
}

TEST_F(CompileServiceTest, FailuresOfTheCompilerKeepTheirKindAndNameTheSpec) {
  CompileService service({.threads = 1});
  for (const bool deterministic : {false, true}) {
    const FakeCompiler compiler([&](const CompileJob&, const CancelFn&) {
      return tl::unexpected<CompileFailure>(
          CompileFailure{deterministic, {ErrorCode::kOutOfMemory, "no memory"}, "words"});
    });
    const auto kernel = Build(service, Spec(8), compiler);
    ASSERT_FALSE(kernel);
    EXPECT_EQ(kernel.error().deterministic, deterministic);
    EXPECT_EQ(kernel.error().error.code, ErrorCode::kOutOfMemory);
    EXPECT_EQ(kernel.error().error.message, SpecName(Spec(8)) + ": no memory");
    EXPECT_EQ(kernel.error().log, "words");
  }
}

TEST_F(CompileServiceTest, ARejectedSpecIsNotCompiled) {
  CompileService service({.threads = 1});
  const FakeCompiler compiler;
  KernelSpec spec = Spec(8);
  spec.tile_m = 13;
  const auto kernel = Build(service, spec, compiler);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().error.code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(kernel.error().deterministic);
  EXPECT_EQ(compiler.most(), 0);
}

TEST_F(CompileServiceTest, NoMoreThanItsThreadsCompileAtOnceWhoeverAsks) {
  CompileService service({.threads = 3});
  std::atomic<bool> go{false};
  const FakeCompiler compiler([&](const CompileJob&, const CancelFn&) {
    while (!go) std::this_thread::yield();
    return FakeCompiler::Output();
  });
  std::vector<std::thread> threads;
  std::atomic<int> built{0};
  for (int i = 0; i < 12; ++i)
    threads.emplace_back([&, i] { built += Build(service, Spec(8 + i), compiler) ? 1 : 0; });
  Await([&] { return compiler.inside() == 3; });
  EXPECT_FALSE(service.TryTake());
  EXPECT_FALSE(service.Take(milliseconds(1)));
  go = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(built, 12);
  EXPECT_EQ(compiler.most(), 3);
}

TEST_F(CompileServiceTest, MemoryHoldsBackAllButOne) {
  std::atomic<std::uint64_t> available{0};
  CompileService service(
      {.threads = 8, .memory_bytes = 100, .available_memory = [&] { return available.load(); }});
  CompileService::Place first = service.TryTake();
  EXPECT_TRUE(first) << "one always runs";
  EXPECT_FALSE(service.TryTake());
  available = 199;
  EXPECT_FALSE(service.TryTake()) << "two budgets are 200";
  available = 200;
  CompileService::Place second = service.TryTake();
  EXPECT_TRUE(second);
  EXPECT_FALSE(service.TryTake());
  available = 0;
  first = {};
  EXPECT_FALSE(service.TryTake()) << "one still runs";
  second = {};
  EXPECT_TRUE(service.TryTake());
}

TEST_F(CompileServiceTest, MemoryThatComesFreeIsSeenWithoutAnybodyTelling) {
  std::atomic<std::uint64_t> available{0};
  CompileService service(
      {.threads = 8, .memory_bytes = 100, .available_memory = [&] { return available.load(); }});
  const CompileService::Place first = service.TryTake();
  std::thread other([&] { EXPECT_TRUE(service.Take(std::chrono::minutes(5))); });
  available = 1000;
  other.join();
}

TEST_F(CompileServiceTest, WhatWaitsForAPlaceCanBeCancelled) {
  CompileService service({.threads = 1});
  const CompileService::Place taken = service.TryTake();
  const FakeCompiler compiler;
  int asked = 0;
  const auto kernel = Build(service, Spec(8), compiler, [&] { return ++asked > 2; });
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().error.code, ErrorCode::kCancelled);
  EXPECT_FALSE(kernel.error().deterministic);
  EXPECT_EQ(compiler.most(), 0);
}

TEST_F(CompileServiceTest, ATakenPlaceIsUsedAndGivenBack) {
  CompileService service({.threads = 1});
  const FakeCompiler compiler;
  CompileService::Place place = service.TryTake();
  ASSERT_TRUE(place);
  EXPECT_TRUE(service.Build(Spec(8), family_, *sources_, compiler, {}, std::move(place)));
  EXPECT_TRUE(service.TryTake());
}

TEST_F(CompileServiceTest, RunDoesEveryTaskOnceAndTellsTheCallersThread) {
  CompileService service({.threads = 4});
  std::mutex mutex;
  std::multiset<std::size_t> ran;
  std::set<std::thread::id> who;
  std::latch all(4);
  std::vector<std::size_t> told;
  const std::thread::id caller = std::this_thread::get_id();
  service.Run(100,
              [&](std::size_t task, const CancelFn& cancelled) {
                EXPECT_FALSE(cancelled());
                if (task < 4) all.arrive_and_wait();  // four at once, or this never ends
                const std::lock_guard lock(mutex);
                ran.insert(task);
                who.insert(std::this_thread::get_id());
              },
              {.cancelled =
                   [&] {
                     EXPECT_EQ(std::this_thread::get_id(), caller);
                     return false;
                   },
               .done =
                   [&](std::size_t task) {
                     EXPECT_EQ(std::this_thread::get_id(), caller);
                     told.push_back(task);
                   }});
  EXPECT_EQ(ran.size(), 100U);
  EXPECT_EQ(std::set<std::size_t>(ran.begin(), ran.end()).size(), 100U);
  EXPECT_EQ(std::set<std::size_t>(told.begin(), told.end()).size(), 100U);
  EXPECT_EQ(told.size(), 100U);
  EXPECT_EQ(who.count(caller), 0U);
  EXPECT_GE(who.size(), 4U);
}

TEST_F(CompileServiceTest, ACancelledRunLetsEveryTaskTellItsOutcome) {
  CompileService service({.threads = 2});
  std::atomic<bool> stop{false};
  const FakeCompiler compiler(
      [&](const CompileJob&,
          const CancelFn& cancelled) -> tl::expected<CompileOutput, CompileFailure> {
        stop = true;
        while (!cancelled()) std::this_thread::yield();
        return tl::unexpected<CompileFailure>(
            CompileFailure{false, {ErrorCode::kCancelled, "cancelled"}, ""});
      });
  std::vector<ErrorCode> outcomes(20, ErrorCode::kInternal);
  service.Run(outcomes.size(),
              [&](std::size_t task, const CancelFn& cancelled) {
                const auto kernel =
                    Build(service, Spec(static_cast<int>(8 + task)), compiler, cancelled);
                ASSERT_FALSE(kernel);
                outcomes[task] = kernel.error().error.code;
              },
              {.cancelled = [&] { return stop.load(); }, .done = {}});
  for (const ErrorCode code : outcomes) EXPECT_EQ(code, ErrorCode::kCancelled);
}

TEST_F(CompileServiceTest, NothingToRunIsNoTrouble) {
  CompileService service({.threads = 2});
  service.Run(0, [](std::size_t, const CancelFn&) { FAIL(); }, {});
}

TEST_F(CompileServiceTest, GoingAwayCancelsWhatCompilesAndWaitsForIt) {
  auto service = std::make_unique<CompileService>(CompileService::Options{.threads = 1});
  const FakeCompiler compiler(
      [](const CompileJob&,
         const CancelFn& cancelled) -> tl::expected<CompileOutput, CompileFailure> {
        while (!cancelled()) std::this_thread::yield();
        return tl::unexpected<CompileFailure>(
            CompileFailure{false, {ErrorCode::kCancelled, "cancelled"}, ""});
      });
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  std::latch entered(3);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const auto kernel = Build(*service, Spec(8 + i), compiler, [&, first = true]() mutable {
        if (std::exchange(first, false)) entered.count_down();
        return false;
      });
      EXPECT_FALSE(kernel);
      ++ended;
    });
  }
  entered.wait();  // one compiles, two wait for its place
  service.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, 3);
}

}  // namespace
}  // namespace tilewright
