#pragma once

#include <algorithm>
#include <vector>

#include "core/arena_test_util.h"
#include "core/formats/formats.h"
#include "ops/copy/copy.h"

namespace tilewright::copy {

/// For tests: contiguous and strided copies from odd addresses, tails, elements apart and rows in
/// three dimensions.
inline std::vector<test::ArenaCase<Args>> CudaCases(DataType src, DataType dst) {
  using Extents = std::array<std::int64_t, 4>;
  struct Shape {
    Extents shape, from, to;  ///< strides; with shape and `from` in blocks
    std::size_t shift;
  };
  std::vector<Shape> shapes = {{{64, 3, 1, 1}, {1, 64, 0, 0}, {1, 64, 0, 0}, 0},
                               {{16, 5, 3, 1}, {1, 16, 96, 0}, {1, 24, 120, 0}, 0},
                               {{8, 3, 2, 2}, {1, 8, 32, 80}, {1, 16, 64, 160}, 0},
                               {{5, 4, 1, 1}, {1, 7, 0, 0}, {1, 6, 0, 0}, 0},
                               {{8, 4, 1, 1}, {1, 8, 0, 0}, {1, 8, 0, 0}, 4}};
  const std::int64_t block = GetTypeInfo(src).block_elements;
  if (block == 1) {
    shapes.push_back({{2051, 1, 1, 1}, {1, 0, 0, 0}, {1, 0, 0, 0}, 0});
    shapes.push_back({{2, 7, 3, 1}, {7, 1, 14, 0}, {1, 2, 14, 0}, 0});  // a transpose
    shapes.push_back({{9, 4, 1, 1}, {1, 9, 0, 0}, {3, 27, 0, 0}, 0});
  }
  std::vector<test::ArenaCase<Args>> cases;
  std::uint64_t seed = 70;
  for (Shape& s : shapes) {
    if (s.shift != 0 && block == 1) s.shift = std::max(s.shift, BytesOf(src, 1));
    s.shape[0] *= block;
    for (std::size_t d = 1; d < 4; ++d) {
      s.from[d] *= block;
      s.to[d] *= block;
    }
    test::ArenaCase<Args> one{
        .name = Format("{} to {}, [{}, {}, {}, {}], shift {}", DataTypeName(src), DataTypeName(dst),
                       s.shape[0], s.shape[1], s.shape[2], s.shape[3], s.shift),
        .arena = test::Arena(std::size_t{1} << (block > 32 ? 20 : 17)),
        .args = {},
        .views = {&Args::src, &Args::dst},
        .outputs = {&Args::dst}};
    one.args.src = one.arena.Random(src, s.shape, s.from, ++seed, s.shift);
    one.args.dst = one.arena.Add(dst, s.shape, s.to, s.shift);
    // A minimum is added in f32, and that sum rounded again.
    const BlockFormat* format = FindFormat(src);
    if (format != nullptr && format->min != Factor::kNone && dst != DataType::kF32 && src != dst)
      one.relative = dst == DataType::kF16 ? 0x1p-10 : 0x1p-7, one.absolute = 0x1p-24;
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace tilewright::copy
