#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "core/block_format.h"
#include "core/random.h"
#include "core/test_util.h"
#include "engine/launch_once.h"
#include "engine/threads_test_util.h"
#include "ops/attention/attention.h"
#include "ops/attention/checks.h"

/// Helpers for tests only; no library file includes this header.

namespace tilewright::attention {

struct Case {
  DataType kv = DataType::kF32;
  int heads = 3, kv_heads = 1, head_dim = 64, context = 64, slots = 1;
  std::vector<std::int32_t> positions, slot_of;
  int threads = 1;
  std::int32_t window = 0;
  float softcap = 0;
  bool sinks = false;
};

inline std::string Describe(const Case& c) {
  return std::string(DataTypeName(c.kv)) + " heads " + std::to_string(c.heads) + "/" +
         std::to_string(c.kv_heads) + " head_dim " + std::to_string(c.head_dim) + " rows " +
         std::to_string(c.positions.size()) + " first position " + std::to_string(c.positions[0]) +
         " threads " + std::to_string(c.threads) + " window " + std::to_string(c.window) +
         " softcap " + std::to_string(c.softcap) + (c.sinks ? " sinks" : "");
}

/// Operands of a case; cache positions nobody may see hold NaN, rows of q and out have a gap of NaN
/// between them.
class Problem {
 public:
  Problem(const Case& c, std::uint64_t seed)
      : c_(c),
        rows_(static_cast<int>(c.positions.size())),
        q_row_(c.heads * c.head_dim + 5),
        q_(static_cast<std::size_t>(rows_ * q_row_), 4),
        k_(CacheBytes()),
        v_(CacheBytes()),
        sinks_(c.sinks ? test::RandomFloats(static_cast<std::size_t>(c.heads), seed, 3.0)
                       : std::vector<float>()) {
    Random rng(seed);
    for (int r = 0; r < rows_; ++r)
      for (int i = 0; i < c.heads * c.head_dim; ++i)
        q_[static_cast<std::size_t>(r * q_row_ + i)] = static_cast<float>(rng.Uniform(-1, 1));
    const std::int64_t row = std::int64_t{c.kv_heads} * c.head_dim;
    for (int s = 0; s < c.slots; ++s) {
      int seen = 0;
      for (int r = 0; r < rows_; ++r)
        if (c.slot_of[static_cast<std::size_t>(r)] == s)
          seen = std::max(seen, c.positions[static_cast<std::size_t>(r)] + 1);
      for (int p = 0; p < seen; ++p) {
        std::vector<float> values(static_cast<std::size_t>(row));
        for (auto* cache : {&k_, &v_}) {
          for (float& x : values) x = static_cast<float>(rng.Uniform(-2, 2));
          if (!IsSeen(s, p)) continue;
          auto* at = static_cast<unsigned char*>(cache->data()) +
                     BytesOf(c.kv, (std::int64_t{s} * c.context + p) * row);
          EXPECT_TRUE(EncodeRow(c.kv, values.data(), row, at));
        }
      }
    }
  }

  attention::Args Args(float* out, std::int64_t out_row) {
    attention::Args args;
    const std::int64_t hd = c_.head_dim;
    args.q = TensorView{q_.data(), {hd, c_.heads, rows_, 1}, {1, hd, q_row_, 0}, DataType::kF32};
    args.k_cache = Contiguous(k_.data(), c_.kv, {hd, c_.kv_heads, c_.context, c_.slots});
    args.v_cache = Contiguous(v_.data(), c_.kv, {hd, c_.kv_heads, c_.context, c_.slots});
    args.positions = Contiguous(c_.positions.data(), DataType::kI32, {rows_, 1, 1, 1});
    args.slots = Contiguous(c_.slot_of.data(), DataType::kI32, {rows_, 1, 1, 1});
    args.out = TensorView{out, {hd * c_.heads, rows_, 1, 1}, {1, out_row, 0, 0}, DataType::kF32};
    args.scale = 1.0f / std::sqrt(static_cast<float>(hd));
    args.window = c_.window;
    args.softcap = c_.softcap;
    if (c_.sinks) args.sinks = Contiguous(sinks_.data(), DataType::kF32, {c_.heads, 1, 1, 1});
    if (page_size_ == 0) return args;
    const std::int64_t physical = std::int64_t{per_sequence_} * c_.slots;
    args.k_cache = Contiguous(k_paged_.data(), c_.kv, {hd, c_.kv_heads, page_size_, physical});
    args.v_cache = Contiguous(v_paged_.data(), c_.kv, {hd, c_.kv_heads, page_size_, physical});
    args.pages = Contiguous(pages_.data(), DataType::kI32, {per_sequence_, c_.slots, 1, 1});
    return args;
  }

