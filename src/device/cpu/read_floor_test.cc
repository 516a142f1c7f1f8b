#include "tilewright/read_floor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "device/cpu/read_loops.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

std::vector<ReadLoop> Loops() {
  const DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
  std::vector<ReadLoop> loops{&ReadWordsScalar};
  if (device.Has(kFeatureAvx2)) loops.push_back(&ReadWordsAvx2);
  if (device.Has(kFeatureAvx512)) loops.push_back(&ReadWordsAvx512);
  return loops;
}

/// Odd multiples of a large odd number, whose sums tell which of them were left out or read twice.
std::vector<std::uint64_t> Words(std::size_t count) {
  std::vector<std::uint64_t> words(count);
  for (std::size_t i = 0; i < count; ++i) words[i] = (2 * i + 1) * 0x9e3779b97f4a7c15u;
  return words;
}

std::uint64_t PlainSum(const std::vector<std::uint64_t>& words) {
  std::uint64_t sum = 0;
  for (const std::uint64_t word : words) sum += word;
  return sum;
}

TEST(ReadLoopTest, EveryWordIsReadOnceWhateverTheLengthAndTheAddress) {
  for (const std::size_t count : {0u, 1u, 7u, 8u, 31u, 32u, 33u, 63u, 100u, 4096u, 4103u}) {
    std::vector<std::uint64_t> words = Words(count + 1);
    words.erase(words.begin());
    const std::vector<std::uint64_t> all = Words(count + 3);
    for (const ReadLoop loop : Loops()) {
      EXPECT_EQ(loop(words.data(), static_cast<std::int64_t>(count)), PlainSum(words)) << count;
      // One word on, hence at an odd address, with words on both sides that are not meant.
      EXPECT_EQ(loop(all.data() + 1, static_cast<std::int64_t>(count)), PlainSum(words)) << count;
    }
  }
}

TEST(ReadLoopTest, WorkersTogetherReadEveryWordOnceAPass) {
  for (const std::size_t count : {5u, 1000u, 300'001u}) {
    const std::vector<std::uint64_t> words = Words(count);
    for (const int workers : {1, 2, 3}) {
      const auto pool = MakeThreadPool(workers);
      for (const bool slices : {true, false}) {
        for (const int passes : {1, 3}) {
          const std::uint64_t sum =
              ReadTogether(*pool, WidestRead(), words.data(), static_cast<std::int64_t>(count),
                           {.slices = slices, .passes = passes});
          EXPECT_EQ(sum, static_cast<std::uint64_t>(passes) * PlainSum(words))
              << count << " words, " << workers << " workers, slices " << slices;
        }
      }
    }
  }
}

/// Counts what reaches the workers of another executor.
class CountingExecutor final : public Executor {
 public:
  explicit CountingExecutor(int workers) : pool_(MakeThreadPool(workers)) {}
  int workers() const override { return pool_->workers(); }
  void ParallelFor(int count, Task task, void* context) override {
    tasks_ += count;
    pool_->ParallelFor(count, task, context);
  }
  std::int64_t tasks() const { return tasks_; }

 private:
  std::unique_ptr<Executor> pool_;
  std::int64_t tasks_ = 0;
};

TEST(ReadFloorTest, TheFloorIsOfTheThreadsThatAreGiven) {
  CountingExecutor three(3);
  EXPECT_GT(MeasureReadSeconds(three, 1 << 20), 0);
  // One region to write the memory and eight to read it, each a slice for every worker.
  EXPECT_EQ(three.tasks(), 3 * 9);
}

TEST(ReadFloorTest, NothingTakesNoTimeAndMoreTakesLonger) {
  const auto pool = MakeThreadPool(2);
  EXPECT_EQ(MeasureReadSeconds(*pool, 0), 0);
  EXPECT_EQ(MeasureReadSeconds(*pool, -1), 0);
  const double small = MeasureReadSeconds(*pool, 1000), large = MeasureReadSeconds(*pool, 64 << 20);
  EXPECT_GT(small, 0);
  EXPECT_GT(large, small);
}

}  // namespace
}  // namespace tilewright
