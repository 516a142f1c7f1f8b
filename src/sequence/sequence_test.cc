#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/formats/formats.h"
#include "ops/copy/copy.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gemm/base/fake_kernel.h"
#include "ops/gemm/base/gemm_op.h"
#include "ops/gemm/register.h"
#include "ops/gemm/test_problem.h"
#include "sequence/sequences.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {
namespace {

using test::CallOptions;
using test::TestProblem;
using ::testing::HasSubstr;
using ::testing::Not;

class SequenceTest : public testing::Test {
 protected:
  SequenceTest() {
    AddGemm(without_);
    AddGemm(gemm_);
    copy::AddKernels(copies_);
    elementwise::AddKernels(elementwise_);
    AddSequences(gemm_, copies_, elementwise_);
  }

  std::vector<Kernel*> Sequences(std::string_view flag) const {
    std::vector<Kernel*> found;
    for (Kernel* kernel : gemm_.kernels()) {
      if (IsSequence(kernel->info()) && kernel->name().ends_with(flag) &&
          !kernel->CheckDevice(device_))
        found.push_back(kernel);
    }
    return found;
  }
  /// Every launch that the stages offer; none, and why, where the kernel is not feasible.
  std::vector<LaunchSpec> SpecsOf(Kernel& kernel, const GemmDesc& desc,
                                  std::string* why = nullptr) {
    const auto candidates = Feasible(Validate(desc).value(), gemm_, device_);
    const GemmCandidate* candidate = candidates.Find(kernel.name());
    if (why != nullptr && candidate->rejection) *why = candidate->rejection->ToString();
    return candidate->specs;
  }

  copy::Registry copies_;
  elementwise::Registry elementwise_;
  Registry without_, gemm_;
  DeviceSpec device_ = DetectCpuCappedAt(Isa::kAmx);
};

GemmDesc Problem(DataType type, std::int32_t m, std::int32_t n, std::int32_t k) {
  GemmDesc desc;
  desc.m = m, desc.n = n, desc.k = k;
  desc.type_b = type;
  return desc;
}

TEST_F(SequenceTest, UnpackedWeightsGiveTheRightProductForEveryFormatAndEpilogue) {
  const std::vector<Kernel*> sequences = Sequences(".unpack");
  if (!device_.Has(kFeatureAvx2)) GTEST_SKIP() << "no AVX2";
  ASSERT_EQ(sequences.size(), 1u);
  const auto pool = MakeThreadPool(3);
  std::uint64_t seed = 0;
  for (const BlockFormat& format : kFormats) {
    for (const auto& [m, n, blocks, pad] :
         {std::tuple{1, 1, 1, 0}, {1, 64, 3, 1}, {5, 33, 2, 0}, {150, 96, 1, 2}}) {
      for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kGatedSilu}) {
        GemmDesc desc = Problem(format.type, m, n, blocks * format.elements);
        desc.epilogue = epilogue;
        desc.scaling = Scaling::kAny;
        if (epilogue == Epilogue::kGatedSilu && n % (2 * kGatedBlock) != 0) continue;
        TestProblem problem(
            desc,
            CallOptions{.alpha = 0.5f, .beta = 2, .pad_a = pad, .pad_b = pad, .seed = ++seed});
        const std::vector<LaunchSpec> specs = SpecsOf(*sequences[0], desc);
        ASSERT_FALSE(specs.empty()) << problem.Repro();
        for (const LaunchSpec& spec : specs) {
          ASSERT_EQ(problem.RunAndCheck(*sequences[0], spec, *pool), "") << SpecText(spec);
          const auto first = problem.ResultBytes();
          ASSERT_EQ(problem.Run(*sequences[0], spec, *pool), "");
          EXPECT_EQ(problem.ResultBytes(), first) << "a second run differs: " << SpecText(spec);
        }
      }
    }
  }
}

TEST_F(SequenceTest, AProductWithASumAfterItIsRightForEveryLayout) {
  const std::vector<Kernel*> sequences = Sequences(".add");
  ASSERT_GE(sequences.size(), 4u);
  const auto pool = MakeThreadPool(2);
  std::uint64_t seed = 100;
  for (Kernel* kernel : sequences) {
    for (int type = 0; type < kDataTypeCount; ++type) {
      const auto type_b = static_cast<DataType>(type);
      if ((kernel->desc().type_b & Bit(type_b)) == 0) continue;
      for (const bool c_is_d : {false, true}) {
        for (const int m : {1, 13}) {
          GemmDesc desc = Problem(type_b, m, 48, 256);
          desc.pack_b = kernel->desc().pack_b;
          desc.scaling = Scaling::kOneOne;
          if (kernel->desc().activations == Precision::kW8A8) desc.precision = Precision::kW8A8;
          GemmDesc plain = desc;
          plain.pack_b = kPackPlain;
          TestProblem problem(plain,
                              CallOptions{.beta = 1, .c_is_d = c_is_d, .pad_c = 3, .seed = ++seed});
          std::string why;
          const std::vector<LaunchSpec> specs = SpecsOf(*kernel, desc, &why);
          ASSERT_FALSE(specs.empty()) << kernel->name() << ": " << why;
          for (const LaunchSpec& spec : specs)
            ASSERT_EQ(problem.RunAndCheck(*kernel, spec, *pool), "") << SpecText(spec);
        }
      }
    }
  }
}

