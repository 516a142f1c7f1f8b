// Kernels that are compiled at run time as candidates: chosen, compiled, loaded and launched
// through the stages. The compiler makes images without code, and the GPU is the fake one, which
// computes on the host what a parameter block says (host_kernels.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "core/numeric.h"
#include "cuda_device_fixture.h"
#include "elf_compiler.h"
#include "engine/bind_next.h"
#include "engine/stage_templates.h"
#include "host_kernels.h"
#include "library/probe.h"
#include "ops/gemm/base/gemm_op.h"
#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemm_qr/families.h"
#include "ops/gemm/cuda/gemm_qw/families.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/grouped/families.h"
#include "ops/gemm/cuda/kernels/kernels.h"
#include "ops/norm/cuda/families.h"
#include "ops/norm/cuda/kernels.h"
#include "tilewright/gemm_stages.h"
#include "tilewright/norm.h"

namespace tilewright::cuda {
namespace {

using ::testing::HasSubstr;

constexpr CudaArch kHopper{90, 'a'};

class CompiledKernels : public CudaDeviceTest {
 protected:
  CompiledKernels() {
    KernelFamilies families;
    EXPECT_TRUE(AddGemmFamilies(families));
    EXPECT_TRUE(AddGemvFamilies(families));
    EXPECT_TRUE(AddGemmQFamily(families));
    EXPECT_TRUE(AddGemmQwFamily(families));
    EXPECT_TRUE(AddGemmQrFamily(families));
    EXPECT_TRUE(AddGroupedFamilies(families));
    EXPECT_TRUE(AddNormFamilies(families));
    store_ = test::OpenFake(test::FakeOptions(folder_.path(), compiler_), families);
    EXPECT_TRUE(AddCudaGemm(gemm_, *store_, kHopper));
    EXPECT_TRUE(norm::AddCudaKernels(norm_, *store_, kHopper));
    device_ = Make();
  }

  /// `bytes` of device memory with these values in them.
  DeviceMemory Upload(const std::vector<float>& values, DataType type) {
    std::vector<std::uint16_t> halves;
    const void* from = values.data();
    if (type == DataType::kBF16) {
      for (const float value : values) halves.push_back(F32ToBF16(value));
      from = halves.data();
    }
    const std::size_t bytes = BytesOf(type, static_cast<std::int64_t>(values.size()));
    DeviceMemory memory = device_->Allocate(bytes).value();
    EXPECT_TRUE(device_->Upload(memory.data(), from, bytes, stream()));
    EXPECT_TRUE(device_->Synchronize(stream()));
    return memory;
  }
  std::vector<float> Download(const DeviceMemory& memory, std::size_t count) {
    std::vector<float> values(count);
    EXPECT_TRUE(device_->Download(values.data(), memory.data(), count * 4, stream()));
    EXPECT_TRUE(device_->Synchronize(stream()));
    return values;
  }
  Stream stream() { return device_->default_stream(); }

  test::TemporaryFolder folder_;
  std::function<std::optional<CompileFailure>(const CompileJob&)> refuses_;
  std::shared_ptr<ElfCompiler> compiler_ =
      std::make_shared<ElfCompiler>(test::FakeCompiler::Options{
          .fails = [this](const CompileJob& job) -> std::optional<CompileFailure> {
            if (refuses_) return refuses_(job);
            return std::nullopt;
          }});
  std::unique_ptr<ArtifactStore> store_;
  Registry gemm_;
  norm::Registry norm_;
  std::unique_ptr<Device> device_;
};

/// Whole numbers: every sum of their products is exact in f32 and their bf16 are themselves.
std::vector<float> Values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 17) - 8);
  return values;
}

GemmDesc Problem(int m, int n, int k, DataType a, DataType b, DataType d) {
  GemmDesc desc;
  desc.m = m, desc.n = n, desc.k = k;
  desc.type_a = a, desc.type_b = b, desc.type_c = d;
  desc.align_a = desc.align_b = desc.align_c = 4;
  return desc;
}

GemmCandidates Look(const Registry& registry, const GemmDesc& desc, const DeviceSpec& device) {
  return Feasible(Validate(desc).value(), registry, device);
}

