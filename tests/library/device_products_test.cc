// Products measured on a device whose memory the host cannot access: the gate that the CPU's
// measurer has, and operands that are copied there and back.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "core/block_format.h"
#include "core/numeric.h"
#include "device/fake/fake_device.h"
#include "graph/fake/async_kernels.h"
#include "ops/gemm/base/fake_kernel.h"
#include "tilewright/tilewright.h"
#include "tilewright/tune_gemm.h"

namespace tilewright {
namespace {

class DeviceProducts : public testing::Test {
 protected:
  DeviceProducts() {
    auto device = FakeDevice::Create(DetectCpuCappedAt(Isa::kAmx), {.seed = 3});
    EXPECT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
  }
  std::unique_ptr<GemmMeasurer> Measuring(MeasurePolicy policy = MeasurePolicy::kWarm) {
    return MakeMeasurer<GemmOp>(*device_, {.policy = policy, .llc_bytes = 64 << 10});
  }
  GemmCandidates Look(const Kernels& kernels, const GemmDesc& desc) const {
    return Feasible(*Validate(desc), kernels.gemm(), device_->spec(), FeasibleOptions{});
  }

  /// The verdict on a kernel that is right and then does `after` to its result.
  Tuner::Outcome OutcomeOf(std::function<Status(const GemmArgs&)> after) {
    Kernels kernels;
    test::FakeKernel right(test::F32Setup("gemm.right"));
    auto setup = test::F32Setup("gemm.fake");
    setup.launch = [&](const GemmArgs& args, const LaunchSpec& spec) -> Status {
      Workspace none;
      if (Status s = right.Launch(args, spec, none, {}); !s) return s;
      return after(args);
    };
    test::AddFake(kernels.gemm(), setup);
    const auto async = MakeAsyncKernels(kernels, *device_);
    LaunchSpec spec;
    spec.kernel = async->gemm().kernels()[0];
    const auto measurer = Measuring();
    EXPECT_TRUE(measurer->Prepare(test::F32Problem(5, 33, 40)));
    return measurer->Check(spec);
  }

