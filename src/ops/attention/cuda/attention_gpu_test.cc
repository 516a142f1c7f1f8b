// Every candidate of attention problems on a GPU, against float64. Skipped where there is no GPU;
// kernels come from NVRTC or from the bundle that TILEWRIGHT_GPU_BUNDLE names.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/compiled/gpu_store.h"
#include "ops/attention/cuda/families.h"
#include "ops/attention/cuda/kernels.h"
#include "ops/attention/cuda/new_row_batch.h"
#include "ops/attention/cuda/test_batch.h"

namespace tilewright::attention {
namespace {

KernelFamilies Families() {
  KernelFamilies families;
  EXPECT_TRUE(AddAttentionFamilies(families));
  return families;
}

/// What all tests share.
struct Machine : test::GpuStore {
  Registry kernels;

  Machine() : GpuStore(Families()) {
    if (device == nullptr) return;
    EXPECT_TRUE(AddCudaKernels(kernels, *store, arch()));
  }
};

/// Memory of the device full of NaN between two bands that nobody may write.
class Banded {
 public:
  Banded(Device& device, std::size_t bytes, std::size_t shift = 0)
      : device_(device),
        bytes_(bytes),
        shift_(shift),
        memory_(device.Allocate(bytes + 2 * kBand + shift).value()) {
    EXPECT_TRUE(device.Fill(memory_.data(), 0xff, memory_.size(), device.default_stream()));
  }
  void* data() const { return memory_.as<std::byte>() + kBand + shift_; }
  void Write(const void* from) {
    if (bytes_ == 0) return;
    EXPECT_TRUE(device_.Upload(data(), from, bytes_, device_.default_stream()));
    EXPECT_TRUE(device_.Synchronize(device_.default_stream()));
  }
  /// What is there; fails the test where something was written beyond.
  std::vector<std::byte> Read() const {
    std::vector<std::byte> all(memory_.size());
    EXPECT_TRUE(device_.Download(all.data(), memory_.data(), all.size(), device_.default_stream()));
    const Status done = device_.Synchronize(device_.default_stream());
    EXPECT_TRUE(done) << done.error().message;
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(kBand + shift_);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xff}; };
    EXPECT_TRUE(std::all_of(all.begin(), begin, untouched));
    EXPECT_TRUE(std::all_of(end, all.end(), untouched));
    return {begin, end};
  }

 private:
  static constexpr std::size_t kBand = 4096;
  Device& device_;
  std::size_t bytes_, shift_;
  DeviceMemory memory_;
};

/// A batch's operands on the device.
class OnDevice {
 public:
  OnDevice(Device& device, Batch& batch)
      : batch_(batch),
        q_(device, batch.q().size(), Shift(batch.its_case().q)),
        k_(device, batch.k().size(), Shift(batch.its_case().kv)),
        v_(device, batch.v().size(), Shift(batch.its_case().kv)),
        positions_(device, batch.positions().size() * 4),
        slots_(device, batch.slots().size() * 4),
        pages_(device, batch.pages().size() * 4),
        sinks_(device, batch.sinks().size() * 4) {
    q_.Write(batch.q().data());
    k_.Write(batch.k().data());
    v_.Write(batch.v().data());
    positions_.Write(batch.positions().data());
    slots_.Write(batch.slots().data());
    pages_.Write(batch.pages().data());
    sinks_.Write(batch.sinks().data());
  }
  BatchAddresses At(const Banded& out) const {
    return {q_.data(),     k_.data(),     v_.data(),  positions_.data(),
            slots_.data(), pages_.data(), out.data(), sinks_.data()};
  }
  Args To(const Banded& out) const { return batch_.ArgsAt(At(out)); }
  std::vector<std::byte> Keys() const { return k_.Read(); }
  std::vector<std::byte> Values() const { return v_.Read(); }
  std::size_t Shift(DataType type) const { return batch_.its_case().odd ? BytesOf(type, 1) : 0; }

 private:
  Batch& batch_;
  Banded q_, k_, v_, positions_, slots_, pages_, sinks_;
};

class AttentionGpu : public test::GpuFixture<Machine> {
 protected:
  static Device& device() { return *machine_->device; }

