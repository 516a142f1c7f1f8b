#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "core/block_format.h"
#include "core/random.h"
#include "core/test_util.h"
#include "ops/attention/attention.h"

/// Helpers for tests only; no library file includes this header.

namespace tilewright::attention {

struct BatchCase {
  DataType q = DataType::kF32, kv = DataType::kBF16;
  int heads = 4, kv_heads = 1, head_dim = 64;
  int context = 256, sequences = 1;
  int page_size = 0;  ///< 0: contiguous
  int window = 0;
  float softcap = 0;
  bool sinks = false;
  std::vector<std::int32_t> positions = {}, slots = {};
  bool odd = false;  ///< caches and rows of q and out at odd elements: no wide access is possible
  Guarantee guarantee = Guarantee::kFastest;
};

inline std::string Describe(const BatchCase& c) {
  std::string text = std::string(DataTypeName(c.q)) + " over " + std::string(DataTypeName(c.kv));
  const auto add = [&](const char* name, auto value) {
    text += std::string(" ") + name + " " + std::to_string(value);
  };
  add("heads", c.heads), add("kv_heads", c.kv_heads), add("head_dim", c.head_dim);
  add("rows", c.positions.size()), add("first position", c.positions.at(0));
  add("page_size", c.page_size), add("window", c.window), add("odd", c.odd);
  add("softcap", c.softcap), add("sinks", c.sinks);
  return text;
}

/// Rows `from` to `from + count - 1` of a sequence, behind what `c` has.
inline void AddRows(BatchCase& c, std::int32_t slot, std::int32_t from, int count) {
  for (int i = 0; i < count; ++i) c.positions.push_back(from + i), c.slots.push_back(slot);
}

/// Where the operands of a batch lie, on whatever device.
struct BatchAddresses {
  void *q, *k, *v, *positions, *slots, *pages, *out;
  void* sinks = nullptr;
};

/// Operands of a case in the host's memory and what they must give. What no row sees is NaN, and
/// pages that no row sees do not exist.
class Batch {
 public:
  Batch(const BatchCase& c, std::uint64_t seed)
      : c_(c),
        rows_(static_cast<int>(c.positions.size())),
        gap_(c.odd ? 1 : 8),
        positions_(c.positions),
        slots_(c.slots),
        sinks_(c.sinks ? test::RandomFloats(static_cast<std::size_t>(c.heads), seed, 3.0)
                       : std::vector<float>()),
        q_(BytesOf(c.q, std::int64_t{rows_} * RowStride()), c.odd ? BytesOf(c.q, 1) : 0),
        k_(CacheBytes(), c.odd ? BytesOf(c.kv, 1) : 0),
        v_(CacheBytes(), c.odd ? BytesOf(c.kv, 1) : 0) {
    Random random(seed);
    for (int r = 0; r < rows_; ++r) {
      FillRow(c.q, static_cast<std::byte*>(q_.data()) + BytesOf(c.q, r * RowStride()),
              c.heads * c.head_dim, random, 1.5);
    }
    MakePages(random);
    for (int s = 0; s < c.sequences; ++s) {
      for (int p = 0; p < c.context; ++p) {
        if (!IsSeen(s, p)) continue;
        const std::size_t at = BytesOf(c.kv, PlaceOf(s, p));
        FillRow(c.kv, static_cast<std::byte*>(k_.data()) + at, HeadsWidth(), random, 1.5);
        FillRow(c.kv, static_cast<std::byte*>(v_.data()) + at, HeadsWidth(), random, 1.0);
      }
    }
  }

  const BatchCase& its_case() const { return c_; }
  int rows() const { return rows_; }
  int width() const { return c_.heads * c_.head_dim; }
  std::int64_t RowStride() const { return width() + gap_; }
  std::size_t OutBytes() const { return BytesOf(c_.q, rows_ * RowStride()); }
  test::GuardedBytes& q() { return q_; }
  test::GuardedBytes& k() { return k_; }
  test::GuardedBytes& v() { return v_; }
  std::vector<std::int32_t>& positions() { return positions_; }
  std::vector<std::int32_t>& slots() { return slots_; }
  std::vector<std::int32_t>& pages() { return pages_; }
  std::vector<float>& sinks() { return sinks_; }

  BatchAddresses Host(void* out) {
    return {q_.data(),     k_.data(),     v_.data(), positions_.data(),
            slots_.data(), pages_.data(), out,       sinks_.data()};
  }
  Args ArgsAt(const BatchAddresses& at) const {
    const std::int64_t dim = c_.head_dim, line = CacheLine();
    Args args;
    args.q = TensorView{at.q, {dim, c_.heads, rows_, 1}, {1, dim, RowStride(), 0}, c_.q};
    args.out = TensorView{at.out, {dim * c_.heads, rows_, 1, 1}, {1, RowStride(), 0, 0}, c_.q};
    args.positions = Contiguous(at.positions, DataType::kI32, {rows_, 1, 1, 1});
    args.slots = Contiguous(at.slots, DataType::kI32, {rows_, 1, 1, 1});
    const std::int64_t lines = c_.page_size > 0 ? c_.page_size : c_.context;
    const std::int64_t pages =
        c_.page_size > 0 ? std::int64_t{PagesEach()} * c_.sequences : std::int64_t{c_.sequences};
    args.k_cache =
        TensorView{at.k, {dim, c_.kv_heads, lines, pages}, {1, dim, line, line * lines}, c_.kv};
    args.v_cache = args.k_cache;
    args.v_cache.data = at.v;
    if (c_.page_size > 0)
      args.pages = Contiguous(at.pages, DataType::kI32, {PagesEach(), c_.sequences, 1, 1});
    if (c_.sinks) args.sinks = Contiguous(at.sinks, DataType::kF32, {c_.heads, 1, 1, 1});
    args.scale = 1.0f / std::sqrt(static_cast<float>(c_.head_dim));
    args.window = c_.window;
    args.softcap = c_.softcap;
    return args;
  }

