#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "core/block_format.h"
#include "core/random.h"
#include "core/test_util.h"
#include "engine/desc_test_util.h"
#include "engine/launch_once.h"
#include "engine/threads_test_util.h"

namespace tilewright::attention {
namespace {

struct Case {
  DataType kv = DataType::kF32;
  int heads = 3, kv_heads = 1, head_dim = 64, context = 64, slots = 1;
  std::vector<std::int32_t> positions, slot_of;
  int threads = 1;
  std::int32_t window = 0;
};

std::string Describe(const Case& c) {
  return std::string(DataTypeName(c.kv)) + " heads " + std::to_string(c.heads) + "/" +
         std::to_string(c.kv_heads) + " head_dim " + std::to_string(c.head_dim) + " rows " +
         std::to_string(c.positions.size()) + " first position " + std::to_string(c.positions[0]) +
         " threads " + std::to_string(c.threads) + " window " + std::to_string(c.window);
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
        v_(CacheBytes()) {
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
  int page_size_ = 0, per_sequence_ = 0;  // 0: contiguous
  test::GuardedBytes k_paged_{0}, v_paged_{0};
  std::vector<std::int32_t> pages_;
};

double RelativeL2(const std::vector<float>& a, const std::vector<float>& b) {
  double diff = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    diff += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(diff / norm);
}

std::vector<std::int32_t> Range(int from, int count) {
  std::vector<std::int32_t> v;
  for (int i = 0; i < count; ++i) v.push_back(from + i);
  return v;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  auto add = [&](DataType kv, int heads, int kv_heads, int hd, int context, int slots,
                 std::vector<std::int32_t> positions, std::vector<std::int32_t> slot_of = {}) {
    if (slot_of.empty()) slot_of.assign(positions.size(), slots - 1);
    cases.push_back(
        {kv, heads, kv_heads, hd, context, slots, std::move(positions), std::move(slot_of), 1});
  };
  for (DataType kv : {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kQ8_0}) {
    add(kv, 3, 1, 64, 80, 1, {0});
    add(kv, 3, 1, 64, 80, 2, Range(0, 17));
    add(kv, 9, 3, 64, 700, 1, {633});           // decode over several splits
    add(kv, 4, 4, 32, 600, 1, Range(500, 40));  // a prompt that crosses a split
  }
  add(DataType::kF32, 2, 1, 1, 9, 1, Range(0, 5));
  add(DataType::kF32, 2, 2, 7, 70, 1, Range(60, 5));
  add(DataType::kF16, 8, 2, 80, 300, 1, Range(250, 20));
  add(DataType::kF16, 5, 5, 100, 300, 1, {255, 256, 257});
  add(DataType::kF16, 8, 1, 128, 513, 1, {512});
  // Rows of three sequences mixed, as continuous batching sends them.
  add(DataType::kF16, 6, 2, 64, 400, 3, {5, 399, 0, 1, 2, 260, 261}, {0, 1, 2, 2, 2, 0, 0});
  return cases;
}

class AttentionKernels : public ::testing::Test {
 protected:
  AttentionKernels() { AddKernels(registry_); }
  std::vector<Kernel*> Runnable() const {
    std::vector<Kernel*> kernels;
    const DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
    for (Kernel* kernel : registry_.kernels()) {
      if (!kernel->CheckDevice(device)) kernels.push_back(kernel);
    }
    return kernels;
  }
  Registry registry_;
};

TEST_F(AttentionKernels, agree_with_the_float64_oracle_and_do_not_depend_on_the_threads) {
  std::uint64_t seed = 1;
  for (const Case& c : Cases()) {
    Problem problem(c, seed++);
    const std::vector<float> expected = problem.Reference();
    for (Kernel* kernel : Runnable()) {
      const std::vector<float> one = problem.Launch(*kernel, 1);
      // f32 sums of at most a few hundred terms: k * eps would be 1e-4 at worst, the observed
      // distance is below 1e-6.
      EXPECT_LT(RelativeL2(one, expected), 3e-6) << kernel->name() << " " << Describe(c);
      for (int threads : {2, 3}) {
        const std::vector<float> many = problem.Launch(*kernel, threads);
        EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0)
            << kernel->name() << " " << Describe(c) << " with " << threads << " threads";
      }
    }
  }
}

TEST_F(AttentionKernels, a_row_gives_the_same_bits_alone_and_in_a_batch) {
  Case batch{DataType::kF16, 9, 3, 64, 600, 1, Range(480, 40), std::vector<std::int32_t>(40, 0), 2};
  for (Kernel* kernel : Runnable()) {
    ASSERT_TRUE(kernel->info().batch_invariant);
    Problem problem(batch, 7);
    const std::vector<float> all = problem.Launch(*kernel, 2);
    // The same memory, one row at a time: narrow the views.
    for (int r : {0, 15, 16, 31, 39}) {
      std::vector<float> out(9 * 64);
      attention::Args args = problem.Args(out.data(), 9 * 64);
      args.q.data = args.q.as<float>() + r * args.q.stride[2];
      args.q.shape[2] = args.out.shape[1] = 1;
      args.positions.data = args.positions.as<std::int32_t>() + r;
      Problem::RunGuarded(*kernel, args, 2);
      EXPECT_EQ(std::memcmp(out.data(), all.data() + r * 9 * 64, out.size() * sizeof(float)), 0)
          << kernel->name() << " row " << r;
    }
  }
}

TEST_F(AttentionKernels, refuse_positions_and_slots_outside_the_cache_before_touching_it) {
  Case c{DataType::kF32, 2, 1, 16, 8, 1, {0, 1}, {0, 0}, 1};
  for (Kernel* kernel : Runnable()) {
    Problem problem(c, 3);
    std::vector<float> out(64, -7.0f);
    std::vector<std::int32_t> positions{0, 8}, slots{0, 1};
    attention::Args args = problem.Args(out.data(), 32);
    args.positions.data = positions.data();
    Status status = LaunchOnce<Op>(*kernel, args, Stream{});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "positions[1] = 8, must be 0 to 7");
    positions[1] = 1;
    args.slots.data = slots.data();
    status = LaunchOnce<Op>(*kernel, args, Stream{});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "slots[1] = 1, must be 0 to 0");
    EXPECT_EQ(out[0], -7.0f);
  }
}