  /// What a plan writes, and that it writes the same a second time.
  static std::vector<double> RunTwice(const Plan<Op>& plan, Batch& batch) {
    const OnDevice operands(device(), batch);
    OwnedWorkspace workspace = OwnedWorkspace::Make(plan.workspace(), device()).value();
    std::vector<std::byte> got[2];
    for (std::vector<std::byte>& bytes : got) {
      const Banded out(device(), batch.OutBytes(), operands.Shift(batch.its_case().q));
      const Status launched =
          tilewright::Run(plan, operands.To(out), workspace.get(), device().default_stream());
      EXPECT_TRUE(launched) << launched.error().message;
      bytes = out.Read();
    }
    EXPECT_EQ(got[0], got[1]) << plan.kernel().name() << " gives other bits the second time";
    return batch.Result(got[0].data());
  }

  /// Every feasible candidate gives the oracle's result; how many there were.
  static int Check(const BatchCase& c, std::uint64_t seed = 1) {
    Batch batch(c, seed);
    const std::vector<double> want = batch.Want();
    const Desc desc = DescOf(batch.ArgsAt(batch.Host(batch.q().data())), {}).value();
    const auto all = Feasible(Validate(desc).value(), machine_->kernels, device().spec());
    int ran = 0;
    for (const auto& candidate : all.all()) {
      if (!candidate.feasible()) continue;
      const std::string name(candidate.kernel->name());
      SCOPED_TRACE(name);
      Pins pins;
      pins.by_problem[{"attention", KeyOf(desc)}] = {name, SpecText(candidate.specs[0])};
      const auto plan = Bind(Choose(all, nullptr, &pins).value(), device());
      EXPECT_TRUE(plan) << plan.error().message;
      if (!plan) continue;
      batch.ExpectNear(RunTwice(*plan, batch), want);
      ++ran;
    }
    return ran;
  }
};

/// Splits of two lengths, of one for caches of f32, tensor cores for many rows, on Hopper in two
/// ways, and, by four and eight warps and by clusters, for few, and the kernel for all heads.
int KernelsFor(const BatchCase& c, const DeviceSpec& device) {
  if (c.kv == DataType::kF32) return 2;
  const bool hopper = device.compute_capability == 90 && c.page_size % 64 == 0;
  if (c.q == c.kv) return (hopper ? 7 : 6) + (device.compute_capability >= 90 ? 4 : 0);
  return c.q == DataType::kF32 && c.kv == DataType::kBF16 ? 4 : 3;
}

constexpr DataType kTypes[] = {DataType::kF32, DataType::kBF16, DataType::kF16};

TEST_F(AttentionGpu, EveryTypeAndHeadDimensionIsRight) {
  for (const DataType q : kTypes) {
    for (const DataType kv : kTypes) {
      for (const int head_dim : {64, 128}) {
        for (const int page_size : {0, 64, 256}) {
          BatchCase c{.q = q, .kv = kv, .heads = 8, .kv_heads = 2, .head_dim = head_dim};
          c.context = 520, c.sequences = 3, c.page_size = page_size;
          c.positions = {300, -1, 0, 511}, c.slots = {1, 0, 2, 0};
          AddRows(c, 1, 301, 40), AddRows(c, 2, 1, 130);
          EXPECT_EQ(Check(c), KernelsFor(c, device().spec())) << Describe(c);
        }
      }
    }
  }
}

TEST_F(AttentionGpu, HeadsOfEverySizeAreRight) {
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    if (IsAttentionHeadDim(head_dim)) continue;
    const DataType q = kTypes[head_dim / 8 % 3], kv = kTypes[head_dim / 24 % 3];
    BatchCase c{.q = q, .kv = kv, .heads = 6, .kv_heads = 2, .head_dim = head_dim};
    c.context = 520, c.sequences = 3, c.page_size = head_dim % 16 == 0 ? 64 : 0;
    c.window = head_dim % 32 == 0 ? 100 : 0;
    c.positions = {300, -1, 0, 511}, c.slots = {1, 0, 2, 0};
    AddRows(c, 1, 301, 40), AddRows(c, 2, 1, 130);
    EXPECT_EQ(Check(c), 1) << Describe(c);
    c.odd = true;
    EXPECT_EQ(Check(c), 1) << Describe(c);
  }
}

TEST_F(AttentionGpu, HeadsThatAreNoWholeChunksAreRight) {
  for (const int head_dim : {1, 7, 20, 84, 255}) {
    for (const DataType kv : kTypes) {
      BatchCase c{.q = kTypes[head_dim % 3], .kv = kv, .heads = 6, .kv_heads = 2};
      c.head_dim = head_dim, c.context = 520, c.sequences = 2;
      c.positions = {300, -1, 0, 519}, c.slots = {1, 0, 0, 1};
      AddRows(c, 1, 301, 40);
      EXPECT_EQ(Check(c), 1) << Describe(c);
    }
  }
}

