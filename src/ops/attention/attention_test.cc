#include "engine/desc_test_util.h"
#include "ops/attention/test_problem.h"

namespace tilewright::attention {
namespace {

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