TEST_F(AttentionKernels, a_nan_key_shows_in_the_result) {
  Case c{DataType::kF32, 1, 1, 16, 40, 1, {20}, {0}, 1};
  for (Kernel* kernel : Runnable()) {
    Problem problem(c, 5);
    std::vector<float> out(16);
    attention::Args args = problem.Args(out.data(), 16);
    args.k_cache.as<float>()[5 * 16 + 3] = NAN;
    EXPECT_TRUE(std::isnan(problem.Launch(*kernel, 1)[0])) << kernel->name();
  }
}

TEST_F(AttentionKernels, say_what_they_cannot_do) {
  Desc desc;
  desc.type_kv = DataType::kQ4_0;
  for (Kernel* kernel : registry_.kernels()) {
    if (kernel->info().reference) continue;
    EXPECT_EQ(kernel->IsFeasible(desc)->need, "f32, f16, bf16 or q8_0");
    EXPECT_EQ(kernel->IsFeasible(Desc{.type_q = DataType::kF16})->need, "f32");
  }
}

TEST_F(AttentionKernels, give_the_same_bits_for_every_page_size) {
  std::uint64_t seed = 90;
  for (const Case& c : Cases()) {
    for (const int page_size : {7, 16, 64, 256}) {
      Problem problem(c, ++seed);
      std::vector<std::vector<float>> flat;
      for (Kernel* kernel : Runnable()) flat.push_back(problem.Launch(*kernel, 1));
      problem.Page(page_size, seed);
      for (std::size_t i = 0; i < flat.size(); ++i) {
        for (const int threads : {1, 3}) {
          const std::vector<float> paged = problem.Launch(*Runnable()[i], threads);
          EXPECT_EQ(std::memcmp(flat[i].data(), paged.data(), paged.size() * sizeof(float)), 0)
              << Runnable()[i]->name() << " " << Describe(c) << " pages of " << page_size;
        }
      }
    }
  }
}