TEST_F(SequenceTest, TheStepsAreShownParsedAndNeverSequences) {
  int looked_at = 0;
  for (const Scaling scaling : {Scaling::kOneZero, Scaling::kOneOne}) {
    for (const std::int32_t m : {1, 300}) {
      GemmDesc desc = Problem(DataType::kQ4_1, m, 96, 64);
      desc.scaling = scaling;
      for (Kernel* kernel : gemm_.kernels()) {
        if (!IsSequence(kernel->info())) continue;
        for (const LaunchSpec& spec : SpecsOf(*kernel, desc)) {
          const std::string text = SpecText(spec);
          EXPECT_THAT(text, HasSubstr("gemm=gemm."));
          EXPECT_THAT(text, Not(HasSubstr(".sequence.")));
          const auto again = ParseSpec(text, kernel);
          ASSERT_TRUE(again) << text;
          EXPECT_EQ(*again, spec) << text;
          ++looked_at;
          for (const auto& [from, to] : {std::pair{"gemm=gemm.", "gemm=gone."},
                                         {"gemm=", "product="},
                                         {" gemm=", "  gemm="}}) {
            std::string wrong = text;
            wrong.replace(wrong.find(from), std::string_view(from).size(), to);
            EXPECT_FALSE(ParseSpec(wrong, kernel)) << wrong;
          }
          EXPECT_FALSE(ParseSpec(text + " more=1", kernel));
          EXPECT_FALSE(ParseSpec(text + "[x=1]", kernel));
          EXPECT_FALSE(ParseSpec("swizzle=0 splits=1", kernel));
        }
      }
    }
  }
  if (device_.Has(kFeatureAvx2)) {
    EXPECT_GE(looked_at, 6);
  }
}

TEST_F(SequenceTest, ItsPredictedTimeIsThatOfItsSteps) {
  if (!device_.Has(kFeatureAvx2)) GTEST_SKIP() << "no AVX2";
  Kernel& unpack = *Sequences(".unpack").at(0);
  const GemmDesc desc = Problem(DataType::kQ8_0, 20, 320, 256);
  GemmDesc inner = desc;
  inner.type_b = DataType::kF32;
  const auto products = Feasible(Validate(inner).value(), without_, device_);
  const copy::Desc copied{.type_src = DataType::kQ8_0, .rows = 320, .cols = 256};
  const auto copying = Choose(Feasible(copy::Validate(copied).value(), copies_, device_), nullptr);
  ASSERT_TRUE(copying);
  for (const LaunchSpec& spec : SpecsOf(unpack, desc)) {
    int matching = 0;
    for (const GemmCandidate& candidate : products.all()) {
      for (const LaunchSpec& step : candidate.specs) {
        const std::string own = candidate.kernel->ConfigText(step.config);
        const std::string text =
            "gemm=" + std::string(candidate.kernel->name()) + (own.empty() ? "" : "[" + own + "]");
        if (step.swizzle != spec.swizzle || step.splits != spec.splits ||
            !SpecText(spec).ends_with(text))
          continue;
        ++matching;
        EXPECT_FLOAT_EQ(spec.predicted_us, step.predicted_us + copying->spec().predicted_us);
      }
    }
    EXPECT_EQ(matching, 1) << SpecText(spec);
  }
}

TEST_F(SequenceTest, TheModelPicksWhatItPicksWithoutSequences) {
  int chosen = 0;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    DeviceSpec device = DetectCpuCappedAt(isa);
    for (const bool fast : {false, true}) {
      if (fast) device.read_gb_s = 200, device.f32_gflop_s = 120, device.i8_gop_s = 500;
      for (int type = 0; type < kDataTypeCount; ++type) {
        for (const std::int32_t m : {1, 4, 64, 512}) {
          for (const Scaling scaling : {Scaling::kOneZero, Scaling::kOneOne}) {
            for (const Pack pack : {kPackPlain, kPackAny}) {
              GemmDesc desc = Problem(static_cast<DataType>(type), m, 320, 512);
              desc.scaling = scaling, desc.pack_b = pack;
              const auto checked = Validate(desc);
              if (!checked) continue;
              const auto with = Choose(Feasible(*checked, gemm_, device), nullptr);
              const auto plain = Choose(Feasible(*checked, without_, device), nullptr);
              ASSERT_EQ(with.has_value(), plain.has_value());
              if (!with) continue;
              EXPECT_EQ(with->kernel().name(), plain->kernel().name()) << KeyOf(desc);
              EXPECT_EQ(SpecText(with->spec()), SpecText(plain->spec())) << KeyOf(desc);
              ++chosen;
            }
          }
        }
      }
    }
  }
  EXPECT_GE(chosen, 200);
}

