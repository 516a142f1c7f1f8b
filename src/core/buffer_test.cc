#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "core/memory.h"
#include "tilewright/executor.h"

namespace tilewright {
namespace {

/// Bytes of the range that are in memory, by mincore.
std::size_t Resident(const void* data, std::size_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  EXPECT_EQ(mincore(const_cast<void*>(data), bytes, pages.data()), 0);
  std::size_t resident = 0;
  for (const unsigned char page : pages) resident += (page & 1) * 4096u;
  return resident;
}

TEST(BufferTest, EverySizeIsAlignedAndWritable) {
  constexpr std::size_t kTwoMiB = 2u << 20;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{4096}, kTwoMiB - 1, kTwoMiB,
        kTwoMiB + 1, 5 * kTwoMiB + 12345}) {
    for (const std::size_t alignment : {std::size_t{64}, std::size_t{4096}, 2 * kTwoMiB}) {
      Buffer buffer = Buffer::Make(bytes, DefaultAllocator(), alignment);
      ASSERT_TRUE(buffer) << bytes;
      EXPECT_EQ(buffer.size(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment, 0u)
          << bytes << " " << alignment;
      std::memset(buffer.data(), 1, bytes);
    }
  }
}

TEST(BufferTest, ALargeBufferTakesNoMemoryBeforeItIsTouched) {
  constexpr std::size_t kBytes = 64u << 20;
  const Buffer buffer = Buffer::Make(kBytes);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(Resident(buffer.data(), kBytes), 0u);
  *buffer.as<char>() = 1;
  EXPECT_GT(Resident(buffer.data(), kBytes), 0u);
}

TEST(BufferTest, AnImpossibleSizeGivesAnEmptyBuffer) {
  EXPECT_FALSE(Buffer::Make(std::numeric_limits<std::size_t>::max()));
  EXPECT_FALSE(Buffer::Make(std::size_t{1} << 60));
}

class CountingAllocator : public Allocator {
 public:
  void* Allocate(std::size_t bytes, std::size_t alignment) override {
    live += static_cast<std::int64_t>(bytes);
    return DefaultAllocator().Allocate(bytes, alignment);
  }
  void Free(void* memory, std::size_t bytes) override {
    live -= static_cast<std::int64_t>(bytes);
    DefaultAllocator().Free(memory, bytes);
  }
  std::int64_t live = 0;
};

/// Address space that this process has mapped.
std::int64_t MappedBytes() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

TEST(BufferTest, ALargeBufferTakesTheAddressSpaceOfItsSizeAndGivesAllOfItBack) {
  constexpr std::int64_t kBytes = 8 << 20, kSlack = 4 << 20;
  const std::int64_t before = MappedBytes();
  for (int round = 0; round < 20; ++round) {
    const Buffer buffer = Buffer::Make(kBytes + 1234, DefaultAllocator(), 4 << 20);
    ASSERT_TRUE(buffer);
    EXPECT_LE(MappedBytes() - before, kBytes + kSlack) << round;
  }
  EXPECT_LE(MappedBytes() - before, kSlack);
}

TEST(BufferTest, MovingKeepsOneOwnerAndFreesOnce) {
  CountingAllocator allocator;
  {
    Buffer a = Buffer::Make(100, allocator);
    Buffer b = Buffer::Make(200, allocator);
    EXPECT_EQ(allocator.live, 300);
    a = std::move(b);
    EXPECT_EQ(allocator.live, 200);
    EXPECT_EQ(a.size(), 200u);
    EXPECT_FALSE(b);  // NOLINT(bugprone-use-after-move)
    const Buffer c = std::move(a);
    EXPECT_EQ(allocator.live, 200);
  }
  EXPECT_EQ(allocator.live, 0);
}

TEST(FaultInTest, EveryHugePageThatBeginsInTheRangeIsThereAndNothingElseIsWritten) {
  const auto executor = MakeThreadPool(3);
  Buffer buffer = Buffer::Make(6 * kHugePage);  // aligned to huge pages
  auto* bytes = buffer.as<unsigned char>();
  const struct {
    std::size_t begin, end;
    int first, pages;  ///< huge pages that are touched
  } cases[] = {{0, 6 * kHugePage, 0, 6},
               {1, 6 * kHugePage, 1, 5},
               {kHugePage, 2 * kHugePage + 1, 1, 2},
               {kHugePage - 1, kHugePage + 1, 1, 1},
               {kHugePage + 1, 2 * kHugePage, 0, 0},
               {100, 200, 0, 0},
               {kHugePage, kHugePage, 0, 0}};
  for (const auto& c : cases) {
    std::memset(bytes, 7, buffer.size());
    FaultIn(bytes + c.begin, c.end - c.begin, *executor);
    std::vector<std::size_t> written;
    for (std::size_t i = 0; i < buffer.size(); ++i)
      if (bytes[i] != 7) written.push_back(i);
    std::vector<std::size_t> expected;
    for (int page = 0; page < c.pages; ++page)
      expected.push_back(static_cast<std::size_t>(c.first + page) * kHugePage);
    EXPECT_EQ(written, expected) << c.begin << " to " << c.end;
  }
  const Buffer fresh = Buffer::Make(4 * kHugePage);
  FaultIn(fresh.data(), fresh.size(), *executor);
  EXPECT_GE(Resident(fresh.data(), fresh.size()), 4u * 4096u);
}

}  // namespace
}  // namespace tilewright
