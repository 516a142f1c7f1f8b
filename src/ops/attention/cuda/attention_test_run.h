#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda/kernels/launch_emulation.h"
#include "ops/attention/cuda/attention_launch.h"
#include "ops/attention/cuda/families.h"
#include "ops/attention/cuda/test_batch.h"

// For tests of kernels only: launches of the families on emulation, and what each of them has to
// answer. Include it after the emulation headers.

namespace tilewright::attention {

/// What a family makes of a batch, [rows][width].
using RunFn = std::function<std::vector<double>(Batch&)>;

inline DeviceSpec Board(int sms) {
  DeviceSpec board;
  board.kind = DeviceKind::kCuda;
  board.sm_count = sms;
  return board;
}

/// Runs kernel(params) as a launch of `spec`; fails the test where a GPU would not have run it.
template <class Params, class Kernel>
void Emulate(const KernelFamily& family, const KernelSpec& spec, const cuda::LaunchResult& launch,
             Kernel&& kernel) {
  ASSERT_EQ(family.check(spec), std::nullopt) << SpecName(spec);
  ASSERT_TRUE(launch) << launch.error().ToString();
  const KernelLaunchShape compiled = family.launch(spec);
  EXPECT_LE(launch->dynamic_smem_bytes, compiled.dynamic_smem_bytes);
  const bool ran = tw::emulation::RunLaunch<Params>(
      *launch, compiled.threads, kernel, {1, std::max<unsigned int>(spec.cluster_n, 1), 1});
  EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access";
}

/// Of a launch that divides rows; fails the test where it wrote beyond or left a counter.
class GuardedWorkspace {
 public:
  explicit GuardedWorkspace(const WorkspaceSize& size)
      : partials_(size.partials), barriers_(size.barriers) {
    std::memset(barriers_.data(), 0, barriers_.size());
    workspace_.partials = partials_.data(), workspace_.partials_size = partials_.size();
    workspace_.barriers = barriers_.data(), workspace_.barriers_size = barriers_.size();
  }
  ~GuardedWorkspace() {
    EXPECT_EQ(partials_.Damage() + barriers_.Damage(), "");
    const auto* counters = static_cast<const std::byte*>(barriers_.data());
    EXPECT_TRUE(std::all_of(counters, counters + barriers_.size(),
                            [](std::byte b) { return b == std::byte{0}; }));
  }
  GuardedWorkspace(const GuardedWorkspace&) = delete;
  GuardedWorkspace& operator=(const GuardedWorkspace&) = delete;
  const Workspace& get() const { return workspace_; }

 private:
  test::GuardedBytes partials_, barriers_;
  Workspace workspace_;
};

/// What launch(args) writes to an output that is poisoned and guarded.
template <class Launch>
std::vector<double> RunBatch(Batch& batch, Launch&& launch) {
  const std::size_t shift = batch.its_case().odd ? BytesOf(batch.its_case().q, 1) : 0;
  test::GuardedBytes out(batch.OutBytes(), shift);
  launch(batch.ArgsAt(batch.Host(out.data())));
  EXPECT_EQ(out.Damage(), "");
  return batch.Result(out.data());
}

inline bool SameBits(const double* a, const double* b, int count) {
  return test::BitwiseEqual(a, b, static_cast<std::size_t>(count) * sizeof(double));
}

/// Padding becomes zeros, and rows whose position, slot or page does not exist become NaN; the
/// others do not mind.
inline void ExpectZerosAndNaN(BatchCase c, const RunFn& run) {
  c.context = 256, c.sequences = 2, c.page_size = 64;
  c.positions = {10, -1, 200, 20, 30, 40, 63, -1}, c.slots = {0, 99, 1, 0, 0, 0, 1, -5};
  Batch batch(c, 5);
  batch.positions()[3] = 256, batch.positions()[4] = -2;
  batch.slots()[5] = 2;
  batch.pages()[4 + 1] = 8;  // of slot 1: positions 64 to 127; there are 8 pages
  const std::vector<double> got = run(batch);
  const auto width = static_cast<std::size_t>(batch.width());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t row = i / width;
    ASSERT_EQ(std::isnan(got[i]), row >= 2 && row <= 5) << Describe(c) << " row " << row;
    if (row == 1 || row == 7) {
      ASSERT_TRUE(got[i] == 0 && !std::signbit(got[i])) << Describe(c) << " row " << row;
    }
  }
  EXPECT_NE(got[0], 0);
}

