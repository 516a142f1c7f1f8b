#pragma once

#include <numeric>
#include <vector>

#include "core/arena_test_util.h"
#include "ops/experts/combine.h"

namespace tilewright::combine {

struct Case {
  std::int64_t cols, used, rows;
  bool shared = false;
  std::int64_t gap = 0;   ///< between rows
  std::size_t shift = 0;  ///< bytes by which addresses are off 16
};

/// Every pair has one place.
inline test::ArenaCase<Args> MakeCase(DataType type, const Case& c, std::uint64_t seed) {
  const std::int64_t pairs = c.used * c.rows;
  const auto elements = (pairs + 3 * c.rows) * (c.cols + c.gap) + 2 * pairs + c.rows;
  test::ArenaCase<Args> one{
      .name = Format("combine in {}: {} rows of {}, {} experts each, gap {}, shift {}{}",
                     DataTypeName(type), c.rows, c.cols, c.used, c.gap, c.shift,
                     c.shared ? ", shared" : ""),
      .arena = test::Arena(static_cast<std::size_t>(elements * 4 + 16384)),
      .args = {},
      .views = {&Args::x, &Args::places, &Args::weights, &Args::shared, &Args::gate, &Args::out},
      .outputs = {&Args::out}};
  const auto matrix = [&](std::int64_t cols, std::int64_t rows) {
    const std::int64_t line = cols + c.gap;
    return one.arena.Random(type, {cols, rows, 1, 1}, {1, line, line * rows, 0}, ++seed, c.shift);
  };
  std::vector<std::int32_t> places(static_cast<std::size_t>(pairs));
  std::iota(places.begin(), places.end(), 0);
  Random random(seed);
  for (std::size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[random.Below(i)]);
  one.args.x = matrix(c.cols, pairs);
  one.args.places = one.arena.Ints(places, c.rows);
  one.args.weights = matrix(c.used, c.rows);
  if (c.shared) {
    one.args.shared = matrix(c.cols, c.rows);
    one.args.gate = matrix(1, c.rows);
  }
  const std::int64_t line = c.cols + c.gap;
  one.args.out = one.arena.Add(type, {c.cols, c.rows, 1, 1}, {1, line, line * c.rows, 0}, c.shift);
  one.relative = type == DataType::kF32 ? 0x1p-24 : type == DataType::kBF16 ? 0x1p-7 : 0x1p-10;
  // Sums of `used` products of normal values in f32.
  one.absolute = static_cast<double>(c.used + 2) * 16 * 0x1p-24;
  return one;
}

/// For tests: whole packs and tails, several CTAs a row, with and without the shared expert, gaps that
/// keep rows aligned and gaps that do not, odd addresses.
inline std::vector<test::ArenaCase<Args>> CudaCases(DataType type) {
  constexpr Case kCases[] = {{1, 1, 1},
                             {7, 2, 5, true},
                             {64, 8, 3},
                             {1024, 8, 12, true},
                             {2048, 4, 2, true, 8},
                             {2049, 2, 3, false, 7},
                             {1032, 3, 4, true, 3},
                             {256, 6, 3, true, 0, 4},
                             {768, 1, 40}};
  std::vector<test::ArenaCase<Args>> cases;
  std::uint64_t seed = 900;
  for (const Case& c : kCases) cases.push_back(MakeCase(type, c, seed += 10));
  return cases;
}

}  // namespace tilewright::combine
