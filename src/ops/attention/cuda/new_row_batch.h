#pragma once

#include <algorithm>
#include <vector>

#include "core/paged_cache.h"
#include "ops/attention/cuda/test_batch.h"

/// Helpers for tests only; no library file includes this header.

namespace tilewright::attention {

/// How the rows of a batch are turned.
struct TurnCase {
  RopeMode mode = RopeMode::kInterleaved;
  int dims = 64;
  bool factors = false;
};

inline std::string Describe(const BatchCase& c, const TurnCase& turn) {
  return Describe(c) + (turn.mode == RopeMode::kInterleaved ? " interleaved" : " half_split") +
         " dims " + std::to_string(turn.dims) + (turn.factors ? " with factors" : "");
}

/// Where the operands of new rows lie beside those of their batch.
struct NewRowAddresses {
  void *k, *v, *factors;
};

/// A batch whose rows, each of a sequence of its own, bring their keys and values: what the caches
/// hold at their positions is NaN.
class NewRowBatch {
 public:
  NewRowBatch(const BatchCase& c, const TurnCase& turn, std::uint64_t seed)
      : batch_(c, seed),
        turn_(turn),
        width_(c.kv_heads * c.head_dim),
        stride_(width_ + (c.odd ? 1 : 8)),
        k_(BytesOf(c.q, batch_.rows() * stride_), c.odd ? BytesOf(c.q, 1) : 0),
        v_(BytesOf(c.q, batch_.rows() * stride_), c.odd ? BytesOf(c.q, 1) : 0) {
    Random random(seed + 1000);
    for (test::GuardedBytes* rows : {&k_, &v_}) {
      std::vector<float> values(static_cast<std::size_t>(width_));
      for (int r = 0; r < batch_.rows(); ++r) {
        for (float& x : values) x = static_cast<float>(random.Uniform(-1.5, 1.5));
        EXPECT_TRUE(EncodeRow(c.q, values.data(), width_,
                              static_cast<std::byte*>(rows->data()) + BytesOf(c.q, r * stride_)));
      }
    }
    for (int i = 0; turn.factors && i < turn.dims / 2; ++i)
      factors_.push_back(1.0f + 0.25f * static_cast<float>(i % 7));
    for (test::GuardedBytes* cache : {&batch_.k(), &batch_.v()}) {
      for (int r = 0; r < batch_.rows(); ++r) {
        std::byte* const place = PlaceOf(*cache, r);
        if (place != nullptr) std::fill_n(place, BytesOf(c.kv, width_), std::byte{0xff});
      }
    }
  }

  Batch& batch() { return batch_; }
  const TurnCase& turn() const { return turn_; }
  int width() const { return width_; }  ///< of keys of a row
  test::GuardedBytes& k() { return k_; }
  test::GuardedBytes& v() { return v_; }
  std::vector<float>& factors() { return factors_; }
  std::byte* RowOf(test::GuardedBytes& rows, int row) const {
    return static_cast<std::byte*>(rows.data()) + BytesOf(batch_.its_case().q, row * stride_);
  }
  /// Where a row's heads lie in a cache of the batch; null if nowhere.
  std::byte* PlaceOf(test::GuardedBytes& cache, int row) {
    const Args args = batch_.ArgsAt(batch_.Host(nullptr));
    const CachePlaces places(args.k_cache, args.pages);
    const std::int64_t position = batch_.positions()[static_cast<std::size_t>(row)];
    const std::int64_t slot = batch_.slots()[static_cast<std::size_t>(row)];
    if (position < 0 || position >= places.context() || slot < 0 || slot >= places.slots())
      return nullptr;
    if (places.paged()) {
      const std::int32_t page = places.PagesOf(slot)[position / args.k_cache.shape[2]];
      if (page < 0 || page >= places.physical_pages()) return nullptr;
    }
    return static_cast<std::byte*>(cache.data()) +
           BytesOf(batch_.its_case().kv, places.Offset(slot, position));
  }

  NewRowAddresses Host() { return {k_.data(), v_.data(), factors_.data()}; }
  Args ArgsAt(const BatchAddresses& at, const NewRowAddresses& fresh) const {
    const BatchCase& c = batch_.its_case();
    Args args = batch_.ArgsAt(at);
    args.k = TensorView{
        fresh.k, {c.head_dim, c.kv_heads, batch_.rows(), 1}, {1, c.head_dim, stride_, 0}, c.q};
    args.v = args.k;
    args.v.data = fresh.v;
    if (turn_.factors)
      args.factors = Contiguous(fresh.factors, DataType::kF32, {turn_.dims / 2, 1, 1, 1});
    args.rope.mode = turn_.mode, args.rope.dims = turn_.dims;
    return args;
  }
  /// All on the host, with a table of frequencies.
  Args HostArgs(void* out) {
    Args args = ArgsAt(batch_.Host(out), Host());
    EXPECT_TRUE(tables_.Prepare(args, HostDevice(), HostDevice().default_stream(), 0));
    return args;
  }

 private:
  Batch batch_;
  TurnCase turn_;
  int width_;
  std::int64_t stride_;
  test::GuardedBytes k_, v_;
  std::vector<float> factors_;
  Tables tables_;
};

}  // namespace tilewright::attention