/// Rows of two sequences in no order, far apart and side by side, with padding; long enough for
/// several splits.
std::vector<Case> WindowCases() {
  std::vector<Case> cases;
  for (const DataType kv : {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kQ8_0}) {
    for (const std::int32_t window : {1, 2, 63, 64, 65, 256, 257, 5000}) {
      Case c{kv, 3, 1, 64, 900, 2, {}, {}, 1, window};
      c.positions = {-1, 700, 701, 702, 850, 10, 0, 1, -1, 62, 63, 64, 65, 255, 256, 257, 300, -1};
      c.slot_of.assign(c.positions.size(), 1);
      c.slot_of[4] = 0;
      for (const std::int32_t p : Range(500, 20)) c.positions.push_back(p), c.slot_of.push_back(0);
      cases.push_back(c);
    }
    cases.push_back({kv, 6, 2, 64, 1400, 1, {1300}, {0}, 1, 600});  // its splits are divided
  }
  return cases;
}

TEST_F(AttentionKernels, see_the_last_positions_of_a_window_and_read_nothing_before) {
  std::uint64_t seed = 300;
  for (const Case& c : WindowCases()) {
    Problem flat(c, ++seed), paged(c, seed);
    paged.Page(c.window % 2 == 0 ? 16 : 7, seed);
    const std::vector<float> expected = flat.Reference();
    EXPECT_EQ(paged.Reference(), expected) << Describe(c);
    const std::size_t width = static_cast<std::size_t>(c.heads * c.head_dim);
    for (Kernel* kernel : Runnable()) {
      if (kernel->info().reference) continue;
      SCOPED_TRACE(std::string(kernel->name()) + " " + Describe(c));
      const std::vector<float> one = flat.Launch(*kernel, 1);
      EXPECT_LT(RelativeL2(one, expected), 3e-6);
      for (const int threads : {1, 2, 3}) {
        EXPECT_EQ(flat.Launch(*kernel, threads), one) << threads << " threads";
        EXPECT_EQ(paged.Launch(*kernel, threads), one) << threads << " threads, in pages";
      }
      for (std::size_t r = 0; r < c.positions.size(); ++r) {  // each row alone
        std::vector<float> out(width);
        attention::Args args = flat.Args(out.data(), static_cast<std::int64_t>(width));
        const auto row = static_cast<std::int64_t>(r);
        args.q.data = args.q.as<float>() + row * args.q.stride[2];
        args.q.shape[2] = args.out.shape[1] = args.positions.shape[0] = args.slots.shape[0] = 1;
        args.positions.data = args.positions.as<std::int32_t>() + row;
        args.slots.data = args.slots.as<std::int32_t>() + row;
        Problem::RunGuarded(*kernel, args, 1);
        EXPECT_TRUE(test::BitwiseEqual(out.data(), one.data() + r * width, width * sizeof(float)))
            << "row " << r;
      }
    }
  }
}

TEST_F(AttentionKernels, refuse_a_physical_page_out_of_range_wherever_a_window_lies) {
  // Pages of four positions: the rows see 6 .. 9, 24 .. 27 and 14 .. 17.
  Case c{DataType::kF32, 2, 1, 16, 32, 1, {9, 27, 17}, {0, 0, 0}, 1, 4};
  for (Kernel* kernel : Runnable()) {
    Problem problem(c, 3);
    problem.Page(4, 4);
    const std::vector<std::int32_t> fine = problem.pages();
    std::vector<float> out(96);
    const attention::Args args = problem.Args(out.data(), 32);
    EXPECT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{}));
    for (std::size_t page = 0; page < fine.size(); ++page) {
      const bool seen = page == 1 || page == 2 || page == 3 || page == 4 || page == 6;
      EXPECT_EQ(fine[page] >= 0, seen) << page;
      problem.pages()[page] = 99;
      EXPECT_EQ(LaunchOnce<Op>(*kernel, args, Stream{}).has_value(), !seen)
          << kernel->name() << " page " << page;
      problem.pages() = fine;
    }
  }
}

