#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/block_format.h"
#include "core/random.h"
#include "core/test_util.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

struct Case {
  DataType kv = DataType::kF32;
  int heads = 3, kv_heads = 1, head_dim = 64, context = 64, slots = 1;
  std::vector<std::int32_t> positions, slot_of;
  int threads = 1;
};

std::string Describe(const Case& c) {
  return std::string(DataTypeName(c.kv)) + " heads " + std::to_string(c.heads) + "/" +
         std::to_string(c.kv_heads) + " head_dim " + std::to_string(c.head_dim) + " rows " +
         std::to_string(c.positions.size()) + " first position " + std::to_string(c.positions[0]) +
         " threads " + std::to_string(c.threads);
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
          auto* at = static_cast<unsigned char*>(cache->data()) +
                     BytesOf(c.kv, (std::int64_t{s} * c.context + p) * row);
          EXPECT_TRUE(EncodeRow(c.kv, values.data(), row, at));
        }
      }
    }
  }

  AttentionArgs Args(float* out, std::int64_t out_row) {
    AttentionArgs args;
    const std::int64_t hd = c_.head_dim;
    args.q = TensorView{q_.data(), {hd, c_.heads, rows_, 1}, {1, hd, q_row_, 0}, DataType::kF32};
    args.k_cache = Contiguous(k_.data(), c_.kv, {hd, c_.kv_heads, c_.context, c_.slots});
    args.v_cache = Contiguous(v_.data(), c_.kv, {hd, c_.kv_heads, c_.context, c_.slots});
    args.positions = Contiguous(c_.positions.data(), DataType::kI32, {rows_, 1, 1, 1});
    args.slots = Contiguous(c_.slot_of.data(), DataType::kI32, {rows_, 1, 1, 1});
    args.out = TensorView{out, {hd * c_.heads, rows_, 1, 1}, {1, out_row, 0, 0}, DataType::kF32};
    args.scale = 1.0f / std::sqrt(static_cast<float>(hd));
    return args;
  }

  /// [rows][heads * head_dim]
  std::vector<float> Launch(const AttentionKernel& kernel, int threads) {
    AttentionDesc desc;
    desc.type_kv = c_.kv;
    desc.rows = rows_, desc.heads = c_.heads, desc.kv_heads = c_.kv_heads,
    desc.head_dim = c_.head_dim, desc.threads = threads;
    test::GuardedBytes workspace(AttentionWorkspaceBytes(desc, c_.context));
    const int width = c_.heads * c_.head_dim, stride = width + 3;
    test::Guarded<float> out(static_cast<std::size_t>(rows_ * stride));
    AttentionArgs args = Args(out.data(), stride);
    args.workspace = workspace.data();
    args.workspace_bytes = workspace.size();
    auto pool = MakeThreadPool(threads);
    const Status status = kernel.Launch(args, Stream{pool.get()});
    EXPECT_TRUE(status) << status.error().message;
    EXPECT_EQ(workspace.Damage(), "");
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

  std::vector<float> Reference() {
    std::vector<float> out(static_cast<std::size_t>(rows_ * c_.heads * c_.head_dim));
    EXPECT_TRUE(ReferenceAttention(Args(out.data(), c_.heads * c_.head_dim)));
    return out;
  }

 private:
  std::size_t CacheBytes() const {
    return BytesOf(c_.kv, std::int64_t{c_.head_dim} * c_.kv_heads * c_.context * c_.slots);
  }
  Case c_;
  int rows_, q_row_;
  test::Guarded<float> q_;
  test::GuardedBytes k_, v_;
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
  AttentionKernels() { AddAttention(registry_); }
  std::vector<const AttentionKernel*> Runnable() const {
    std::vector<const AttentionKernel*> kernels;
    const DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
    for (AttentionKernel* kernel : registry_.kernels()) {
      if (!kernel->CheckDevice(device)) kernels.push_back(kernel);
    }
    return kernels;
  }
  AttentionRegistry registry_;
};

