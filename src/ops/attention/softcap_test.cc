// Attention whose scores are soft-capped.
#include "ops/attention/test_problem.h"

namespace tilewright::attention {
namespace {

TEST_F(AttentionKernels, cap_scores_of_every_size_as_the_oracle_does_whatever_the_threads) {
  std::uint64_t seed = 500;
  for (const DataType kv : {DataType::kF32, DataType::kF16, DataType::kQ8_0}) {
    for (const float softcap : {0.125f, 1.5f, 50.0f}) {
      for (const std::int32_t window : {0, 65}) {
        Case c{kv, 6, 2, 64, 900, 2, {}, {}, 1, window, softcap};
        c.positions = {-1, 700, 701, 0, 15, 16, 17, 255, 256, 257};
        for (const std::int32_t p : Range(500, 20)) c.positions.push_back(p);
        c.slot_of.assign(c.positions.size(), 1);
        c.slot_of[3] = 0;
        Problem problem(c, ++seed);
        const std::vector<float> expected = problem.Reference();
        Case plain = c;
        plain.softcap = 0;
        if (softcap < 2) {
          EXPECT_GT(RelativeL2(Problem(plain, seed).Reference(), expected), 1e-2);
        }
        ExpectOf(problem, expected, Describe(c));
      }
    }
  }
}

TEST_F(AttentionKernels, the_oracle_caps_scores_after_they_were_scaled) {
  // Scaled scores of 0 and 2, which a cap of 1 makes 0 and tanh(2).
  std::vector<float> q = {4}, keys = {0, 1}, values = {0, 1}, out(1);
  std::vector<std::int32_t> position = {1}, slot = {0};
  attention::Args args;
  args.q = Contiguous(q.data(), DataType::kF32, {1, 1, 1, 1});
  args.k_cache = Contiguous(keys.data(), DataType::kF32, {1, 1, 2, 1});
  args.v_cache = Contiguous(values.data(), DataType::kF32, {1, 1, 2, 1});
  args.positions = Contiguous(position.data(), DataType::kI32, {1, 1, 1, 1});
  args.slots = Contiguous(slot.data(), DataType::kI32, {1, 1, 1, 1});
  args.out = Contiguous(out.data(), DataType::kF32, {1, 1, 1, 1});
  args.scale = 0.5f;
  args.softcap = 1;
  ASSERT_TRUE(attention::Reference(args));
  EXPECT_NEAR(out[0], 1 / (1 + std::exp(-std::tanh(2.0))), 1e-6);
}

TEST_F(AttentionKernels, refuse_a_cap_that_is_negative_or_no_number) {
  Case c{DataType::kF32, 2, 1, 16, 32, 1, {3}, {0}, 1, 0};
  Problem problem(c, 3);
  std::vector<float> out(32);
  attention::Args args = problem.Args(out.data(), 32);
  for (const float softcap : {-1.0f, NAN, INFINITY}) {
    args.softcap = softcap;
    const Result<Desc> desc = DescOf(args, {});
    ASSERT_FALSE(desc) << softcap;
    EXPECT_NE(desc.error().message.find("softcap = "), std::string::npos) << desc.error().message;
  }
}

}  // namespace
}  // namespace tilewright::attention