TEST_F(AttentionGpu, EverySoftCapIsRight) {
  for (const float softcap : {50.0f, 1.5f, 0.125f}) {
    for (const int head_dim : {20, 64, 128, 256}) {
      for (const DataType q : kTypes) {
        BatchCase c{.q = q, .kv = DataType::kBF16, .heads = 8, .kv_heads = 2};
        c.head_dim = head_dim, c.softcap = softcap, c.window = head_dim == 128 ? 100 : 0;
        c.context = 520, c.sequences = 3, c.page_size = 64;
        c.positions = {300, -1, 0, 511}, c.slots = {1, 0, 2, 0};
        AddRows(c, 1, 301, 40), AddRows(c, 2, 1, 130);
        EXPECT_EQ(Check(c), IsAttentionHeadDim(head_dim) ? KernelsFor(c, device().spec()) : 1)
            << Describe(c);
      }
    }
  }
}

TEST_F(AttentionGpu, SinksAreWeighed) {
  for (const int head_dim : {20, 64, 128}) {
    for (const DataType q : kTypes) {
      BatchCase c{.q = q, .kv = DataType::kBF16, .heads = 8, .kv_heads = 2};
      c.head_dim = head_dim, c.sinks = true, c.window = head_dim == 128 ? 100 : 0;
      c.context = 520, c.sequences = 3, c.page_size = 64;
      c.positions = {300, -1, 0, 511}, c.slots = {1, 0, 2, 0};
      AddRows(c, 1, 301, 40);
      EXPECT_EQ(Check(c), 1) << Describe(c);
    }
  }
}

TEST_F(AttentionGpu, EveryLengthIsRight) {
  for (const DataType type : {DataType::kBF16, DataType::kF32}) {
    for (const int length : {1, 2, 7, 15, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257, 512}) {
      BatchCase c{.q = type, .kv = DataType::kBF16, .heads = 3, .kv_heads = 1};
      c.context = length, c.page_size = 64;
      AddRows(c, 0, length - 1, 1);
      EXPECT_EQ(Check(c), KernelsFor(c, device().spec())) << "the last row of " << length;
      c.positions.clear(), c.slots.clear();
      AddRows(c, 0, 0, length);
      EXPECT_EQ(Check(c), KernelsFor(c, device().spec())) << "a prompt of " << length;
    }
    BatchCase c{.q = type, .kv = DataType::kBF16, .heads = 4, .kv_heads = 1, .head_dim = 128};
    c.context = 2048, c.page_size = 256;
    AddRows(c, 0, 2048 - 130, 130);
    EXPECT_EQ(Check(c), KernelsFor(c, device().spec())) << "the last rows of 2,048";
  }
}

TEST_F(AttentionGpu, EveryWindowAndNumberOfHeadsIsRight) {
  for (const int window : {1, 2, 63, 64, 65, 256, 257, 5000}) {
    BatchCase c{.q = DataType::kBF16, .kv = DataType::kBF16, .heads = 6, .kv_heads = 2};
    c.context = 900, c.sequences = 2, c.page_size = 64, c.window = window;
    c.positions = {-1, 700, 702, 850, 10, 0, 62, 63, 64, 65, 256, 403, 402};
    c.slots.assign(c.positions.size(), 1);
    AddRows(c, 0, 500, 70);
    EXPECT_EQ(Check(c), KernelsFor(c, device().spec())) << "window " << window;
  }
  for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {5, 5}, {14, 2}, {9, 1}, {32, 2}}) {
    BatchCase c{.q = DataType::kF16, .kv = DataType::kF16, .heads = heads, .kv_heads = kv_heads};
    c.context = 300;
    AddRows(c, 0, 290, 1), AddRows(c, 0, 100, 50);
    EXPECT_EQ(Check(c), KernelsFor(c, device().spec())) << heads << " heads over " << kv_heads;
  }
}

TEST_F(AttentionGpu, AddressesAtAnyElementAreRight) {
  for (const DataType q : kTypes) {
    for (const DataType kv : kTypes) {
      BatchCase c{.q = q, .kv = kv, .heads = 4, .kv_heads = 2, .odd = true};
      c.page_size = 7;
      AddRows(c, 0, 150, 30);
      EXPECT_EQ(Check(c), KernelsFor(c, device().spec())) << Describe(c);
    }
  }
}

