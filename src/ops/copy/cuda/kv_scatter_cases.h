#pragma once

#include <vector>

#include "core/arena_test_util.h"
#include "ops/copy/kv_scatter.h"

namespace tilewright::kv_scatter {

/// For tests: rows with padding among them into contiguous and paged caches, heads of a merged
/// projection, odd addresses.
inline std::vector<test::ArenaCase<Args>> CudaCases(DataType type, DataType cache) {
  struct Shape {
    std::int64_t head_dim, heads, gap;  ///< gap: behind a head of x, and of the cache
    bool paged;
    std::size_t shift;
  };
  const std::vector<Shape> shapes = {
      {64, 3, 0, false, 0}, {64, 3, 0, true, 0}, {128, 2, 8, true, 0}, {80, 5, 0, true, 0},
      {64, 2, 0, true, 4},  {7, 3, 1, false, 0}, {24, 1, 3, true, 0},  {1, 2, 0, true, 0}};
  std::vector<test::ArenaCase<Args>> cases;
  std::uint64_t seed = 300;
  for (const Shape& s : shapes) {
    constexpr std::int64_t kSlots = 3, kPageSize = 4, kPages = 2;  // of a sequence
    const std::vector<std::int32_t> positions = {0, 5, -1, 7, 3, -1, 1},
                                    slots = {2, 0, 1, 1, 2, -5, 0};
    const auto rows = static_cast<std::int64_t>(positions.size());
    test::ArenaCase<Args> one{
        .name = Format("{} into {}, {} heads of {}, gap {}, {}, shift {}", DataTypeName(type),
                       DataTypeName(cache), s.heads, s.head_dim, s.gap,
                       s.paged ? "paged" : "contiguous", s.shift),
        .arena = test::Arena(std::size_t{1} << 17),
        .args = {},
        .views = {&Args::x, &Args::cache, &Args::positions, &Args::slots, &Args::pages},
        .outputs = {&Args::cache}};
    const std::int64_t head = s.head_dim + s.gap, line = 2 * s.heads * head;
    one.args.x =
        one.arena.Random(type, {s.head_dim, s.heads, rows, 1}, {1, head, line, 0}, ++seed, s.shift);
    one.args.positions = one.arena.Ints(positions);
    one.args.slots = one.arena.Ints(slots);
    const std::int64_t lines = s.paged ? kPageSize : kPageSize * kPages;
    const std::int64_t physical = s.paged ? kSlots * kPages + 1 : kSlots;
    one.args.cache = one.arena.Add(cache, {s.head_dim, s.heads, lines, physical},
                                   {1, head, head * s.heads, head * s.heads * lines}, s.shift);
    if (s.paged) one.args.pages = one.arena.Ints({6, 0, 3, 2, 1, 5}, kSlots);
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace tilewright::kv_scatter
