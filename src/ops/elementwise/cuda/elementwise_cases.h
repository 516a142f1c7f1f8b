#pragma once

#include <vector>

#include "core/arena_test_util.h"
#include "ops/elementwise/elementwise.h"

namespace tilewright::elementwise {

/// What a call has beside its function and types.
struct CudaShape {
  using Extents = std::array<std::int64_t, 4>;
  Extents shape, a, b, out;  ///< strides
  std::size_t shift = 0;     ///< bytes by which addresses are off 16
  int over = 0;              ///< 1: out is a, 2: out is b
};

/// Contiguous and strided views, a bias of one row, the halves of a merged product, tails, odd
/// addresses, results over an operand.
inline std::vector<CudaShape> CudaShapes() {
  std::vector<CudaShape> shapes = {
      {{64, 3, 1, 1}, {1, 64, 0, 0}, {1, 64, 0, 0}, {1, 64, 0, 0}},
      {{64, 3, 1, 1}, {1, 64, 0, 0}, {1, 0, 0, 0}, {1, 64, 0, 0}},
      {{16, 4, 3, 1}, {1, 32, 128, 0}, {1, 32, 128, 0}, {1, 16, 64, 0}},
      {{8, 2, 3, 2}, {1, 8, 24, 80}, {1, 16, 32, 96}, {1, 8, 16, 48}},
      {{37, 3, 1, 1}, {1, 37, 0, 0}, {1, 40, 0, 0}, {1, 37, 0, 0}},
      {{1029, 1, 1, 1}, {1, 0, 0, 0}, {1, 0, 0, 0}, {1, 0, 0, 0}},
      {{64, 3, 1, 1}, {1, 64, 0, 0}, {1, 64, 0, 0}, {1, 64, 0, 0}, 4}};
  shapes.push_back(shapes[0]);
  shapes.back().over = 1;
  shapes.push_back(shapes[2]);
  shapes.back().out = shapes.back().b;
  shapes.back().over = 2;
  return shapes;
}

/// Where the result is over a, an element that a soft cap leaves as it is must keep its bits: a power
/// of two rounds nothing.
inline float CudaSoftcap(Function function, const CudaShape& s) {
  if (function != Function::kSoftcap) return 0;
  return s.over == 1 ? 32.0f : 30.0f;
}

/// For tests: calls of `function`, of values up to some hundreds where it has an exponential.
inline std::vector<test::ArenaCase<Args>> CudaCases(Function function, DataType a, DataType b,
                                                    DataType out) {
  const bool unary = IsUnary(function);
  const bool has_exp = function != Function::kAdd && function != Function::kMul;
  const bool has_gelu = function == Function::kGelu || function == Function::kGeGlu;
  std::vector<test::ArenaCase<Args>> cases;
  std::uint64_t seed = 500;
  for (const CudaShape& s : CudaShapes()) {
    if ((s.over == 1 && a != out) || (s.over == 2 && (unary || b != out))) continue;
    test::ArenaCase<Args> one{
        .name = Format("{} of {} and {} to {}, [{}, {}, {}, {}], shift {}, over {}",
                       kFunctionWords[static_cast<std::size_t>(function)], DataTypeName(a),
                       DataTypeName(b), DataTypeName(out), s.shape[0], s.shape[1], s.shape[2],
                       s.shape[3], s.shift, s.over),
        .arena = test::Arena(std::size_t{1} << 15),
        .args = {.function = function,
                 .a = {},
                 .b = {},
                 .out = {},
                 .softcap = CudaSoftcap(function, s),
                 .limit = function == Function::kClampedSwiGlu ? 1.5f : 0.0f},
        .views = {&Args::a, &Args::b, &Args::out},
        .outputs = {&Args::out}};
    one.args.a = one.arena.Random(a, s.shape, s.a, ++seed, s.shift);
    if (has_exp) {
      std::int64_t number = 0;
      test::Arena::ForEachElement(one.args.a, [&](std::int64_t at, std::int64_t) {
        const double wide = static_cast<double>(number++ % 401) - 200;  // -200 .. 200
        if (number % 3 == 0) WriteF64(a, one.args.a.data, at, wide);
      });
    }
    if (!unary) one.args.b = one.arena.Random(b, s.shape, s.b, ++seed, s.shift);
    if (s.over == 0) {
      one.args.out = one.arena.Add(out, s.shape, s.out, s.shift);
    } else {
      one.args.out = s.over == 1 ? one.args.a : one.args.b;
    }
    // Sums and products of two are what they are in float64; an exponential is good to a few units
    // in the last place, and what is below 1e-36 may be 0. f32 is then rounded again.
    if (has_exp) one.relative = 8 * 0x1p-23, one.absolute = 1e-36;
    // The exponent of gelu is off by five roundings of itself, and below 89 where that shows.
    if (has_gelu) one.relative += 5 * 89 * 0x1p-24;
    // That of clamped_swiglu by one.
    if (function == Function::kClampedSwiGlu) one.relative += 89 * 0x1p-24;
    if (out != DataType::kF32)
      one.relative = out == DataType::kF16 ? 0x1p-10 : 0x1p-7, one.absolute = 0x1p-24;
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace tilewright::elementwise
