// Attention with a sink of each head in its softmax.
#include "ops/attention/test_problem.h"

namespace tilewright::attention {
namespace {

TEST_F(AttentionKernels, weigh_sinks_as_the_oracle_does_whatever_the_threads) {
  std::uint64_t seed = 700;
  for (const DataType kv : {DataType::kF32, DataType::kF16, DataType::kQ8_0}) {
    for (const std::int32_t window : {0, 65}) {
      for (const float softcap : {0.0f, 1.5f}) {
        Case c{kv, 6, 2, 64, 900, 2, {}, {}, 1, window, softcap, true};
        c.positions = {-1, 700, 701, 0, 15, 16, 17, 255, 256, 257};
        for (const std::int32_t p : Range(500, 20)) c.positions.push_back(p);
        c.slot_of.assign(c.positions.size(), 1);
        c.slot_of[3] = 0;
        Problem problem(c, ++seed);
        const std::vector<float> expected = problem.Reference();
        Case plain = c;
        plain.sinks = false;
        EXPECT_GT(RelativeL2(Problem(plain, seed).Reference(), expected), 1e-2);
        ExpectOf(problem, expected, Describe(c));
      }
    }
  }
}

TEST_F(AttentionKernels, give_a_row_with_sinks_its_bits_in_every_batch) {
  Case many{DataType::kF16, 8, 2, 64, 400, 1, Range(300, 30), {}, 1, 100, 0, true};
  many.slot_of.assign(many.positions.size(), 0);
  Case alone = many, padded = many;
  alone.positions = {300}, alone.slot_of = {0};
  for (std::size_t r = 0; r < padded.positions.size(); r += 3) {
    padded.positions.insert(padded.positions.begin() + static_cast<std::ptrdiff_t>(r), -1);
    padded.slot_of.push_back(0);
  }
  Problem batch(many, 41), row(alone, 41), apart(padded, 41);
  row.CopyFrom(batch, alone.positions);
  apart.CopyFrom(batch, padded.positions);
  constexpr std::ptrdiff_t kWidth = 8 * 64;
  for (Kernel* kernel : Runnable()) {
    if (kernel->info().reference) continue;
    SCOPED_TRACE(std::string(kernel->name()));
    const std::vector<float> all = batch.Launch(*kernel, 2);
    EXPECT_EQ(row.Launch(*kernel, 3), std::vector<float>(all.begin(), all.begin() + kWidth));
    const std::vector<float> spread = apart.Launch(*kernel, 3);
    auto from = all.begin();
    for (std::size_t r = 0; r < padded.positions.size(); ++r) {
      if (padded.positions[r] < 0) continue;
      const auto at = spread.begin() + static_cast<std::ptrdiff_t>(r) * kWidth;
      EXPECT_TRUE(std::equal(at, at + kWidth, from)) << r;
      from += kWidth;
    }
  }
}

TEST_F(AttentionKernels, let_an_outermost_sink_take_all_or_nothing) {
  Case c{DataType::kF32, 2, 1, 16, 64, 1, {40, 63}, {0, 0}, 1, 0, 0, true};
  Case plain = c;
  plain.sinks = false;
  const std::vector<float> without = Problem(plain, 9).Reference();
  for (Kernel* kernel : Runnable()) {
    SCOPED_TRACE(std::string(kernel->name()));
    Problem problem(c, 9);
    problem.sinks() = {-INFINITY, 1e30f};
    const std::vector<float> got = problem.Launch(*kernel, 1);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (i % 32 < 16) {
        EXPECT_NEAR(got[i], without[i], 1e-5) << i;
      } else {
        EXPECT_EQ(got[i], 0) << i;
      }
    }
  }
}

TEST_F(AttentionKernels, refuse_sinks_of_another_number_or_type) {
  Case c{DataType::kF32, 4, 1, 16, 32, 1, {3}, {0}, 1, 0, 0, true};
  Problem problem(c, 3);
  std::vector<float> out(64);
  const attention::Args good = problem.Args(out.data(), 64);
  ASSERT_TRUE(DescOf(good, {}));
  EXPECT_TRUE(DescOf(good, {})->sinks);
  for (int fault = 0; fault < 3; ++fault) {
    attention::Args args = good;
    if (fault == 0) args.sinks.shape[0] = 3;
    if (fault == 1) args.sinks.dtype = DataType::kF16;
    if (fault == 2) args.sinks.stride[0] = 2;
    const Result<Desc> desc = DescOf(args, {});
    ASSERT_FALSE(desc) << fault;
    EXPECT_NE(desc.error().message.find("sinks"), std::string::npos) << desc.error().message;
  }
}

TEST_F(AttentionKernels, the_oracle_counts_a_sink_as_a_position_without_a_value) {
  // Scores 0 and 2, the sink 1: the values of both are 3.
  std::vector<float> q = {2}, keys = {0, 1}, values = {3, 3}, out(1), sink = {1};
  std::vector<std::int32_t> position = {1}, slot = {0};
  attention::Args args;
  args.q = Contiguous(q.data(), DataType::kF32, {1, 1, 1, 1});
  args.k_cache = Contiguous(keys.data(), DataType::kF32, {1, 1, 2, 1});
  args.v_cache = Contiguous(values.data(), DataType::kF32, {1, 1, 2, 1});
  args.positions = Contiguous(position.data(), DataType::kI32, {1, 1, 1, 1});
  args.slots = Contiguous(slot.data(), DataType::kI32, {1, 1, 1, 1});
  args.out = Contiguous(out.data(), DataType::kF32, {1, 1, 1, 1});
  args.sinks = Contiguous(sink.data(), DataType::kF32, {1, 1, 1, 1});
  ASSERT_TRUE(attention::Reference(args));
  const double seen = 1 + std::exp(2.0);
  EXPECT_NEAR(out[0], 3 * seen / (seen + std::exp(1.0)), 1e-6);
}

}  // namespace
}  // namespace tilewright::attention