TEST_F(SequenceTest, WhatItCannotDoIsRefusedWithTheReason) {
  std::string why;
  const auto refused = [&](std::string_view flag, GemmDesc desc) {
    Kernel* kernel = nullptr;
    for (Kernel* one : gemm_.kernels()) {
      if (IsSequence(one->info()) && one->name().ends_with(flag)) kernel = one;
    }
    why.clear();
    return SpecsOf(*kernel, desc, &why).empty();
  };
  if (!device_.Has(kFeatureAvx2)) GTEST_SKIP() << "no AVX2";
  EXPECT_TRUE(refused(".plain.unpack", Problem(DataType::kF32, 4, 64, 64)));
  EXPECT_THAT(why, HasSubstr("type_b = f32"));
  EXPECT_TRUE(refused(".plain.add", Problem(DataType::kF32, 4, 64, 64)));
  EXPECT_THAT(why, HasSubstr("scaling = alpha 1 beta 0"));
  GemmDesc invariant = Problem(DataType::kQ4_0, 4, 64, 64);
  invariant.guarantee = Guarantee::kBatchInvariant;
  EXPECT_TRUE(refused(".plain.unpack", invariant));
  EXPECT_THAT(why, HasSubstr("batch-invariant"));
  GemmDesc deterministic = invariant;
  deterministic.guarantee = Guarantee::kDeterministic;
  EXPECT_FALSE(refused(".plain.unpack", deterministic)) << why;
  // 64 MiB of unpacked weights where 32 are the limit.
  EXPECT_TRUE(refused(".plain.unpack", Problem(DataType::kQ4_0, 4, 4096, 4096)));
  EXPECT_THAT(why, HasSubstr("partials of 33554432 bytes"));
  device_ = DetectCpuCappedAt(Isa::kScalar);
  EXPECT_TRUE(refused(".plain.unpack", Problem(DataType::kQ4_0, 4, 64, 64)));
  EXPECT_THAT(why, HasSubstr("avx2"));
}

TEST_F(SequenceTest, ItIsChosenWherePinnedAndWhereMeasuredFastest) {
  if (!device_.Has(kFeatureAvx2)) GTEST_SKIP() << "no AVX2";
  Kernel& unpack = *Sequences(".unpack").at(0);
  const GemmDesc desc = Problem(DataType::kQ4_1, 100, 96, 64);
  const auto candidates = Feasible(Validate(desc).value(), gemm_, device_);
  const LaunchSpec spec = candidates.Find(unpack.name())->specs.back();
  Pins pins;
  pins.by_problem[{"gemm", KeyOf(desc)}] = {std::string(unpack.name()), SpecText(spec)};
  const auto pinned = Choose(candidates, nullptr, &pins);
  ASSERT_TRUE(pinned) << pinned.error().message;
  EXPECT_EQ(pinned->provenance(), Provenance::kPinned);
  EXPECT_EQ(pinned->spec(), spec);

  Record record;
  record.op = "gemm", record.problem = KeyOf(desc);
  record.scope = {device_.ClassId(), "", MeasurePolicy::kCold};
  record.kernel = unpack.name(), record.fingerprint = unpack.info().fingerprint;
  record.spec = SpecText(spec), record.chosen = true, record.id = "1";
  record.samples = 20, record.median_us = 5, record.low_us = 4.9, record.high_us = 5.1;
  const DispatchCache tuned = BuildCache(std::span(&record, 1), gemm_, record.scope);
  const auto measured = Choose(candidates, &tuned);
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_EQ(measured->provenance(), Provenance::kMeasured);
  EXPECT_EQ(measured->spec(), spec);
  record.fingerprint = "of another build";
  const DispatchCache stale = BuildCache(std::span(&record, 1), gemm_, record.scope);
  EXPECT_EQ(Choose(candidates, &stale)->provenance(), Provenance::kModel);

  const auto plan = Bind(*pinned);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_GE(plan->workspace().partials, std::size_t{96} * 64 * 4);
  TestProblem problem(desc, {});
  auto owned = OwnedWorkspace::Make(plan->workspace(), HostDevice());
  ASSERT_TRUE(owned);
  ASSERT_EQ(problem.RunAndCheck(unpack, spec, SerialExecutor()), "");
  const auto launched = problem.ResultBytes();
  ASSERT_TRUE(tilewright::Run(*plan, problem.args(), owned->get(), {}));
  EXPECT_EQ(problem.ResultBytes(), launched) << "the plan of the steps and their direct launch";
  Workspace small = owned->get();
  small.partials_size = 64;
  EXPECT_FALSE(plan->Launch(problem.args(), small, {}));
}

