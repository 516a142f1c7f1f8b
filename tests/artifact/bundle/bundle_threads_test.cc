#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "artifact/bundle/bundle_test_util.h"
#include "temp_folder.h"
#include "tilewright/bundle.h"

namespace tilewright {
namespace {

TEST(BundleThreads, EightThreadsLoadTheSameEntriesAtOnce) {
  test::SomeArtifacts some;
  const std::vector<ArtifactData> artifacts = some.MakeSeveral(40);
  test::TempFolder folder;
  std::string bytes = *EncodeBundle(artifacts);
  const std::size_t damaged = 17;
  bytes[(*Bundle::FromBytes(bytes))->entry(damaged).offset] ^= 1;
  const std::string path = folder.Write("k.twb", bytes);
  for (int round = 0; round < 5; ++round) {
    const auto bundle = *Bundle::Open(path);
    std::atomic<int> ready{0}, wrong{0}, refused{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        ++ready;
        while (ready.load() < 8) std::this_thread::yield();
        for (std::size_t k = 0; k < artifacts.size(); ++k) {
          const ArtifactData& want = artifacts[(k + static_cast<std::size_t>(t % 2)) % 40];
          const auto i = bundle->Find(want.request);
          if (!i) {
            ++wrong;
          } else if (const Result<ArtifactData> got = bundle->Load(*i)) {
            if (got->cubin != want.cubin || *i == damaged) ++wrong;
          } else {
            if (*i != damaged) ++wrong;
            ++refused;
          }
        }
        if (bundle->Verify().good != 39) ++wrong;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_EQ(refused.load(), 8);
  }
}

}  // namespace
}  // namespace tilewright