TEST_F(CompiledKernels, AreTheCatalogByNameAndRequestKey) {
  std::vector<KernelSpec> specs = store_->families().Catalog(kHopper);
  for (const KernelSpec& spec : specs) {
    const std::string name = SpecName(spec);
    const KernelBase* kernel = gemm_.Find(name);
    if (kernel == nullptr) kernel = norm_.Find(name);
    ASSERT_NE(kernel, nullptr) << name;
    const KernelHandle compiled = store_->Compile(spec).value();
    EXPECT_EQ(kernel->info().fingerprint, compiled->request.Hex());
    EXPECT_EQ(kernel->info().smem_bytes, compiled->launch.dynamic_smem_bytes);
    EXPECT_EQ(kernel->info().device, DeviceKind::kCuda);
  }
  EXPECT_EQ(gemm_.kernels().size() + norm_.kernels().size(), specs.size());
  EXPECT_GT(gemm_.kernels().size(), 150u);
}

TEST_F(CompiledKernels, OfAnotherChipAreInfeasible) {
  DeviceSpec ampere = device_->spec();
  ampere.compute_capability = 80;
  const GemmCandidates all =
      Look(gemm_, Problem(64, 64, 64, DataType::kBF16, DataType::kBF16, DataType::kBF16), ampere);
  EXPECT_EQ(all.feasible_count(), 0);
  EXPECT_THAT(all.all()[0].rejection->ToString(),
              HasSubstr("compute capability 8.0, needs one that runs code for sm_90a"));
  DeviceSpec small = device_->spec();
  small.smem_bytes = 48 << 10;
  const auto desc = Problem(64, 64, 64, DataType::kBF16, DataType::kBF16, DataType::kBF16);
  const GemmCandidates fewer = Look(gemm_, desc, small);
  for (const auto& candidate : fewer.all()) {
    if (candidate.feasible()) {
      EXPECT_LE(candidate.kernel->info().smem_bytes, 48 << 10);
    }
  }
}

TEST_F(CompiledKernels, TakeNoProblemThatPromisesLessAlignmentThanTheyNeed) {
  const auto feasible = [&](const GemmDesc& desc, std::string_view family) {
    int count = 0;
    const GemmCandidates all = Look(gemm_, desc, device_->spec());
    for (const auto& candidate : all.all()) {
      if (!candidate.kernel->name().starts_with(family)) continue;
      if (candidate.feasible()) ++count;
      const bool aligned =
          !candidate.rejection || candidate.rejection->reason != Reason::kAlignment;
      if (desc.align_a >= 4 && desc.align_b >= 4) {
        EXPECT_TRUE(aligned);
      }
    }
    return count;
  };
  GemmDesc plain = Problem(64, 64, 64, DataType::kBF16, DataType::kBF16, DataType::kBF16);
  EXPECT_GT(feasible(plain, "gemm_hopper"), 0);
  for (const auto& [a, b] : {std::pair{3, 4}, {4, 3}, {0, 0}}) {
    plain.align_a = static_cast<std::uint8_t>(a), plain.align_b = static_cast<std::uint8_t>(b);
    EXPECT_EQ(feasible(plain, "gemm_hopper"), 0) << a << ", " << b;
    EXPECT_GT(feasible(plain, "gemm_mma"), 0);
  }
  // A block of q4_K is 144 bytes, of q8_0 34: rows are multiples of 16 and of 2 bytes.
  GemmDesc blocks = Problem(1, 64, 256, DataType::kF32, DataType::kQ4_K, DataType::kF32);
  EXPECT_GT(feasible(blocks, "gemv_q"), 0);
  blocks.align_b = 3;
  EXPECT_EQ(feasible(blocks, "gemv_q"), 0);
  blocks.type_b = DataType::kQ8_0, blocks.align_b = 1;
  EXPECT_GT(feasible(blocks, "gemv_q"), 0);
  EXPECT_GT(feasible(blocks, "gemv_int8"), 0);
  blocks.align_a = 3;  // rows of x are aligned to four floats
  EXPECT_EQ(feasible(blocks, "gemv_q"), 0);
  EXPECT_EQ(feasible(blocks, "gemv_int8"), 0);
  blocks.align_a = 4, blocks.k = 250;
  EXPECT_FALSE(Validate(blocks)) << "no whole blocks";
}