TEST_F(AttentionKernels, refuse_a_physical_page_out_of_range_only_where_a_row_reads_it) {
  Case c{DataType::kF32, 2, 1, 16, 32, 2, {9, 3}, {1, 0}, 1};
  for (Kernel* kernel : Runnable()) {
    Problem problem(c, 3);
    problem.Page(4, 4);
    std::vector<float> out(64, -7.0f);
    const attention::Args args = problem.Args(out.data(), 32);
    // Slot 1 reads its pages 0, 1 and 2, slot 0 its page 0; the entries behind them are -1.
    ASSERT_EQ(problem.pages()[8 + 3], -1);
    ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{}));
    std::fill(out.begin(), out.end(), -7.0f);
    for (const std::int32_t bad : {16, -1}) {
      problem.pages()[8 + 2] = bad;
      const Status status = LaunchOnce<Op>(*kernel, args, Stream{});
      ASSERT_FALSE(status) << kernel->name();
      EXPECT_EQ(status.error().message,
                "pages[2, 1] = " + std::to_string(bad) + ", must be 0 to 15");
      EXPECT_EQ(out, std::vector<float>(64, -7.0f));
    }
  }
}

TEST_F(AttentionKernels, make_zeros_of_padding_and_leave_the_other_rows_their_bits) {
  Case full{DataType::kF16, 6, 2, 64, 1200, 2, {}, {}, 1};
  // Rows of two sequences with padding before, within and behind them; whatever a row of padding
  // says of its slot, nobody looks at it.
  full.positions = {-1, 5, 6, -1, 7, 1100, -1, -1, 1101, -1};
  full.slot_of = {1, 0, 0, 0, 0, 1, 1, 0, 1, 1};
  Case dense = full;
  dense.positions.clear(), dense.slot_of.clear();
  for (std::size_t r = 0; r < full.positions.size(); ++r) {
    if (full.positions[r] < 0) continue;
    dense.positions.push_back(full.positions[r]);
    dense.slot_of.push_back(full.slot_of[r]);
  }
  for (Kernel* kernel : Runnable()) {
    // Keys and values do not depend on the rows: only q does, row by row.
    Problem without(dense, 11), with(full, 11);
    with.CopyFrom(without, full.positions);
    const std::vector<float> want = without.Launch(*kernel, 1);
    for (const int threads : {1, 3}) {
      const std::vector<float> got = with.Launch(*kernel, threads);
      const std::size_t width = 6 * 64;
      std::size_t dense_row = 0;
      for (std::size_t r = 0; r < full.positions.size(); ++r) {
        const float* row = got.data() + r * width;
        if (full.positions[r] < 0) {
          EXPECT_EQ(std::vector<float>(row, row + width), std::vector<float>(width, 0.0f))
              << kernel->name() << " row " << r;
        } else {
          EXPECT_TRUE(
              test::BitwiseEqual(row, want.data() + dense_row++ * width, width * sizeof(float)))
              << kernel->name() << " row " << r << " with " << threads << " threads";
        }
      }
    }
  }
}

TEST_F(AttentionKernels, stay_within_the_workspace_when_most_of_a_batch_is_padding) {
  // 400 rows make 25 blocks, too many to divide splits over 3 workers; but one row is left.
  Case c{DataType::kF32,
         2,
         1,
         32,
         3000,
         1,
         std::vector<std::int32_t>(400, -1),
         std::vector<std::int32_t>(400, 0),
         1};
  c.positions[123] = 2999;
  Problem problem(c, 21);
  for (Kernel* kernel : Runnable()) {
    const std::vector<float> one = problem.Launch(*kernel, 1), many = problem.Launch(*kernel, 3);
    EXPECT_TRUE(test::BitwiseEqual(one.data(), many.data(), one.size() * sizeof(float)));
    EXPECT_EQ(one[0], 0.0f);
    EXPECT_NE(one[123 * 64], 0.0f) << kernel->name();
  }
  c.positions[123] = -1;
  Problem nothing(c, 21);
  for (Kernel* kernel : Runnable())
    EXPECT_EQ(nothing.Launch(*kernel, 3), std::vector<float>(400 * 64, 0.0f)) << kernel->name();
}

