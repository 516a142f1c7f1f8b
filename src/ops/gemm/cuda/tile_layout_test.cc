#include "ops/gemm/cuda/tile_layout.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace tw {
namespace {

TEST(RasterTile, VisitsEveryTileOnce) {
  for (const int tiles_m : {1, 2, 7, 8, 9, 31, 64}) {
    for (const int tiles_n : {1, 3, 16, 25}) {
      for (const int band : {1, 4, 8, 16}) {
        std::set<std::pair<int, int>> seen;
        for (int i = 0; i < tiles_m * tiles_n; ++i) {
          const TileIndex tile = RasterTile(i, tiles_m, tiles_n, band);
          EXPECT_GE(tile.m, 0);
          EXPECT_LT(tile.m, tiles_m);
          EXPECT_GE(tile.n, 0);
          EXPECT_LT(tile.n, tiles_n);
          seen.emplace(tile.m, tile.n);
        }
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(tiles_m * tiles_n))
            << tiles_m << " x " << tiles_n << " in bands of " << band;
      }
    }
  }
}

TEST(RasterTile, NeighboursShareABandOfRows) {
  // 64 consecutive CTAs on a large output touch 8 tile rows and 8 tile columns, not 64 of one.
  std::set<int> rows;
  std::set<int> columns;
  for (int i = 0; i < 64; ++i) {
    const TileIndex tile = RasterTile(i, 32, 32, 8);
    rows.insert(tile.m);
    columns.insert(tile.n);
  }
  EXPECT_EQ(rows.size(), 8u);
  EXPECT_EQ(columns.size(), 8u);
}

class TileOffsetTest : public testing::TestWithParam<int> {};

TEST_P(TileOffsetTest, GivesEachChunkAPlaceOfItsOwnInTheTile) {
  const int chunks = GetParam();
  const int lines = 64;
  std::set<int> seen;
  for (int line = 0; line < lines; ++line) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int offset = TileOffset(line, chunk, chunks);
      EXPECT_EQ(offset % 16, 0);
      EXPECT_GE(offset, line * chunks * 16);
      EXPECT_LT(offset, (line + 1) * chunks * 16);
      seen.insert(offset);
    }
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(lines * chunks));
}

// Shared memory serves eight 16-byte accesses at once if each has four banks of its own.
TEST_P(TileOffsetTest, LetsEightLinesBeReadAtOnce) {
  const int chunks = GetParam();
  for (int first = 0; first < 64; first += 8) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      std::set<int> banks;
      for (int line = first; line < first + 8; ++line) {
        banks.insert(TileOffset(line, chunk, chunks) / 16 % 8);
      }
      EXPECT_EQ(banks.size(), 8u) << "lines from " << first << ", chunk " << chunk;
    }
  }
}

TEST_P(TileOffsetTest, LetsEightChunksInARowBeWrittenAtOnce) {
  const int chunks = GetParam();
  for (int first = 0; first < 64 * chunks; first += 8) {
    std::set<int> banks;
    for (int i = first; i < first + 8; ++i) {
      banks.insert(TileOffset(i / chunks, i % chunks, chunks) / 16 % 8);
    }
    EXPECT_EQ(banks.size(), 8u) << "from chunk " << first;
  }
}

// The kernel adds multiples of eight lines outside of TileOffset's unrolled part.
TEST_P(TileOffsetTest, RepeatsEveryEightLines) {
  const int chunks = GetParam();
  for (int line = 0; line < 32; ++line) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      EXPECT_EQ(TileOffset(line + 8, chunk, chunks),
                TileOffset(line, chunk, chunks) + 8 * chunks * 16);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Chunks, TileOffsetTest, testing::Values(2, 4, 8, 16, 32));

}  // namespace
}  // namespace tw