TEST_F(CompiledKernels, EveryFeasibleProductLaunchesAndNoneFails) {
  constexpr int kM = 5, kN = 64, kK = 48;
  const auto run = [&](GemmDesc desc, float alpha, float beta) {
    const std::vector<float> a = Values(kM * kK, 1), b = Values(kN * kK, 2), c = Values(kM * kN, 3);
    const DeviceMemory dev_a = Upload(a, desc.type_a), dev_b = Upload(b, desc.type_b);
    GemmArgs args{.alpha = alpha, .beta = beta, .a = dev_a.data(), .b = dev_b.data()};
    const bool t = desc.order_a == Order::kRowMajor, n = desc.order_b == Order::kColMajor;
    args.a_layout = {desc.type_a, desc.order_a, kM, kK, t ? kK : kM};
    args.b_layout = {desc.type_b, desc.order_b, kK, kN, n ? kK : kN};
    args.d_layout = args.c_layout = {desc.type_c, Order::kRowMajor, kM, kN, kN};
    HostKernels host{desc.type_a, desc.type_b, desc.type_c, t, n};
    fake_.SetKernels(host);
    std::map<std::string, int> families;
    const GemmCandidates all = Look(gemm_, desc, device_->spec());
    for (const auto& candidate : all.all()) {
      if (!candidate.feasible()) continue;
      Pins pins;
      pins.by_problem[{"gemm", KeyOf(desc)}] = {std::string(candidate.kernel->name()),
                                                SpecText(candidate.specs[0])};
      const auto plan = Bind(Choose(all, nullptr, &pins).value(), *device_);
      ASSERT_TRUE(plan) << plan.error().message;
      const DeviceMemory d = Upload(c, desc.type_c);
      args.c = args.d = d.data();
      Workspace none;
      const Status ran = tilewright::Run(*plan, args, none, stream());
      ASSERT_TRUE(ran) << ran.error().message;
      std::vector<float> got = Download(d, kM * kN / (desc.type_c == DataType::kF32 ? 1 : 2));
      for (std::size_t i = 0; i < kM * kN; ++i) {
        double want = beta * c[i];
        for (std::size_t l = 0; l < kK; ++l) {
          want += alpha * a[t ? i / kN * kK + l : l * kM + i / kN] *
                  b[n ? i % kN * kK + l : l * kN + i % kN];
        }
        const auto* halves = reinterpret_cast<const std::uint16_t*>(got.data());
        const float value = desc.type_c == DataType::kF32 ? got[i] : BF16ToF32(halves[i]);
        const float rounded = desc.type_c == DataType::kF32
                                  ? static_cast<float>(want)
                                  : BF16ToF32(F32ToBF16(static_cast<float>(want)));
        ASSERT_EQ(value, rounded) << candidate.kernel->name() << " at " << i;
      }
      ++families[std::string(
          candidate.kernel->name().substr(0, candidate.kernel->name().find('.')))];
    }
    std::string ran;
    for (const auto& [family, count] : families) ran += family + " ";
    EXPECT_EQ(ran.find("gemm_mma") != std::string::npos, desc.type_a == DataType::kBF16);
    EXPECT_EQ(ran.find("gemv_bf16") != std::string::npos, t && n) << KeyOf(desc);
  };
  const auto kBF16 = DataType::kBF16;
  GemmDesc desc = Problem(kM, kN, kK, kBF16, kBF16, kBF16);
  run(desc, 1, 0);
  desc.scaling = Scaling::kOneOne;
  run(desc, 1, 1);
  desc.scaling = Scaling::kAny;
  run(desc, 0.5f, 2);
  run(Problem(kM, kN, kK, DataType::kF32, kBF16, DataType::kF32), 1, 0);
  desc = Problem(kM, kN, kK, kBF16, kBF16, kBF16);
  desc.order_b = Order::kRowMajor;
  run(desc, 1, 0);
  // A column-major A has lines of five: nobody promises that TMA can read them.
  desc.order_a = Order::kColMajor, desc.align_a = 1;
  run(desc, 1, 0);
}