TEST_F(AttentionGpu, WhatDoesNotExistBecomesNaN) {
  BatchCase c{.q = DataType::kBF16, .kv = DataType::kBF16};
  c.context = 256, c.sequences = 2, c.page_size = 64;
  c.positions = {10, 200, 20, 30, 40}, c.slots = {0, 1, 0, 0, 0};
  Batch batch(c, 5);
  batch.positions()[2] = 256, batch.positions()[3] = -2;
  batch.slots()[4] = 2;
  batch.pages()[4 + 1] = 8;  // of slot 1; there are 8
  const Desc desc = DescOf(batch.ArgsAt(batch.Host(batch.q().data())), {}).value();
  const auto all = Feasible(Validate(desc).value(), machine_->kernels, device().spec());
  for (const auto& candidate : all.all()) {
    if (!candidate.feasible()) continue;
    const std::string name(candidate.kernel->name());
    Pins pins;
    pins.by_problem[{"attention", KeyOf(desc)}] = {name, SpecText(candidate.specs[0])};
    const Plan<Op> plan = Bind(Choose(all, nullptr, &pins).value(), device()).value();
    const std::vector<double> got = RunTwice(plan, batch);
    const auto width = static_cast<std::size_t>(batch.width());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(std::isnan(got[i]), i >= width) << name << " row " << i / width;
  }
}

/// Every kernel that turns its row gives what the oracle does, twice: of the caches, too, which are
/// as they were everywhere else. How many there were.
int CheckTurned(Machine& machine, const BatchCase& c, const TurnCase& turn) {
  Device& device = *machine.device;
  const Stream stream = device.default_stream();
  const std::size_t shift = c.odd ? BytesOf(c.q, 1) : 0;
  NewRowBatch rows(c, turn, 5), oracle(c, turn, 5);
  std::vector<std::byte> want(rows.batch().OutBytes(), std::byte{0xff});
  const Args host = oracle.HostArgs(want.data());
  const Desc desc = DescOf(host, {}).value();
  EXPECT_TRUE(Reference(host));
  const auto all = Feasible(Validate(desc).value(), machine.kernels, device.spec());
  Tables tables;
  int ran = 0;
  for (const auto& candidate : all.all()) {
    if (!candidate.feasible()) continue;
    const std::string name(candidate.kernel->name());
    SCOPED_TRACE(name);
    Pins pins;
    pins.by_problem[{"attention", KeyOf(desc)}] = {name, SpecText(candidate.specs[0])};
    const auto plan = Bind(Choose(all, nullptr, &pins).value(), device);
    EXPECT_TRUE(plan) << plan.error().message;
    if (!plan) continue;
    OwnedWorkspace workspace = OwnedWorkspace::Make(plan->workspace(), device).value();
    std::vector<std::byte> got[2], keys[2], values[2];
    for (int i = 0; i < 2; ++i) {
      const OnDevice operands(device, rows.batch());
      const Banded out(device, rows.batch().OutBytes(), shift);
      Banded k(device, rows.k().size(), shift), v(device, rows.v().size(), shift);
      Banded factors(device, rows.factors().size() * 4);
      k.Write(rows.k().data()), v.Write(rows.v().data()), factors.Write(rows.factors().data());
      Args args = rows.ArgsAt(operands.At(out), {k.data(), v.data(), factors.data()});
      EXPECT_TRUE(tables.Prepare(args, device, stream, 0));
      const Status launched = tilewright::Run(*plan, args, workspace.get(), stream);
      EXPECT_TRUE(launched) << launched.error().message;
      got[i] = out.Read(), keys[i] = operands.Keys(), values[i] = operands.Values();
    }
    EXPECT_TRUE(got[0] == got[1] && keys[0] == keys[1] && values[0] == values[1]) << "other bits";
    const auto near = [&](const std::vector<double>& have, const std::vector<double>& need,
                          double absolute, const char* what) {
      for (std::size_t i = 0; i < need.size(); ++i) {
        if (std::isnan(need[i]) && std::isnan(have[i])) continue;
        ASSERT_NEAR(have[i], need[i], 0x1p-7 * std::abs(need[i]) + absolute)
            << Describe(c, turn) << " " << what << " " << i;
      }
    };
    // An element that is turned may be rounded to its neighbour, which moves its score by as much.
    near(rows.batch().Result(got[0].data()), rows.batch().Result(want.data()), 0x1p-8, "out");
    const auto decoded = [&](const void* bytes, std::size_t size) {
      std::vector<double> all_of(size / 2);
      EXPECT_TRUE(DecodeRow(c.kv, bytes, static_cast<std::int64_t>(size / 2), all_of.data()));
      return all_of;
    };
    Batch& exact = oracle.batch();
    near(decoded(keys[0].data(), keys[0].size()), decoded(exact.k().data(), exact.k().size()), 2e-6,
         "keys");
    EXPECT_TRUE(test::BitwiseEqual(values[0].data(), exact.v().data(), values[0].size()));
    ++ran;
  }
  return ran;
}