TEST_F(AttentionKernels, give_the_same_bits_on_every_number_of_threads) {
  Case few{DataType::kF16, 6, 2, 64, 1400, 1, {1300}, {0}, 1};  // splits are divided
  Case many{DataType::kF32, 3, 3, 32, 400, 1, std::vector<std::int32_t>(200), {}, 1};
  std::iota(many.positions.begin(), many.positions.end(), 100);
  many.slot_of.assign(200, 0);
  for (const Case& c : {few, many}) {
    Problem problem(c, 5);
    std::vector<float> out(c.positions.size() * static_cast<std::size_t>(c.heads * c.head_dim));
    const attention::Args args = problem.Args(out.data(), c.heads * c.head_dim);
    for (Kernel* kernel : Runnable())
      test::ExpectSameBitsOnAnyThreads<Op>(*kernel, args, out.data(), out.size() * sizeof(float));
  }
}

TEST_F(AttentionKernels, get_no_more_workers_than_the_plan_has_scratch_for) {
  Case c{DataType::kF32, 2, 2, 32, 1200, 1, {900, 1100}, {0, 0}, 1};
  Problem problem(c, 3);
  std::vector<float> out(2 * 64, -7.0f);
  const attention::Args args = problem.Args(out.data(), 64);
  const auto one_core = test::CpuWithCores(1);
  const auto checked = Validate(DescOf(args, {}).value());
  const auto plan =
      Bind(*Choose(Feasible(*checked, registry_, one_core->spec()), nullptr), *one_core).value();
  ASSERT_FALSE(plan.kernel().info().reference);
  OwnedWorkspace owned = OwnedWorkspace::Make(plan.workspace(), *one_core).value();
  test::ForeignExecutor three(3);
  // The kernel by itself would take them all, and says what it lacks before it writes.
  const Status status = plan.kernel().Launch(args, plan.spec(), owned.get(), Stream{&three});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("3 workers need"), std::string::npos)
      << status.error().message;
  EXPECT_EQ(out[0], -7.0f);
  ASSERT_TRUE(tilewright::Run(plan, args, owned.get(), Stream{&three}));
  EXPECT_EQ(three.most_tasks(), 0) << "one worker, the caller, needs nobody";
  EXPECT_EQ(out, problem.Launch(plan.kernel(), 3)) << "the same bits";
}

TEST_F(AttentionKernels, the_oracle_sees_the_last_positions_of_a_window) {
  // With the values of positions 0 to 3 as 0, 1, 2, 3 and equal keys, attention is their mean.
  std::vector<float> q = {1}, keys(4, 1.0f), values = {0, 1, 2, 3}, out(1);
  std::vector<std::int32_t> position = {3}, slot = {0};
  attention::Args args;
  args.q = Contiguous(q.data(), DataType::kF32, {1, 1, 1, 1});
  args.k_cache = Contiguous(keys.data(), DataType::kF32, {1, 1, 4, 1});
  args.v_cache = Contiguous(values.data(), DataType::kF32, {1, 1, 4, 1});
  args.positions = Contiguous(position.data(), DataType::kI32, {1, 1, 1, 1});
  args.slots = Contiguous(slot.data(), DataType::kI32, {1, 1, 1, 1});
  args.out = Contiguous(out.data(), DataType::kF32, {1, 1, 1, 1});
  for (const auto& [window, mean] : {std::pair{0, 1.5f}, {1, 3.0f}, {2, 2.5f}, {9, 1.5f}}) {
    args.window = window;
    ASSERT_TRUE(attention::Reference(args));
    EXPECT_FLOAT_EQ(out[0], mean) << window;
  }
  args.window = 2;
  const auto choice = Choose(
      Feasible(*Validate(DescOf(args, {}).value()), registry_, HostDevice().spec()), nullptr);
  EXPECT_FALSE(choice.value().kernel().info().reference);
}

