#include <gtest/gtest.h>

#include "tilewright/device.h"
#include "tilewright/features.h"

namespace tilewright {
namespace {

DeviceSpec Genoa() {
  DeviceSpec spec;
  spec.name = "AMD EPYC 9R14";
  spec.features = kFeatureAvx2 | kFeatureAvx512 | kFeatureAvx512Vnni | kFeatureAvx512Bf16;
  spec.isa = Isa::kAvx512;
  spec.cores = 2;
  spec.l2_bytes = 1 << 20;
  spec.llc_bytes = 32 << 20;
  return spec;
}

TEST(DeviceSpecTest, TheClassNamesWhatAMeasurementDependsOn) {
  EXPECT_EQ(Genoa().ClassId(), "cpu/AMD EPYC 9R14/avx512+vnni+bf16/2 threads/l2 1024K/llc 32768K");
}

TEST(DeviceSpecTest, MachinesThatDifferInSpeedDifferInClassAndOthersDoNot) {
  const std::string id = Genoa().ClassId();
  DeviceSpec spec = Genoa();
  spec.read_gb_s = 99;  // calibration noise must not split the class
  EXPECT_EQ(spec.ClassId(), id);
  spec.cores = 4;
  EXPECT_NE(spec.ClassId(), id);
  spec = Genoa();
  spec.isa = Isa::kAvx2;
  spec.features = kFeatureAvx2;
  EXPECT_NE(spec.ClassId(), id);
  spec = Genoa();
  spec.llc_bytes = 16 << 20;
  EXPECT_NE(spec.ClassId(), id);
}

TEST(DeviceSpecTest, EveryFeatureHasOneName) {
  std::uint32_t named = 0;
  for (const FeatureName& feature : FeatureNames()) {
    EXPECT_EQ(named & feature.bit, 0u) << feature.name;
    named |= feature.bit;
    EXPECT_EQ(FeatureList(feature.bit), feature.name);
  }
  EXPECT_EQ(named, kFeatureAmxBf16 * 2 - 1);  // the highest bit and all below it
  EXPECT_EQ(FeatureList(0), "none");
  EXPECT_EQ(FeatureList(kFeatureAvx512Vnni | kFeatureAvx2), "avx2+avx512vnni");
}

TEST(DeviceSpecTest, HasAsksForEveryBit) {
  EXPECT_TRUE(Genoa().Has(0));
  EXPECT_TRUE(Genoa().Has(kFeatureAvx512 | kFeatureAvx512Vnni));
  EXPECT_FALSE(Genoa().Has(kFeatureAvx512 | kFeatureAmxTile));
}

}  // namespace
}  // namespace tilewright
