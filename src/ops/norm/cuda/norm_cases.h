#pragma once

#include <vector>

#include "core/arena_test_util.h"
#include "ops/norm/norm.h"

namespace tilewright::norm {

/// For tests: rows with gaps, tails, odd addresses, and in place where the types allow. `sum`:
/// kNone without a residual.
inline std::vector<test::ArenaCase<Args>> CudaCases(DataType in, DataType weight, DataType sum,
                                                    DataType out) {
  struct Shape {
    std::int64_t cols, rows, gap;
    std::size_t shift;
    bool in_place;
    std::int64_t heads = 1;  ///< of a row: vectors of `cols` side by side
  };
  const bool adds = sum != DataType::kNone;
  std::vector<test::ArenaCase<Args>> cases;
  std::uint64_t seed = 40;
  for (const Shape& s :
       {Shape{64, 5, 0, 0, false}, Shape{576, 3, 8, 0, false}, Shape{577, 3, 3, 0, false},
        Shape{4096, 2, 0, 4, false}, Shape{9000, 2, 0, 0, false}, Shape{1024, 4, 0, 0, true},
        Shape{128, 6, 96, 0, true, 5}, Shape{80, 3, 7, 0, false, 4}}) {
    if (s.in_place && in != out) continue;
    test::ArenaCase<Args> one{
        .name = Format("{} x {} + {} to {}, {} rows of {} x {}, gap {}, shift {}", DataTypeName(in),
                       DataTypeName(weight), DataTypeName(sum), DataTypeName(out), s.rows, s.heads,
                       s.cols, s.gap, s.shift),
        .arena = test::Arena(std::size_t{1} << 19),
        .args = {},
        .views = {&Args::in, &Args::weight, &Args::out, &Args::residual, &Args::sum},
        .outputs = {&Args::out}};
    const std::array<std::int64_t, 4> shape = {s.cols, s.heads, s.rows, 1};
    const std::array<std::int64_t, 4> stride = {1, s.cols, s.heads * s.cols + s.gap, 0};
    one.args.in = one.arena.Random(in, shape, stride, ++seed, s.shift);
    one.args.weight = one.arena.Random(weight, {s.cols, 1, 1, 1}, {1, s.cols, 0, 0}, ++seed);
    one.args.out = s.in_place ? one.args.in : one.arena.Add(out, shape, stride, s.shift);
    if (adds) {
      one.outputs.push_back(&Args::sum);
      one.args.residual = one.arena.Random(sum, shape, stride, ++seed, s.shift);
      one.args.sum = s.in_place ? one.args.residual : one.arena.Add(sum, shape, stride, s.shift);
    }
    // As for measuring: a sum of `cols` squares in f32, then a rounding of the result.
    const auto epsilon = [](DataType type) {
      return type == DataType::kF32 ? 0x1p-23 : type == DataType::kF16 ? 0x1p-10 : 0x1p-7;
    };
    one.relative = 0x1p-24 * (static_cast<double>(s.cols) / 2 + 8) + epsilon(out);
    if (adds) one.relative += epsilon(sum);
    if (out == DataType::kF16) one.absolute = 0x1p-24;
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace tilewright::norm