TEST_F(AttentionKernels, the_oracle_reads_and_writes_halves_within_their_memory) {
  constexpr std::size_t kDim = 32;
  for (const DataType type : {DataType::kF16, DataType::kBF16, DataType::kF64}) {
    test::RandomMatrix q(type, 1, kDim, 5);
    test::GuardedBytes out(BytesOf(type, kDim));
    std::vector<float> keys(kDim, 0.5f), values = test::RandomFloats(kDim, 6);
    std::vector<std::int32_t> zero = {0};
    attention::Args args;
    args.q = Contiguous(q.bytes.data(), type, {kDim, 1, 1, 1});
    args.k_cache = Contiguous(keys.data(), DataType::kF32, {kDim, 1, 1, 1});
    args.v_cache = Contiguous(values.data(), DataType::kF32, {kDim, 1, 1, 1});
    args.positions = Contiguous(zero.data(), DataType::kI32, {1, 1, 1, 1});
    args.slots = args.positions;
    args.out = Contiguous(out.data(), type, {kDim, 1, 1, 1});
    ASSERT_TRUE(attention::Reference(args));
    EXPECT_EQ(out.Damage(), "") << DataTypeName(type);
    std::vector<float> got(kDim), want(kDim);
    std::vector<unsigned char> rounded(BytesOf(type, kDim));
    ASSERT_TRUE(DecodeRow(type, out.data(), kDim, got.data()));
    ASSERT_TRUE(EncodeRow(type, values.data(), kDim, rounded.data()));
    ASSERT_TRUE(DecodeRow(type, rounded.data(), kDim, want.data()));
    EXPECT_EQ(got, want) << "one position: its value, rounded";
  }
}

TEST_F(AttentionKernels, have_problems_that_say_every_count) {
  test::ExpectEveryFieldInTheKey<Op>(Desc{.rows = 3, .heads = 9, .kv_heads = 3});
  EXPECT_FALSE(Validate(Desc{.rows = 0}));
  EXPECT_FALSE(Validate(Desc{.context = 0}));
  EXPECT_FALSE(Validate(Desc{.window = -1}));
  EXPECT_EQ(Validate(Desc{.heads = 5, .kv_heads = 2}).error().message,
            "attention: heads = 5, must be a multiple of kv_heads = 2");
  EXPECT_EQ(Validate(Desc{.type_kv = DataType::kQ8_0, .head_dim = 48}).error().message,
            "attention: head_dim = 48, must be a multiple of 32 for a cache of q8_0");
}

TEST_F(AttentionKernels, read_the_counts_of_a_paged_and_of_a_contiguous_cache) {
  Case c{DataType::kF16, 6, 2, 64, 400, 3, {5, 399}, {0, 1}, 1};
  Problem problem(c, 3);
  const Desc flat{.type_kv = DataType::kF16,
                  .rows = 2,
                  .sequences = 3,
                  .context = 400,
                  .heads = 6,
                  .kv_heads = 2};
  EXPECT_EQ(DescOf(problem.Args(nullptr, 384), {}).error().code, ErrorCode::kInvalidArgument);
  std::vector<float> out(2 * 384);
  EXPECT_EQ(DescOf(problem.Args(out.data(), 384), {}).value(), flat);
  problem.Page(64, 1);
  Desc paged = flat;
  paged.page_size = 64, paged.context = 448;
  EXPECT_EQ(DescOf(problem.Args(out.data(), 384), {}).value(), paged);
  attention::Args args = problem.Args(out.data(), 384);
  args.v_cache.stride[2] += 64;
  EXPECT_NE(DescOf(args, {}).error().message.find("must be laid out as k_cache"),
            std::string::npos);
}

}  // namespace
}  // namespace tilewright::attention
