// What the store promises of bundles: a miss within a microsecond without allocating, an opening
// that does not grow with the payloads.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "artifact/bundle/bundle_test_util.h"
#include "temp_folder.h"
#include "tilewright/bundle.h"

namespace {
thread_local std::size_t allocations = 0;
}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// The best of several rounds: this machine has other work.
template <class F>
double BestMicros(int rounds, F&& work) {
  double best = 1e300;
  for (int i = 0; i < rounds; ++i) {
    const auto start = Clock::now();
    work();
    best = std::min(best, MicrosSince(start));
  }
  return best;
}

class ThousandEntries : public ::testing::Test {
 protected:
  ThousandEntries() {
    test::SomeArtifacts some;
    std::vector<ArtifactData> artifacts;
    for (int i = 0; i < 1000; ++i) {
      artifacts.push_back(some.Make(i));
      present_.push_back(artifacts.back().request);
      absent_.push_back(some.Make(1000 + i).request);
    }
    test::SomeArtifacts::Choice large;
    large.cubin_bytes = 150000;
    artifacts.push_back(some.Make(5000, large));
    large_ = artifacts.back().request;
    path_ = folder_.Write("k.twb", *EncodeBundle(artifacts));
  }

  test::TempFolder folder_;
  std::string path_;
  std::vector<ArtifactKey> present_, absent_;
  ArtifactKey large_;
};

TEST_F(ThousandEntries, AMissTakesLessThanAMicrosecondAndAllocatesNothing) {
  const auto bundle = *Bundle::Open(path_);
  std::size_t found = 0;
  const std::size_t before = allocations;
  const double miss = BestMicros(20,
                                 [&] {
                                   for (const ArtifactKey& key : absent_)
                                     found += bundle->Find(key) ? 1 : 0;
                                 }) /
                      1000;
  EXPECT_EQ(found, 0u);
  const double hit = BestMicros(20,
                                [&] {
                                  for (const ArtifactKey& key : present_)
                                    found += bundle->Find(key) ? 1 : 0;
                                }) /
                     1000;
  EXPECT_EQ(found, 20u * 1000);
  EXPECT_EQ(allocations, before);
  EXPECT_LE(miss, 1.0);
  EXPECT_LE(hit, 1.0);
  std::printf("Find among 1,001: miss %.0f ns, hit %.0f ns\n", 1000 * miss, 1000 * hit);
}

TEST_F(ThousandEntries, OpensInMilliseconds) {
  const double open = BestMicros(10, [&] { ASSERT_TRUE(Bundle::Open(path_)); });
  EXPECT_LE(open, 5000);
  std::printf("Open with 1,001 entries: %.0f us\n", open);
}

TEST_F(ThousandEntries, LoadsA150KilobyteKernelInMicroseconds) {
  std::shared_ptr<const Bundle> bundle;
  double first = 1e300, later = 1e300;
  for (int round = 0; round < 10; ++round) {
    bundle = *Bundle::Open(path_);
    const std::size_t i = *bundle->Find(large_);
    auto start = Clock::now();
    ASSERT_TRUE(bundle->Load(i));
    first = std::min(first, MicrosSince(start));
    start = Clock::now();
    ASSERT_TRUE(bundle->Load(i));
    later = std::min(later, MicrosSince(start));
  }
  EXPECT_LE(first, 1000);
  std::printf("Load of 150 KB: first (digests) %.0f us, later %.1f us\n", first, later);
}

}  // namespace
}  // namespace tilewright