  std::unique_ptr<FakeDevice> device_;
};

TEST_F(DeviceProducts, KernelsOfEveryLayoutPassTheCheckAndAreTimed) {
  const auto inner = MakeCpuKernels();
  const auto kernels = MakeAsyncKernels(*inner, *device_);
  std::set<Pack> packs;
  int checked = 0;
  for (const MeasurePolicy policy : {MeasurePolicy::kCold, MeasurePolicy::kWarm}) {
    const auto measurer = Measuring(policy);
    for (const char* text : {"m=5 n=96 k=256 type_b=q4_1 pack_b=any precision=i8 scaling=one_one",
                             "m=1 n=64 k=96 type_b=f32 pack_b=any scaling=any",
                             "m=3 n=64 k=64 type_b=bf16 pack_b=any epilogue=gated_silu"}) {
      const GemmDesc desc = *ParseProblem<GemmOp>(text);
      const Status prepared = measurer->Prepare(desc);
      ASSERT_TRUE(prepared) << prepared.error().message;
      const GemmCandidates candidates = Look(*kernels, desc);
      for (const GemmCandidate& candidate : candidates.all()) {
        if (!candidate.feasible()) continue;
        const LaunchSpec& spec = candidate.specs[0];
        const Tuner::Outcome outcome = measurer->Check(spec);
        EXPECT_EQ(outcome.verdict, Verdict::kOk)
            << candidate.kernel->name() << " on " << text << ": " << outcome.evidence;
        EXPECT_FALSE(outcome.skipped) << outcome.evidence;
        EXPECT_GT(measurer->Time(spec, 3).us, 0) << candidate.kernel->name();
        packs.insert(candidate.kernel->desc().pack_b);
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 10);
  EXPECT_GT(packs.size(), 2u);
}

TEST_F(DeviceProducts, WhatIsWrongIsSeenWithItsPlace) {
  const auto right = OutcomeOf([](const GemmArgs&) -> Status { return {}; });
  EXPECT_EQ(right.verdict, Verdict::kOk) << right.evidence;
  const auto wrong = OutcomeOf([](const GemmArgs& args) -> Status {
    static_cast<float*>(args.d)[3 * 33 + 7] += 100;
    return {};
  });
  EXPECT_EQ(wrong.verdict, Verdict::kWrong);
  EXPECT_EQ(wrong.evidence.substr(0, 10), "d[3, 7] = ");
  for (const int outside : {-1, 5 * 33}) {
    const auto guard = OutcomeOf([outside](const GemmArgs& args) -> Status {
      static_cast<float*>(args.d)[outside] = 0;
      return {};
    });
    EXPECT_EQ(guard.verdict, Verdict::kGuard) << outside;
  }
  const auto unsteady = OutcomeOf([calls = 0](const GemmArgs& args) mutable -> Status {
    // The third launch repeats the second.
    if (++calls == 3) static_cast<float*>(args.d)[0] *= 1 + 1e-6f;
    return {};
  });
  EXPECT_EQ(unsteady.verdict, Verdict::kWrong);
  EXPECT_EQ(unsteady.evidence, "two runs differ, but the kernel declares that it is deterministic");
  const auto error =
      OutcomeOf([](const GemmArgs&) -> Status { return Fail(ErrorCode::kInternal, "no luck"); });
  EXPECT_EQ(error.verdict, Verdict::kError);
  EXPECT_EQ(error.evidence, "no luck");
}

/// Unpacks q8_0 to bf16 and multiplies, as tensor cores do it; as a kernel of either device.
class Rounding final : public Kernel {
 public:
  Rounding(DeviceKind device, float wrong) : Kernel(Info(device), Desc()), wrong_(wrong) {}
  double EstimateUs(const GemmDesc&, const LaunchSpec&, const DeviceSpec&) const override {
    return 1;
  }
  Status Launch(const GemmArgs& args, const LaunchSpec&, Workspace&, Stream) override {
    const auto value = [](const void* data, std::int64_t i) {
      return BF16ToF32(static_cast<const std::uint16_t*>(data)[i]);
    };
    const std::int64_t k = args.b_layout.rows;
    std::vector<float> column(static_cast<std::size_t>(k));
    for (std::int64_t j = 0; j < args.b_layout.cols; ++j) {
      const auto* packed = static_cast<const std::byte*>(args.b) +
                           static_cast<std::size_t>(j) * BytesOf(DataType::kQ8_0, k);
      if (Status s = DecodeRow(DataType::kQ8_0, packed, k, column.data()); !s) return s;
      for (std::int64_t i = 0; i < args.a_layout.rows; ++i) {
        double sum = wrong_;
        for (std::int64_t l = 0; l < k; ++l) {
          const float weight = BF16ToF32(F32ToBF16(column[static_cast<std::size_t>(l)]));
          sum += double{value(args.a, i * args.a_layout.ld + l)} * double{weight};
        }
        static_cast<float*>(args.d)[i * args.d_layout.ld + j] = static_cast<float>(sum);
      }
    }
    return {};
  }

 private:
  static KernelInfo Info(DeviceKind device) {
    KernelInfo info;
    info.name = "gemm.rounding";
    info.device = device;
    return info;
  }
  static KernelDesc Desc() {
    return {.type_a = Bit(DataType::kBF16),
            .type_b = Bit(DataType::kQ8_0),
            .type_c = Bit(DataType::kF32)};
  }
  float wrong_;
};

TEST_F(DeviceProducts, OfAGpuMayRoundBlocksToTheBitsOfTheActivationsAndNoMore) {
  const auto verdict = [this](DeviceKind kind, float wrong) {
    Kernels kernels;
    EXPECT_TRUE(kernels.gemm().Add(std::make_unique<Rounding>(kind, wrong)));
    const auto async = MakeAsyncKernels(kernels, *device_);
    LaunchSpec spec;
    spec.kernel = async->gemm().kernels()[0];
    const auto measurer = Measuring();
    EXPECT_TRUE(measurer->Prepare(*ParseProblem<GemmOp>("m=5 n=40 k=512 type_a=bf16 type_b=q8_0")));
    return measurer->Check(spec).verdict;
  };
  EXPECT_EQ(verdict(DeviceKind::kCuda, 0), Verdict::kOk);
  EXPECT_EQ(verdict(DeviceKind::kCuda, 0.05f), Verdict::kWrong);
  EXPECT_EQ(verdict(DeviceKind::kCpu, 0), Verdict::kWrong);
}

TEST_F(DeviceProducts, ColdWeightsRotateAndWarmOnesDoNot) {
  for (const MeasurePolicy policy : {MeasurePolicy::kCold, MeasurePolicy::kWarm}) {
    std::set<const void*> seen;
    Kernels kernels;
    auto setup = test::F32Setup("gemm.spy");
    setup.launch = [&seen](const GemmArgs& args, const LaunchSpec&) -> Status {
      seen.insert(args.b);
      return {};
    };
    test::AddFake(kernels.gemm(), setup);
    const auto async = MakeAsyncKernels(kernels, *device_);
    LaunchSpec spec;
    spec.kernel = async->gemm().kernels()[0];
    const auto measurer = Measuring(policy);
    ASSERT_TRUE(measurer->Prepare(test::F32Problem(1, 64, 128)));  // weights of 32 KiB
    EXPECT_GT(measurer->Time(spec, 50).us, 0);
    if (policy == MeasurePolicy::kCold) {
      EXPECT_GE(seen.size(), 3u * 64 / 32);
    } else {
      EXPECT_EQ(seen.size(), 1u);
    }
  }
}

}  // namespace
}  // namespace tilewright
