// Programmatic dependent launch on a GPU: behind a kernel that writes late, and one that has
// nothing to do with it, every family's kernels give the bits that they give when each kernel
// starts after the one before it has ended. Everything is written late: operands, and NaN over
// outputs, which a kernel that writes early loses. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "core/formats/random_blocks.h"
#include "engine/compiled/gpu_store.h"
#include "late_writer.h"
#include "op_on_device.h"
#include "ops/attention/cuda/kernels.h"
#include "ops/attention/cuda/new_row_batch.h"
#include "ops/attention/cuda/test_batch.h"
#include "ops/copy/cuda/copy_cases.h"
#include "ops/copy/cuda/kernels.h"
#include "ops/copy/cuda/kv_scatter_cases.h"
#include "ops/elementwise/cuda/elementwise_cases.h"
#include "ops/elementwise/cuda/kernels.h"
#include "ops/embedding/cuda/embedding_cases.h"
#include "ops/embedding/cuda/kernels.h"
#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemm_qr/families.h"
#include "ops/gemm/cuda/gemm_qw/families.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/kernels/kernels.h"
#include "ops/norm/cuda/kernels.h"
#include "ops/norm/cuda/norm_cases.h"
#include "ops/rope/cuda/kernels.h"
#include "ops/rope/cuda/rope_cases.h"
#include "ops/top_k/cuda/kernels.h"
#include "ops/top_k/cuda/top_k_cases.h"
#include "tilewright/cuda_device.h"
#include "tilewright/gemm_stages.h"
#include "tilewright/tilewright.h"

namespace tilewright::cuda {
namespace {

/// A device, with or without early launches.
struct Gpu {
  std::unique_ptr<Device> device;
  std::optional<LateWriter> writer;
};

KernelFamilies Families() {
  KernelFamilies families = AllKernelFamilies();
  EXPECT_TRUE(families.Add(LateWriterFamily()));
  return families;
}

/// What all tests share.
struct Machine : test::GpuStore {
  Gpu early, in_turn;
  Registry gemm;
  norm::Registry norm;
  rope::Registry rope;
  elementwise::Registry elementwise;
  copy::Registry copy;
  kv_scatter::Registry kv_scatter;
  embedding::Registry embedding;
  attention::Registry attention;
  top_k::Registry top_k;

  Machine() : GpuStore(Families(), /*needs_compiler=*/true) {  // for the late writer
    if (!why_not.empty()) return;
    if (Status opened = Open(); !opened) why_not = opened.error().message;
  }

  Status Open() {
    if (device->spec().compute_capability < 90)
      return Fail(ErrorCode::kUnsupported, "compute capability below 9.0");
    CudaDeviceOptions options;
    options.programmatic_launches = false;
    auto made = MakeCudaDevice(0, options);
    if (!made) return Fail(made.error());
    in_turn.device = std::move(*made);
    EXPECT_TRUE(AddCudaGemm(gemm, *store, arch()));
    EXPECT_TRUE(norm::AddCudaKernels(norm, *store, arch()));
    EXPECT_TRUE(rope::AddCudaKernels(rope, *store, arch()));
    EXPECT_TRUE(elementwise::AddCudaKernels(elementwise, *store, arch()));
    EXPECT_TRUE(copy::AddCudaKernels(copy, *store, arch()));
    EXPECT_TRUE(kv_scatter::AddCudaKernels(kv_scatter, *store, arch()));
    EXPECT_TRUE(embedding::AddCudaKernels(embedding, *store, arch()));
    EXPECT_TRUE(attention::AddCudaKernels(attention, *store, arch()));
    EXPECT_TRUE(top_k::AddCudaKernels(top_k, *store, arch()));
    early.device = std::move(device);
    for (Gpu* gpu : {&early, &in_turn}) {
      auto writer = LateWriter::Make(*store, *gpu->device);
      if (!writer) return Fail(writer.error());
      gpu->writer = std::move(*writer);
    }
    return {};
  }
};

/// Memory that is NaN until the late writer gives it its contents.
class Late {
 public:
  Late(Device& device, const void* from, std::size_t bytes)
      : device_(device),
        staged_(device.Allocate(bytes).value()),
        memory_(device.Allocate(bytes).value()) {
    EXPECT_TRUE(device.Upload(staged_.data(), from, bytes, device.default_stream()));
    EXPECT_TRUE(device.Synchronize(device.default_stream()));
  }
  void* data() const { return memory_.data(); }
  LateWriter::Range range() const { return {staged_.data(), memory_.data(), memory_.size()}; }
  Status Poison() { return device_.Fill(data(), 0xff, memory_.size(), device_.default_stream()); }
  std::vector<std::byte> Read() const {
    std::vector<std::byte> bytes(memory_.size());
    EXPECT_TRUE(device_.Download(bytes.data(), data(), bytes.size(), device_.default_stream()));
    const Status done = device_.Synchronize(device_.default_stream());
    EXPECT_TRUE(done) << done.error().message;
    return bytes;
  }