TEST_F(CompiledKernels, AreCompiledAndLoadedOnceHoweverOftenTheyAreBound) {
  const GemmDesc desc = Problem(1, 64, 64, DataType::kF32, DataType::kBF16, DataType::kF32);
  const GemmCandidates all = Look(gemm_, desc, device_->spec());
  EXPECT_EQ(compiler_->compiles(), 0) << "looking compiles nothing";
  const auto choice = Choose(all, nullptr).value();
  ASSERT_TRUE(Bind(choice, *device_));
  ASSERT_TRUE(Bind(choice, *device_));
  EXPECT_EQ(compiler_->compiles(), 1);
  EXPECT_EQ(fake_.calls("cuModuleLoadDataEx"), 1u);
}

TEST_F(CompiledKernels, ThatCannotBePreparedAreReplacedUnlessTheGpuIsLost) {
  const GemmDesc desc = Problem(1, 64, 64, DataType::kF32, DataType::kBF16, DataType::kF32);
  const auto checked = Validate(desc).value();
  const std::string best(
      Choose(Look(gemm_, desc, device_->spec()), nullptr).value().kernel().name());
  const auto get = [&] {
    BindFailures failures;  // of another process
    return BindNext(checked, gemm_, *device_, BindTerms<GemmOp>{}, failures,
                    [](const auto&) { return Status(); });
  };
  // The compiler refuses the first kernel that it gets, whoever asks.
  std::string refused;
  refuses_ = [&](const CompileJob& job) -> std::optional<CompileFailure> {
    if (refused.empty()) refused = job.symbol;
    if (job.symbol != refused) return std::nullopt;
    return CompileFailure{true, {ErrorCode::kUnsupported, "error: no such instruction"}, "log"};
  };
  auto plan = get();
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_NE(plan->kernel().name(), best);
  EXPECT_FALSE(refused.empty());
  refuses_ = nullptr;

  const std::string next(plan->kernel().name());
  for (const char* call : {"cuModuleLoadDataEx", "cuModuleGetFunction",
                           "cuOccupancyMaxActiveBlocksPerMultiprocessor"}) {
    device_ = Make();  // modules that are loaded stay
    fake_.AnswerNext(call, CUDA_ERROR_INVALID_IMAGE);
    plan = get();
    ASSERT_TRUE(plan) << call << ": " << plan.error().message;
    EXPECT_NE(plan->kernel().name(), next) << call << ": " << best << " is refused for a day";
  }

  device_ = Make();
  fake_.AnswerNext("cuModuleLoadDataEx", CUDA_ERROR_ILLEGAL_ADDRESS);
  fake_.StartCounting();
  plan = get();
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("is lost, nothing runs on it any more"));
  EXPECT_EQ(fake_.calls("cuModuleLoadDataEx"), 1u) << "no other kernel is tried on it";
}

TEST_F(CompiledKernels, RefuseADeviceOfAnotherKindAndArgumentsThatBreakAPromise) {
  const GemmDesc desc = Problem(64, 64, 64, DataType::kBF16, DataType::kBF16, DataType::kBF16);
  const GemmCandidates all = Look(gemm_, desc, device_->spec());
  const GemmCandidate* hopper = nullptr;
  for (const auto& candidate : all.all()) {
    if (candidate.feasible() && candidate.kernel->name().starts_with("gemm_hopper")) {
      hopper = &candidate;
    }
  }
  ASSERT_NE(hopper, nullptr);
  Pins pins;
  const std::string name(hopper->kernel->name());
  pins.by_problem[{"gemm", KeyOf(desc)}] = {name, SpecText(hopper->specs[0])};
  const auto choice = Choose(all, nullptr, &pins).value();
  const auto on_cpu = Bind(choice, HostDevice());
  ASSERT_FALSE(on_cpu);
  EXPECT_EQ(on_cpu.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(on_cpu.error().message, HasSubstr(name + ": compiled for sm_90a: cpu/"));

  const auto plan = Bind(choice, *device_).value();
  const DeviceMemory memory = device_->Allocate(1 << 16).value();
  GemmArgs args{.a = memory.as<char>() + 8, .b = memory.data(), .d = memory.as<char>() + (1 << 15)};
  args.a_layout = {DataType::kBF16, Order::kRowMajor, 64, 64, 64};
  args.b_layout = {DataType::kBF16, Order::kColMajor, 64, 64, 64};
  args.d_layout = args.a_layout;
  Workspace none;
  const Status refused = tilewright::Run(plan, args, none, stream());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr(name + " for m=64 n=64 k=64"));
  EXPECT_THAT(refused.error().message, HasSubstr("alignment: A at 0x"));
  EXPECT_EQ(fake_.calls("cuLaunchKernelEx"), 0u);
}