  /// [rows][heads * head_dim]
  std::vector<float> Launch(Kernel& kernel, int threads) {
    const int width = c_.heads * c_.head_dim, stride = width + 3;
    test::Guarded<float> out(static_cast<std::size_t>(rows_ * stride));
    RunGuarded(kernel, Args(out.data(), stride), threads);
    EXPECT_EQ(out.Damage(), "");
    std::vector<float> result;
    for (int r = 0; r < rows_; ++r) {
      for (int i = 0; i < width; ++i)
        result.push_back(out[static_cast<std::size_t>(r * stride + i)]);
      for (int i = width; i < stride; ++i)
        EXPECT_TRUE(std::isnan(out[static_cast<std::size_t>(r * stride + i)]));
    }
    return result;
  }

  /// Moves both caches to pages of `page_size` positions in random order. Pages that no row reads
  /// have no memory; memory that belongs to no position is poisoned.
  void Page(int page_size, std::uint64_t seed) {
    const std::int64_t row = std::int64_t{c_.kv_heads} * c_.head_dim;
    const int per_sequence = (c_.context + page_size - 1) / page_size;
    std::vector<std::int32_t> physical(static_cast<std::size_t>(per_sequence * c_.slots));
    std::iota(physical.begin(), physical.end(), 0);
    Random random(seed);
    for (std::size_t i = physical.size() - 1; i > 0; --i)
      std::swap(physical[i], physical[static_cast<std::size_t>(random.Below(i + 1))]);
    pages_ = physical;
    test::GuardedBytes k(BytesOf(c_.kv, row * page_size * per_sequence * c_.slots)), v(k.size());
    k.Poison(), v.Poison();
    const std::size_t bytes = BytesOf(c_.kv, row);
    for (int s = 0; s < c_.slots; ++s) {
      for (int page = 0; page < per_sequence; ++page) {
        std::int32_t& entry = pages_[static_cast<std::size_t>(s * per_sequence + page)];
        bool needed = false;
        for (int i = 0; i < page_size; ++i) {
          const int position = page * page_size + i;
          if (!IsSeen(s, position)) continue;
          needed = true;
          const auto from = static_cast<std::size_t>(s * c_.context + position) * bytes;
          const auto to = static_cast<std::size_t>(entry * page_size + i) * bytes;
          std::memcpy(static_cast<unsigned char*>(k.data()) + to,
                      static_cast<unsigned char*>(k_.data()) + from, bytes);
          std::memcpy(static_cast<unsigned char*>(v.data()) + to,
                      static_cast<unsigned char*>(v_.data()) + from, bytes);
        }
        if (!needed) entry = -1;
      }
    }
    page_size_ = page_size;
    per_sequence_ = per_sequence;
    k_paged_ = std::move(k), v_paged_ = std::move(v);
  }
  /// Takes the caches of a problem with the same places and its rows of q, one after the other for
  /// each of `positions` that is not padding.
  void CopyFrom(Problem& other, const std::vector<std::int32_t>& positions) {
    std::memcpy(k_.data(), other.k_.data(), k_.size());
    std::memcpy(v_.data(), other.v_.data(), v_.size());
    std::size_t from = 0;
    const auto row = static_cast<std::size_t>(q_row_);
    for (std::size_t r = 0; r < positions.size(); ++r) {
      if (positions[r] < 0) continue;
      std::copy(other.q_.begin() + from * row, other.q_.begin() + (from + 1) * row,
                q_.begin() + r * row);
      ++from;
    }
  }
  std::vector<std::int32_t>& pages() { return pages_; }
  std::vector<float>& sinks() { return sinks_; }

