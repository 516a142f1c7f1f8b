// What the store costs, with gates ten times or more above what was measured: they find a change of
// kind, not of machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "artifact/store/fake_compiler.h"
#include "tilewright/artifact_key.h"
#include "tilewright/bundle.h"

namespace tilewright::test {
namespace {

/// The median of `rounds` calls, in microseconds.
double MedianUs(int rounds, const std::function<void(int)>& call) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call(i);
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<std::size_t>(rounds) / 2];
}

TEST(StoreNumbers, KeyOfASpec) {
  const KernelFamilies families = FakeFamilies();
  const auto sources = KernelSources::Make(families);
  ASSERT_TRUE(sources);
  const double us = MedianUs(2000, [&](int i) {
    ASSERT_TRUE(MakeRequestRecord(GemmSpec(i), *families.Find("fake_gemm"), *sources));
  });
  std::printf("MakeRequestRecord: %.2f us\n", us);
  EXPECT_LE(us, 200);
}

TEST(StoreNumbers, HandleOfASpec) {
  const TemporaryFolder folder;
  const auto store = OpenFake(FakeOptions(folder / "root", MakeFakeCompiler()));
  const std::vector<KernelSpec> specs = GemmSpecs(64);
  for (const auto& handle : store->CompileAll(specs)) ASSERT_TRUE(handle);
  constexpr int kRounds = 20000;
  int found = 0;
  const double ns =
      MedianUs(21,
               [&](int) {
                 for (int i = 0; i < kRounds; ++i) {
                   found += static_cast<bool>(store->Find(specs[static_cast<std::size_t>(i) % 64]));
                 }
               }) *
      1000 / kRounds;
  std::printf("Find: %.1f ns\n", ns);
  EXPECT_EQ(found, 21 * kRounds);
  EXPECT_LE(ns, 1000);
}

TEST(StoreNumbers, FileHitOf150KiBAndMemoryHit) {
  const TemporaryFolder folder;
  const auto compiler = MakeFakeCompiler({.cubin_bytes = 150 << 10});
  const std::vector<KernelSpec> specs = GemmSpecs(64);
  for (const auto& handle : OpenFake(FakeOptions(folder / "root", compiler))->CompileAll(specs)) {
    ASSERT_TRUE(handle);
  }
  const auto store = OpenFake(FakeOptions(folder / "root", compiler));
  const auto compile = [&](int i) {
    ASSERT_TRUE(store->Compile(specs[static_cast<std::size_t>(i) % 64]));
  };
  const double file_us = MedianUs(64, compile);
  const double memory_us = MedianUs(640, compile);
  std::printf("Compile, hit in the user's folder, 150 KiB: %.1f us; in memory: %.2f us\n", file_us,
              memory_us);
  EXPECT_EQ(compiler->compiles(), 64);
  EXPECT_LE(file_us, 5000);
  EXPECT_LE(memory_us, 100);
}

TEST(StoreNumbers, OpeningAStoreOfAThousandEntries) {
  const TemporaryFolder folder;
  const auto compiler = MakeFakeCompiler();
  for (const auto& handle :
       OpenFake(FakeOptions(folder / "root", compiler))->CompileAll(GemmSpecs(1000))) {
    ASSERT_TRUE(handle);
  }
  const double us = MedianUs(21, [&](int) { OpenFake(FakeOptions(folder / "root", compiler)); });
  std::printf("Open, 1000 entries: %.0f us\n", us);
  EXPECT_LE(us, 50000);
}

TEST(StoreNumbers, BundleHitAndMiss) {
  const TemporaryFolder folder;
  const auto compiler = MakeFakeCompiler({.cubin_bytes = 150 << 10});
  std::vector<ArtifactData> artifacts;
  const auto maker = OpenFake(FakeOptions(folder / "maker", compiler));
  for (const auto& handle : maker->CompileAll(GemmSpecs(64))) artifacts.push_back(**handle);
  WriteWhole(folder / "b.twb", *EncodeBundle(artifacts));
  auto options = FakeOptions(folder / "root", compiler);
  options.bundles = {folder / "b.twb"};
  const auto store = OpenFake(options);
  const double hit_us = MedianUs(64, [&](int i) { ASSERT_TRUE(store->Compile(GemmSpec(i))); });
  const auto bundle = Bundle::Open(folder / "b.twb");
  ASSERT_TRUE(bundle);
  ArtifactKey absent;
  const double miss_ns = MedianUs(1000,
                                  [&](int i) {
                                    for (int repeat = 0; repeat < 100; ++repeat) {
                                      absent.bytes[0] = static_cast<std::uint8_t>(i * 100 + repeat);
                                      ASSERT_FALSE((*bundle)->Find(absent));
                                    }
                                  }) *
                         10;
  std::printf("Compile, hit in a bundle, 150 KiB: %.1f us; index miss: %.1f ns\n", hit_us, miss_ns);
  EXPECT_LE(hit_us, 5000);
  EXPECT_LE(miss_ns, 10000);
}

}  // namespace
}  // namespace tilewright::test