TEST_F(CompiledKernels, ALaunchAllocatesAndLocksNothing) {
  if (!test::ProbeWorks()) GTEST_SKIP() << "a sanitizer has its own malloc";
  const DeviceMemory memory = device_->Allocate(1 << 20).value();
  const auto check = [&](const GemmDesc& desc, std::string_view family) {
    const GemmCandidates all = Look(gemm_, desc, device_->spec());
    for (const auto& candidate : all.all()) {
      if (!candidate.feasible() || !candidate.kernel->name().starts_with(family)) continue;
      Pins pins;
      pins.by_problem[{"gemm", KeyOf(desc)}] = {std::string(candidate.kernel->name()),
                                                SpecText(candidate.specs[0])};
      const auto plan = Bind(Choose(all, nullptr, &pins).value(), *device_).value();
      GemmArgs args{.a = memory.data(),
                    .b = memory.as<char>() + (1 << 18),
                    .d = memory.as<char>() + (1 << 19)};
      args.a_layout = {desc.type_a, Order::kRowMajor, desc.m, desc.k, desc.k};
      args.b_layout = {desc.type_b, Order::kColMajor, desc.k, desc.n, desc.k};
      args.d_layout = {desc.type_c, Order::kRowMajor, desc.m, desc.n, desc.n};
      Workspace none;
      ASSERT_TRUE(tilewright::Run(plan, args, none, stream()));  // encodes the tensor maps
      ASSERT_TRUE(device_->Synchronize(stream()));
      fake_.SetMute(true);
      test::StartProbe();
      for (int i = 0; i < 10; ++i) static_cast<void>(tilewright::Run(plan, args, none, stream()));
      const test::ProbeCounts counts = test::StopProbe();
      fake_.SetMute(false);
      EXPECT_EQ(counts.allocations, 0) << candidate.kernel->name();
      EXPECT_EQ(counts.locks, 0) << candidate.kernel->name();
      EXPECT_EQ(counts.environment, 0);
      return;
    }
    ADD_FAILURE() << "no feasible kernel of " << family;
  };
  const auto kBF16 = DataType::kBF16;
  check(Problem(64, 64, 64, kBF16, kBF16, kBF16), "gemm_hopper");
  check(Problem(64, 64, 64, kBF16, kBF16, kBF16), "gemm_mma");
  check(Problem(1, 64, 64, DataType::kF32, kBF16, DataType::kF32), "gemv_bf16");
  check(Problem(1, 64, 64, kBF16, kBF16, kBF16), "gemv_stream");
  check(Problem(1, 64, 256, DataType::kF32, DataType::kQ4_K, DataType::kF32), "gemv_q");
  check(Problem(1, 64, 256, kBF16, DataType::kQ4_K, kBF16), "gemv_int8");
}

