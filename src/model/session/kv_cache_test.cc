#include "model/session/kv_cache.h"

#include <gmock/gmock.h>

#include <limits>
#include <set>

#include "core/memory.h"

namespace tilewright {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Counts what is held and refuses beyond a limit.
class LimitedAllocator final : public Allocator {
 public:
  void* Allocate(std::size_t bytes, std::size_t alignment) override {
    if (held + bytes > limit) return nullptr;
    held += bytes;
    most = std::max(most, held);
    return DefaultAllocator().Allocate(bytes, alignment);
  }
  void Free(void* memory, std::size_t bytes) override {
    held -= bytes;
    DefaultAllocator().Free(memory, bytes);
  }
  std::size_t held = 0, most = 0;
  std::size_t limit = std::numeric_limits<std::size_t>::max();
};

constexpr KvCache::Shape kShape{.layers = 2,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .type = DataType::kF32,
                                .context = 1 << 20,
                                .slots = 3,
                                .page_size = 4};
constexpr std::size_t kRow = 16 * 2;  // floats of the keys of a position
constexpr std::size_t kPositionBytes = 2 * 2 * kRow * sizeof(float);

/// The CPU with memory of its own.
struct Host {
  LimitedAllocator allocator;
  std::unique_ptr<Device> device =
      MakeCpuDevice(DetectCpu().value(), {.executor = nullptr, .allocator = &allocator});
};

KvCache Make(Host& host, const KvCache::Shape& shape = kShape) {
  return std::move(KvCache::Create(shape, *host.device).value());
}

/// Keys (or values) of a position of a slot, as an attention kernel finds them.
float* RowOf(const KvCache& cache, std::size_t layer, bool keys, int slot, int position) {
  const KvLayer& views = cache.layers()[layer];
  const int page = cache.table()[static_cast<std::size_t>(slot * cache.pages_per_slot() +
                                                          position / kShape.page_size)];
  const std::size_t at = static_cast<std::size_t>(page * kShape.page_size) +
                         static_cast<std::size_t>(position % kShape.page_size);
  return (keys ? views.k : views.v).as<float>() + at * kRow;
}
float Mark(std::size_t layer, bool keys, int slot, int position) {
  return static_cast<float>(position * 100 + slot * 10 + static_cast<int>(layer) * 2 + keys);
}
void Write(const KvCache& cache, int slot, int position) {
  for (std::size_t layer = 0; layer < 2; ++layer) {
    for (const bool keys : {false, true})
      std::fill_n(RowOf(cache, layer, keys, slot, position), kRow,
                  Mark(layer, keys, slot, position));
  }
}
int Wrong(const KvCache& cache, int slot, int positions) {
  int wrong = 0;
  for (int position = 0; position < positions; ++position) {
    for (std::size_t layer = 0; layer < 2; ++layer) {
      for (const bool keys : {false, true}) {
        const float* row = RowOf(cache, layer, keys, slot, position);
        wrong += row[0] != Mark(layer, keys, slot, position) || row[kRow - 1] != row[0];
      }
    }
  }
  return wrong;
}

TEST(KvCache, takes_no_memory_before_there_are_positions_and_then_in_proportion_to_them) {
  Host host;
  KvCache cache = Make(host);
  EXPECT_EQ(host.allocator.held, 0u);
  EXPECT_EQ(cache.bytes(), 0);
  EXPECT_EQ(cache.bytes_per_position(), static_cast<std::int64_t>(kPositionBytes));
  for (int positions = 1; positions <= 1000; ++positions) {
    ASSERT_TRUE(cache.Hold(1, positions));
    EXPECT_EQ(cache.pages_held(), (positions + 3) / 4);
    EXPECT_LE(cache.pages_allocated(), 2 * cache.pages_held() + 1);
    EXPECT_EQ(cache.bytes(),
              cache.pages_allocated() * 4 * static_cast<std::int64_t>(kPositionBytes));
    EXPECT_GE(host.allocator.held, static_cast<std::size_t>(cache.bytes()));
    EXPECT_LE(host.allocator.held, static_cast<std::size_t>(cache.bytes()) + 2 * 64);
  }
  // Growing costs one layer twice, not the whole cache twice.
  EXPECT_LE(host.allocator.most, static_cast<std::size_t>(cache.bytes()) * 3 / 2);
  EXPECT_LE(cache.moves(), 2 * 10) << "a thousand positions double a page eight times";
}

TEST(KvCache, what_is_held_survives_growth_and_no_two_sequences_share_a_page) {
  Host host;
  KvCache cache = Make(host);
  const int step[] = {1, 3, 2};
  int held[3] = {};
  for (int turn = 0; turn < 60; ++turn) {
    const int slot = turn % 3;
    for (int i = 0; i < step[slot]; ++i) {
      ASSERT_TRUE(cache.Hold(slot, ++held[slot]));
      Write(cache, slot, held[slot] - 1);
    }
  }
  for (int slot = 0; slot < 3; ++slot) EXPECT_EQ(Wrong(cache, slot, held[slot]), 0) << slot;
  std::set<std::int32_t> pages;
  for (const std::int32_t page : cache.table()) {
    if (page < 0) continue;
    EXPECT_TRUE(pages.insert(page).second) << page;
    EXPECT_LT(page, cache.pages_allocated());
  }
  EXPECT_EQ(static_cast<std::int64_t>(pages.size()), cache.pages_held());
}

TEST(KvCache, a_sequence_that_goes_back_gives_its_pages_to_the_next) {
  Host host;
  KvCache cache = Make(host);
  ASSERT_TRUE(cache.Hold(0, 40));
  for (int position = 0; position < 40; ++position) Write(cache, 0, position);
  const std::int64_t allocated = cache.pages_allocated();
  const std::int64_t moves = cache.moves();
  ASSERT_TRUE(cache.Hold(0, 9));
  EXPECT_EQ(cache.pages_held(), 3);
  ASSERT_TRUE(cache.Hold(2, 28));
  for (int position = 0; position < 28; ++position) Write(cache, 2, position);
  EXPECT_EQ(cache.pages_allocated(), allocated);
  EXPECT_EQ(cache.moves(), moves);
  EXPECT_EQ(Wrong(cache, 0, 9), 0);
  EXPECT_EQ(Wrong(cache, 2, 28), 0);
  ASSERT_TRUE(cache.Hold(0, 0));
  ASSERT_TRUE(cache.Hold(2, 0));
  EXPECT_EQ(cache.pages_held(), 0);
}

TEST(KvCache, never_takes_more_than_its_sequences_can_hold) {
  Host host;
  KvCache::Shape shape = kShape;
  shape.context = 10;  // the last page is used in part
  shape.slots = 2;
  KvCache cache = Make(host, shape);
  EXPECT_EQ(cache.pages_per_slot(), 3);
  for (int slot = 0; slot < 2; ++slot) ASSERT_TRUE(cache.Hold(slot, 10));
  EXPECT_EQ(cache.pages_allocated(), 6);
}

TEST(KvCache, too_little_memory_is_an_error_with_numbers_that_leaves_what_is_held) {
  Host host;
  KvCache cache = Make(host);
  ASSERT_TRUE(cache.Hold(0, 8));
  for (int position = 0; position < 8; ++position) Write(cache, 0, position);
  // Enough for the first layer to grow, not for the second.
  for (const std::size_t more : {0u, 10000u}) {
    host.allocator.limit = host.allocator.held + more;
    const Status status = cache.Hold(1, 60);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
    EXPECT_THAT(status.error().message,
                AllOf(HasSubstr("pages of 4 positions"), HasSubstr("need")));
    EXPECT_EQ(Wrong(cache, 0, 8), 0);
    EXPECT_EQ(cache.pages_held(), 2);
  }
  // As much as is needed exactly, but no room to spare, is enough.
  host.allocator.limit = std::numeric_limits<std::size_t>::max();
  ASSERT_TRUE(cache.Hold(1, 60));
  for (int position = 0; position < 60; ++position) Write(cache, 1, position);
  EXPECT_EQ(Wrong(cache, 0, 8), 0);
  EXPECT_EQ(Wrong(cache, 1, 60), 0);
}

TEST(KvCache, where_doubling_does_not_fit_it_takes_what_it_needs) {
  Host host;
  KvCache cache = Make(host);
  ASSERT_TRUE(cache.Hold(0, 400));
  const std::int64_t before = cache.pages_allocated();
  // Room for a layer beside the old one with a few pages more, not for one twice as large.
  host.allocator.limit = host.allocator.held * 7 / 4;
  ASSERT_TRUE(cache.Hold(0, static_cast<std::int32_t>(before) * 4 + 4));
  EXPECT_EQ(cache.pages_allocated(), before + 1);
}

TEST(KvCache, a_context_beyond_the_free_memory_is_cut_to_whole_pages_that_fit) {
  Host host;
  EXPECT_EQ(KvCache::ContextThatFits(kShape, *host.device), kShape.context) << "1.5 GiB";
  // A position of a sequence takes 256 MiB, a page 4 GiB.
  KvCache::Shape large{.layers = 512,
                       .kv_heads = 512,
                       .head_dim = 256,
                       .type = DataType::kF16,
                       .context = 1 << 20,
                       .slots = 1,
                       .page_size = 16};
  const std::int64_t bytes = KvCache::Create(large, *host.device)->bytes_per_position();
  const auto free = static_cast<std::int64_t>(AvailableMemoryBytes());
  for (const int slots : {1, 3}) {
    large.slots = slots;
    const std::int32_t context = KvCache::ContextThatFits(large, *host.device);
    EXPECT_EQ(context % 16, 0);
    EXPECT_GE(context, 16) << "at least one page, whether it fits or not";
    EXPECT_LT(context, large.context);
    if (context > 16) {
      EXPECT_LE(bytes * context * slots, free);
    }
    // What is free may have changed by a quarter meanwhile.
    EXPECT_GE(bytes * (context + 16) * slots, free / 2);
  }
}

TEST(KvCache, a_shape_that_cannot_be_names_what_is_wrong) {
  KvCache::Shape shape = kShape;
  shape.type = DataType::kQ8_0;
  const auto blocks = KvCache::Create(shape, HostDevice());
  ASSERT_FALSE(blocks);
  EXPECT_EQ(blocks.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(blocks.error().message,
              AllOf(HasSubstr("q8_0"), HasSubstr("head_dim = 16"), HasSubstr("32")));
  shape = kShape;
  shape.context = shape.slots = 1 << 30;
  const auto table = KvCache::Create(shape, HostDevice());
  ASSERT_FALSE(table);
  EXPECT_THAT(table.error().message, HasSubstr("1073741824 positions"));
}

}  // namespace
}  // namespace tilewright
