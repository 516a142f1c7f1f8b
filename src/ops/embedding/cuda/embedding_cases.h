#pragma once

#include <vector>

#include "core/arena_test_util.h"
#include "core/formats/formats.h"
#include "ops/embedding/embedding.h"

namespace tilewright::embedding {

/// For tests: calls with ids of padding, rows with gaps and odd addresses, from a table of `type`.
inline std::vector<test::ArenaCase<Args>> CudaCases(DataType type, DataType out) {
  std::vector<test::ArenaCase<Args>> cases;
  struct Shape {
    std::int64_t hidden, rows,
        gap;            ///< gap: between rows, in blocks of the table; of out, elements
    std::size_t shift;  ///< bytes by which addresses are off 16
  };
  const std::int64_t block = GetTypeInfo(type).block_elements;
  const auto shapes =
      block == 1
          ? std::vector<Shape>{{64, 5, 0, 0},   {1032, 3, 8, 0}, {1, 4, 0, 0},
                               {77, 3, 0, 0},   {2051, 2, 5, 0}, {1024, 3, 0, 4},
                               {1024, 3, 3, 0}, {4096, 1, 0, 0}, {8, 300, 0, 0}}
          : std::vector<Shape>{{block, 5, 0, 0},     {5 * block, 3, 8, 0}, {3 * block, 4, 1, 0},
                               {2 * block, 3, 0, 4}, {4096, 1, 0, 0},      {block, 100, 16, 0}};
  std::uint64_t seed = 1;
  for (const Shape& shape : shapes) {
    constexpr std::int64_t kEntries = 7;
    const std::int64_t line = shape.hidden + shape.gap * block, out_line = shape.hidden + shape.gap;
    test::ArenaCase<Args> one{
        .name = Format("{} to {}, {} rows of {}, gap {}, shift {}", DataTypeName(type),
                       DataTypeName(out), shape.rows, shape.hidden, shape.gap, shape.shift),
        .arena = test::Arena(std::size_t{1} << 18),
        .args = {},
        .views = {&Args::table, &Args::ids, &Args::out},
        .outputs = {&Args::out}};
    std::vector<std::int32_t> ids;
    for (std::int32_t r = 0; r < shape.rows; ++r) ids.push_back(r * 5 % 8 - 1);
    one.args.table = one.arena.Random(type, {shape.hidden, kEntries, 1, 1},
                                      {1, line, line * kEntries, 0}, ++seed, shape.shift);
    one.args.ids = one.arena.Ints(ids);
    one.args.out = one.arena.Add(out, {shape.hidden, shape.rows, 1, 1},
                                 {1, out_line, out_line * shape.rows, 0}, shape.shift);
    // A minimum is added in f32, and that sum rounded again.
    const BlockFormat* format = FindFormat(type);
    if (format != nullptr && format->min != Factor::kNone && out != DataType::kF32)
      one.relative = out == DataType::kF16 ? 0x1p-10 : 0x1p-7, one.absolute = 0x1p-24;
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace tilewright::embedding