TEST_F(CompiledKernels, ALaunchWhoseArgumentsAreBoundIsOnlyQueued) {
  if (!test::ProbeWorks()) GTEST_SKIP() << "a sanitizer has its own malloc";
  constexpr int kSize = 64;
  const GemmDesc desc =
      Problem(kSize, kSize, kSize, DataType::kBF16, DataType::kBF16, DataType::kF32);
  const GemmCandidates all = Look(gemm_, desc, device_->spec());
  int kinds = 0;
  std::string family;
  for (const auto& candidate : all.all()) {
    const std::string name(candidate.kernel->name());
    if (!candidate.feasible() || name.substr(0, name.find('.')) == family) continue;
    family = name.substr(0, name.find('.'));
    SCOPED_TRACE(name);
    ++kinds;
    Pins pins;
    pins.by_problem[{"gemm", KeyOf(desc)}] = {name, SpecText(candidate.specs[0])};
    const auto plan = Bind(Choose(all, nullptr, &pins).value(), *device_).value();
    const auto values = Values(kSize * kSize, 1), weights = Values(kSize * kSize, 2);
    const DeviceMemory a = Upload(values, DataType::kBF16), b = Upload(weights, DataType::kBF16);
    const DeviceMemory direct = device_->Allocate(kSize * kSize * 4).value();
    const DeviceMemory bound = device_->Allocate(kSize * kSize * 4).value();
    GemmArgs args{.a = a.data(), .b = b.data(), .d = direct.data()};
    args.a_layout = {DataType::kBF16, Order::kRowMajor, kSize, kSize, kSize};
    args.b_layout = {DataType::kBF16, Order::kColMajor, kSize, kSize, kSize};
    args.d_layout = {DataType::kF32, Order::kRowMajor, kSize, kSize, kSize};
    Workspace none;
    HostKernels types{DataType::kBF16, DataType::kBF16, DataType::kF32};
    fake_.SetKernels(types);
    ASSERT_TRUE(tilewright::Run(plan, args, none, stream()));
    args.d = bound.data();
    const auto ready = Stages<GemmOp>::Ready(plan, args, none);
    ASSERT_TRUE(ready) << ready.error().message;
    ASSERT_NE(*ready, nullptr);
    fake_.StartCounting();
    ASSERT_TRUE((*ready)->Launch(stream()));
    EXPECT_EQ(fake_.calls("cuTensorMapEncodeTiled"), 0u);
    EXPECT_EQ(fake_.calls("cuLaunchKernelEx"), 1u);
    EXPECT_EQ(Download(bound, kSize * kSize), Download(direct, kSize * kSize));
    fake_.SetMute(true);
    test::StartProbe();
    for (int i = 0; i < 10; ++i) static_cast<void>((*ready)->Launch(stream()));
    const test::ProbeCounts counts = test::StopProbe();
    fake_.SetMute(false);
    EXPECT_EQ(counts.allocations, 0);
    EXPECT_EQ(counts.locks, 0);
  }
  EXPECT_GE(kinds, 3) << "gemm_mma, gemm_hopper, gemm_simt and gemv_bf16 give f32";
}

TEST_F(CompiledKernels, ArgumentsThatBreakAPromiseAreRefusedWhenTheyAreBound) {
  const GemmDesc desc = Problem(1, 64, 256, DataType::kF32, DataType::kQ4_K, DataType::kF32);
  const auto plan =
      Bind(Choose(Look(gemm_, desc, device_->spec()), nullptr).value(), *device_).value();
  const DeviceMemory memory = device_->Allocate(1 << 16).value();
  GemmArgs args{.a = memory.data(), .b = memory.as<char>() + 2, .d = memory.as<char>() + (1 << 15)};
  args.a_layout = {DataType::kF32, Order::kRowMajor, 1, 256, 256};
  args.b_layout = {DataType::kQ4_K, Order::kColMajor, 256, 64, 256};
  args.d_layout = {DataType::kF32, Order::kRowMajor, 1, 64, 64};
  Workspace none;
  const auto refused = Stages<GemmOp>::Ready(plan, args, none);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("alignment: B at"));
}

