#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/arena_test_util.h"
#include "ops/experts/route.h"

namespace tilewright::route {

/// What the logits of a case are like.
enum class CaseLogits {
  kNormal,
  kTies,  ///< whole numbers, zeros of both signs among them
  kHot,   ///< one expert is the best of every row
  kNaN,   ///< rows of NaN and of infinities, and single ones, among normal rows
};

struct Case {
  std::int64_t experts, used, rows;
  CaseLogits logits = CaseLogits::kNormal;
  std::int64_t gap = 0;   ///< between rows
  std::size_t shift = 0;  ///< bytes by which addresses are off 16
};

inline double CaseLogit(const Case& c, std::int64_t row, std::int64_t expert, Random& random) {
  const double normal = 2 * random.Normal();
  switch (c.logits) {
    case CaseLogits::kNormal:
      return normal;
    case CaseLogits::kTies:
      return normal > 0 ? std::min(2.0, std::floor(normal)) : expert % 2 != 0 ? -0.0 : 0.0;
    case CaseLogits::kHot:
      return expert == c.experts / 2 ? 90 : normal;
    case CaseLogits::kNaN:
      if (row % 4 == 1 || (row % 4 == 3 && expert == c.experts - 1)) return std::nan("");
      if (row % 8 == 2) return std::numeric_limits<double>::infinity();
      return row % 8 == 6 && expert == 0 ? -std::numeric_limits<double>::infinity() : normal;
  }
  return 0;
}

/// A call over such rows. `pair_experts`: the expert of each pair is wanted.
inline test::ArenaCase<Args> MakeCase(DataType type, const Case& c, bool normalise,
                                      bool pair_experts, std::uint64_t seed) {
  const std::int64_t pairs = c.used * c.rows;
  test::ArenaCase<Args> one{
      .name = Format("route in {}: {} of {} experts, {} rows, logits of kind {}, gap {}, shift "
                     "{}{}{}",
                     DataTypeName(type), c.used, c.experts, c.rows, static_cast<int>(c.logits),
                     c.gap, c.shift, normalise ? ", normalised" : "",
                     pair_experts ? ", experts of pairs" : ""),
      .arena = test::Arena(static_cast<std::size_t>((c.experts + c.gap) * c.rows * 4 + pairs * 24 +
                                                    c.experts * 4 + 16384)),
      .args = {},
      .views = {&Args::logits, &Args::offsets, &Args::sources, &Args::places, &Args::weights,
                &Args::experts},
      .outputs = {&Args::offsets, &Args::sources, &Args::places, &Args::weights}};
  one.args.normalise = normalise;
  one.args.scale = 1.5f;
  const auto rows_of = [&](DataType of, std::int64_t cols, std::int64_t rows, std::int64_t gap,
                           std::size_t shift) {
    return one.arena.Add(of, {cols, rows, 1, 1}, {1, cols + gap, (cols + gap) * rows, 0}, shift);
  };
  one.args.logits = rows_of(type, c.experts, c.rows, c.gap, c.shift);
  Random random(seed);
  for (std::int64_t r = 0; r < c.rows; ++r) {
    for (std::int64_t e = 0; e < c.experts; ++e) {
      WriteF64(type, one.args.logits.data, r * one.args.logits.stride[1] + e,
               CaseLogit(c, r, e, random));
    }
  }
  one.args.weights = rows_of(type, c.used, c.rows, c.gap, c.shift);
  one.args.offsets = rows_of(DataType::kI32, c.experts + 1, 1, 0, 0);
  one.args.sources = rows_of(DataType::kI32, pairs, 1, 0, 0);
  one.args.places = rows_of(DataType::kI32, c.used, c.rows, 0, 0);
  if (pair_experts) {
    one.args.experts = rows_of(DataType::kI32, pairs, 1, 0, 0);
    one.outputs.push_back(&Args::experts);
  }
  one.relative = type == DataType::kF32 ? 64 * 0x1p-24 : type == DataType::kBF16 ? 0x1p-7 : 0x1p-10;
  one.absolute = type == DataType::kF16 ? 0x1p-24 : 1e-36;  // f16: half of its smallest step
  return one;
}

/// For tests: one CTA and several, numbers of experts that fill no warp, rows that end within one,
/// every kind of logits, gaps and odd addresses.
inline std::vector<test::ArenaCase<Args>> CudaCases(DataType type) {
  using L = CaseLogits;
  constexpr Case kCases[] = {
      {2, 1, 1},
      {5, 5, 3},
      {8, 2, 17, L::kNormal, 3},
      {7, 3, 64},
      {60, 4, 33, L::kNormal, 0, 4},
      {128, 8, 1},
      {128, 8, 32, L::kTies},
      {128, 8, 129},
      {128, 1, 40, L::kHot},
      {16, 4, 70, L::kHot},
      {32, 32, 5, L::kTies},
      {9, 2, 31, L::kNaN},
      {64, 6, 65, L::kNaN},
      {129, 2, 5},
      {256, 8, 40, L::kTies, 1},
      {512, 10, 1},
      {1024, 12, 33},
  };
  std::vector<test::ArenaCase<Args>> cases;
  std::uint64_t seed = 500;
  for (const Case& c : kCases) {
    cases.push_back(MakeCase(type, c, seed % 2 == 0, seed % 3 == 0, seed));
    ++seed;
    if (c.rows < 20) cases.push_back(MakeCase(type, c, seed % 2 != 0, seed % 3 != 0, seed));
  }
  return cases;
}

}  // namespace tilewright::route
