// Attention in a sliding window, and the float64 oracle's.
#include "ops/attention/test_problem.h"

namespace tilewright::attention {
namespace {

/// Rows of two sequences in no order, far apart and side by side, with padding; long enough for
/// several splits.
std::vector<Case> WindowCases() {
  std::vector<Case> cases;
  for (const DataType kv : {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kQ8_0}) {
    for (const std::int32_t window : {1, 2, 63, 64, 65, 256, 257, 5000}) {
      Case c{kv, 3, 1, 64, 900, 2, {}, {}, 1, window};
      c.positions = {-1, 700, 701, 702, 850, 10,  0,   1,  -1,  62,
                     63, 64,  65,  255, 256, 257, 300, -1, 403, 402};
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

}  // namespace
}  // namespace tilewright::attention