/// The family that the model prefers on an H200.
TEST_F(CompiledKernels, TheModelKnowsTheRegimes) {
  const auto kBF16 = DataType::kBF16, kF32 = DataType::kF32, kQ4 = DataType::kQ4_K;
  const auto chosen = [&](const GemmDesc& desc) {
    const GemmCandidates all = Look(gemm_, desc, device_->spec());
    const auto choice = Choose(all, nullptr).value();
    const std::string_view name = choice.kernel().name();
    return std::string(name.substr(0, name.find('.')));
  };
  EXPECT_EQ(chosen(Problem(1, 4096, 4096, kBF16, kBF16, kBF16)), "gemv_stream");
  EXPECT_EQ(chosen(Problem(1, 4096, 14336, kF32, kQ4, kF32)), "gemv_int8");
  // Where activations must not be rounded so far.
  GemmDesc exact = Problem(1, 4096, 14336, kBF16, kQ4, kBF16);
  EXPECT_EQ(chosen(exact), "gemv_int8");
  exact.precision = Precision::kBF16;
  EXPECT_EQ(chosen(exact), "gemv_q");
  EXPECT_EQ(chosen(Problem(2048, 4096, 4096, kBF16, kBF16, kBF16)), "gemm_hopper");
  EXPECT_EQ(chosen(Problem(8192, 8192, 8192, kBF16, kBF16, kBF16)), "gemm_hopper");
  // Predictions lie between the floor of the bytes and a few times that.
  const GemmDesc desc = Problem(1, 14336, 4096, kBF16, kBF16, kBF16);
  const auto choice = Choose(Look(gemm_, desc, device_->spec()), nullptr).value();
  const double floor_us = 14336.0 * 4096 * 2 / (device_->spec().read_gb_s * 1e3);
  EXPECT_GT(choice.spec().predicted_us, floor_us);
  EXPECT_LT(choice.spec().predicted_us, 3 * floor_us);
}

class CompiledNorms : public CompiledKernels {
 protected:
  /// Every feasible kernel on `in` and `out`, views of the same shape; the launches of one of them.
  std::size_t Launches(norm::Args args) {
    const norm::Desc desc = norm::DescOf(args, {}).value();
    const auto all = Feasible(norm::Validate(desc).value(), norm_, device_->spec());
    EXPECT_GT(all.feasible_count(), 0);
    const auto choice = Choose(all, nullptr).value();
    const auto plan = Bind(choice, *device_);
    EXPECT_TRUE(plan) << plan.error().message;
    const std::size_t before = fake_.calls("cuLaunchKernelEx");
    Workspace none;
    const Status ran = tilewright::Run(*plan, args, none, stream());
    EXPECT_TRUE(ran) << ran.error().message;
    EXPECT_TRUE(device_->Synchronize(stream()));
    return fake_.calls("cuLaunchKernelEx") - before;
  }
};

TEST_F(CompiledNorms, RowsAndGroupsOfRowsAreOneLaunch) {
  constexpr std::int64_t kCols = 64, kHeads = 3, kRows = 4, kLine = 500;
  fake_.SetKernels(HostKernels{});
  const std::vector<float> in = Values(kRows * kLine, 4), weight = Values(kCols, 5);
  const DeviceMemory dev_in = Upload(in, DataType::kF32),
                     dev_weight = Upload(weight, DataType::kF32);
  const DeviceMemory dev_out = device_->Allocate(kRows * kLine * 4).value();
  norm::Args args;
  args.weight = Contiguous(dev_weight.data(), DataType::kF32, {kCols, 1, 1, 1});
  args.out = Contiguous(dev_out.data(), DataType::kF32, {kCols, kHeads, kRows, 1});
  args.in = Contiguous(dev_in.data(), DataType::kF32, {kCols, kHeads, kRows, 1});
  const auto check = [&](std::int64_t head_stride, std::int64_t row_stride) {
    const std::vector<float> out = Download(dev_out, kCols * kHeads * kRows);
    for (std::int64_t r = 0; r < kRows * kHeads; ++r) {
      const auto from =
          static_cast<std::size_t>(r / kHeads * row_stride + r % kHeads * head_stride);
      double squares = 0;
      for (std::size_t c = 0; c < kCols; ++c) squares += double{in[from + c]} * in[from + c];
      for (std::size_t c = 0; c < kCols; ++c) {
        const double want = in[from + c] / std::sqrt(squares / kCols + 1e-5f) * weight[c];
        ASSERT_NEAR(out[static_cast<std::size_t>(r) * kCols + c], want, 1e-5) << r << ", " << c;
      }
    }
  };
  EXPECT_EQ(Launches(args), 1u);
  check(kCols, kCols * kHeads);
  // The heads of a projection that has other columns beside them.
  args.in.stride = {1, kCols, kLine, kLine * kRows};
  EXPECT_EQ(Launches(args), 1u);
  check(kCols, kLine);
  // Three distances.
  args.in.shape = args.out.shape = {kCols, kHeads, 2, kRows / 2};
  args.in.stride = {1, kCols, 200, kLine};
  args.out.stride = {1, kCols, kCols * kHeads, 2 * kCols * kHeads};
  EXPECT_EQ(Launches(args), static_cast<std::size_t>(kRows / 2));
}

