#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/arena_test_util.h"
#include "ops/top_k/top_k.h"

namespace tilewright::top_k {

/// What the values of a row are like.
enum class CaseValues {
  kNormal,
  kTies,       ///< whole numbers, zeros of both signs among them
  kAscending,  ///< every value enters the list
  kEqual,
  kPeaks,     ///< the largest at a distance of 1,024: all of one thread
  kExcluded,  ///< most are minus infinity
  kAllExcluded,
  kNaN,       ///< one
  kInfinity,  ///< one
  kTiny,      ///< among them subnormal numbers of every type
};

struct Case {
  std::int64_t cols, rows;
  std::int32_t k;
  CaseValues values = CaseValues::kNormal;
  std::int64_t gap = 0;   ///< between rows
  std::size_t shift = 0;  ///< bytes by which addresses are off 16
  bool hands_over = false;
};

inline double CaseValue(CaseValues kind, std::int64_t c, std::int64_t cols, Random& random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (kind) {
    case CaseValues::kNormal:
      return 3 * random.Normal();
    case CaseValues::kTies: {
      const auto value = static_cast<double>(random.Between(-3, 3));
      return value == 0 && c % 2 != 0 ? -0.0 : std::min(value, 0.0);
    }
    case CaseValues::kAscending:
      return static_cast<double>(c) / static_cast<double>(cols);
    case CaseValues::kEqual:
      return -1;
    case CaseValues::kPeaks:
      return c % 1024 == 4 ? 9 + static_cast<double>(c) * 0x1p-10 : random.Normal();
    case CaseValues::kExcluded:
      return c % 97 == 5 ? random.Normal() : -kInfinity;
    case CaseValues::kAllExcluded:
      return -kInfinity;
    case CaseValues::kNaN:
      return c == cols - 1 ? std::nan("") : random.Normal();
    case CaseValues::kInfinity:
      return c == cols / 2 ? kInfinity : random.Normal();
    case CaseValues::kTiny:
      return random.Normal() * (c % 2 != 0 ? 0x1p-130 : 0x1p-20);
  }
  return 0;
}

/// Has the call hand its best ids over: each row has another position and turn, every third but the
/// first is padding.
inline void HandOverIn(test::ArenaCase<Args>& one, std::int64_t rows, std::int64_t gap) {
  constexpr std::int32_t kTurns = 3;
  std::vector<std::int32_t> positions, turns;
  for (std::int32_t r = 0; r < rows; ++r) {
    positions.push_back(r % 3 == 1 ? -1 : 100 * r);
    turns.push_back((r + 2) % kTurns);
  }
  one.args.tokens = one.arena.Add(DataType::kI32, {rows, 1, 1, 1}, {1, rows, 0, 0});
  one.args.positions = one.arena.Ints(positions);
  one.args.turns = one.arena.Ints(turns);
  one.args.found = one.arena.Add(DataType::kI32, {rows, kTurns, 1, 1}, {1, rows + gap, 0, 0});
  for (TensorView Args::*view : {&Args::tokens, &Args::positions, &Args::turns, &Args::found})
    one.outputs.push_back(view);
}

/// A call over rows of such values; all of them but the first row are normal where a case is of
/// NaN or infinity, so that a row is seen not to spoil another.
inline test::ArenaCase<Args> MakeCase(DataType in, const Case& c, bool values, std::uint64_t seed) {
  test::ArenaCase<Args> one{
      .name =
          Format("top_k of {}: {} rows of {}, k = {}, values of kind {}, gap {}, shift {}{}",
                 DataTypeName(in), c.rows, c.cols, c.k, static_cast<int>(c.values), c.gap, c.shift,
                 c.hands_over ? ", handed over"
                 : values     ? ""
                              : ", ids only"),
      .arena = test::Arena(static_cast<std::size_t>((c.cols + c.gap) * c.rows *
                                                        static_cast<std::int64_t>(BytesOf(in, 1)) +
                                                    (c.k + c.gap) * c.rows * 32 + 16384)),
      .args = {},
      .views = {&Args::in, &Args::ids, &Args::values, &Args::tokens, &Args::positions, &Args::turns,
                &Args::found},
      .outputs = {&Args::ids}};
  const auto strides = [&](std::int64_t cols) {
    return std::array<std::int64_t, 4>{1, cols + c.gap, (cols + c.gap) * c.rows, 0};
  };
  one.args.in = one.arena.Add(in, {c.cols, c.rows, 1, 1}, strides(c.cols), c.shift);
  Random random(seed);
  const bool first_only = c.values == CaseValues::kNaN || c.values == CaseValues::kInfinity;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const CaseValues kind = first_only && r > 0 ? CaseValues::kNormal : c.values;
    for (std::int64_t i = 0; i < c.cols; ++i) {
      WriteF64(in, one.args.in.data, r * one.args.in.stride[1] + i,
               CaseValue(kind, i, c.cols, random));
    }
  }
  one.args.ids = one.arena.Add(DataType::kI32, {c.k, c.rows, 1, 1}, strides(c.k));
  if (values) {
    one.args.values = one.arena.Add(DataType::kF32, {c.k, c.rows, 1, 1}, strides(c.k));
    one.outputs.push_back(&Args::values);
  }
  if (c.hands_over) HandOverIn(one, c.rows, c.gap);
  return one;
}

/// For tests: every kind of values, one and several CTAs a row, tails, gaps and odd addresses.
inline std::vector<test::ArenaCase<Args>> CudaCases(DataType in) {
  using V = CaseValues;
  constexpr Case kCases[] = {
      {1, 1, 1},
      {3, 2, 5},
      {64, 3, 1, V::kNormal, 4},
      {4096, 1, 1},
      {4097, 2, 1, V::kNormal, 3},
      {9000, 3, 40, V::kNormal, 0, 4},
      {8192, 2, 64, V::kTies},
      {5000, 2, 1, V::kTies},
      {8200, 1, 64, V::kAscending},
      {8200, 1, 40, V::kEqual},
      {8200, 1, 1, V::kEqual},
      {16384, 1, 64, V::kPeaks},
      {9000, 2, 64, V::kExcluded},
      {9000, 1, 1, V::kExcluded},
      {5000, 1, 7, V::kAllExcluded},
      {100, 1, 1, V::kAllExcluded},
      {9000, 3, 20, V::kNaN},
      {9000, 3, 1, V::kNaN},
      {9000, 2, 8, V::kInfinity},
      {9000, 2, 1, V::kInfinity},
      {6000, 1, 64, V::kTiny},
      {6000, 1, 1, V::kTiny},
      {130, 40, 9, V::kNormal, 2},
      {130, 40, 1, V::kNormal, 2, 0, true},
      {9000, 3, 1, V::kTies, 0, 0, true},
      {9000, 3, 1, V::kNaN, 5, 0, true},
      {9000, 1, 1, V::kNormal, 0, 0, true},
  };
  std::vector<test::ArenaCase<Args>> cases;
  std::uint64_t seed = 70;
  for (const Case& c : kCases) {
    cases.push_back(MakeCase(in, c, true, ++seed));
    if (c.k == 1 && c.cols > 1000) cases.push_back(MakeCase(in, c, false, seed));
  }
  return cases;
}

}  // namespace tilewright::top_k