/// A key that is NaN makes NaN of the rows that see it.
inline void ExpectNaNOfNaNKey(BatchCase c, const RunFn& run) {
  c.heads = 1, c.kv_heads = 1, c.context = 128;
  AddRows(c, 0, 60, 20);
  Batch batch(c, 5);
  const float nan = NAN;
  auto* keys = static_cast<std::byte*>(batch.k().data());
  ASSERT_TRUE(EncodeRow(c.kv, &nan, 1, keys + BytesOf(c.kv, std::int64_t{70} * c.head_dim + 3)));
  const std::vector<double> got = run(batch);
  for (std::size_t r = 0; r < 20; ++r) {
    EXPECT_EQ(std::isnan(got[r * static_cast<std::size_t>(c.head_dim)]), r >= 10)
        << Describe(c) << " row " << r;
  }
}

/// Soft caps that leave scores nearly as they are, bend them, and make nearly signs of them; rows
/// far apart and a window, so that tiles are seen in part. What does not exist is NaN under a cap
/// too, and what is not seen weighs nothing.
inline void ExpectCaps(BatchCase c, const RunFn& run) {
  for (const auto& [softcap, window] : {std::pair{50.0f, 0}, {1.5f, 0}, {0.125f, 70}}) {
    BatchCase one = c;
    one.softcap = softcap, one.window = window;
    one.heads = 3, one.kv_heads = 1, one.context = 210, one.page_size = 64;
    one.positions = {0, 209, 130}, one.slots = {0, 0, 0};
    Batch batch(one, 7);
    const std::vector<double> want = batch.Want();
    batch.ExpectNear(run(batch), want);
  }
  c.softcap = 1.5f, c.heads = 2;
  ExpectZerosAndNaN(c, run);
  ExpectNaNOfNaNKey(c, run);
}

/// A row has its bits in every batch: `launch` is of a kernel that is batch-invariant.
template <class Launch>
void ExpectRowsKeepTheirBits(BatchCase c, Launch&& launch) {
  c.heads = 6, c.kv_heads = 2, c.context = 700, c.sequences = 2, c.page_size = 64;
  c.positions = {600, 601, -1, 3, 255, 256}, c.slots = {0, 0, 1, 1, 1, 1};
  Batch batch(c, 9);
  const std::vector<double> all = RunBatch(batch, launch);
  for (int r = 0; r < batch.rows(); ++r) {
    test::GuardedBytes out(batch.OutBytes());
    Args args = batch.ArgsAt(batch.Host(out.data()));
    args.q.data = args.q.as<std::byte>() + BytesOf(c.q, r * args.q.stride[2]);
    args.positions.data = args.positions.as<std::int32_t>() + r;
    args.slots.data = args.slots.as<std::int32_t>() + r;
    args.q.shape[2] = args.out.shape[1] = 1;
    args.positions.shape[0] = args.slots.shape[0] = 1;
    launch(args);
    std::vector<double> alone(static_cast<std::size_t>(batch.width()));
    ASSERT_TRUE(DecodeRow(c.q, out.data(), batch.width(), alone.data()));
    EXPECT_TRUE(
        SameBits(alone.data(), all.data() + std::ptrdiff_t{r} * batch.width(), batch.width()))
        << "row " << r;
  }
}

inline void ExpectRefused(const cuda::LaunchResult& launch, const std::string& words) {
  ASSERT_FALSE(launch) << words;
  EXPECT_THAT(launch.error().ToString(), testing::HasSubstr(words));
}

/// `good`, changed, does not pass the family's check.
template <class Change>
void ExpectRefused(const KernelFamily& family, KernelSpec good, Change&& change,
                   const std::string& words) {
  change(good);
  const auto no = family.check(good);
  ASSERT_TRUE(no) << words;
  EXPECT_THAT(no->ToString(), testing::HasSubstr(words));
}

}  // namespace tilewright::attention