TEST_F(CompiledNorms, WithAResidualWriteTheSumToo) {
  constexpr std::int64_t kCols = 64, kRows = 6;
  fake_.SetKernels(HostKernels{});
  const std::vector<float> in = Values(kRows * kCols, 6), residual = Values(kRows * kCols, 7);
  const std::vector<float> weight = Values(kCols, 8);
  const DeviceMemory dev_in = Upload(in, DataType::kF32),
                     dev_sum = Upload(residual, DataType::kF32);
  const DeviceMemory dev_weight = Upload(weight, DataType::kF32);
  const DeviceMemory dev_out = device_->Allocate(kRows * kCols * 4).value();
  norm::Args args;
  args.in = Contiguous(dev_in.data(), DataType::kF32, {kCols, 2, kRows / 2, 1});
  args.weight = Contiguous(dev_weight.data(), DataType::kF32, {kCols, 1, 1, 1});
  args.out = Contiguous(dev_out.data(), DataType::kF32, {kCols, 2, kRows / 2, 1});
  args.residual = args.sum = Contiguous(dev_sum.data(), DataType::kF32, {kCols, 2, kRows / 2, 1});
  EXPECT_EQ(Launches(args), 1u);
  const std::vector<float> out = Download(dev_out, kRows * kCols);
  const std::vector<float> sum = Download(dev_sum, kRows * kCols);
  for (std::size_t r = 0; r < kRows; ++r) {
    double squares = 0;
    for (std::size_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(sum[r * kCols + c], in[r * kCols + c] + residual[r * kCols + c]);
      squares += double{sum[r * kCols + c]} * sum[r * kCols + c];
    }
    for (std::size_t c = 0; c < kCols; ++c) {
      const double want = sum[r * kCols + c] / std::sqrt(squares / kCols + 1e-5f) * weight[c];
      ASSERT_NEAR(out[r * kCols + c], want, 1e-5);
    }
  }
}

TEST_F(CompiledNorms, TakeTheirTypesOnly) {
  norm::Desc desc{.rows = 2, .cols = 4096};
  const auto feasible = [&] {
    return Feasible(norm::Validate(desc).value(), norm_, device_->spec()).feasible_count();
  };
  EXPECT_GT(feasible(), 0);
  desc.type_in = desc.type_out = DataType::kBF16;
  EXPECT_GT(feasible(), 0);
  desc.type_out = DataType::kF32;
  EXPECT_GT(feasible(), 0);
  desc.type_out = DataType::kF16;
  EXPECT_EQ(feasible(), 0);
  desc.type_out = DataType::kBF16, desc.type_sum = DataType::kF32;
  EXPECT_GT(feasible(), 0) << "a residual stream of f32 beside activations of bf16";
  desc = {.rows = 2, .cols = 4096};
  const int plain = feasible();
  desc.type_sum = DataType::kF32;
  EXPECT_GT(feasible(), 0);
  desc.type_sum = DataType::kBF16;
  EXPECT_EQ(feasible(), 0) << "a sum of another type than in";
  desc.type_sum = DataType::kNone;
  EXPECT_EQ(feasible(), plain);
  desc = {.rows = 2, .cols = 2147483647};
  EXPECT_EQ(feasible(), 0);
}

}  // namespace
}  // namespace tilewright::cuda
