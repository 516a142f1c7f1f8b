#include "device/cpu/cpuid.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tilewright {
namespace {

constexpr std::uint32_t kAmxAll = kFeatureAmxTile | kFeatureAmxInt8 | kFeatureAmxBf16;
constexpr std::uint32_t kAvx512All = kFeatureAvx512 | kFeatureAvx512Vnni | kFeatureAvx512Bf16;

/// A processor with everything, under a system that saves everything.
CpuidRegisters SapphireRapids() {
  CpuidRegisters r;
  r.leaf1_ecx = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29;
  r.leaf7_ebx = 1u << 3 | 1u << 5 | 1u << 8 | 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
  r.leaf7_ecx = 1u << 1 | 1u << 11;
  r.leaf7_edx = 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25;
  r.leaf7_1_eax = 1u << 5;
  r.xcr0 = 0x600e7;
  return r;
}

TEST(CpuidTest, AFullProcessorHasEveryFeature) {
  EXPECT_EQ(FeaturesOf(SapphireRapids()), kFeatureAvx2 | kAvx512All | kAmxAll);
}

TEST(CpuidTest, AStateTheSystemDoesNotSaveTakesItsFeaturesAway) {
  CpuidRegisters r = SapphireRapids();
  r.xcr0 = 0xe7;
  EXPECT_EQ(FeaturesOf(r), kFeatureAvx2 | kAvx512All);
  r.xcr0 = 0x67;  // opmask and upper halves, but not the upper sixteen registers
  EXPECT_EQ(FeaturesOf(r), kFeatureAvx2);
  r.xcr0 = 0x3;
  EXPECT_EQ(FeaturesOf(r), 0u);
  r.xcr0 = 0;
  EXPECT_EQ(FeaturesOf(r), 0u);
  r.xcr0 = 0x200e7;  // tile configuration without tile data
  EXPECT_EQ(FeaturesOf(r), kFeatureAvx2 | kAvx512All);
}

TEST(CpuidTest, EveryBitOfALevelIsNeeded) {
  for (const int bit : {16, 17, 28, 30, 31}) {
    CpuidRegisters r = SapphireRapids();
    r.leaf7_ebx &= ~(1u << bit);
    EXPECT_EQ(FeaturesOf(r), kFeatureAvx2) << bit;
  }
  for (const int bit : {3, 5, 8}) {
    CpuidRegisters r = SapphireRapids();
    r.leaf7_ebx &= ~(1u << bit);
    EXPECT_EQ(FeaturesOf(r), 0u) << bit;
  }
  for (const int bit : {12, 28, 29}) {
    CpuidRegisters r = SapphireRapids();
    r.leaf1_ecx &= ~(1u << bit);
    EXPECT_EQ(FeaturesOf(r), 0u) << bit;
  }
  CpuidRegisters without_vbmi = SapphireRapids();
  without_vbmi.leaf7_ecx &= ~(1u << 1);
  EXPECT_EQ(FeaturesOf(without_vbmi), kFeatureAvx2 | kAvx512All);
  CpuidRegisters without_fp16 = SapphireRapids();
  without_fp16.leaf7_edx &= ~(1u << 23);
  EXPECT_EQ(FeaturesOf(without_fp16), kFeatureAvx2 | kAvx512All);
  CpuidRegisters skylake = SapphireRapids();
  skylake.leaf7_ecx = skylake.leaf7_edx = skylake.leaf7_1_eax = 0;
  EXPECT_EQ(FeaturesOf(skylake), kFeatureAvx2 | kFeatureAvx512);
}

TEST(AmxRefusalTest, EveryReasonOfTheKernelIsExplained) {
  const std::pair<int, const char*> reasons[] = {{EINVAL, "Linux before 5.16"},
                                                 {ENOSPC, "sigaltstack"},
                                                 {EOPNOTSUPP, "hypervisor"},
                                                 {ENOSYS, "sandbox"},
                                                 {EPERM, "sandbox"}};
  for (const auto& [reason, hint] : reasons) {
    const std::string text = AmxRefusal(reason);
    EXPECT_NE(text.find(std::strerror(reason)), std::string::npos) << text;
    EXPECT_NE(text.find(hint), std::string::npos) << text;
  }
  EXPECT_EQ(AmxRefusal(EIO),
            std::string("the system refuses the AMX tile registers: ") + std::strerror(EIO));
}

TEST(CpuidTest, ACapTakesEverythingAboveIt) {
  const std::uint32_t all = FeaturesOf(SapphireRapids());
  EXPECT_EQ(CapFeatures(all, Isa::kAmx), all);
  EXPECT_EQ(CapFeatures(all, Isa::kAvx512), kFeatureAvx2 | kAvx512All);
  EXPECT_EQ(CapFeatures(all, Isa::kAvx2), static_cast<std::uint32_t>(kFeatureAvx2));
  EXPECT_EQ(CapFeatures(all, Isa::kScalar), 0u);
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    EXPECT_EQ(IsaOf(CapFeatures(all, isa)), isa);
  }
}

}  // namespace
}  // namespace tilewright