TEST_F(AttentionKernels, agree_with_the_float64_oracle_and_do_not_depend_on_the_threads) {
  std::uint64_t seed = 1;
  for (const Case& c : Cases()) {
    Problem problem(c, seed++);
    const std::vector<float> expected = problem.Reference();
    for (const AttentionKernel* kernel : Runnable()) {
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
  for (const AttentionKernel* kernel : Runnable()) {
    ASSERT_TRUE(kernel->info().batch_invariant);
    Problem problem(batch, 7);
    const std::vector<float> all = problem.Launch(*kernel, 2);
    // The same memory, one row at a time: narrow the views.
    for (int r : {0, 15, 16, 31, 39}) {
      std::vector<float> out(9 * 64);
      AttentionArgs args = problem.Args(out.data(), 9 * 64);
      args.q.data = args.q.as<float>() + r * args.q.stride[2];
      args.q.shape[2] = args.out.shape[1] = 1;
      args.positions.data = args.positions.as<std::int32_t>() + r;
      AttentionDesc desc;
      desc.type_kv = batch.kv, desc.heads = 9, desc.kv_heads = 3, desc.head_dim = 64,
      desc.threads = 2;
      Buffer workspace = Buffer::Make(AttentionWorkspaceBytes(desc, batch.context));
      args.workspace = workspace.data();
      args.workspace_bytes = workspace.size();
      auto pool = MakeThreadPool(2);
      ASSERT_TRUE(kernel->Launch(args, Stream{pool.get()}));
      EXPECT_EQ(std::memcmp(out.data(), all.data() + r * 9 * 64, out.size() * sizeof(float)), 0)
          << kernel->name() << " row " << r;
    }
  }
}

TEST_F(AttentionKernels, refuse_positions_and_slots_outside_the_cache_before_touching_it) {
  Case c{DataType::kF32, 2, 1, 16, 8, 1, {0, 1}, {0, 0}, 1};
  for (const AttentionKernel* kernel : Runnable()) {
    Problem problem(c, 3);
    std::vector<float> out(64, -7.0f);
    std::vector<std::int32_t> positions{0, 8}, slots{0, 1};
    AttentionArgs args = problem.Args(out.data(), 32);
    args.positions.data = positions.data();
    Status status = kernel->Launch(args, Stream{});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "positions[1] = 8, must be 0 to 7");
    positions[1] = 1;
    args.slots.data = slots.data();
    status = kernel->Launch(args, Stream{});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "slots[1] = 1, must be 0 to 0");
    EXPECT_EQ(out[0], -7.0f);
  }
}

TEST_F(AttentionKernels, and_the_oracle_refuse_views_that_do_not_fit_together) {
  Case c{DataType::kF32, 4, 2, 16, 8, 1, {0, 1}, {0, 0}, 1};
  const std::vector<std::pair<std::function<void(AttentionArgs&)>, const char*>> faults = {
      {[](AttentionArgs& a) { a.out.dtype = DataType::kF16; },
       "out is f16, must be of q's type, f32"},
      {[](AttentionArgs& a) { a.out.shape[0] = 48; }, "must be [head_dim * heads = 64, rows = 2]"},
      {[](AttentionArgs& a) { a.out.shape[1] = 3; }, "must be [head_dim * heads = 64, rows = 2]"},
      {[](AttentionArgs& a) { a.v_cache.dtype = DataType::kF16; }, "caches of f32 and f16"},
      {[](AttentionArgs& a) { a.v_cache.shape[2] = 7; }, "v_cache has shape [16, 2, 7, 1]"},
      {[](AttentionArgs& a) { a.k_cache.shape[1] = a.v_cache.shape[1] = 3; }, "heads = 4"},
      {[](AttentionArgs& a) { a.k_cache.shape[0] = a.v_cache.shape[0] = 8; }, "head_dim = 8"},
      {[](AttentionArgs& a) { a.q.data = nullptr; }, "without memory"},
      {[](AttentionArgs& a) { a.positions.shape[0] = 1; }, "must be 2 adjacent i32"},
      {[](AttentionArgs& a) { a.slots.dtype = DataType::kI64; }, "must be 2 adjacent i32"},
  };
  for (const auto& [damage, expected] : faults) {
    Problem problem(c, 3);
    std::vector<float> out(128, -7.0f);
    AttentionArgs args = problem.Args(out.data(), 64);
    damage(args);
    std::vector<Status> answers = {ReferenceAttention(args)};
    for (const AttentionKernel* kernel : Runnable())
      answers.push_back(kernel->Launch(args, Stream{}));
    for (const Status& status : answers) {
      ASSERT_FALSE(status) << expected;
      EXPECT_NE(status.error().message.find(expected), std::string::npos) << status.error().message;
    }
    EXPECT_EQ(out, std::vector<float>(128, -7.0f));
  }
}

TEST_F(AttentionKernels, a_nan_key_shows_in_the_result) {
  Case c{DataType::kF32, 1, 1, 16, 40, 1, {20}, {0}, 1};
  for (const AttentionKernel* kernel : Runnable()) {
    Problem problem(c, 5);
    std::vector<float> out(16);
    AttentionArgs args = problem.Args(out.data(), 16);
    args.k_cache.as<float>()[5 * 16 + 3] = NAN;
    EXPECT_TRUE(std::isnan(problem.Launch(*kernel, 1)[0])) << kernel->name();
  }
}

TEST_F(AttentionKernels, say_what_they_cannot_do) {
  AttentionDesc desc;
  desc.type_kv = DataType::kQ4_0;
  for (AttentionKernel* kernel : registry_.kernels()) {
    const auto rejection = kernel->IsFeasible(desc);
    ASSERT_TRUE(rejection);
    EXPECT_EQ(rejection->need, "f32, f16, bf16 or q8_0");
  }
}

}  // namespace
}  // namespace tilewright