  /// The oracle's answer, [rows][width], from exact q and without rounding of the result.
  std::vector<double> Want() {
    std::vector<double> q(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(width()));
    std::vector<double> out(q.size());
    for (int r = 0; r < rows_; ++r) {
      EXPECT_TRUE(DecodeRow(c_.q,
                            static_cast<std::byte*>(q_.data()) + BytesOf(c_.q, r * RowStride()),
                            width(), q.data() + std::ptrdiff_t{r} * width()));
    }
    Args args = ArgsAt(Host(out.data()));
    args.q = Contiguous(q.data(), DataType::kF64, {c_.head_dim, c_.heads, rows_, 1});
    args.out = Contiguous(out.data(), DataType::kF64, {width(), rows_, 1, 1});
    const Status status = Reference(args);
    EXPECT_TRUE(status) << status.error().message;
    return out;
  }

  /// [rows][width] out of what was written to `bytes`, whose gaps must be as they were.
  std::vector<double> Result(const void* bytes) const {
    std::vector<double> out(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(width()));
    const auto* from = static_cast<const std::byte*>(bytes);
    for (int r = 0; r < rows_; ++r) {
      const std::byte* row = from + BytesOf(c_.q, r * RowStride());
      EXPECT_TRUE(DecodeRow(c_.q, row, width(), out.data() + std::ptrdiff_t{r} * width()));
      EXPECT_TRUE(std::all_of(row + BytesOf(c_.q, width()), row + BytesOf(c_.q, RowStride()),
                              [](std::byte b) { return b == std::byte{0xff}; }))
          << "behind row " << r;
    }
    return out;
  }

  /// One rounding, and the sums in f32 that tune.cc allows: a score is one of head_dim products,
  /// which its weight follows, and values are below 6.
  void ExpectNear(const std::vector<double>& got, const std::vector<double>& want) const {
    const double roundoff = c_.q == DataType::kF32   ? 0x1p-24
                            : c_.q == DataType::kF16 ? 0x1p-11
                                                     : 0x1p-8;
    const double relative = 0x1p-24 * c_.context + roundoff;
    const double absolute = 6 * 0x1p-24 * (c_.head_dim + 64);
    int wrong = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const bool near = std::abs(got[i] - want[i]) <= relative * std::abs(want[i]) + absolute;
      if (near || wrong++ >= 4) continue;
      ADD_FAILURE() << Describe(c_) << ": row " << i / static_cast<std::size_t>(width())
                    << " element " << i % static_cast<std::size_t>(width()) << " is " << got[i]
                    << ", not " << want[i];
    }
    EXPECT_EQ(wrong, 0) << Describe(c_);
  }

 private:
  int HeadsWidth() const { return c_.kv_heads * c_.head_dim; }
  std::int64_t CacheLine() const { return HeadsWidth() + (c_.odd ? 1 : 0); }
  int PagesEach() const { return (c_.context + c_.page_size - 1) / c_.page_size; }
  std::size_t CacheBytes() const {
    const std::int64_t lines =
        c_.page_size > 0 ? std::int64_t{PagesEach()} * c_.page_size : std::int64_t{c_.context};
    return BytesOf(c_.kv, CacheLine() * lines * c_.sequences);
  }
  bool IsSeen(int slot, int position) const {
    for (std::size_t r = 0; r < c_.positions.size(); ++r) {
      if (c_.slots[r] == slot && position <= c_.positions[r] &&
          (c_.window == 0 || position > c_.positions[r] - c_.window))
        return true;
    }
    return false;
  }
  /// Logical pages in random order; those that no row sees have no place.
  void MakePages(Random& random) {
    if (c_.page_size == 0) return;
    pages_.resize(static_cast<std::size_t>(PagesEach() * c_.sequences));
    std::iota(pages_.begin(), pages_.end(), 0);
    for (std::size_t i = pages_.size() - 1; i > 0; --i)
      std::swap(pages_[i], pages_[static_cast<std::size_t>(random.Below(i + 1))]);
    for (int s = 0; s < c_.sequences; ++s) {
      for (int page = 0; page < PagesEach(); ++page) {
        bool needed = false;
        for (int i = 0; i < c_.page_size; ++i) needed |= IsSeen(s, page * c_.page_size + i);
        if (!needed) pages_[static_cast<std::size_t>(s * PagesEach() + page)] = -1;
      }
    }
  }
  std::int64_t PlaceOf(int slot, int position) const {
    if (c_.page_size == 0) return (std::int64_t{slot} * c_.context + position) * CacheLine();
    const std::int64_t page =
        pages_[static_cast<std::size_t>(slot * PagesEach() + position / c_.page_size)];
    return (page * c_.page_size + position % c_.page_size) * CacheLine();
  }
  static void FillRow(DataType type, std::byte* at, int count, Random& random, double range) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& x : values) x = static_cast<float>(random.Uniform(-range, range));
    EXPECT_TRUE(EncodeRow(type, values.data(), count, at));
  }

  BatchCase c_;
  int rows_, gap_;
  std::vector<std::int32_t> positions_, slots_, pages_;
  std::vector<float> sinks_;
  test::GuardedBytes q_, k_, v_;
};

}  // namespace tilewright::attention