TEST_F(AttentionGpu, EveryKernelThatTurnsItsRowIsRight) {
  const int kernels = device().spec().compute_capability >= 90 ? 7 : 2;
  for (const DataType type : {DataType::kBF16, DataType::kF16}) {
    for (const int head_dim : {64, 128}) {
      for (const RopeMode mode : {RopeMode::kInterleaved, RopeMode::kHalfSplit}) {
        for (const int position : {0, 1, 15, 16, 63, 64, 127, 128, 500, 1099}) {
          BatchCase c{.q = type, .kv = type, .heads = 6, .kv_heads = 2, .head_dim = head_dim};
          c.context = 1100, c.sequences = 3;
          c.page_size = std::array{0, 64, 7}[static_cast<std::size_t>(position % 3)];
          c.window = position == 500 ? 100 : 0;
          c.positions = {position}, c.slots = {1};
          EXPECT_EQ(CheckTurned(*machine_, c, {mode, head_dim, position % 2 == 0}), kernels);
        }
        BatchCase c{.q = type, .kv = type, .heads = 18, .kv_heads = 2, .head_dim = head_dim};
        c.context = 300, c.odd = true, c.positions = {200}, c.slots = {0};
        EXPECT_EQ(CheckTurned(*machine_, c, {mode, head_dim / 2 + 2, false}), kernels);
      }
    }
  }
}

/// 64 sequences of different lengths, some with several rows, in turn.
BatchCase Many(DataType type) {
  BatchCase c{.q = type, .kv = DataType::kBF16, .heads = 4, .kv_heads = 2};
  c.context = 700, c.sequences = 64, c.page_size = 64, c.guarantee = Guarantee::kBatchInvariant;
  for (int round = 0; round < 3; ++round) {
    for (int s = 0; s < 64; ++s) {
      if (s % 3 < round) continue;
      AddRows(c, s, (s * 37) % 690 + round, 1);
      if (s % 16 == 5) AddRows(c, 0, -1, 1);
    }
  }
  return c;
}

TEST_F(AttentionGpu, ARowOfABatchInvariantChoiceHasItsBitsInEveryBatch) {
  for (const DataType type : {DataType::kF32, DataType::kBF16}) {
    const BatchCase c = Many(type);
    Batch batch(c, 7);
    const auto plan_of = [&](const Args& args) {
      const Desc desc = DescOf(args, {.guarantee = c.guarantee}).value();
      return Bind(Choose(Feasible(Validate(desc).value(), machine_->kernels, device().spec()),
                         nullptr)
                      .value(),
                  device())
          .value();
    };
    const Args host = batch.ArgsAt(batch.Host(batch.q().data()));
    const std::vector<double> all = RunTwice(plan_of(host), batch);
    batch.ExpectNear(all, batch.Want());
    const OnDevice operands(device(), batch);
    for (int r = 0; r < batch.rows(); r += 5) {
      const Banded out(device(), BytesOf(c.q, batch.width()));
      Args args = operands.To(out);
      args.q.data = args.q.as<std::byte>() + BytesOf(c.q, r * args.q.stride[2]);
      args.positions.data = args.positions.as<std::int32_t>() + r;
      args.slots.data = args.slots.as<std::int32_t>() + r;
      args.q.shape[2] = args.out.shape[1] = 1;
      args.positions.shape[0] = args.slots.shape[0] = 1;
      const Plan<Op> plan = plan_of(args);
      OwnedWorkspace workspace = OwnedWorkspace::Make(plan.workspace(), device()).value();
      ASSERT_TRUE(tilewright::Run(plan, args, workspace.get(), device().default_stream()));
      std::vector<double> alone(static_cast<std::size_t>(batch.width()));
      ASSERT_TRUE(DecodeRow(c.q, out.Read().data(), batch.width(), alone.data()));
      EXPECT_TRUE(test::BitwiseEqual(alone.data(), all.data() + std::ptrdiff_t{r} * batch.width(),
                                     alone.size() * sizeof(double)))
          << "row " << r;
    }
  }
}

}  // namespace
}  // namespace tilewright::attention
