#include "engine/op_stages.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tilewright {
namespace {

// Two operations that the engine has never heard of.
struct BlurDesc {
  int width = 0;
  Guarantee guarantee = Guarantee::kFastest;
  auto operator<=>(const BlurDesc&) const = default;
};
struct BlurArgs {};
std::string KeyOf(const BlurDesc& desc) { return "width=" + std::to_string(desc.width); }

struct HashDesc {
  long bytes = 0;
  auto operator<=>(const HashDesc&) const = default;
};
struct HashArgs {
  int* out = nullptr;
};
std::string KeyOf(const HashDesc& desc) { return "bytes=" + std::to_string(desc.bytes); }

template <class Desc, class Args>
class Fake final : public OpKernel<Desc, Args> {
 public:
  Fake(KernelInfo info, double us, int limit)
      : OpKernel<Desc, Args>(std::move(info)), us_(us), limit_(limit) {}
  std::optional<Rejection> IsFeasible(const Desc& desc) const override {
    if constexpr (requires { desc.width; }) {
      if (desc.width > limit_) {
        return Rejection{Reason::kShape, "width = " + std::to_string(desc.width),
                         "width <= " + std::to_string(limit_)};
      }
    }
    return std::nullopt;
  }
  double EstimateUs(const Desc&, const DeviceSpec&) const override { return us_; }
  Status Launch(const Args&, Stream) const override { return {}; }

 private:
  double us_;
  int limit_;
};

KernelInfo Info(std::string name) {
  KernelInfo info;
  info.name = std::move(name);
  return info;
}

using Blur = Fake<BlurDesc, BlurArgs>;

TEST(OpStages, TheModelRanksTheFeasibleKernels) {
  OpRegistry<BlurDesc, BlurArgs> registry;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.slow"), 9.0, 100)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.fast"), 2.0, 10)));
  DeviceSpec device;
  EXPECT_EQ(ChooseOp(BlurDesc{8}, registry, device)->kernel().name(), "blur.fast");
  const auto choice = ChooseOp(BlurDesc{50}, registry, device);
  EXPECT_EQ(choice->kernel().name(), "blur.slow");
  EXPECT_EQ(choice->provenance(), Provenance::kModel);
  EXPECT_EQ(choice->problem().width, 50);
}

TEST(OpStages, NothingFeasibleNamesEveryKernelsReason) {
  OpRegistry<BlurDesc, BlurArgs> registry;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.a"), 9.0, 100)));
  KernelInfo vnni = Info("blur.b");
  vnni.features = kFeatureAvx512Vnni;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(vnni, 1.0, 1000)));
  DeviceSpec device;
  device.features = kFeatureAvx2;
  const auto choice = ChooseOp(BlurDesc{500}, registry, device);
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(choice.error().message,
            "no kernel can run this problem:\n  blur.a: shape: width = 500, needs width <= 100\n"
            "  blur.b: device: features avx2, needs avx512vnni");
}

TEST(OpStages, TheReferenceRunsOnlyWhenNothingElseCan) {
  OpRegistry<BlurDesc, BlurArgs> registry;
  KernelInfo reference = Info("blur.reference");
  reference.reference = true;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(reference, 0.1, 100000)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.fast"), 2.0, 10)));
  EXPECT_EQ(ChooseOp(BlurDesc{8}, registry, DeviceSpec{})->kernel().name(), "blur.fast");
  const auto choice = ChooseOp(BlurDesc{11}, registry, DeviceSpec{});
  EXPECT_EQ(choice->kernel().name(), "blur.reference");
  EXPECT_EQ(choice->provenance(), Provenance::kDefault);
}

TEST(OpStages, EqualTimesAndUselessModelsFallToAStableOrder) {
  OpRegistry<BlurDesc, BlurArgs> registry;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.nan"), NAN, 100)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.negative"), -5, 100)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.c"), 3.0, 100)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(Info("blur.b"), 3.0, 100)));
  EXPECT_EQ(ChooseOp(BlurDesc{8}, registry, DeviceSpec{})->kernel().name(), "blur.b");
}