  /// Runs the stages with a workspace of just the size that the plan asks for.
  static void RunGuarded(Kernel& kernel, const attention::Args& args, int threads) {
    using S = Stages<Op>;
    const auto checked = Validate(DescOf(args, {}).value());
    ASSERT_TRUE(checked) << checked.error().message;
    Kernel* const kernels[] = {&kernel};
    const auto device = test::CpuWithCores(threads);
    const auto choice = S::Choose(S::Feasible(*checked, kernels, device->spec(), {}), nullptr,
                                  nullptr, DispatchPolicy::kDefault);
    ASSERT_TRUE(choice) << choice.error().message;
    const Plan<Op> plan = Bind(*choice, *device).value();
    test::GuardedBytes partials(plan.workspace().partials);
    Workspace workspace;
    workspace.partials = partials.data(), workspace.partials_size = partials.size();
    const auto pool = MakeThreadPool(threads);
    const Status status = Run(plan, args, workspace, Stream{pool.get()});
    EXPECT_TRUE(status) << status.error().message;
    EXPECT_EQ(partials.Damage(), "");
  }

  std::vector<float> Reference() {
    std::vector<float> out(static_cast<std::size_t>(rows_ * c_.heads * c_.head_dim));
    EXPECT_TRUE(attention::Reference(Args(out.data(), c_.heads * c_.head_dim)));
    return out;
  }

 private:
  bool IsSeen(int slot, int position) const {
    for (std::size_t r = 0; r < c_.positions.size(); ++r) {
      if (c_.slot_of[r] == slot && position <= c_.positions[r] &&
          (c_.window == 0 || position > c_.positions[r] - c_.window))
        return true;
    }
    return false;
  }
  std::size_t CacheBytes() const {
    return BytesOf(c_.kv, std::int64_t{c_.head_dim} * c_.kv_heads * c_.context * c_.slots);
  }
  Case c_;
  int rows_, q_row_;
  test::Guarded<float> q_;
  test::GuardedBytes k_, v_;
  std::vector<float> sinks_;
  int page_size_ = 0, per_sequence_ = 0;  // 0: contiguous
  test::GuardedBytes k_paged_{0}, v_paged_{0};
  std::vector<std::int32_t> pages_;
};

inline double RelativeL2(const std::vector<float>& a, const std::vector<float>& b) {
  double diff = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    diff += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(diff / norm);
}

inline std::vector<std::int32_t> Range(int from, int count) {
  std::vector<std::int32_t> v;
  for (int i = 0; i < count; ++i) v.push_back(from + i);
  return v;
}

class AttentionKernels : public ::testing::Test {
 protected:
  AttentionKernels() { AddKernels(registry_); }
  /// Those that round nothing; tiles_test.cc has the others.
  std::vector<Kernel*> Runnable() const {
    std::vector<Kernel*> kernels;
    const DeviceSpec device = DetectCpu().value();
    for (Kernel* kernel : registry_.kernels()) {
      const bool rounds = (kernel->info().features & kRoundingFeatures) != 0;
      if (!rounds && !kernel->CheckDevice(device)) kernels.push_back(kernel);
    }
    return kernels;
  }
  /// Every kernel but the oracle gives `expected`, the oracle's, with the same bits whatever the
  /// threads.
  void ExpectOf(Problem& problem, const std::vector<float>& expected, const std::string& what) {
    for (Kernel* kernel : Runnable()) {
      if (kernel->info().reference) continue;
      SCOPED_TRACE(std::string(kernel->name()) + " " + what);
      const std::vector<float> one = problem.Launch(*kernel, 1);
      EXPECT_LT(RelativeL2(one, expected), 3e-6);
      for (const int threads : {2, 3})
        EXPECT_EQ(problem.Launch(*kernel, threads), one) << threads << " threads";
    }
  }
  Registry registry_;
};

}  // namespace tilewright::attention
