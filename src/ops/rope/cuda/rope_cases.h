#pragma once

#include <algorithm>
#include <vector>

#include "core/arena_test_util.h"
#include "ops/rope/rope.h"

namespace tilewright::rope {

/// For tests: heads in place, to another tensor and into contiguous and paged caches, padding among
/// the rows, both kinds of pairs, partial rotation, frequency factors, odd addresses. They have no
/// table: who runs them prepares one.
inline std::vector<test::ArenaCase<Args>> CudaCases(DataType in, DataType out) {
  enum class To { kItself, kTensor, kCache, kPages };
  struct Shape {
    std::int64_t head_dim, heads;
    std::int32_t dims;
    RopeMode mode;
    To to;
    bool factors = false;
    std::int64_t gap = 0;   ///< behind a head
    std::size_t shift = 0;  ///< bytes by which addresses are off 16
  };
  constexpr auto kAdjacent = RopeMode::kInterleaved, kHalves = RopeMode::kHalfSplit;
  const std::vector<Shape> shapes = {{64, 3, 64, kAdjacent, To::kTensor},
                                     {128, 2, 128, kHalves, To::kTensor, true},
                                     {64, 9, 64, kHalves, To::kItself},
                                     {64, 2, 64, kAdjacent, To::kPages, true},
                                     {128, 5, 128, kHalves, To::kPages},
                                     {80, 2, 32, kHalves, To::kCache, false, 8},
                                     {96, 2, 96, kAdjacent, To::kItself, false, 8},
                                     {10, 3, 6, kAdjacent, To::kTensor},
                                     {12, 3, 6, kHalves, To::kPages, true, 1},
                                     {64, 2, 64, kAdjacent, To::kCache, false, 0, 4}};
  const std::vector<std::int32_t> positions = {0, 6, -1, 7, 3, 1}, slots = {2, 0, 1, 1, 2, 0};
  const auto rows = static_cast<std::int64_t>(positions.size());
  std::vector<test::ArenaCase<Args>> cases;
  std::uint64_t seed = 900;
  for (const Shape& s : shapes) {
    if (s.to == To::kItself && in != out) continue;
    const bool scatters = s.to == To::kCache || s.to == To::kPages, paged = s.to == To::kPages;
    test::ArenaCase<Args> one{
        .name = Format("{} to {}, {} heads of {}, {} turned, to {}, gap {}, shift {}",
                       DataTypeName(in), DataTypeName(out), s.heads, s.head_dim, s.dims,
                       static_cast<int>(s.to), s.gap, s.shift),
        .arena = test::Arena(std::size_t{1} << 17),
        .args = {},
        .views = {&Args::qk, &Args::positions, &Args::factors, &Args::out, &Args::cache,
                  &Args::slots, &Args::pages},
        .outputs = {scatters ? &Args::cache : &Args::out}};
    const std::int64_t head = s.head_dim + s.gap, line = 2 * s.heads * head;
    const std::array<std::int64_t, 4> shape = {s.head_dim, s.heads, rows, 1};
    one.args.params = {.mode = s.mode, .dims = s.dims, .base = 10000.0f};
    one.args.qk = one.arena.Random(in, shape, {1, head, line, 0}, ++seed, s.shift);
    one.args.positions = one.arena.Ints(positions);
    if (s.factors) {
      one.args.factors =
          one.arena.Add(DataType::kF32, {s.dims / 2, 1, 1, 1}, {1, s.dims / 2, 0, 0});
      for (int i = 0; i < s.dims / 2; ++i)
        one.args.factors.as<float>()[i] = 1.0f + 0.25f * static_cast<float>(i % 7);
    }
    if (s.to == To::kItself) one.args.out = one.args.qk;
    if (s.to == To::kTensor) {
      one.args.out = one.arena.Add(out, shape, {1, head, s.heads * head, 0}, s.shift);
    }
    if (scatters) {
      constexpr std::int64_t kSlots = 3, kPageSize = 4, kPages = 2;  // of a sequence
      const std::int64_t lines = paged ? kPageSize : kPageSize * kPages;
      const std::int64_t physical = paged ? kSlots * kPages + 1 : kSlots;
      one.args.slots = one.arena.Ints(slots);
      one.args.cache = one.arena.Add(out, {s.head_dim, s.heads, lines, physical},
                                     {1, head, head * s.heads, head * s.heads * lines}, s.shift);
      if (paged) one.args.pages = one.arena.Ints({6, 0, 3, 2, 1, 5}, kSlots);
    }
    // Sines and cosines are good to 1.2e-7, times two elements of up to 5 in magnitude.
    one.absolute = 2e-6;
    one.relative = out == DataType::kF32 ? 0x1p-22 : out == DataType::kF16 ? 0x1p-10 : 0x1p-7;
    cases.push_back(std::move(one));
  }
  return cases;
}

/// For tests: queries, keys and values that are parts of one merged product, or each a tensor; in
/// place and to another tensor, into contiguous and paged caches that lie differently, padding
/// among the rows.
inline std::vector<test::ArenaCase<Args>> CudaKvCases(DataType in, DataType cache) {
  struct Shape {
    std::int64_t head_dim, heads, kv_heads;
    std::int32_t dims;
    RopeMode mode;
    bool paged, in_place, merged, factors = false;
    std::int64_t gap = 0;   ///< behind a head of the caches
    std::size_t shift = 0;  ///< bytes by which addresses are off 16
  };
  constexpr auto kAdjacent = RopeMode::kInterleaved, kHalves = RopeMode::kHalfSplit;
  const std::vector<Shape> shapes = {{64, 9, 3, 64, kAdjacent, true, true, true},
                                     {128, 8, 2, 128, kAdjacent, true, true, true, true},
                                     {128, 4, 1, 128, kHalves, true, true, false},
                                     {64, 4, 4, 64, kHalves, false, false, true, true},
                                     {80, 3, 1, 32, kHalves, false, true, true, false, 8},
                                     {96, 2, 2, 96, kAdjacent, true, false, false, false, 3},
                                     {12, 3, 1, 6, kHalves, true, true, true, true, 1},
                                     {64, 2, 1, 64, kAdjacent, false, true, true, false, 0, 4}};
  const std::vector<std::int32_t> positions = {0, 6, -1, 7, 3, 1}, slots = {2, 0, 1, 1, 2, 0};
  const auto rows = static_cast<std::int64_t>(positions.size());
  std::vector<test::ArenaCase<Args>> cases;
  std::uint64_t seed = 1900;
  for (const Shape& s : shapes) {
    test::ArenaCase<Args> one{
        .name = Format("{} into {}, {} and {} heads of {}, {} turned{}{}{}, gap {}, shift {}",
                       DataTypeName(in), DataTypeName(cache), s.heads, s.kv_heads, s.head_dim,
                       s.dims, s.paged ? ", paged" : "", s.in_place ? ", in place" : "",
                       s.merged ? ", merged" : "", s.gap, s.shift),
        .arena = test::Arena(std::size_t{1} << 18),
        .args = {},
        .views = {&Args::qk, &Args::positions, &Args::factors, &Args::out, &Args::cache,
                  &Args::slots, &Args::pages, &Args::k, &Args::v, &Args::v_cache},
        .outputs = {&Args::out, &Args::cache, &Args::v_cache}};
    one.args.params = {.mode = s.mode, .dims = s.dims, .base = 10000.0f};
    const auto tensor = [&](std::int64_t heads) {
      return one.arena.Random(in, {s.head_dim, heads, rows, 1},
                              {1, s.head_dim, heads * s.head_dim, 0}, ++seed, s.shift);
    };
    if (s.merged) {
      const TensorView qkv = tensor(s.heads + 2 * s.kv_heads);
      const auto part = [&](std::int64_t first, std::int64_t heads) {
        TensorView view = qkv;
        view.data = MutableAddressOf(qkv, first * s.head_dim);
        view.shape[1] = heads;
        return view;
      };
      one.args.qk = part(0, s.heads), one.args.k = part(s.heads, s.kv_heads);
      one.args.v = part(s.heads + s.kv_heads, s.kv_heads);
    } else {
      one.args.qk = tensor(s.heads), one.args.k = tensor(s.kv_heads);
      one.args.v = tensor(s.kv_heads);
    }
    one.args.out = s.in_place ? one.args.qk
                              : one.arena.Add(in, one.args.qk.shape,
                                              {1, s.head_dim, s.heads * s.head_dim, 0}, s.shift);
    one.args.positions = one.arena.Ints(positions);
    one.args.slots = one.arena.Ints(slots);
    if (s.factors) {
      one.args.factors =
          one.arena.Add(DataType::kF32, {s.dims / 2, 1, 1, 1}, {1, s.dims / 2, 0, 0});
      for (int i = 0; i < s.dims / 2; ++i)
        one.args.factors.as<float>()[i] = 1.0f + 0.25f * static_cast<float>(i % 7);
    }
    constexpr std::int64_t kSlots = 3, kPageSize = 4, kPages = 2;  // of a sequence
    const std::int64_t lines = s.paged ? kPageSize : kPageSize * kPages;
    const std::int64_t physical = s.paged ? kSlots * kPages + 1 : kSlots;
    const std::int64_t head = s.head_dim + s.gap, line = head * s.kv_heads;
    const std::array<std::int64_t, 4> shape = {s.head_dim, s.kv_heads, lines, physical};
    one.args.cache = one.arena.Add(cache, shape, {1, head, line, line * lines}, s.shift);
    // The values with a whole page for each head.
    one.args.v_cache = one.arena.Add(cache, shape, {1, head * lines, head, line * lines}, s.shift);
    if (s.paged) one.args.pages = one.arena.Ints({6, 0, 3, 2, 1, 5}, kSlots);
    // As above.
    const auto rounding = [](DataType type) {
      return type == DataType::kF32 ? 0x1p-22 : type == DataType::kF16 ? 0x1p-10 : 0x1p-7;
    };
    one.absolute = 2e-6;
    one.relative = std::max(rounding(in), rounding(cache));
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace tilewright::rope