TEST(OpStages, ProvidersQuarantineAndGuaranteesFilter) {
  OpRegistry<BlurDesc, BlurArgs> registry;
  KernelInfo vendor = Info("blur.vendor"), invariant = Info("blur.invariant");
  vendor.provider = Provider::kVendor;
  vendor.fingerprint = "v3";
  invariant.batch_invariant = true;
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(vendor, 1.0, 100)));
  ASSERT_TRUE(registry.Add(std::make_unique<Blur>(invariant, 5.0, 100)));
  const DeviceSpec device;
  EXPECT_EQ(ChooseOp(BlurDesc{8}, registry, device)->kernel().name(), "blur.vendor");
  EXPECT_EQ(ChooseOp(BlurDesc{8}, registry, device, Bit(Provider::kOwn))->kernel().name(),
            "blur.invariant");
  EXPECT_EQ(ChooseOp(BlurDesc{8, Guarantee::kBatchInvariant}, registry, device)->kernel().name(),
            "blur.invariant");

  Quarantine quarantine;
  quarantine.Add("blur.vendor", "v3", "width=8", "wrong: off by one at 3");
  FeasibleOptions options;
  options.quarantine = &quarantine;
  const auto candidates = FeasibleOp(BlurDesc{8}, registry, device, options);
  ASSERT_FALSE(candidates.Find("blur.vendor")->feasible());
  EXPECT_EQ(candidates.Find("blur.vendor")->rejection->reason, Reason::kQuarantined);
  EXPECT_EQ(candidates.Find("blur.vendor")->rejection->have, "wrong: off by one at 3");
  EXPECT_TRUE(FeasibleOp(BlurDesc{9}, registry, device, options).Find("blur.vendor")->feasible());
}

TEST(OpStages, AQuarantineEndsWithTheKernelsFingerprint) {
  Quarantine quarantine;
  quarantine.Add("k", "old", "width=8", "crash");
  KernelInfo info = Info("k");
  info.fingerprint = "new";
  EXPECT_EQ(quarantine.Find(info, "width=8"), nullptr);
  info.fingerprint = "old";
  EXPECT_NE(quarantine.Find(info, "width=8"), nullptr);
}

TEST(OpStages, TheSameTemplatesServeAnotherOperation) {
  OpRegistry<HashDesc, HashArgs> registry;
  ASSERT_TRUE((registry.Add(std::make_unique<Fake<HashDesc, HashArgs>>(Info("hash.x"), 1.0, 0))));
  const auto choice = ChooseOp(HashDesc{1 << 20}, registry, DeviceSpec{});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->kernel().name(), "hash.x");
  EXPECT_TRUE(choice->kernel().Launch(HashArgs{}, Stream{}));
}

TEST(OpStages, ADeviceOfAnotherKindRefuses) {
  OpRegistry<HashDesc, HashArgs> registry;
  KernelInfo cuda = Info("hash.cuda");
  cuda.device = DeviceKind::kCuda;
  ASSERT_TRUE((registry.Add(std::make_unique<Fake<HashDesc, HashArgs>>(cuda, 1.0, 0))));
  const auto choice = ChooseOp(HashDesc{1}, registry, DeviceSpec{});
  ASSERT_FALSE(choice);
  EXPECT_NE(choice.error().message.find("device: device is cpu, needs cuda"), std::string::npos);
}

// The types on the right of an arrow cannot be made elsewhere.
static_assert(!std::is_default_constructible_v<CheckedGemm>);
static_assert(!std::is_constructible_v<CheckedGemm, GemmDesc>);
static_assert(!std::is_default_constructible_v<GemmCandidates>);
static_assert(!std::is_default_constructible_v<GemmChoice>);
static_assert(!std::is_default_constructible_v<GemmPlan>);
static_assert(std::is_trivially_copyable_v<GemmPlan>);

}  // namespace
}  // namespace tilewright