/// A changed kernel makes what was measured of the sequences stale that may use it.
TEST_F(SequenceTest, ItsFingerprintIsMadeOfThoseOfAllItsSteps) {
  const auto fingerprint_of = [&](const char* changed) {
    Registry steps, sequences;
    for (const char* name : {"gemm.one", "gemm.two"}) {
      test::FakeKernel::Setup setup = test::F32Setup(name);
      if (std::string_view(changed) == name) setup.fingerprint = "f2";
      test::AddFake(steps, setup);
    }
    sequence::AddUnpackGemm(sequences, steps.kernels(), copies_.kernels());
    return sequences.kernels().front()->info().fingerprint;
  };
  const std::string standing = fingerprint_of("none");
  EXPECT_EQ(fingerprint_of("none"), standing);
  EXPECT_NE(fingerprint_of("gemm.one"), standing);
  EXPECT_NE(fingerprint_of("gemm.two"), standing);
}

TEST_F(SequenceTest, AKernelInQuarantineIsNoStepEither) {
  const GemmDesc desc = Problem(DataType::kQ8_0, 64, 32, 64);
  Kernel& sequence = *Sequences(".unpack").front();
  const std::vector<LaunchSpec> all = SpecsOf(sequence, desc);
  ASSERT_FALSE(all.empty());
  GemmDesc inner = desc;  // the product of the unpacked weights
  inner.type_b = DataType::kF32;
  const std::string family = OpTraits<GemmOp>::QuarantineKey(inner);
  Quarantine quarantine;
  FeasibleOptions options;
  options.quarantine = &quarantine;
  const auto offered = [&] {
    const auto candidates = Feasible(Validate(desc).value(), gemm_, device_, options);
    return *candidates.Find(sequence.name());
  };
  EXPECT_EQ(offered().specs.size(), all.size());
  const Kernel* failed = nullptr;
  for (Kernel* kernel : without_.kernels()) {
    if (SpecText(all.front()).find(std::string(kernel->name())) == std::string::npos) continue;
    failed = kernel;
    quarantine.Add(std::string(kernel->name()), kernel->info().fingerprint, family, "wrong");
  }
  ASSERT_NE(failed, nullptr);
  const auto fewer = offered();
  EXPECT_LT(fewer.specs.size(), all.size());
  for (const LaunchSpec& spec : fewer.specs) {
    EXPECT_THAT(SpecText(spec), Not(HasSubstr("gemm=" + std::string(failed->name()))));
  }
  for (Kernel* kernel : without_.kernels())
    quarantine.Add(std::string(kernel->name()), kernel->info().fingerprint, family, "wrong");
  EXPECT_FALSE(offered().feasible());
}

TEST_F(SequenceTest, AStepWhoseConfigurationDoesNotFitIsNotOffered) {
  class Wide final : public test::FakeKernel {
   public:
    using FakeKernel::FakeKernel;
    std::vector<LaunchSpec> Specs(const GemmDesc&, const DeviceSpec&,
                                  const LaunchLimits&) const override {
      std::vector<LaunchSpec> specs(3);
      specs[1].config.words = {7, 8, 9};
      specs[2].config.words = {7, 8, 9, 10};
      return specs;
    }
    std::span<const ConfigField> ConfigFields() const override {
      static constexpr ConfigField kFields[] = {{"x", 0, 99}, {"y", 0, 99}, {"z", 0, 99}};
      return kFields;
    }
  };
  Registry steps;
  ASSERT_TRUE(steps.Add(std::make_unique<Wide>(test::F32Setup("gemm.wide"))));
  sequence::AddUnpackGemm(gemm_, {}, copies_.kernels());  // nothing to multiply with: adds nothing
  Registry sequences;
  sequence::AddUnpackGemm(sequences, steps.kernels(), copies_.kernels());
  const auto candidates =
      Feasible(Validate(Problem(DataType::kQ8_0, 2, 32, 32)).value(), sequences, device_);
  const std::vector<LaunchSpec>& specs = candidates.all().front().specs;
  ASSERT_EQ(specs.size(), 2u);
  const std::string text = SpecText(specs[1]);
  EXPECT_THAT(text, HasSubstr("gemm=gemm.wide[x=7 y=8 z=9]"));
  EXPECT_EQ(ParseSpec(text, sequences.kernels().front()), specs[1]);
}

}  // namespace
}  // namespace tilewright