 private:
  Device& device_;
  DeviceMemory staged_, memory_;
};

/// A call on one device.
template <class Op>
struct Call {
  typename Op::Args args;
  std::vector<Late> late;              ///< all that the call reads or writes, but for
  std::vector<DeviceMemory> constant;  ///< what nobody writes
};
template <class Op>
using MakeCall = std::function<Call<Op>(Device&)>;

class DependentLaunchGpu : public test::GpuFixture<Machine> {
 protected:
  /// What is in all late memory after the chain, eager or twice as a graph.
  template <class Op>
  static std::vector<std::byte> Run(Gpu& gpu, const Plan<Op>& plan, const MakeCall<Op>& make,
                                    bool captured) {
    Device& device = *gpu.device;
    const Stream stream = device.default_stream();
    Call<Op> call = make(device);
    constexpr std::int64_t kPositions = 4;  // fewer than the calls have: a table is no limit
    PreparedOf<Op> prepared;
    EXPECT_TRUE(prepared.Prepare(call.args, device, stream, kPositions));
    OwnedWorkspace workspace = OwnedWorkspace::Make(plan.workspace(), device).value();
    std::vector<LateWriter::Range> ranges;
    for (const Late& late : call.late) ranges.push_back(late.range());
    const auto poison = [&] {
      for (Late& late : call.late) EXPECT_TRUE(late.Poison());
    };
    const auto submit = [&]() -> Status {
      if (Status queued = gpu.writer->Queue(ranges, stream); !queued) return queued;
      return tilewright::Run(plan, call.args, workspace.get(), stream);
    };
    const auto expect = [](const Status& done) { EXPECT_TRUE(done) << done.error().message; };
    if (captured) {
      const auto graph = device.Capture(stream, submit);
      EXPECT_TRUE(graph) << graph.error().message;
      for (int i = 0; i < 2 && graph; ++i) {
        poison();
        expect((*graph)->Launch(stream));
      }
    } else {
      poison();
      expect(submit());
    }
    std::vector<std::byte> all;
    for (const Late& late : call.late) {
      const std::vector<std::byte> one = late.Read();
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  /// The first and the last feasible kernel of `family`; whether there is one.
  template <class Op>
  static bool ExpectSameBits(const std::string& family, const OpRegistry<Op>& registry,
                             const typename Op::Desc& desc, const MakeCall<Op>& make) {
    const Candidates<Op> all =
        Feasible(Validate(desc).value(), registry, machine_->early.device->spec());
    std::vector<const Candidate<Op>*> candidates;
    for (const Candidate<Op>& candidate : all.all()) {
      if (candidate.feasible() && candidate.kernel->name().starts_with(family + "."))
        candidates.push_back(&candidate);
    }
    if (candidates.empty()) return false;
    for (const Candidate<Op>* one : std::set{candidates.front(), candidates.back()}) {
      const std::string name(one->kernel->name());
      SCOPED_TRACE(name + " for " + KeyOf(desc));
      Pins pins;
      pins.by_problem[{std::string(Op::kName), KeyOf(desc)}] = {name, SpecText(one->specs[0])};
      const auto choice = Choose(all, nullptr, &pins).value();
      Gpu& early = machine_->early;
      Gpu& in_turn = machine_->in_turn;
      const auto early_plan = Bind(choice, *early.device);
      const auto plan = Bind(choice, *in_turn.device);
      EXPECT_TRUE(early_plan && plan) << "no plan";
      if (!early_plan || !plan) continue;
      const std::vector<std::byte> want = Run<Op>(in_turn, *plan, make, false);
      EXPECT_TRUE(Run<Op>(early, *early_plan, make, false) == want) << "eager";
      EXPECT_TRUE(Run<Op>(early, *early_plan, make, true) == want) << "as a graph";
    }
    return true;
  }

  /// For calls in arenas.
  template <class Op>
  static void ExpectSameBits(const std::string& family, const OpRegistry<Op>& registry,
                             const std::vector<test::ArenaCase<typename Op::Args>>& calls) {
    // The first and the last: the cases of one list differ in sizes and alignment.
    for (const std::size_t i : std::set<std::size_t>{0, calls.size() - 1}) {
      const auto& one = calls[i];
      SCOPED_TRACE(one.name);
      const auto make = [&](Device& device) {
        Call<Op> call;
        call.late.emplace_back(device, one.arena.base(), one.arena.size());
        call.args = one.At(call.late.front().data());
        return call;
      };
      EXPECT_TRUE(
          ExpectSameBits<Op>(family, registry, DescOf(one.args, CallTerms{}).value(), make));
    }
  }
};

constexpr DataType kF32 = DataType::kF32, kBF16 = DataType::kBF16, kNone = DataType::kNone;

TEST_F(DependentLaunchGpu, AKernelThatDoesNotWaitReadsWhatWasThereBefore) {
  const std::vector<std::byte> contents(4096, std::byte{7});
  const std::vector<std::byte> nothing(4096, std::byte{0xff});
  for (Gpu* gpu : {&machine_->early, &machine_->in_turn}) {
    Device& device = *gpu->device;
    const Stream stream = device.default_stream();
    Late input(device, contents.data(), contents.size());
    Late output(device, contents.data(), contents.size());
    const LateWriter::Range ranges[] = {input.range()};
    ASSERT_TRUE(input.Poison() && output.Poison());
    ASSERT_TRUE(gpu->writer->Queue(ranges, stream));
    ASSERT_TRUE(gpu->writer->QueueCareless({input.data(), output.data(), contents.size()}, stream));
    EXPECT_EQ(output.Read() == nothing, gpu == &machine_->early);
    EXPECT_EQ(output.Read() == contents, gpu == &machine_->in_turn);
    EXPECT_TRUE(input.Read() == contents);
  }
}

// A test for each family: the recording of sanitizers (bench/record/record_sanitizers.py) runs them
// one by one.

TEST_F(DependentLaunchGpu, rmsnorm) {
  ExpectSameBits("rmsnorm", machine_->norm, norm::CudaCases(kF32, kF32, kF32, kF32));
  ExpectSameBits("rmsnorm", machine_->norm, norm::CudaCases(kBF16, kF32, kNone, kBF16));
}

TEST_F(DependentLaunchGpu, rope) {
  ExpectSameBits("rope", machine_->rope, rope::CudaCases(kBF16, kBF16));
}

TEST_F(DependentLaunchGpu, rope_kv) {
  ExpectSameBits("rope_kv", machine_->rope, rope::CudaKvCases(kBF16, kBF16));
}

TEST_F(DependentLaunchGpu, kv_scatter) {
  ExpectSameBits("kv_scatter", machine_->kv_scatter, kv_scatter::CudaCases(kF32, kBF16));
}

TEST_F(DependentLaunchGpu, elementwise) {
  using elementwise::Function;
  ExpectSameBits("elementwise", machine_->elementwise,
                 elementwise::CudaCases(Function::kSwiGlu, kBF16, kBF16, kBF16));
  ExpectSameBits("elementwise", machine_->elementwise,
                 elementwise::CudaCases(Function::kAdd, kF32, kF32, kF32));
}

TEST_F(DependentLaunchGpu, copy) {
  ExpectSameBits("copy", machine_->copy, copy::CudaCases(kF32, kBF16));
  ExpectSameBits("copy", machine_->copy, copy::CudaCases(DataType::kQ4_K, kBF16));
  ExpectSameBits("copy", machine_->copy, copy::CudaCases(DataType::kQ5_K, kBF16));
  ExpectSameBits("copy", machine_->copy, copy::CudaCases(DataType::kI32, DataType::kI32));
}

TEST_F(DependentLaunchGpu, embedding) {
  ExpectSameBits("embedding", machine_->embedding, embedding::CudaCases(DataType::kQ8_0, kBF16));
  ExpectSameBits("embedding", machine_->embedding, embedding::CudaCases(DataType::kQ3_K, kBF16));
  ExpectSameBits("embedding", machine_->embedding, embedding::CudaCases(kBF16, kBF16));
}

TEST_F(DependentLaunchGpu, top_k) {
  std::vector<test::ArenaCase<top_k::Args>> calls;  // several CTAs a row, which count
  calls.push_back(top_k::MakeCase(kF32, {9000, 3, 1}, false, 1));
  calls.push_back(top_k::MakeCase(kBF16, {9000, 3, 40}, true, 2));
  ExpectSameBits("top_k", machine_->top_k, calls);
}

class DependentAttentionGpu : public DependentLaunchGpu,
                              public testing::WithParamInterface<const char*> {};

TEST_P(DependentAttentionGpu, waits) {
  using attention::Batch;
  for (const int page_size : {0, 64}) {
    attention::BatchCase c{.q = kBF16, .kv = kBF16, .heads = 8, .kv_heads = 2, .head_dim = 128};
    c.context = 600, c.sequences = 2, c.page_size = page_size;
    c.positions = {555, -1, 17}, c.slots = {0, 0, 1};
    attention::AddRows(c, 1, 18, 20);
    Batch batch(c, 3);
    const std::vector<std::byte> nothing(batch.OutBytes(), std::byte{0xff});
    const auto make = [&](Device& device) {
      Call<attention::Op> call;
      const auto add = [&](const void* from, std::size_t bytes) {
        call.late.emplace_back(device, from, bytes);
        return call.late.back().data();
      };
      const auto ints = [&](const std::vector<std::int32_t>& values) {
        return values.empty() ? nullptr : add(values.data(), values.size() * sizeof values[0]);
      };
      call.args = batch.ArgsAt(
          {add(batch.q().data(), batch.q().size()), add(batch.k().data(), batch.k().size()),
           add(batch.v().data(), batch.v().size()), ints(batch.positions()), ints(batch.slots()),
           ints(batch.pages()), add(nothing.data(), nothing.size())});
      return call;
    };
    const auto desc = attention::DescOf(batch.ArgsAt(batch.Host(batch.q().data())), {}).value();
    EXPECT_TRUE(ExpectSameBits<attention::Op>(GetParam(), machine_->attention, desc, make));
  }
}

/// One row, whose key and value go into the caches; every kernel that turns rows waits, the first
/// and the last are launched.
TEST_F(DependentLaunchGpu, attention_decode_turns) {
  for (const int page_size : {0, 64}) {
    for (const int head_dim : {64, 128}) {
      attention::BatchCase c{.q = kBF16, .kv = kBF16, .heads = 8, .kv_heads = 2};
      c.head_dim = head_dim, c.context = 600, c.sequences = 2, c.page_size = page_size;
      c.positions = {555}, c.slots = {1};
      attention::NewRowBatch rows(c, {RopeMode::kHalfSplit, head_dim}, 3);
      attention::Batch& batch = rows.batch();
      const std::vector<std::byte> nothing(batch.OutBytes(), std::byte{0xff});
      const auto make = [&](Device& device) {
        Call<attention::Op> call;
        const auto add = [&](const void* from, std::size_t bytes) {
          call.late.emplace_back(device, from, bytes);
          return call.late.back().data();
        };
        const auto ints = [&](const std::vector<std::int32_t>& values) {
          return values.empty() ? nullptr : add(values.data(), values.size() * sizeof values[0]);
        };
        call.args = rows.ArgsAt(
            {add(batch.q().data(), batch.q().size()), add(batch.k().data(), batch.k().size()),
             add(batch.v().data(), batch.v().size()), ints(batch.positions()), ints(batch.slots()),
             ints(batch.pages()), add(nothing.data(), nothing.size())},
            {add(rows.k().data(), rows.k().size()), add(rows.v().data(), rows.v().size()),
             nullptr});
        return call;
      };
      const auto desc = attention::DescOf(rows.HostArgs(batch.q().data()), {}).value();
      EXPECT_TRUE(
          ExpectSameBits<attention::Op>("attention_decode", machine_->attention, desc, make));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DependentAttentionGpu,
                         testing::Values("attention_split", "attention_decode", "attention_mma",
                                         "attention_hopper", "attention_simt"),
                         [](const auto& family) { return std::string(family.param); });

std::vector<std::byte> RandomBytes(DataType type, std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(BytesOf(type, count));
  if (GetTypeInfo(type).block_quantised) {
    RandomBlocks(type, count / GetTypeInfo(type).block_elements, random, bytes.data());
    return bytes;
  }
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random.Below(2001)) / 1000 - 1;
  EXPECT_TRUE(EncodeRow(type, values.data(), count, bytes.data()));
  return bytes;
}

/// Of a product whose B is constant, or as late as the rest.
Call<GemmOp> Product(Device& device, const GemmDesc& desc, bool constant_b) {
  const std::int64_t m = desc.m, n = desc.n, k = desc.k;
  Call<GemmOp> call;
  GemmArgs& args = call.args;
  const auto late = [&](const std::vector<std::byte>& bytes) {
    call.late.emplace_back(device, bytes.data(), bytes.size());
    return call.late.back().data();
  };
  args.a = late(RandomBytes(desc.type_a, m * k, 1));
  const auto weights = [&](const std::vector<std::byte>& bytes) -> const void* {
    if (!constant_b) return late(bytes);
    DeviceMemory& memory = call.constant.emplace_back(device.Allocate(bytes.size()).value());
    EXPECT_TRUE(device.Upload(memory.data(), bytes.data(), bytes.size(), device.default_stream()));
    EXPECT_TRUE(device.Synchronize(device.default_stream()));
    return memory.data();
  };
  args.b = weights(RandomBytes(desc.type_b, n * k, 2));
  args.constant_b = constant_b;
  if (desc.prologue != Prologue::kNone) {
    args.prologue = desc.prologue;
    args.norm = weights(RandomBytes(desc.type_norm, k, 4));
    args.type_norm = desc.type_norm;
    args.epsilon = 1e-5f;
  }
  args.d = late(std::vector<std::byte>(BytesOf(desc.type_c, m * n), std::byte{0xff}));
  args.a_layout = {desc.type_a, Order::kRowMajor, desc.m, desc.k, k};
  args.b_layout = {desc.type_b, Order::kColMajor, desc.k, desc.n, k};
  args.d_layout = {desc.type_c, Order::kRowMajor, desc.m, desc.n, n};
  args.c_layout = args.d_layout;
  if (desc.scaling != Scaling::kOneZero) {
    args.c = late(RandomBytes(desc.type_c, m * n, 3));
    args.beta = 1;
  }
  return call;
}

std::vector<std::string> ProductFamilies() {
  KernelFamilies families;
  EXPECT_TRUE(AddGemmFamilies(families) && AddGemvFamilies(families) && AddGemmQFamily(families) &&
              AddGemmQwFamily(families) && AddGemmQrFamily(families));
  std::vector<std::string> names;
  for (const KernelFamily& family : families.all()) names.emplace_back(family.name.view());
  return names;
}

class DependentProductGpu : public DependentLaunchGpu,
                            public testing::WithParamInterface<std::string> {};

TEST_P(DependentProductGpu, waits) {
  struct Problem {
    int m, n, k;
    DataType weights;
    bool norm = false;
  };
  int ran = 0;
  // Small enough for racecheck, deep enough to fill a ring of stages twice.
  for (const Problem& p :
       {Problem{1, 200, 2048, kBF16}, Problem{3, 100, 520, kBF16}, Problem{130, 256, 192, kBF16},
        Problem{17, 100, 2048, kBF16},  // tiles that CTAs share
        Problem{1, 100, 4096, DataType::kQ4_K}, Problem{2, 100, 4096, DataType::kQ4_K, true},
        Problem{1, 300, 768, DataType::kQ8_0, true}, Problem{1, 100, 4096, DataType::kQ8_0},
        Problem{9, 64, 2048, DataType::kQ8_0}, Problem{1, 100, 4096, DataType::kQ2_K},
        Problem{1, 100, 4096, DataType::kIQ4_XS, true}, Problem{9, 64, 2048, DataType::kQ3_K}}) {
    for (const bool constant_b : {true, false}) {
      GemmDesc desc;
      desc.m = p.m, desc.n = p.n, desc.k = p.k;
      desc.type_a = desc.type_c = kBF16, desc.type_b = p.weights;
      desc.align_a = desc.align_b = desc.align_c = 4;
      desc.scaling = constant_b || p.norm ? Scaling::kOneZero : Scaling::kOneOne;
      if (p.norm) {
        desc.prologue = Prologue::kRmsNorm;
        desc.type_norm = kF32;
        desc.align_norm = 4;
      }
      SCOPED_TRACE(constant_b ? "constant weights" : "weights as late as the rest, and C read");
      const auto make = [&](Device& device) { return Product(device, desc, constant_b); };
      if (ExpectSameBits<GemmOp>(GetParam(), machine_->gemm, desc, make)) ++ran;
    }
  }
  EXPECT_GE(ran, 2);
}

INSTANTIATE_TEST_SUITE_P(Families, DependentProductGpu, testing::ValuesIn(ProductFamilies()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace tilewright::cuda
